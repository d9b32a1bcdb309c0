package nats

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"
)

// batches is a stream that takes atomic batches, behind faults.
type batches struct {
	*localstack.NATS
	c  broker.Conn
	e  broker.Entity
	js jetstream.JetStream
	x  broker.Transactor
}

func startBatches(t *testing.T, window time.Duration) *batches {
	n, err := localstack.StartNATS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, n) })
	b := &batches{NATS: n, c: dialTo(t, n.URL())}
	b.e = entity(t, func(e *broker.Entity) { e.Window = window })
	ensure(t, b.c, b.e)
	if b.js, err = jetstream.New(client(t, b.c)); err != nil {
		t.Fatal(err)
	}
	cfg := b.stream(t).CachedInfo().Config
	cfg.AllowAtomicPublish = true
	if _, err := b.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if b.x, err = broker.OpenTransactor(t.Context(), b.c, "x"); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *batches) stream(t *testing.T) jetstream.Stream {
	name, err := b.js.StreamNameBySubject(t.Context(), b.e.Topic)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (b *batches) has(t *testing.T, want uint64) {
	t.Helper()
	if n := b.stream(t).CachedInfo().State.Msgs; n != want {
		t.Errorf("the stream has %d messages, want %d", n, want)
	}
}

func (b *batches) begin(t *testing.T, ids ...string) broker.Transaction {
	t.Helper()
	tx, err := b.x.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if rs, err := tx.Publish(t.Context(), b.e.Topic, message(id)); err != nil || rs[0].Verdict != broker.Accepted {
			t.Fatal(rs, err)
		}
	}
	return tx
}

func TestTxn(t *testing.T) {
	b := startBatches(t, time.Minute)
	tx := b.begin(t, "a", "b", "c")
	b.has(t, 0)
	if o, err := tx.Commit(t.Context()); o.State != broker.Confirmed {
		t.Fatal(o, err)
	}
	b.has(t, 3)
	tx = b.begin(t, "d")
	if err := tx.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.has(t, 3)
	// A known ID refuses all of it.
	tx = b.begin(t, "e", "b")
	if o, err := tx.Commit(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrAborted) || !errors.Is(err, broker.ErrConflict) {
		t.Fatal(o, err)
	}
	b.has(t, 3)
	tx = b.begin(t)
	if o, err := tx.Commit(t.Context()); o.State != broker.Confirmed {
		t.Fatal(o, err)
	}
	// What arrives is what was published, without a trace of the batch.
	rcv := receiverOf(t, b.c, b.e.Subscription)
	ds, err := rcv.Receive(t.Context(), 3)
	if err != nil || len(ds) == 0 || ds[0].ID != "a" || string(ds[0].Body) != "body of a" || len(ds[0].Headers) > 0 {
		t.Fatalf("%+v %v", ds, err)
	}
	tx = b.begin(t, "f")
	if err := tx.Settle(t.Context(), []broker.Settlement{{Delivery: &ds[0]}}); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("an ack in a batch: %v", err)
	}
	if _, err := tx.Prepare(t.Context()); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("prepared: %v", err)
	}
	other := entity(t)
	ensure(t, b.c, other)
	if _, err := tx.Publish(t.Context(), other.Topic, message("g")); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("a stream that takes no batches: %v", err)
	}
	if err := broker.Process(t.Context(), rcv, b.x, func(context.Context, []broker.Delivery) ([]broker.Output, error) { return nil, nil }, broker.ProcessOptions{}); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("process: %v", err)
	}
	if _, err := broker.OpenTransactor(t.Context(), b.c, "x", broker.TransactionTimeout(time.Second)); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("a timeout: %v", err)
	}
}

// The answer to the commit is lost, either way: it is found in the stream, or sent
// again, and is there once.
func TestTxnUnknown(t *testing.T) {
	for _, kind := range []localstack.Fault{{Kind: localstack.LoseResponse}, {Kind: localstack.LoseRequest}} {
		t.Run(kind.Kind.String(), func(t *testing.T) {
			b := startBatches(t, time.Minute)
			tx := b.begin(t, "a", "b")
			kind.Op, kind.Match = localstack.Publish, b.e.Topic
			lost := b.Inject(kind)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				if kind.Kind == localstack.LoseResponse {
					_ = lost.WaitApplied(t.Context())
				} else {
					_ = lost.WaitHit(t.Context())
				}
				cancel()
			}()
			if o, err := tx.Commit(ctx); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
				t.Fatal(o, err)
			}
			if _, err := b.x.Begin(t.Context()); !errors.Is(err, broker.ErrUnknownOutcome) {
				t.Errorf("begin before it is resolved: %v", err)
			}
			lost.Remove()
			if o, err := tx.Resolve(t.Context()); o.State != broker.Confirmed {
				t.Fatal(o, err)
			}
			b.has(t, 2)
			if o, err := b.begin(t, "c").Commit(t.Context()); o.State != broker.Confirmed {
				t.Fatal(o, err)
			}
			b.has(t, 3)
		})
	}
}

// Behind the window a batch that isn't there may still come: nothing is sent again.
func TestTxnUnknownTooLate(t *testing.T) {
	b := startBatches(t, 100*time.Millisecond)
	tx := b.begin(t, "a", "b")
	lost := b.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseRequest, Match: b.e.Topic})
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	if o, err := tx.Commit(ctx); !errors.Is(err, broker.ErrUnknownOutcome) {
		t.Fatal(o, err)
	}
	lost.Remove()
	if o, err := tx.Resolve(t.Context()); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) || !errors.Is(err, broker.ErrWindowExceeded) {
		t.Fatal(o, err)
	}
	b.has(t, 0)
}
