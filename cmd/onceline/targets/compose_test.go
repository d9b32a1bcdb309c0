package targets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
	"github.com/onceline/onceline/localstack/compose"
)

// standIn starts what is embedded in the place of a service, and returns the address
// that the service has in its URL.
func standIn(t *testing.T, service string) string {
	t.Helper()
	var e localstack.Emulator
	var err error
	switch service {
	case "rabbitmq":
		e, err = localstack.StartRabbitMQ(t.Context())
	case "nats":
		e, err = localstack.StartNATS(t.Context())
	case "kafka":
		e, err = localstack.StartKafka(t.Context())
	case "localstack", "elasticmq":
		e, err = localstack.StartSQS(t.Context())
	case "pubsub":
		e, err = localstack.StartPubSub(t.Context())
	case "servicebus":
		e, err = localstack.StartServiceBus(t.Context())
	default:
		t.Fatalf("nothing is embedded for %s", service)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return e.Address()
}

// moved is a URL that leads to another address, its administration and streams too.
func moved(t *testing.T, raw, address string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if q.Has("admin") {
		q.Set("admin", address)
	}
	if q.Has("stream-port") {
		q.Set("stream-port", port)
	}
	u.Host, u.RawQuery = address, q.Encode()
	return u.String()
}

// TestCompose asks each target of docker-compose.yml, with what is embedded in the
// services' places: its URL is understood, faults strike by the proxies in front of
// it, and the answers are the declared ones.
func TestCompose(t *testing.T) {
	t.Parallel()
	claims := []boundary.Claim{boundary.PublishDedupLostResponse, boundary.PublishDedupNewProducer, boundary.SettleLostResponse, boundary.PublishDedupScope}
	var globs []string
	for _, c := range claims {
		globs = append(globs, string(c))
	}
	for _, e := range compose.Endpoints() {
		if e.Name == "" {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			e.URL = moved(t, e.URL, standIn(t, e.Service))
			target := composeTarget(e)
			target.Deviations = nil // of what the model stands in for
			r, err := conformance.Run(t.Context(), target, conformance.Options{Claims: globs, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			got := r.Targets[0]
			if got.Error != "" || got.Absent != "" || len(got.Findings) != len(claims) {
				t.Fatalf("%s%s: %d findings", got.Error, got.Absent, len(got.Findings))
			}
			for _, f := range got.Findings {
				switch {
				case e.Service == "servicebus" && f.Claim != string(boundary.PublishDedupScope):
					if f.Verdict != report.NotVerifiable {
						t.Errorf("%s: %s: nothing can strike there", f.Claim, f.Verdict)
					}
				case f.Verdict != report.Equal && f.Verdict != report.NotApplicable:
					t.Errorf("%s: %s: observed %q, declared %q: %s", f.Claim, f.Verdict, f.Observed, f.Declared, f.Reason)
				}
			}
			if target.Real && e.Service != "kafka" && got.Versions[target.Broker] == "" {
				t.Errorf("no version was found: %v", got.Versions)
			}
		})
	}
}

// TestComposeTransactions: where a broker's transactions are for streams that Ensure made
// for them alone, as NATS's are, the URL asks for that, and the claims have answers.
func TestComposeTransactions(t *testing.T) {
	t.Parallel()
	for _, e := range compose.Endpoints() {
		if e.Name != "nats" {
			continue
		}
		e.URL = moved(t, e.URL, standIn(t, e.Service))
		for _, f := range asked(t, composeTarget(e), boundary.TxnScope, boundary.TxnAtomic) {
			if f.Verdict != report.Equal {
				t.Errorf("%s: %s: observed %q, declared %q: %s", f.Claim, f.Verdict, f.Observed, f.Declared, f.Reason)
			}
		}
		return
	}
	t.Error("docker-compose.yml has no such service")
}

// TestComposeIsAbsent: a service that isn't up is no failure, and the report says
// what brings it up.
func TestComposeIsAbsent(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	for _, e := range compose.Endpoints() {
		if e.Name == "" {
			continue
		}
		e.URL = moved(t, e.URL, at)
		_, err := composeTarget(e).Start(t.Context())
		if !errors.Is(err, conformance.ErrAbsent) || !strings.HasSuffix(err.Error(), "docker compose --profile "+e.Service+" up --wait") {
			t.Errorf("%s: %v", e.Name, err)
		}
	}
}

// TestComposeTargets: the report tells the targets apart, and says of each what it
// is like.
func TestComposeTargets(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	embedded := Boundaries()
	for _, target := range Compose() {
		if seen[target.Name] || !strings.HasSuffix(target.Name, "-compose") || target.Kind != report.KindLocal {
			t.Errorf("%s, %s", target.Name, target.Kind)
		}
		seen[target.Name] = true
		if _, ok := embedded[target.Like]; !ok {
			t.Errorf("%s is like %q, which is no embedded target", target.Name, target.Like)
		}
		vendor := map[string]bool{"rabbitmq": true, "nats": true, "kafka": true}[target.Broker]
		if target.Real != vendor {
			t.Errorf("%s: real %v", target.Name, target.Real)
		}
		if target.Lease+target.Session == 0 {
			t.Errorf("%s: neither lease nor session", target.Name)
		}
	}
	if len(seen) < 15 {
		t.Errorf("%d targets", len(seen))
	}
}

func TestFrontable(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		"nats://127.0.0.1:4222":                                  true,
		"nats://user:secret@localhost:4222":                      true,
		"nats://[::1]:4222":                                      true,
		"nats://127.0.0.1":                                       false, // the adapter knows the port
		"nats+tls://127.0.0.1:4222":                              true,
		"nats://10.0.0.1:4222":                                   false,
		"nats://broker:4222":                                     false,
		"kafka://127.0.0.1:9092,127.0.0.1:9093/?mode=share":      true,
		"kafka://127.0.0.1:9092,10.0.0.1:9093":                   false,
		"rabbitmq://127.0.0.1:5672/?queue=stream":                true,
		"rabbitmq://127.0.0.1:5672,127.0.0.1:5673/?queue=stream": false,
		"rabbitmq://127.0.0.1:5672,127.0.0.1:5673/":              true,
		"sqs://":                               false,
		"sqs://127.0.0.1:4566/?anonymous=true": true,
		"servicebus://k:v@127.0.0.1:5673/?admin=127.0.0.1:5673": false, // which of the two?
		"pubsub://127.0.0.1:8085/project?exactly-once=true":     true,
	} {
		if got := frontable(raw); got != want {
			t.Errorf("%s: %v", raw, got)
		}
	}
}

func TestPlaintext(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		"nats://127.0.0.1:4222":                          true,
		"nats+tls://127.0.0.1:4222":                      false,
		"kafka://127.0.0.1:9092":                         true,
		"kafka://127.0.0.1:9092/?tls=true":               false,
		"kafka://127.0.0.1:9092/?tls=false":              true,
		"kafka://127.0.0.1:9092/?ca=x":                   false,
		"rabbitmq://127.0.0.1:5672/?server-name=rabbit":  false,
		"pubsub://127.0.0.1:8085/project?tls=nonsense":   false,
		"pubsub://127.0.0.1:8085/project?exactly-once=1": true,
	} {
		if got := plaintext(raw); got != want {
			t.Errorf("%s: %v", raw, got)
		}
	}
}

