package memory_test

import (
	"context"
	"errors"
	"testing"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
)

// stand is a broker with a transactor and three deliveries in hand.
type stand struct {
	*memory.Broker
	c   broker.Conn
	rcv broker.Receiver
	x   broker.Transactor
	ds  []broker.Delivery
}

func newStand(t *testing.T) *stand {
	s := &stand{Broker: memory.New()}
	t.Cleanup(s.Close)
	s.c = s.Conn()
	for _, e := range []broker.Entity{{Topic: "in", Subscription: "in/s"}, {Topic: "out", Subscription: "out/s"}} {
		if err := s.c.Ensure(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	p, err := s.c.OpenPublisher(t.Context(), "in")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(t.Context(), broker.Message{ID: "a"}, broker.Message{ID: "b"}, broker.Message{ID: "c"}); err != nil {
		t.Fatal(err)
	}
	if s.rcv, err = s.c.OpenReceiver(t.Context(), "in/s"); err != nil {
		t.Fatal(err)
	}
	if s.ds, err = s.rcv.Receive(t.Context(), 3); err != nil || len(s.ds) != 3 {
		t.Fatal(s.ds, err)
	}
	s.x = s.open(t)
	return s
}

func (s *stand) open(t *testing.T) broker.Transactor {
	x, err := broker.OpenTransactor(t.Context(), s.c, "x")
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// begin begins a transaction with an output and all inputs.
func (s *stand) begin(t *testing.T, id string) broker.Transaction {
	t.Helper()
	tx, err := s.x.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if rs, err := tx.Publish(t.Context(), "out", broker.Message{ID: id}); err != nil || rs[0].Verdict != broker.Accepted {
		t.Fatal(rs, err)
	}
	var ss []broker.Settlement
	for i := range s.ds {
		ss = append(ss, broker.Settlement{Delivery: &s.ds[i]})
	}
	if err := tx.Settle(t.Context(), ss); err != nil {
		t.Fatal(err)
	}
	return tx
}

func (s *stand) holds(t *testing.T, in, out int) {
	t.Helper()
	a, err := s.Stats("in/s")
	b, berr := s.Stats("out/s")
	if err != nil || berr != nil || a.Ready+a.InFlight != in || b.Ready != out {
		t.Errorf("in %+v, out %+v; want %d and %d", a, b, in, out)
	}
}

func TestTransaction(t *testing.T) {
	s := newStand(t)
	tx := s.begin(t, "o")
	s.holds(t, 3, 0)
	if o, _ := s.ds[0].Ack(t.Context()); o.State != broker.Pending {
		t.Errorf("asked before the commit: %+v", o)
	}
	if _, err := s.x.Begin(t.Context()); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("a second one: %v", err)
	}
	if o, err := tx.Commit(t.Context()); o.State != broker.Confirmed {
		t.Fatal(o, err)
	}
	s.holds(t, 0, 1)
	if o, _ := s.ds[0].Ack(t.Context()); o.State != broker.Confirmed {
		t.Errorf("asked after the commit: %+v", o)
	}
	if rs, err := tx.Publish(t.Context(), "out", broker.Message{ID: "late"}); !errors.Is(err, broker.ErrConflict) || rs[0].Verdict != broker.Refused {
		t.Errorf("published after the end: %v %v", rs, err)
	}
}

func TestTransactionAbort(t *testing.T) {
	s := newStand(t)
	tx := s.begin(t, "o")
	if err := tx.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o, _ := s.ds[0].Ack(t.Context()); o.State != broker.LeaseLost {
		t.Errorf("%+v", o)
	}
	s.holds(t, 3, 0)
	if ds, err := s.rcv.Receive(t.Context(), 3); err != nil || len(ds) != 3 {
		t.Errorf("%d come again: %v", len(ds), err)
	}
	if o, err := tx.Commit(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrAborted) {
		t.Errorf("commit after abort: %v %v", o, err)
	}
}

// A cut connection takes the open transaction along, a prepared one not.
func TestTransactionCut(t *testing.T) {
	s := newStand(t)
	tx := s.begin(t, "o")
	s.Restart(true)
	if o, err := tx.Commit(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrAborted) {
		t.Errorf("%v %v", o, err)
	}
	s.holds(t, 3, 0)
	tx, err := s.x.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Publish(t.Context(), "out", broker.Message{ID: "p"}); err != nil {
		t.Fatal(err)
	}
	token, err := tx.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Restart(true)
	for range 2 {
		if o, err := broker.RecoverTransaction(t.Context(), s.c, token, true); o.State != broker.Confirmed {
			t.Errorf("%v %v", o, err)
		}
	}
	if o, err := broker.RecoverTransaction(t.Context(), s.c, token, false); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrConflict) {
		t.Errorf("abort of what is committed: %v %v", o, err)
	}
	s.holds(t, 3, 1)
}

// Opening the ID again fences the earlier holder and aborts what it prepared.
func TestTransactionFenced(t *testing.T) {
	s := newStand(t)
	tx := s.begin(t, "o")
	token, err := tx.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.open(t)
	if o, err := tx.Commit(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrFenced) {
		t.Errorf("%v %v", o, err)
	}
	if o, err := broker.RecoverTransaction(t.Context(), s.c, token, true); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrAborted) {
		t.Errorf("%v %v", o, err)
	}
	if _, err := s.x.Begin(t.Context()); !errors.Is(err, broker.ErrFenced) {
		t.Errorf("%v", err)
	}
	s.holds(t, 3, 0)
	for _, bad := range []string{"x", "onceline/memory/transaction/1 1", "onceline/memory/transaction/1 a x"} {
		if _, err := broker.RecoverTransaction(t.Context(), s.c, []byte(bad), true); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("token %q: %v", bad, err)
		}
	}
}

// A lost answer is resolved, whichever way it was lost.
func TestTransactionUnknown(t *testing.T) {
	for _, kind := range []memory.Kind{memory.LoseRequest, memory.LoseResponse, memory.Cut} {
		t.Run(kind.String(), func(t *testing.T) {
			s := newStand(t)
			tx := s.begin(t, "o")
			i := s.Inject(memory.Fault{Op: memory.Commit, Kind: kind, Match: "x", Times: 1})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { _ = i.WaitHit(t.Context()); cancel() }()
			if o, err := tx.Commit(ctx); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
				t.Fatal(o, err)
			}
			if err := tx.Abort(t.Context()); !errors.Is(err, broker.ErrConflict) {
				t.Errorf("abort: %v", err)
			}
			o, err := tx.Resolve(t.Context())
			if kind == memory.Cut {
				if o.State != broker.LeaseLost {
					t.Fatal(o, err)
				}
				s.holds(t, 3, 0)
				return
			}
			if o.State != broker.Confirmed {
				t.Fatal(o, err)
			}
			s.holds(t, 0, 1)
		})
	}
}

// What a lease has lost loses the transaction.
func TestTransactionLeaseLost(t *testing.T) {
	s := newStand(t)
	tx := s.begin(t, "o")
	if err := s.rcv.Close(t.Context()); err != nil { // gives back what it holds
		t.Fatal(err)
	}
	if o, err := tx.Commit(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("%v %v", o, err)
	}
	s.holds(t, 3, 0)
}
