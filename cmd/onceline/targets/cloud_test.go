package targets

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

// cloudRole is the variable that makes a test the client of a cloud.
const cloudRole = "ONCELINE_TEST_CLOUD"

// cloudTask is what the client is to do.
type cloudTask struct {
	URL    string
	Claims []string
	Break  bool // the run is interrupted at its first finding
	Plant  bool // entities are left behind, and nothing else is done
}

// cloudResult is what it found.
type cloudResult struct {
	Target report.Target
	Exit   int
	Said   []string
	Error  string // of Plant
}

// asClient runs a task in a process of its own, whose environment has nothing of
// this one's credentials and roots.
func asClient(t *testing.T, task cloudTask, env []string) cloudResult {
	t.Helper()
	spec, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "result.json")
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestCloudClient$", "-test.timeout=15m")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		for _, vendor := range []string{"AWS_", "GOOGLE_", "AZURE_", "PUBSUB_", "SSL_CERT"} {
			if strings.HasPrefix(v, vendor) {
				return true
			}
		}
		return false
	}), cloudRole+"="+string(spec), "ONCELINE_TEST_CLOUD_RESULT="+file, "AWS_EC2_METADATA_DISABLED=true", "HOME="+t.TempDir())
	cmd.Env = append(cmd.Env, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("the client: %v\n%s", err, out.String())
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if all := append(text, out.Bytes()...); bytes.Contains(all, []byte(cloudSecret)) || bytes.Contains(all, []byte(url.QueryEscape(cloudSecret))) {
		t.Error("the secret key is in what the run says")
	}
	var r cloudResult
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCloudClient is the other side of the tests below: asClient runs it. By itself
// it shows that a URL alone starts nothing.
func TestCloudClient(t *testing.T) {
	t.Parallel()
	spec := os.Getenv(cloudRole)
	if spec == "" {
		if _, err := Cloud("sqs://", nil); err != nil {
			t.Fatal(err)
		}
		return
	}
	var task cloudTask
	if err := json.Unmarshal([]byte(spec), &task); err != nil {
		t.Fatal(err)
	}
	var r cloudResult
	target, err := Cloud(task.URL, func(line string) { r.Said = append(r.Said, line) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if task.Plant {
		r.Error = fmt.Sprint(plant(ctx, target))
	} else {
		o := conformance.Options{Claims: task.Claims, Seed: 1}
		if task.Break {
			o.Progress = func(string, report.Finding, int, int) { cancel() }
		}
		found, err := conformance.Run(ctx, target, o)
		if err != nil {
			t.Fatal(err)
		}
		r.Target, r.Exit = found.Targets[0], found.Summary.Exit
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("ONCELINE_TEST_CLOUD_RESULT"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	// TestMain looks for goroutines that are left. After an interrupted run there
	// may be an HTTP client's that still dials for a request which has ended.
	os.Exit(0)
}

// plant leaves behind what a probe may: an entity that it was given, and one beside
// it that the suite knows nothing of. Then it ends the run.
func plant(ctx context.Context, target conformance.Target) error {
	i, err := target.Start(ctx)
	if err != nil {
		return err
	}
	c, err := i.Open(ctx)
	if err != nil {
		return err
	}
	given := i.Entity("given")
	beside := given
	beside.Topic = strings.Replace(given.Topic, "given", "beside", 1)
	beside.Subscription = strings.Replace(given.Subscription, "given", "beside", 1)
	for _, e := range []broker.Entity{given, beside} {
		if err := c.Ensure(ctx, e); err != nil {
			return err
		}
	}
	return errors.Join(c.Close(ctx), i.Close(ctx))
}

// quickClaims wait for no lease, so that they can be asked in real time.
var quickClaims = []string{"publish.dedup.scope", "publish.batch.partial", "publish.dedup.verdict", "settle.answer", "deliver.deadletter"}

// TestCloud: behind TLS and credentials, each cloud's path finds what the model
// gives, and leaves nothing; not after an interrupted run either, nor what the
// probes forgot.
func TestCloud(t *testing.T) {
	t.Parallel()
	for name, start := range modelClouds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t)
			requests := new(counter)
			m.model.Trace(requests.line)

			r := asClient(t, cloudTask{URL: m.url, Claims: quickClaims}, m.env)
			if r.Exit != 0 || r.Target.Error != "" || r.Target.Kind != report.KindCloud {
				t.Errorf("exit %d, %s target: %s", r.Exit, r.Target.Kind, r.Target.Error)
			}
			if len(r.Target.Findings) < len(quickClaims) {
				t.Errorf("%d findings", len(r.Target.Findings))
			}
			for _, f := range r.Target.Findings {
				if f.Verdict != report.Equal && f.Verdict != report.NotApplicable {
					t.Errorf("%s: %s %q: %s", f.Claim, f.Verdict, f.Observed, f.Reason)
				}
			}
			if made := requests.made(); made == 0 {
				t.Error("the run made nothing")
			}
			if left := m.left(t); len(left) > 0 {
				t.Errorf("left after a run: %v", left)
			}

			r = asClient(t, cloudTask{URL: m.url, Claims: quickClaims, Break: true}, m.env)
			if r.Exit != report.ExitUnknown || r.Target.Error != "" {
				t.Errorf("an interrupted run: exit %d: %s", r.Exit, r.Target.Error)
			}
			if left := m.left(t); len(left) > 0 {
				t.Errorf("left after an interrupted run: %v", left)
			}

			r = asClient(t, cloudTask{URL: m.url, Plant: true}, m.env)
			if r.Error != "<nil>" || !strings.Contains(strings.Join(r.Said, "\n"), "the cleanup deleted ") {
				t.Errorf("what was planted: %s, %q", r.Error, r.Said)
			}
			if left := m.left(t); len(left) > 0 {
				t.Errorf("left after the cleanup: %v", left)
			}
		})
	}
}

// TestCloudRefused: with wrong credentials nothing is made, and the run says that it
// could not find out anything.
func TestCloudRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sqs", "pubsub", "servicebus"} {
		start := modelClouds[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t)
			r := asClient(t, cloudTask{URL: m.wrong.url, Claims: quickClaims}, m.wrong.env)
			if r.Exit != report.ExitUnknown || len(r.Target.Findings) != 0 || !strings.Contains(r.Target.Error, m.wrong.says) {
				t.Errorf("exit %d, %d findings: %q, want %q in it", r.Exit, len(r.Target.Findings), r.Target.Error, m.wrong.says)
			}
			if len(r.Said) > 0 {
				t.Errorf("it said %q", r.Said)
			}
			if left := m.left(t); len(left) > 0 {
				t.Errorf("made: %v", left)
			}
		})
	}
}

