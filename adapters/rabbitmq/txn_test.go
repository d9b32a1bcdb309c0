package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/fault"
)

// onHosts runs a test on the model, and with ONCELINE_LOCAL=1 on RabbitMQ itself, with
// both kinds of queues.
func onHosts(t *testing.T, f func(t *testing.T, h *host, c broker.Conn)) {
	for _, kind := range []Kind{Quorum, Classic} {
		t.Run("model/"+kind.String(), func(t *testing.T) {
			h := emulate(t)
			f(t, h, h.dial(t, Queues(kind)))
		})
	}
	t.Run("real", func(t *testing.T) {
		h := realHost(t) // or skip
		for _, kind := range []Kind{Quorum, Classic} {
			t.Run(kind.String(), func(t *testing.T) { f(t, h, h.dial(t, Queues(kind))) })
		}
	})
}

func begin(t *testing.T, x broker.Transactor) broker.Transaction {
	t.Helper()
	tx, err := x.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func TestTxn(t *testing.T) {
	onHosts(t, func(t *testing.T, h *host, c broker.Conn) {
		in, out := entity(t, c, func(e *broker.Entity) { e.DeadLetter = e.Topic + ".dead" }), entity(t, c)
		dead := broker.Entity{Topic: in.Topic + ".dead", Subscription: in.Topic + ".dead/r"}
		if err := c.Ensure(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		publish(t, publisherOf(t, c, in.Topic), messages(3, 0)...)
		rcv := receiverOf(t, c, in.Subscription)
		x, err := broker.OpenTransactor(t.Context(), c, "x")
		if err != nil {
			t.Fatal(err)
		}
		look := h.raw(t)
		for _, commits := range []bool{false, true} {
			ds := receive(t, rcv, 3)
			tx := begin(t, x)
			for i := range 2 {
				if rs, err := tx.Publish(t.Context(), out.Topic, messages(1, 10+i)...); err != nil || rs[0].Verdict != broker.Accepted {
					t.Fatal(rs, err)
				}
			}
			ss := []broker.Settlement{{Delivery: &ds[0]}, {Delivery: &ds[1]}, {Delivery: &ds[2], Action: broker.DeadLetter, Reason: "bad"}}
			if err := tx.Settle(t.Context(), ss); err != nil || ss[2].Outcome.State != broker.Pending {
				t.Fatal(err, ss)
			}
			if !commits {
				if err := tx.Abort(t.Context()); err != nil {
					t.Fatal(err)
				}
				wantStates(t, settle(t, rcv, broker.Ack, ds[:2]...), broker.LeaseLost)
				if n := ready(t, look, out.Subscription); n != 0 {
					t.Errorf("%d messages of an aborted transaction", n)
				}
				continue
			}
			if o, err := tx.Commit(t.Context()); o.State != broker.Confirmed || err != nil {
				t.Fatal(o, err)
			}
			wantStates(t, settle(t, rcv, broker.Ack, ds[:2]...), broker.Confirmed)
			// The dead letter isn't in the transaction: the abort left it.
			for queue, n := range map[string]int{in.Subscription: 0, out.Subscription: 2, dead.Subscription: 2} {
				eventually(t, fmt.Sprintf("%s has %d", queue, n), func() bool {
					q, err := look.QueueDeclarePassive(queue, true, false, false, false, nil)
					return err == nil && q.Messages == n
				})
			}
		}
		// And on: another batch over a new channel.
		publish(t, publisherOf(t, c, in.Topic), messages(1, 3)...)
		ds := receive(t, rcv, 1)
		tx := begin(t, x)
		if err := tx.Settle(t.Context(), []broker.Settlement{{Delivery: &ds[0]}}); err != nil {
			t.Fatal(err)
		}
		if o, err := tx.Commit(t.Context()); o.State != broker.Confirmed {
			t.Fatal(o, err)
		}
		if _, err := begin(t, x).Prepare(t.Context()); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("prepared: %v", err)
		}
		if _, err := broker.OpenTransactor(t.Context(), c, "x", broker.TransactionTimeout(time.Second)); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("a timeout: %v", err)
		}
	})
}

// The answer is lost, and nobody can be asked: it stays Unknown, and what comes again
// wasn't committed.
func TestTxnUnknown(t *testing.T) {
	for _, kind := range []fault.Kind{fault.LoseResponse, fault.LoseRequest} {
		t.Run(kind.String(), func(t *testing.T) {
			h := emulate(t)
			c := h.dial(t)
			in, out := entity(t, c), entity(t, c)
			publish(t, publisherOf(t, c, in.Topic), messages(2, 0)...)
			rcv := receiverOf(t, c, in.Subscription)
			x, err := broker.OpenTransactor(t.Context(), c, "x")
			if err != nil {
				t.Fatal(err)
			}
			ds := receive(t, rcv, 2)
			tx := begin(t, x)
			if _, err := tx.Publish(t.Context(), out.Topic, messages(1, 10)...); err != nil {
				t.Fatal(err)
			}
			if err := tx.Settle(t.Context(), []broker.Settlement{{Delivery: &ds[0]}, {Delivery: &ds[1]}}); err != nil {
				t.Fatal(err)
			}
			lost := h.inject(fault.Fault{Kind: kind, API: "tx.commit", Times: 1, Cut: true})
			o, err := tx.Commit(t.Context())
			if o.State != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) || lost.Hits() != 1 {
				t.Fatal(o, err, lost.Hits())
			}
			if err := tx.Abort(t.Context()); !errors.Is(err, broker.ErrConflict) {
				t.Errorf("abort: %v", err)
			}
			if _, err := x.Begin(t.Context()); err != nil {
				t.Errorf("the next: %v", err)
			}
			want := 0
			if kind == fault.LoseRequest {
				want = 2
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			var again []broker.Delivery
			for len(again) < max(want, 1) {
				got, err := rcv.Receive(ctx, 2)
				if err != nil {
					break
				}
				again = append(again, got...)
			}
			if len(again) != want {
				t.Errorf("%d come again, want %d", len(again), want)
			}
		})
	}
}

// The loop runs on it for those who accept what can be torn.
func TestTxnProcess(t *testing.T) {
	onHosts(t, func(t *testing.T, _ *host, c broker.Conn) {
		in, out := entity(t, c), entity(t, c)
		publish(t, publisherOf(t, c, in.Topic), messages(50, 0)...)
		rcv := receiverOf(t, c, in.Subscription)
		x, err := broker.OpenTransactor(t.Context(), c, "x")
		if err != nil {
			t.Fatal(err)
		}
		echo := func(_ context.Context, in []broker.Delivery) (outs []broker.Output, _ error) {
			for _, d := range in {
				outs = append(outs, broker.Output{Topic: out.Topic, Message: broker.Message{ID: d.ID, Body: d.Body}})
			}
			return outs, nil
		}
		if err := broker.Process(t.Context(), rcv, x, echo, broker.ProcessOptions{}); !errors.Is(err, broker.ErrUnsupported) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			ended <- broker.Process(ctx, rcv, x, echo, broker.ProcessOptions{Torn: true, Batch: 20, ErrorHook: func(err error) { t.Error(err) }})
		}()
		var got []string
		for _, d := range receive(t, receiverOf(t, c, out.Subscription), 50) {
			got = append(got, d.ID)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if len(slices.Compact(got)) != 50 {
			t.Errorf("%d outputs", len(got))
		}
	})
}
