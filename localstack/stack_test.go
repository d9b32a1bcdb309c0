package localstack_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func scramOpt(user, password string) kgo.Opt {
	return kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism())
}

func TestStart(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	start := time.Now()
	s, err := localstack.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("all started in %v", time.Since(start))
	if len(s.Emulators()) != len(localstack.Names()) || s.URL("none") != "" || s.Emulator("none") != nil {
		t.Error("stack has the wrong emulators")
	}
	for _, name := range localstack.Names() {
		e := s.Emulator(name)
		if e.Name() != name || !strings.HasPrefix(s.URL(name), name+"://127.0.0.1:") || e.Real() != (name == "nats") {
			t.Errorf("%s: %s real %v", e.Name(), e.URL(), e.Real())
		}
		for component, version := range e.Versions() {
			if version == "" || version == "unknown" {
				t.Errorf("%s: no version of %s", name, component)
			}
			t.Logf("%s %s", component, version)
		}
	}
	nc := natsConnect(t, s.URL("nats"))
	nc.mustHave()
	if err := produce(t, kafkaClient(t, s.URL("kafka"), kgo.AllowAutoTopicCreation()), "x", "1"); err == nil {
		t.Log("topics are created by producing")
	}
	for range 2 { // with clients connected, and again
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, e := range s.Emulators() {
		if err := e.Restart(t.Context()); !errors.Is(err, localstack.ErrClosed) {
			t.Errorf("%s: restart after close: %v", e.Name(), err)
		}
	}
}

func (c *natsClient) mustHave() {
	c.Helper()
	if _, err := c.js.AccountInfo(c.Context()); err != nil {
		c.Fatal(err)
	}
}

func TestStartRefuses(t *testing.T) {
	for _, names := range [][]string{{"nats", "nope"}, {"kafka", "kafka"}} {
		if _, err := localstack.Start(t.Context(), names...); err == nil {
			t.Errorf("%v was started", names)
		} else {
			t.Log(err)
		}
	}
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := localstack.StartKafka(dead); !errors.Is(err, context.Canceled) {
		t.Errorf("start with a dead context: %v", err)
	}
	if _, err := localstack.StartKafka(t.Context(), localstack.KafkaBrokers(0)); err == nil {
		t.Error("a cluster of none was started")
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := localstack.StartNATS(t.Context(), localstack.NATSDataDir(file)); err == nil {
		t.Error("a file was taken as data directory")
	}
}

func TestStartAt(t *testing.T) {
	port, other := freePort(t), freePort(t)
	s, err := localstack.StartAt(t.Context(), map[string][]int{"rabbitmq": {port, other}, "nats": {0}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if s.URL("rabbitmq") != fmt.Sprintf("rabbitmq://127.0.0.1:%d", port) || len(s.Emulators()) != 2 {
		t.Errorf("%d emulators, rabbitmq at %s", len(s.Emulators()), s.URL("rabbitmq"))
	}
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", other))
	if err != nil {
		t.Fatalf("the further port: %v", err)
	}
	c.Close()
	if _, err := localstack.StartAt(t.Context(), map[string][]int{"sqs": {port}}); err == nil {
		t.Error("a port that is taken was had")
	}
	if _, err := localstack.StartAt(t.Context(), map[string][]int{"pulsar": {0}}); err == nil {
		t.Error("an emulator that doesn't exist was started")
	}
}

func TestFaultValidate(t *testing.T) {
	e := startNATS(t)
	for _, f := range []localstack.Fault{
		{},
		{Op: 99, Kind: localstack.Cut},
		{Kind: localstack.Delay},
		{Kind: localstack.Cut, Delay: time.Second},
		{Kind: localstack.Cut, Code: 1},
		{Kind: localstack.Cut, Times: -1},
		{Kind: localstack.Cut, API: "Produce"},
	} {
		i := e.Inject(f)
		if i.Err() == nil {
			t.Errorf("%+v was taken", f)
		}
		if err := i.WaitHit(t.Context()); !errors.Is(err, i.Err()) {
			t.Errorf("waiting: %v", err)
		}
		i.Remove()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	i := e.Inject(localstack.Fault{Kind: localstack.Cut})
	if err := i.WaitHit(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting: %v", err)
	}
	i.Remove()
	i.Remove()
}
