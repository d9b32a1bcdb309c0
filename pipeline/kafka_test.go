package pipeline_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"
	"github.com/onceline/onceline/pipeline"
	"github.com/twmb/franz-go/pkg/kadm"
)

// TestVisibleAfterCheckpoint: what is written right behind a checkpoint is there for
// readers of uncommitted messages, and for the others an interval later (FLK-F-331).
func TestVisibleAfterCheckpoint(t *testing.T) {
	t.Parallel()
	visibleAfterCheckpoint(t, model(t, 2, 1))
}

func visibleAfterCheckpoint(t *testing.T, g *stage) {
	const interval = 800 * time.Millisecond
	o := options()
	o.Interval, o.MaxInput = interval, 0
	var checkpoints atomic.Int64
	completed := make(chan time.Time, 100)
	o.Checkpointed = func(pipeline.Info) { checkpoints.Add(1); completed <- time.Now() }
	config := g.config(t, openStore(t, file(t)))
	config.Options = o
	r := start(t, config)
	pub, err := g.conn.OpenPublisher(t.Context(), g.names+"in")
	if err != nil {
		t.Fatal(err)
	}
	early, err := open(t, g.url+"?isolation=uncommitted").OpenReceiver(t.Context(), g.names+"out/early")
	if err != nil {
		t.Fatal(err)
	}
	late, err := g.conn.OpenReceiver(t.Context(), g.names+"out/late")
	if err != nil {
		t.Fatal(err)
	}
	next := func(r broker.Receiver, id string) time.Time {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		ds, err := r.Receive(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(string(ds[0].Body), id) {
			t.Fatalf("%q, want %s", ds[0].Body, id)
		}
		return time.Now()
	}
	var last time.Time // when a checkpoint was complete, right behind which the next message is published
	for i, id := range []string{"first", "second", "third"} {
		if _, err := pub.Publish(t.Context(), broker.Message{ID: id, Body: []byte(id)}); err != nil {
			t.Fatal(err)
		}
		next(early, id)
		if n := checkpoints.Load(); n != int64(i) {
			t.Errorf("%s: written, and %d checkpoints are complete", id, n)
		}
		visible := next(late, id)
		at := <-completed
		// The commit is a part of the checkpoint, so it may be seen shortly before
		// that is told.
		if before := at.Sub(visible); before > interval {
			t.Errorf("%s: visible %v before its checkpoint was complete", id, before)
		}
		if after := visible.Sub(last); after < interval/2 {
			t.Errorf("%s: visible %v after the checkpoint before it, with an interval of %v", id, after, interval)
		}
		if n := checkpoints.Load(); n != int64(i)+1 {
			t.Errorf("%s: visible after %d checkpoints", id, n)
		}
		last = at
	}
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
}

// TestTimeoutLoss: a process is killed between the record and the commit, and stays
// away until the broker aborts its transaction. The next one says so, loudly, and
// makes the output again, or stops.
func TestTimeoutLoss(t *testing.T) {
	t.Parallel()
	for _, version := range []int16{1, 2} {
		t.Run(strconv.Itoa(int(version)), func(t *testing.T) { t.Parallel(); timeoutLoss(t, model(t, version, 2), "300ms") })
	}
}

// timeoutLoss is that with half of the time for which the broker keeps a transaction.
func timeoutLoss(t *testing.T, g *stage, budget string) {
	const total = 120
	path := file(t)
	s := openStore(t, path)
	want := g.publish(t, total)
	env := g.env(path, "transactional", total, "recorded", 3)
	env[childBudget] = budget
	if !spawn(t, env) {
		t.Fatal("the child wasn't killed")
	}
	eventually(t, "the broker aborts the transaction", func() bool {
		all, err := kadm.NewClient(g.client(t)).DescribeTransactions(t.Context(), g.names+"crash.0", g.names+"crash.1")
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			if one.State == "Ongoing" || strings.HasPrefix(one.State, "Prepare") {
				return false
			}
		}
		return len(all) == 2
	})
	var losses []pipeline.Loss
	config := g.config(t, s)
	config.Options.Loss = func(l pipeline.Loss) { losses = append(losses, l) }
	if err := start(t, config).wait(t); !errors.Is(err, pipeline.ErrDataLoss) || !errors.Is(err, broker.ErrAborted) {
		t.Fatalf("Run returned %v", err)
	}
	config.Options.OnLoss = pipeline.RewindOnLoss
	r := start(t, config)
	exactly(t, want, received(t, g.conn, g.names+"out/check", total))
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
	if len(losses) != 2 || losses[0].Fate != pipeline.FateAborted || losses[0].Messages == 0 || losses[0].Messages != losses[0].Input || losses[0].Action != pipeline.StopOnLoss || losses[1].Action != pipeline.RewindOnLoss {
		t.Errorf("%d losses: %+v", len(losses), losses)
	}
}

// TestLongerThanTheBroker: Kafka allows 15 minutes (KAF-F-08), and a pipeline that needs
// more doesn't begin.
func TestLongerThanTheBroker(t *testing.T) {
	t.Parallel()
	g := model(t, 2, 1)
	g.publish(t, 1)
	config := g.config(t, openStore(t, file(t)))
	config.Options.RestartBudget = time.Hour
	err := start(t, config).wait(t)
	if !errors.Is(err, broker.ErrUnsupported) || !strings.Contains(err.Error(), "transaction.max.timeout.ms") || !strings.Contains(err.Error(), "1h0m11s") {
		t.Errorf("Run returned %v", err)
	}
}

// TestFormerIDs: what is open under IDs that the pipeline doesn't use any more is
// aborted, so that it holds up nobody who reads committed messages.
func TestFormerIDs(t *testing.T) {
	t.Parallel()
	g := model(t, 2, 1)
	path := file(t)
	s := openStore(t, path)
	want := g.publish(t, 120)
	if !spawn(t, g.env(path, "transactional", 120, "prepared", 2)) {
		t.Fatal("the child wasn't killed")
	}
	config := g.config(t, s)
	config.Sink = pipeline.Transactional[*sql.Tx](open(t, g.url), "another", pipeline.TransactionalOptions{})
	r := start(t, config)
	exactly(t, want, received(t, g.conn, "out/check", 120)) // long before the transaction's timeout
	if err := r.stop(t); err != nil {
		t.Fatal(err)
	}
}

// TestRealKafka plays the same on Apache Kafka, with both versions of transactions.
func TestRealKafka(t *testing.T) {
	t.Parallel()
	if os.Getenv("ONCELINE_LOCAL") != "1" {
		t.Skip("runs Apache Kafka: needs ONCELINE_LOCAL=1")
	}
	for _, version := range []int{2, 1} {
		t.Run(strconv.Itoa(version), func(t *testing.T) {
			k, err := localstack.StartKafkaServer(t.Context(), localstack.KafkaTransactionVersion(version),
				localstack.KafkaConfig(map[string]string{"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := k.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			for name, play := range map[string]func(t *testing.T, g *stage){
				"killed": func(t *testing.T, g *stage) { killed(t, g, "transactional") },
				// A new broker first makes the topic for its transactions.
				"loss":    func(t *testing.T, g *stage) { timeoutLoss(t, g, "4s") },
				"visible": visibleAfterCheckpoint,
				"still":   func(t *testing.T, g *stage) { stoodStill(t, g, "recorded") },
			} {
				t.Run(name, func(t *testing.T) {
					partitions := 2
					if name == "visible" {
						partitions = 1
					}
					play(t, newStage(t, k.URL(), name+".", partitions))
				})
			}
		})
	}
}
