package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"
)

// moved is a topic with n messages, a member that has them in hand, and a transactor.
type moved struct {
	*stage
	conn    broker.Conn
	in, out string
	rcv     broker.Receiver
	x       broker.Transactor
	ds      []broker.Delivery
}

func move(t *testing.T, s *stage, n int, opts ...broker.TransactorOption) *moved {
	m := &moved{stage: s, conn: s.dial(t), in: s.topic(t, 1), out: s.topic(t, 1)}
	publish(t, openPublisher(t, m.conn, m.in), messages(n, 0, "a", "b")...)
	m.rcv = openReceiver(t, m.conn, m.in+"/g-"+m.in)
	m.x = s.open(t, m.conn, "x-"+m.in, opts...)
	m.ds = receive(t, m.rcv, n)
	return m
}

func (m *moved) group() string { return "g-" + m.in }

func (m *moved) at(t testing.TB) int64 { return m.position(t, m.in, m.group(), 0) }

// stands waits for the group's position: a commit is answered before its markers are
// written, the one of the group's offsets among them.
func (m *moved) stands(t testing.TB, at int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("the position %d", at), func() bool { return m.at(t) == at })
}

// Outputs and positions take effect together, and handles learn it (segmentio/kafka-go#1332).
func TestTxnCommit(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		m := move(t, s, 4)
		if sc := m.x.Scope(); !sc.Atomic || !sc.Prepares || sc.Timeout != time.Minute || sc.Limit != 15*time.Minute {
			t.Errorf("scope %+v", sc)
		}
		tx := begin(t, m.x)
		if rs := publishIn(t, tx, m.out, messages(3, 10)...); rs[2].Verdict != broker.Stored || rs[2].Position.Offset != 2 {
			t.Errorf("%+v", rs)
		}
		ackIn(t, tx, m.ds...)
		if at := m.at(t); at > 0 {
			t.Fatalf("the position is %d before the commit", at)
		}
		if o := settle(t, m.rcv, broker.Ack, m.ds[0]); o[0].State != broker.Pending {
			t.Errorf("asked before the commit: %+v", o)
		}
		commitTx(t, tx, broker.Confirmed)
		commitTx(t, tx, broker.Confirmed) // asked again
		wantStates(t, settle(t, m.rcv, broker.Ack, m.ds...), broker.Confirmed)
		m.stands(t, 4)
		s.committed(t, m.out, 3)
		if err := tx.Abort(t.Context()); !errors.Is(err, broker.ErrConflict) {
			t.Errorf("abort of what is committed: %v", err)
		}
		// And the next, behind it.
		publish(t, openPublisher(t, m.conn, m.in), messages(1, 4)...)
		tx = begin(t, m.x)
		publishIn(t, tx, m.out, messages(1, 13)...)
		ackIn(t, tx, receive(t, m.rcv, 1)...)
		commitTx(t, tx, broker.Confirmed)
		if got := s.committed(t, m.out, 4); !slices.Equal(got, []string{"body 10", "body 11", "body 12", "body 13"}) {
			t.Errorf("%q", got)
		}
	})
}

// A commit right behind the first message to a topic commits it (KAF-F-302).
func TestTxnFirstOfTopic(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		x := s.open(t, s.dial(t), "x-first")
		for range 10 {
			topic := s.topic(t, 1)
			tx := begin(t, x)
			publishIn(t, tx, topic, messages(1, 0)...)
			commitTx(t, tx, broker.Confirmed)
			s.committed(t, topic, 1)
		}
	})
}

