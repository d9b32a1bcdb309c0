package kafka

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"
)

// Kafka commits a position: what lies before the transaction's inputs has to be
// settled, and until then the commit does nothing.
func TestTxnGap(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		m := move(t, s, 3)
		tx := begin(t, m.x)
		publishIn(t, tx, m.out, messages(1, 10)...)
		ackIn(t, tx, m.ds[1], m.ds[2])
		if err := commitTx(t, tx, broker.Unknown); !errors.Is(err, broker.ErrInvalid) {
			t.Fatalf("%v", err)
		}
		ackIn(t, tx, m.ds[0])
		commitTx(t, tx, broker.Confirmed)
		s.committed(t, m.out, 1)
		m.stands(t, 3)
	})
}

// Settles outside of the transaction go with it where they lie before its inputs, and
// after it where they lie behind.
func TestTxnBesideAcks(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		m := move(t, s, 5)
		tx := begin(t, m.x)
		publishIn(t, tx, m.out, messages(1, 10)...)
		ackIn(t, tx, m.ds[1], m.ds[2])
		wantStates(t, settle(t, m.rcv, broker.Ack, m.ds[0]), broker.Confirmed)
		wantStates(t, settle(t, m.rcv, broker.Ack, m.ds[3]), broker.Pending)
		if got := tx.Settle(t.Context(), []broker.Settlement{{Delivery: &m.ds[3]}}); !errors.Is(got, broker.ErrConflict) {
			t.Errorf("settled outside before: %v", got)
		}
		nack := []broker.Settlement{{Delivery: &m.ds[4], Action: broker.Nack}}
		if err := tx.Settle(t.Context(), nack); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("nack in a transaction: %v", err)
		}
		commitTx(t, tx, broker.Confirmed)
		wantStates(t, settle(t, m.rcv, broker.Ack, m.ds[3]), broker.Confirmed)
		wantStates(t, settle(t, m.rcv, broker.Ack, m.ds[4]), broker.Confirmed)
		m.stands(t, 5)
	})
}

// Inputs without an output are committed as a position, without a transaction.
func TestTxnInputsAlone(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		m := move(t, s, 2)
		tx := begin(t, m.x)
		ackIn(t, tx, m.ds...)
		if _, err := tx.Prepare(t.Context()); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("prepared: %v", err)
		}
		commitTx(t, tx, broker.Confirmed)
		m.stands(t, 2)
		tx = begin(t, m.x)
		publishIn(t, tx, m.out, messages(1, 10)...)
		commitTx(t, tx, broker.Confirmed)
		s.committed(t, m.out, 1)
	})
}

// A dead letter goes with the transaction, or stays away with it (dapr/components-contrib#4362).
func TestTxnDeadLetter(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		dead := s.topic(t, 1)
		in := s.topic(t, 1)
		c := s.dial(t, func(o *Options) { o.DeadLetter = dead })
		publish(t, openPublisher(t, c, in), messages(1, 0)...)
		rcv := openReceiver(t, c, in+"/g-"+in)
		x := s.open(t, c, "x-"+in)
		for _, commits := range []bool{false, true} {
			ds := receive(t, rcv, 1)
			tx := begin(t, x)
			if err := tx.Settle(ctxOf(t, mustCome), []broker.Settlement{{Delivery: &ds[0], Action: broker.DeadLetter, Reason: "bad"}}); err != nil {
				t.Fatal(err)
			}
			if !commits {
				if err := tx.Abort(ctxOf(t, mustCome)); err != nil {
					t.Fatal(err)
				}
				s.committed(t, dead, 0)
				continue
			}
			commitTx(t, tx, broker.Confirmed)
			s.committed(t, dead, 1)
			eventually(t, "the position 1", func() bool { return s.position(t, in, "g-"+in, 0) == 1 })
		}
	})
}