// TestTLSTarget: a broker that wants TLS can be silenced and cut off in the suite's
// probes though nobody looks into what it says; faults that strike operations are not
// verifiable.
func TestTLSTarget(t *testing.T) {
	t.Parallel()
	answersByConnection(t, rabbitOverTLS(t), boundary.PublishHalfOpen, boundary.DeliverHalfOpen)
}

// TestTLSHalfOpen: a client that makes connections as it needs them has made them when
// the network falls silent. What it sends over one whose handshake never ends is surely
// not sent, and its honest answer would look like a guess.
func TestTLSHalfOpen(t *testing.T) {
	t.Parallel()
	m, err := localstack.StartSQS(t.Context())
	closing(t, m, err)
	g := newGate(t)
	target, err := ByURL(fmt.Sprintf("sqs://%s/?anonymous=true&region=eu-central-1&tls=true&ca=%s", g.passAt(t, loopback, m.Address()), url.QueryEscape(g.ca)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range asked(t, target, boundary.PublishHalfOpen, boundary.SettleHalfOpen, boundary.DeliverHalfOpen) {
		if f.Verdict != report.Equal {
			t.Errorf("%s: %s: observed %q, declared %q: %s", f.Claim, f.Verdict, f.Observed, f.Declared, f.Reason)
		}
	}
}

// TestUnknownProtocol: the same for a protocol that no fault proxy knows.
func TestUnknownProtocol(t *testing.T) {
	t.Parallel()
	for _, e := range compose.Endpoints() {
		if e.Name == "servicebus-sessions" {
			e.URL = moved(t, e.URL, standIn(t, e.Service))
			answersByConnection(t, composeTarget(e))
			return
		}
	}
	t.Error("docker-compose.yml has no such service")
}

// answersByConnection asks a target for whose requests there are no faults: what cut
// connections show is as declared, as are the other claims, and a lost answer is not
// verifiable.
func answersByConnection(t *testing.T, target conformance.Target, others ...boundary.Claim) {
	t.Helper()
	for _, f := range asked(t, target, append(others, boundary.PublishDedupLostRequest, boundary.SettleAfterReconnect, boundary.DeliverRedeliverReconnect, boundary.SettleLostResponse)...) {
		want, why := report.Equal, ""
		if f.Claim == string(boundary.SettleLostResponse) {
			want, why = report.NotVerifiable, "nobody would see that the broker applied"
		}
		if f.Verdict != want || !strings.Contains(f.Reason, why) {
			t.Errorf("%s: %s: observed %q, declared %q: %s", f.Claim, f.Verdict, f.Observed, f.Declared, f.Reason)
		}
	}
}

// TestCutThatCutsNothing: a probe notices where connections live on that are said to be
// cut, where there were none, and where a network carries that is said to be silent.
func TestCutThatCutsNothing(t *testing.T) {
	t.Parallel()
	says := func(n int) func(*conformance.Instance) {
		return func(i *conformance.Instance) { i.Cut = func() (int, error) { return n, nil } }
	}
	carries := func(i *conformance.Instance) { i.Network = func(conformance.Network) error { return nil } }
	target := rabbitOverTLS(t)
	start := target.Start
	for _, x := range []struct {
		claim boundary.Claim
		spoil func(*conformance.Instance)
		want  report.Verdict
		seen  string
	}{
		{boundary.SettleAfterReconnect, says(2), report.Stronger, "the message didn't come again"},
		{boundary.SettleAfterReconnect, says(0), report.Failed, "there was none to cut"},
		{boundary.PublishDedupLostRequest, says(2), report.Weaker, "stored twice"},
		{boundary.PublishDedupLostRequest, carries, report.Failed, "lost in a silent network is answered"},
	} {
		target.Start = func(ctx context.Context) (*conformance.Instance, error) {
			i, err := start(ctx)
			if err == nil {
				x.spoil(i)
			}
			return i, err
		}
		if f := asked(t, target, x.claim)[0]; f.Verdict != x.want || !strings.Contains(f.Reason, x.seen) {
			t.Errorf("%s: %s: observed %q: %s; want %s: %s", f.Claim, f.Verdict, f.Observed, f.Reason, x.want, x.seen)
		}
	}
}

// rabbitOverTLS is the target of a URL that leads to a RabbitMQ which wants TLS.
func rabbitOverTLS(t *testing.T) conformance.Target {
	t.Helper()
	m, err := localstack.StartRabbitMQ(t.Context())
	closing(t, m, err)
	g := newGate(t)
	target, err := ByURL(fmt.Sprintf("rabbitmq+tls://guest:guest@%s/?ca=%s", g.passAt(t, loopback, m.Address()), url.QueryEscape(g.ca)))
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// asked is what a target answers to claims.
func asked(t *testing.T, target conformance.Target, claims ...boundary.Claim) []report.Finding {
	t.Helper()
	o := conformance.Options{Seed: 1}
	for _, c := range claims {
		o.Claims = append(o.Claims, string(c))
	}
	r, err := conformance.Run(t.Context(), target, o)
	if err != nil {
		t.Fatal(err)
	}
	got := r.Targets[0]
	if got.Error != "" || got.Absent != "" || len(got.Findings) != len(claims) {
		t.Fatalf("%s%s: %d findings", got.Error, got.Absent, len(got.Findings))
	}
	return got.Findings
}
