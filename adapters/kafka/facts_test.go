package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// These tests ask the SDK, without the adapter, for what the facts in docs/facts.md
// say of it.

// client is the SDK's own, closed at the end of the test.
func client(t *testing.T, c *kfake.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.DefaultProduceTopic("t"), kgo.FetchMaxWait(100 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.CloseAllowingRebalance)
	return cl
}

// KAF-F-24: a publish under way doesn't end with its context, unless it is allowed to:
// then sending it again stores it twice.
func TestFactCancelledProduce(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name    string
		opts    []kgo.Opt
		waits   bool
		records int64 // after what was given up is sent again
	}{
		{"by default", nil, true, 1},
		{"with AllowIdempotentProduceCancellation", []kgo.Opt{kgo.AllowIdempotentProduceCancellation()}, false, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c, w := cluster(t, 1)
			cl := client(t, c, x.opts...)
			w.lose(kmsg.Produce, 1, true)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			cl.Produce(ctx, kgo.StringRecord("a"), func(_ *kgo.Record, err error) { done <- err })
			eventually(t, "the answer is lost", func() bool { return w.losses() == 1 })
			cancel()
			if x.waits {
				select {
				case err := <-done:
					t.Fatalf("ended with its context: %v", err)
				case <-time.After(300 * time.Millisecond):
				}
				w.heal()
				if err := <-done; err != nil {
					t.Errorf("after the connection was cut: %v", err)
				}
			} else {
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("given up with %v", err)
				}
				w.heal()
				if err := cl.ProduceSync(ctxOf(t, mustCome), kgo.StringRecord("a")).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			if n := stored(c); n != x.records {
				t.Errorf("%d records, want %d", n, x.records)
			}
		})
	}
}

// KAF-F-25: a transaction of a member whose group rebalanced meanwhile is aborted,
// without an error.
func TestFactSessionAbortsAfterRebalance(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 2)
	consumes := []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.HeartbeatInterval(50 * time.Millisecond), kgo.FetchMaxWait(100 * time.Millisecond)}
	assigned := make(chan int, 16)
	takes := kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, a map[string][]int32) { assigned <- len(a["t"]) })
	s, err := kgo.NewGroupTransactSession(append(consumes, kgo.TransactionalID("x"), kgo.DefaultProduceTopic("t"), takes)...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// work is one transaction, and what its End says.
	work := func(meanwhile func()) bool {
		if err := s.Begin(); err != nil {
			t.Fatal(err)
		}
		if err := s.ProduceSync(ctxOf(t, mustCome), kgo.StringRecord("a")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		meanwhile()
		committed, err := s.End(ctxOf(t, mustCome), kgo.TryCommit)
		if err != nil {
			t.Fatal(err)
		}
		return committed
	}
	if n := <-assigned; n != 2 {
		t.Fatalf("%d partitions", n)
	}
	if !work(func() {}) {
		t.Error("aborted, without a rebalance")
	}
	if work(func() {
		client(t, c, append(consumes, takes)...)
		for n := 0; n == 0; n = <-assigned { // some rebalances give nothing new
		}
	}) {
		t.Error("committed, after a rebalance")
	}
}

// KAF-F-54: what a share consumer leaves unsettled is accepted by its next poll, of
// which the callback alone tells.
func TestFactPollAccepts(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1, lockOf("60000"))
	conn := shareConn(t, c)
	p := openPublisher(t, conn, "t")
	publish(t, p, messages(3, 0)...)
	results := make(chan kgo.ShareAckResults, 16)
	cl := client(t, c, kgo.ShareGroup("g"), kgo.ConsumeTopics("t"), kgo.ShareAckCallback(func(_ *kgo.Client, rs kgo.ShareAckResults) { results <- rs }))
	taken := 0
	for taken == 0 {
		fs := cl.PollFetches(ctxOf(t, mustCome))
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		taken += fs.NumRecords()
	}
	if taken != 3 || len(results) > 0 {
		t.Fatalf("%d records, %d results before any was settled", taken, len(results))
	}
	ctx, cancel := context.WithCancel(t.Context())
	polled := make(chan struct{})
	go func() { defer close(polled); cl.PollFetches(ctx) }()
	rs := <-results
	if len(rs) != 1 || rs[0].Topic != "t" || !rs.Ok() {
		t.Errorf("%+v", rs)
	}
	cancel()
	<-polled
	cl.Close() // gives back what it hasn't accepted
	publish(t, p, messages(1, 3)...)
	if ds := receive(t, openReceiver(t, conn, "t/g"), 1); ds[0].ID != "m-3" {
		t.Errorf("%s came again", ds[0].ID)
	}
}
