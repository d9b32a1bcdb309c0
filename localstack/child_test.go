package localstack_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/onceline/onceline/localstack"
)

func startChild(t *testing.T, name string, options ...localstack.ChildOption) *localstack.Child {
	t.Helper()
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else a race-enabled child takes a second to exit
	start := time.Now()
	e, err := localstack.StartChild(t.Context(), name, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("child ready in %v", time.Since(start))
	closeAtEnd(t, e)
	return e
}

func TestChildNATS(t *testing.T) {
	e := startChild(t, "nats", localstack.NATSMaxPayload(1<<20))
	c := natsStream(t, e.URL())
	lost := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 1})
	if _, err := c.publish("s.a", "1", short); err == nil {
		t.Fatal("the lost response has arrived")
	}
	counts(t, lost, 1, 1, 0)

	url, direct := e.URL(), e.DirectURL()
	for _, step := range []string{"kill", "restart"} {
		pid, back := e.Pid(), c.nc.StatusChanged(nats.CONNECTED)
		var err error
		if step == "kill" {
			err = e.Kill(t.Context())
		} else {
			err = e.Restart(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Pid() == pid || e.URL() != url || e.DirectURL() != direct {
			t.Fatalf("%s: pid %d → %d at %s %s", step, pid, e.Pid(), e.URL(), e.DirectURL())
		}
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("%s: process %d still lives", step, pid)
		}
		<-back
		if ack := c.mustPublish("s.a", "1"); !ack.Duplicate {
			t.Errorf("%s: the message is gone", step)
		}
	}
}

func TestChildKafka(t *testing.T) {
	e := startChild(t, "kafka", localstack.KafkaTopics(1, "a"), localstack.KafkaBrokers(2))
	cl := kafkaClient(t, e.URL())
	lost := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: "a", Times: 1, Cut: true})
	if err := produce(t, cl, "a", "1"); err != nil {
		t.Fatal(err)
	}
	counts(t, lost, 1, 1, 0)
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := logEnd(t, cl, "a"); got != 1 {
		t.Fatalf("%d records after SIGKILL, want 1", got)
	}
	if err := e.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := logEnd(t, cl, "a"); got != 1 {
		t.Fatalf("%d records after a restart, want 1", got)
	}
}

func TestChildRefuses(t *testing.T) {
	for name, options := range map[string][]localstack.ChildOption{
		"nope":  nil,
		"nats":  {localstack.KafkaBrokers(1)},
		"kafka": {localstack.NATSMaxPayload(1)},
	} {
		if _, err := localstack.StartChild(t.Context(), name, options...); err == nil {
			t.Errorf("%s with %d options was started", name, len(options))
		}
	}
	t.Run("from a child", func(t *testing.T) {
		t.Setenv("ONCELINE_EMULATOR", "nats")
		if _, err := localstack.StartChild(t.Context(), "nats"); err == nil {
			t.Error("a child has started a child")
		}
	})
	t.Run("without RunIfChild", func(t *testing.T) {
		t.Setenv(unwired, "1")
		if _, err := localstack.StartChild(t.Context(), "nats"); err == nil || !strings.Contains(err.Error(), "RunIfChild") {
			t.Errorf("got %v", err)
		}
	})
}