// The partition is taken away in the midst of the transaction: no output of it (segmentio/kafka-go#1330, twmb/franz-go#406, dapr/components-contrib#3849).
func TestTxnRebalance(t *testing.T) {
	for name, next := range map[string]bool{"classic": false, "consumer": true} {
		t.Run(name, func(t *testing.T) {
			onStages(t, func(t *testing.T, s *stage) {
				protocol := func(o *Options) { o.NextGen = next }
				c, in, out := s.dial(t, protocol), s.topic(t, 2), s.topic(t, 1)
				publish(t, openPublisher(t, c, in), messages(40, 0, "a", "b", "c", "d", "e", "f", "g", "h")...)
				rcv := openReceiver(t, c, in+"/g-"+in)
				ds := receive(t, rcv, 40)
				if one := ds[0].Position.Partition; !slices.ContainsFunc(ds, func(d broker.Delivery) bool { return d.Position.Partition != one }) {
					t.Fatal("all messages are in one partition")
				}
				x := s.open(t, c, "x-"+in)
				tx := begin(t, x)
				publishIn(t, tx, out, messages(1, 100)...)
				ackIn(t, tx, ds...)
				// Another member takes one of the two. What it is given was not committed,
				// so it comes to it.
				other := openReceiver(t, s.dial(t, protocol), in+"/g-"+in)
				stop := make(chan struct{})
				done := make(chan struct{})
				go func() { // the first has to take part in the rebalance
					defer close(done)
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					go func() { <-stop; cancel() }()
					for ctx.Err() == nil {
						_, _ = rcv.Receive(ctx, 1)
					}
				}()
				theirs := receive(t, other, 1)
				close(stop)
				<-done
				if err := commitTx(t, tx, broker.LeaseLost); !errors.Is(err, broker.ErrLeaseLost) {
					t.Fatalf("%v", err)
				}
				s.committed(t, out, 0)
				lost := 0
				for i, o := range settle(t, rcv, broker.Ack, ds...) {
					if o.State != broker.LeaseLost {
						t.Fatalf("delivery %d: %+v", i, o)
					}
					lost++
				}
				// What this member kept comes again from it, all of it.
				kept := 0
				for _, d := range ds {
					if d.Position.Partition != theirs[0].Position.Partition {
						kept++
					}
				}
				again := receive(t, rcv, kept)
				for _, d := range again {
					if d.Position.Partition == theirs[0].Position.Partition {
						t.Errorf("%s comes again from a partition that was taken away", d.ID)
					}
				}
				tx = begin(t, x)
				publishIn(t, tx, out, messages(1, 101)...)
				ackIn(t, tx, again...)
				commitTx(t, tx, broker.Confirmed)
				s.committed(t, out, 1)
			})
		})
	}
}

// The coordinator is gone when the commit is sent, and comes back.
func TestTxnCoordinatorRestart(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		m := move(t, s, 2)
		tx := begin(t, m.x)
		publishIn(t, tx, m.out, messages(2, 10)...)
		ackIn(t, tx, m.ds...)
		cut := s.Inject(localstack.Fault{Kind: localstack.LoseRequest, API: "EndTxn", Match: "x-" + m.in, Times: 1, Cut: true})
		type answer struct {
			o   broker.Outcome
			err error
		}
		got := make(chan answer, 1)
		go func() {
			o, err := tx.Commit(ctxOf(t, 2*mustCome))
			got <- answer{o, err}
		}()
		if err := cut.WaitHit(ctxOf(t, mustCome)); err != nil {
			t.Fatal(err)
		}
		if err := s.Restart(ctxOf(t, 2*time.Minute)); err != nil {
			t.Fatal(err)
		}
		a := <-got
		for a.o.State == broker.Unknown && errors.Is(a.err, broker.ErrUnknownOutcome) && t.Context().Err() == nil {
			a.o, a.err = tx.Resolve(ctxOf(t, mustCome))
		}
		switch {
		case a.o.State == broker.Confirmed:
			s.committed(t, m.out, 2)
			m.stands(t, 2)
		case a.o.State == broker.LeaseLost:
			s.committed(t, m.out, 0)
			receive(t, m.rcv, 2)
		default:
			t.Fatalf("%v, %v", a.o, a.err)
		}
	})
}

func TestTxnShareGroup(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		c, in := s.dial(t, func(o *Options) { o.Mode, o.Session = Share, 0 }), s.topic(t, 1)
		if err := c.Ensure(ctxOf(t, mustCome), broker.Entity{Topic: in, Subscription: in + "/g-" + in}); err != nil {
			t.Fatal(err)
		}
		rcv := openReceiver(t, c, in+"/g-"+in)
		publish(t, openPublisher(t, c, in), messages(1, 0)...)
		ds := receive(t, rcv, 1)
		x := s.open(t, c, "x-"+in)
		tx := begin(t, x)
		if err := tx.Settle(t.Context(), []broker.Settlement{{Delivery: &ds[0]}}); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("%v", err)
		}
		wantStates(t, settle(t, rcv, broker.Ack, ds...), broker.Confirmed) // it is none the worse
	})
}

// A member that was away learns where to go on from no offset that a transaction is
// about to change.
func TestTxnRestartWaits(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		m := move(t, s, 3)
		wantStates(t, settle(t, m.rcv, broker.Ack, m.ds[0]), broker.Confirmed) // where there is none, the model says so at once
		tx := begin(t, m.x)
		publishIn(t, tx, m.out, messages(1, 10)...)
		ackIn(t, tx, m.ds[1])
		prepare(t, tx)
		r := &groupReceiver{group: "g-" + m.in, topic: m.in, session: mustCome}
		kept := map[int32]*part{0: newPart(0)}
		if at, err := r.restart(ctxOf(t, 300*time.Millisecond), s.client(t), kept); err == nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it goes on at %v, %v", at, err)
		}
		commitTx(t, tx, broker.Confirmed)
		if at, err := r.restart(ctxOf(t, mustCome), s.client(t), kept); err != nil || at[0].Offset != 2 {
			t.Errorf("it goes on at %v, %v", at, err)
		}
	})
}