// An abort undoes all, and what was settled comes again, in order and before what
// came later.
func TestTxnAbortRewinds(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		m := move(t, s, 6)
		tx := begin(t, m.x)
		publishIn(t, tx, m.out, messages(2, 10)...)
		ackIn(t, tx, m.ds...)
		if err := tx.Abort(ctxOf(t, mustCome)); err != nil {
			t.Fatal(err)
		}
		wantStates(t, settle(t, m.rcv, broker.Ack, m.ds...), broker.LeaseLost)
		publish(t, openPublisher(t, m.conn, m.in), messages(2, 6, "a", "b")...)
		again := receive(t, m.rcv, 6)
		if want := []string{"m-0", "m-1", "m-2", "m-3", "m-4", "m-5"}; !sameByKey(again, want) {
			t.Fatalf("after the abort come %v", ids(again))
		}
		tx = begin(t, m.x)
		publishIn(t, tx, m.out, messages(1, 12)...)
		ackIn(t, tx, again...)
		commitTx(t, tx, broker.Confirmed)
		m.stands(t, 6)
		if got := s.committed(t, m.out, 1); got[0] != "body 12" {
			t.Errorf("committed is %q", got)
		}
		if rest := receive(t, m.rcv, 2); rest[0].ID != "m-6" || rest[1].ID != "m-7" {
			t.Errorf("then come %v", ids(rest))
		}
	})
}

// sameByKey reports that ds are want, whatever the order across the two keys.
func sameByKey(ds []broker.Delivery, want []string) bool {
	byKey := map[string][]string{}
	for _, d := range ds {
		byKey[d.Key] = append(byKey[d.Key], d.ID)
	}
	all := append(slices.Clone(byKey["a"]), byKey["b"]...)
	for _, k := range byKey {
		if !slices.IsSorted(k) {
			return false
		}
	}
	slices.Sort(all)
	return slices.Equal(all, want)
}

// The answer to the commit is lost: found out by asking, either way (twmb/franz-go#930).
func TestTxnCommitUnknown(t *testing.T) {
	for name, f := range map[string]localstack.Fault{
		"applied":     {Kind: localstack.LoseResponse, API: "EndTxn", Cut: true},
		"not applied": {Kind: localstack.LoseRequest, API: "EndTxn", Cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			onStages(t, func(t *testing.T, s *stage) {
				m := move(t, s, 2)
				tx := begin(t, m.x)
				publishIn(t, tx, m.out, messages(2, 10)...)
				ackIn(t, tx, m.ds...)
				f := f
				f.Match = "x-" + m.in
				lost := s.Inject(f)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { // it ends only after the broker has (not) applied it
					if f.Kind == localstack.LoseResponse {
						_ = lost.WaitApplied(ctxOf(t, mustCome))
					} else {
						_ = lost.WaitHit(ctxOf(t, mustCome))
					}
					cancel()
				}()
				o, err := tx.Commit(ctx)
				if o.State != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
					t.Fatalf("a commit without an answer: %v, %v", o.State, err)
				}
				if _, err := m.x.Begin(t.Context()); !errors.Is(err, broker.ErrUnknownOutcome) {
					t.Errorf("begin before it is resolved: %v", err)
				}
				if err := tx.Abort(t.Context()); !errors.Is(err, broker.ErrConflict) {
					t.Errorf("abort before it is resolved: %v", err)
				}
				if ds := tryReceive(t, m.rcv, 1, 100*time.Millisecond); len(ds) > 0 {
					t.Errorf("%v may be processed again before it is resolved", ids(ds))
				}
				lost.Remove()
				if o, err := tx.Resolve(ctxOf(t, mustCome)); o.State != broker.Confirmed {
					t.Fatalf("resolved: %v, %v", o.State, err)
				}
				wantStates(t, settle(t, m.rcv, broker.Ack, m.ds...), broker.Confirmed)
				m.stands(t, 2)
				s.committed(t, m.out, 2)
				// The holder goes on.
				tx = begin(t, m.x)
				publishIn(t, tx, m.out, messages(1, 12)...)
				commitTx(t, tx, broker.Confirmed)
				s.committed(t, m.out, 3)
			})
		})
	}
}

