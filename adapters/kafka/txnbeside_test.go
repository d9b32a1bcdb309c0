package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"
)

// What became of a transaction is found in the log of a partition also while others
// have open transactions there, before it and behind it, which hold up the partition's
// last stable offset.
func TestTxnMarkerBesideOthers(t *testing.T) {
	for name, f := range map[string]*localstack.Fault{
		"committed": {Kind: localstack.LoseResponse, API: "EndTxn", Cut: true},
		"aborted":   nil,
	} {
		t.Run(name, func(t *testing.T) {
			onStages(t, func(t *testing.T, s *stage) {
				out := s.topic(t, 1)
				open := func(id string, n int) (broker.Transactor, broker.Transaction) {
					x := s.open(t, s.dial(t), id+"-"+out)
					tx := begin(t, x)
					publishIn(t, tx, out, messages(1, n)...)
					return x, tx
				}
				_, before := open("before", 10)
				x, tx := open("x", 11)
				_, behind := open("behind", 12)
				if f != nil {
					f := *f
					f.Match = "x-" + out
					lost := s.Inject(f)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					go func() {
						_ = lost.WaitApplied(ctxOf(t, mustCome))
						cancel()
					}()
					if o, err := tx.Commit(ctx); !errors.Is(err, broker.ErrUnknownOutcome) {
						t.Fatalf("%v, %v", o, err)
					}
					lost.Remove()
				}
				next := begin(t, s.open(t, s.dial(t), "x-"+out))
				publishIn(t, next, out, messages(1, 13)...)
				commitTx(t, next, broker.Confirmed) // so the coordinator knows nothing of x any more
				if f != nil {
					if o, err := tx.Resolve(ctxOf(t, mustCome)); o.State != broker.Confirmed {
						t.Fatalf("%v, %v", o, err)
					}
				} else if err := commitTx(t, tx, broker.LeaseLost); !errors.Is(err, broker.ErrFenced) {
					t.Fatal(err)
				}
				if _, err := x.Begin(ctxOf(t, mustCome)); !errors.Is(err, broker.ErrFenced) {
					t.Errorf("the earlier holder begins: %v", err)
				}
				commitTx(t, behind, broker.Confirmed)
				if err := before.Abort(ctxOf(t, mustCome)); err != nil {
					t.Fatal(err)
				}
				want := 2
				if f != nil {
					want = 3
				}
				s.committed(t, out, want)
			})
		})
	}
}

// A share group delivers what is committed, and nothing else, although Kafka's default
// is to (KAF-F-400).
func TestTxnShareGroupReadsCommitted(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		c, out := s.dial(t, func(o *Options) { o.Mode, o.Session = Share, 0 }), s.topic(t, 1)
		e := broker.Entity{Topic: out, Subscription: out + "/g-" + out}
		if err := c.Ensure(ctxOf(t, mustCome), e); err != nil {
			t.Fatal(err)
		}
		rcv := openReceiver(t, c, e.Subscription)
		pub := openPublisher(t, c, out)
		publish(t, pub, messages(1, 0)...)
		wantStates(t, settle(t, rcv, broker.Ack, receive(t, rcv, 1)...), broker.Confirmed) // it is at work
		x := s.open(t, c, "x-"+out)
		tx := begin(t, x)
		publishIn(t, tx, out, messages(1, 10)...)
		if ds := tryReceive(t, rcv, 1, 300*time.Millisecond); len(ds) > 0 {
			t.Errorf("of an open transaction came %v", ids(ds))
		}
		if err := tx.Abort(ctxOf(t, mustCome)); err != nil {
			t.Fatal(err)
		}
		tx = begin(t, x)
		publishIn(t, tx, out, messages(1, 11)...)
		commitTx(t, tx, broker.Confirmed)
		publish(t, pub, messages(1, 1)...)
		if got := ids(receive(t, rcv, 2)); got[0] != "m-11" || got[1] != "m-1" {
			t.Errorf("came %v", got)
		}
	})
}
