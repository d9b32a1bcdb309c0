package localstack_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack"
	"github.com/twmb/franz-go/pkg/kgo"
)

func itoa(n int) string { return strconv.Itoa(n) }

func startKafkaServer(t *testing.T, options ...localstack.KafkaServerOption) *localstack.KafkaServer {
	t.Helper()
	return startReal(t, func(ctx context.Context) (*localstack.KafkaServer, error) {
		return localstack.StartKafkaServer(ctx, options...)
	})
}

func TestKafkaServer(t *testing.T) {
	var told steps
	e := startKafkaServer(t, localstack.Progress(told.add), localstack.KafkaTopics(1, "a", "b"),
		localstack.KafkaGroupConfig("sg", map[string]string{"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"}))
	told.saw(t, "starting", "ready")
	if !e.Real() || e.Versions()["kafka"] == "" || e.DirectURL() == e.URL() {
		t.Errorf("real %v, versions %v, direct %s", e.Real(), e.Versions(), e.DirectURL())
	}
	pids := e.Pids()
	t.Logf("memory %s", resident(pids[0]))
	cl := kafkaClient(t, e.URL())
	if err := produce(t, cl, "a", "1"); err != nil {
		t.Fatal(err)
	}

	// The producer's own retry is refused as a repetition by the broker.
	lost := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: "a", Times: 1, Cut: true})
	if err := produce(t, cl, "a", "2"); err != nil {
		t.Fatal(err)
	}
	counts(t, lost, 1, 1, 0)
	if n := logEnd(t, cl, "a"); n != 2 {
		t.Fatalf("%d records after a lost response, want 2", n)
	}
	refused := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.Error, Code: 29, Match: "b", Times: 1})
	if err := produce(t, cl, "b", "1"); err == nil {
		t.Error("an injected refusal was not seen")
	}
	counts(t, refused, 1, 0, 0)

	// A share group's lock runs out, and the record comes again.
	share := kafkaClient(t, e.URL(), kgo.ShareGroup("sg"), kgo.ConsumeTopics("a"))
	first := pollAll(t, share, 2)
	if len(first) != 2 {
		t.Fatalf("%d records to the share group, want 2", len(first))
	}
	share.Close()

	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{{"restart", e.Restart}, {"kill", e.Kill}} {
		began := time.Now()
		if err := step.do(t.Context()); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		t.Logf("%s took %v", step.name, time.Since(began).Round(time.Millisecond))
		gone(t, pids[0])
		if pids = e.Pids(); pids[0] == 0 {
			t.Fatalf("%s: no process", step.name)
		}
		if n := logEnd(t, cl, "a"); n != 2 {
			t.Fatalf("%d records after %s, want 2", n, step.name)
		}
		// What the producer knows of itself the broker knows still.
		if err := produce(t, cl, "b", "after "+step.name); err != nil {
			t.Fatalf("produce after %s: %v", step.name, err)
		}
	}
	reader := kafkaClient(t, e.DirectURL(), kgo.ConsumeTopics("a"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var values []string
	for _, r := range pollAll(t, reader, 2) {
		values = append(values, string(r.Value))
	}
	if !slices.Equal(values, []string{"1", "2"}) {
		t.Errorf("records %q after the kill", values)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone(t, pids[0])
	if err := e.Restart(t.Context()); !errors.Is(err, localstack.ErrClosed) {
		t.Errorf("restart after close: %v", err)
	}
}

// pollAll polls until it has n records, or for 20 s.
func pollAll(t *testing.T, cl *kgo.Client, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var rs []*kgo.Record
	for len(rs) < n && ctx.Err() == nil {
		rs = append(rs, cl.PollRecords(ctx, n-len(rs)).Records()...)
	}
	return rs
}

func TestKafkaServerNeedsJava(t *testing.T) {
	t.Setenv("JAVA_HOME", t.TempDir())
	_, err := localstack.StartKafkaServer(t.Context(), localstack.CacheDir(t.TempDir()))
	if !errors.Is(err, localstack.ErrNotInstalled) {
		t.Errorf("without Java: %v", err)
	}
	t.Setenv("JAVA_HOME", "")
	t.Setenv("PATH", t.TempDir())
	_, err = localstack.StartKafkaServer(t.Context(), localstack.CacheDir(t.TempDir()))
	if !errors.Is(err, localstack.ErrNotInstalled) {
		t.Errorf("without Java: %v", err)
	}
	t.Log(err)
}