// The answer is lost, and before anybody asks the ID is opened elsewhere. The
// coordinator has forgotten the transaction then; the log hasn't.
func TestTxnCommitUnknownThenFenced(t *testing.T) {
	for name, kind := range map[string]localstack.Fault{
		"applied":     {Kind: localstack.LoseResponse, API: "EndTxn", Cut: true},
		"not applied": {Kind: localstack.LoseRequest, API: "EndTxn", Cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			onStages(t, func(t *testing.T, s *stage) {
				m := move(t, s, 2)
				tx := begin(t, m.x)
				publishIn(t, tx, m.out, messages(2, 10)...)
				ackIn(t, tx, m.ds...)
				kind := kind
				kind.Match = "x-" + m.in
				lost := s.Inject(kind)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					if kind.Kind == localstack.LoseResponse {
						_ = lost.WaitApplied(ctxOf(t, mustCome))
					} else {
						_ = lost.WaitHit(ctxOf(t, mustCome))
					}
					cancel()
				}()
				if o, err := tx.Commit(ctx); !errors.Is(err, broker.ErrUnknownOutcome) {
					t.Fatalf("%v, %v", o, err)
				}
				lost.Remove()
				other := s.open(t, s.dial(t), "x-"+m.in)
				next := begin(t, other)
				publishIn(t, next, m.out, messages(1, 20)...)
				commitTx(t, next, broker.Confirmed)
				o, err := tx.Resolve(ctxOf(t, mustCome))
				if name == "applied" {
					if o.State != broker.Confirmed {
						t.Fatalf("%v, %v", o.State, err)
					}
					s.committed(t, m.out, 3)
					m.stands(t, 2)
				} else {
					if o.State != broker.LeaseLost || !errors.Is(err, broker.ErrFenced) {
						t.Fatalf("%v, %v", o.State, err)
					}
					s.committed(t, m.out, 1)
					if at := m.at(t); at > 0 {
						t.Errorf("the position is %d", at)
					}
					receive(t, m.rcv, 2) // they come again
				}
				if _, err := m.x.Begin(ctxOf(t, mustCome)); !errors.Is(err, broker.ErrFenced) {
					t.Errorf("the earlier holder begins: %v", err)
				}
				// And the new holder is none the worse for it.
				next = begin(t, other)
				publishIn(t, next, m.out, messages(1, 21)...)
				commitTx(t, next, broker.Confirmed)
			})
		})
	}
}

// A holder that was replaced has its transaction aborted, whatever it does.
func TestTxnZombie(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		m := move(t, s, 2)
		tx := begin(t, m.x)
		publishIn(t, tx, m.out, messages(1, 10)...)
		ackIn(t, tx, m.ds...)
		other := s.open(t, s.dial(t), "x-"+m.in)
		if err := commitTx(t, tx, broker.LeaseLost); !errors.Is(err, broker.ErrFenced) {
			t.Fatalf("%v", err)
		}
		s.committed(t, m.out, 0)
		if at := m.at(t); at > 0 {
			t.Errorf("the position is %d", at)
		}
		for range 2 {
			if _, err := m.x.Begin(ctxOf(t, mustCome)); !errors.Is(err, broker.ErrFenced) {
				t.Errorf("the earlier holder begins: %v", err)
			}
		}
		next := begin(t, other)
		publishIn(t, next, m.out, messages(1, 20)...)
		commitTx(t, next, broker.Confirmed)
		s.committed(t, m.out, 1)
		receive(t, m.rcv, 2)

		// One that publishes instead learns it too.
		third := s.open(t, s.dial(t), "x-"+m.in)
		late, err := other.Begin(ctxOf(t, mustCome))
		if err == nil {
			_, err = late.Publish(ctxOf(t, mustCome), m.out, messages(1, 21)...)
			if aerr := late.Abort(ctxOf(t, mustCome)); !errors.Is(aerr, broker.ErrFenced) {
				t.Errorf("abort by the replaced holder: %v", aerr)
			}
		}
		if !errors.Is(err, broker.ErrFenced) {
			t.Errorf("the replaced holder publishes: %v", err)
		}
		next = begin(t, third)
		publishIn(t, next, m.out, messages(1, 22)...)
		commitTx(t, next, broker.Confirmed)
		s.committed(t, m.out, 2)
	})
}