// TestCloudLeftBehind: a cleanup that fails is told with the names of what is left,
// and fails the run.
func TestCloudLeftBehind(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sqs", "pubsub", "servicebus"} {
		start := modelClouds[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t)
			i := m.model.Inject(localstack.Fault{Op: localstack.Any, API: m.api, Kind: localstack.Error, Code: m.code})
			if err := i.Err(); err != nil {
				t.Fatal(err)
			}
			r := asClient(t, cloudTask{URL: m.url, Claims: quickClaims[:1]}, m.env)
			left := m.left(t)
			if len(left) == 0 {
				t.Fatal("the fault did nothing")
			}
			if r.Exit != report.ExitUnknown || !strings.Contains(r.Target.Error, "LEFT BEHIND") {
				t.Errorf("exit %d: %s", r.Exit, r.Target.Error)
			}
			for _, name := range left {
				if !strings.Contains(r.Target.Error, name[strings.LastIndexByte(name, '/')+1:]) {
					t.Errorf("%s isn't named in %s", name, r.Target.Error)
				}
			}
		})
	}
}

// TestCloudWhole asks all claims in real time, but for SQS's window of five minutes,
// and holds the number of requests to what Bill says: a third of it, for a service
// is slower than a model.
func TestCloudWhole(t *testing.T) {
	t.Parallel()
	if os.Getenv("ONCELINE_LOCAL") != "1" {
		t.Skip("takes minutes: needs ONCELINE_LOCAL=1")
	}
	var claims []string
	for _, c := range conformance.Claims() {
		if c.ID != boundary.PublishDedupWindow {
			claims = append(claims, string(c.ID))
		}
	}
	for name, start := range modelClouds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t)
			requests := new(counter)
			m.model.Trace(requests.line)
			r := asClient(t, cloudTask{URL: m.url, Claims: claims}, m.env)
			for _, f := range r.Target.Findings {
				t.Logf("%-32s %-14s %-14q %5.1f s  %s", f.Claim, f.Verdict, f.Observed, f.Seconds, f.Reason)
				if f.Verdict.Fails() {
					t.Errorf("%s: %s %q: %s", f.Claim, f.Verdict, f.Observed, f.Reason)
				}
			}
			if left := m.left(t); len(left) > 0 || r.Target.Error != "" {
				t.Errorf("left: %v; %s", left, r.Target.Error)
			}
			requests.mu.Lock()
			n := len(requests.lines)
			requests.mu.Unlock()
			t.Logf("%d requests", n)
			if most := cloudRequests[r.Target.Broker]; n > most/3 {
				t.Errorf("%d requests, over a third of the %d that Bill says", n, most)
			}
		})
	}
}

// TestCloudTimes: a cloud's long window has the time that it needs.
func TestCloudTimes(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]struct {
		name            string
		window, atLeast time.Duration
	}{
		"sqs:///?region=eu-central-1":           {"sqs-standard-cloud", 0, 3 * time.Minute},
		"sqs:///?region=eu-central-1&fifo=true": {"sqs-fifo-cloud", 5 * time.Minute, 12 * time.Minute},
		"pubsub:///project?exactly-once=true":   {"pubsub-exactly-once-cloud", 0, 3 * time.Minute},
		"servicebus://ns.servicebus.windows.net": {"servicebus-queue-cloud", 20 * time.Second,
			3 * time.Minute},
		"kafka://broker.example:9092/?mode=share": {"kafka-share-cloud", 0, 3 * time.Minute},
	} {
		got, err := Cloud(raw, nil)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if got.Name != want.name || got.Window != want.window || got.ProbeWithin < want.atLeast || !got.Real || got.Kind != report.KindCloud {
			t.Errorf("%s: %s, window %s, within %s, %s", raw, got.Name, got.Window, got.ProbeWithin, got.Kind)
		}
		if _, ok := Boundaries()[got.Like]; !ok {
			t.Errorf("%s: it is like %q, which is no embedded target", raw, got.Like)
		}
	}
}

func TestPublic(t *testing.T) {
	for _, name := range []string{"AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL", "PUBSUB_EMULATOR_HOST"} {
		t.Setenv(name, "")
	}
	for raw, want := range map[string]bool{
		"sqs:///?region=eu-central-1":                      true,
		"sqs://sqs.eu-central-1.amazonaws.com":             true,
		"sqs://127.0.0.1:4566/?anonymous=true":             false,
		"sqs://key:secret@localhost:4566":                  false,
		"pubsub:///project":                                true,
		"pubsub://127.0.0.1:8085/project":                  false,
		"servicebus://k:v@ns.servicebus.windows.net":       true,
		"servicebus://k:v@127.0.0.1:5673":                  false,
		"nats://10.1.2.3:4222":                             false,
		"nats://8.8.8.8:4222":                              true,
		"nats://token@[::1]:4222":                          false,
		"nats://[fd00::1]:4222":                            false,
		"nats://[2001:db8::1]:4222":                        true,
		"kafka://192.168.0.1:9092,172.16.0.1:9092":         false,
		"kafka://192.168.0.1:9092,broker.example.com:9092": true,
		"rabbitmq://rabbitmq":                              false,
		"rabbitmq://rabbit.home.arpa:5672/":                false,
		"rabbitmq://0.0.0.0":                               true,
		"rabbitmq://u:p%40x@RABBIT.example./v":             true,
		"nonsense":                                         true,
	} {
		if got := Public(raw); got != want {
			t.Errorf("%s: public %v", raw, got)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL", "http://localhost:4566/")
	t.Setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:8085")
	for _, raw := range []string{"sqs:///?region=x", "pubsub:///p"} {
		if Public(raw) {
			t.Errorf("%s: public, and the environment names an emulator", raw)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL_SQS", "https://sqs.example.com")
	if !Public("sqs://") {
		t.Error("the endpoint of the environment is public")
	}
}

func TestBill(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]string{
		"sqs:///?region=eu-central-1&fifo=true":            {"sqs-fifo-cloud", "the vendor's service", "queues", "onceline-", "at most 4000 requests", "12m0s"},
		"pubsub:///project":                                {"pubsub-cloud", "topics and as many subscriptions"},
		"servicebus://k:secret@ns.servicebus.windows.net/": {"ns.servicebus.windows.net", "at most 10000"},
		"nats://token-secret@nats.example.com":             {"nats-cloud", "nats.example.com", "no bound"},
	} {
		got := Bill(raw)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q isn't in %q", raw, w, got)
			}
		}
		if strings.Contains(got, "secret") {
			t.Errorf("%s: it shows the secret: %s", raw, got)
		}
	}
}
