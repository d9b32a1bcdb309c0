package kafka

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
)

// recoverTx ends a prepared transaction as another process does.
func recoverTx(t testing.TB, s *stage, token []byte, commit bool, want broker.State) error {
	t.Helper()
	o, err := broker.RecoverTransaction(ctxOf(t, mustCome), s.dial(t), token, commit)
	if o.State != want {
		t.Fatalf("recover(%t): %v (%v), want %v", commit, o.State, err, want)
	}
	return err
}

func prepare(t testing.TB, tx broker.Transaction) []byte {
	t.Helper()
	token, err := tx.Prepare(ctxOf(t, mustCome))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A prepared transaction outlives its process, and is ended once, either way.
func TestTxnPrepare(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		m := move(t, s, 2)
		tx := begin(t, m.x)
		publishIn(t, tx, m.out, messages(2, 10)...)
		ackIn(t, tx, m.ds...)
		token := prepare(t, tx)
		if again := prepare(t, tx); string(again) != string(token) {
			t.Errorf("%s, then %s", token, again)
		}
		if _, err := tx.Publish(t.Context(), m.out, messages(1, 12)...); !errors.Is(err, broker.ErrConflict) {
			t.Errorf("publish to a prepared transaction: %v", err)
		}
		if err := m.x.Close(ctxOf(t, mustCome)); err != nil {
			t.Fatal(err)
		}
		recoverTx(t, s, token, true, broker.Confirmed)
		recoverTx(t, s, token, true, broker.Confirmed)
		s.committed(t, m.out, 2)
		m.stands(t, 2)

		// The next holder has gone on to another transaction, and is in the midst of
		// it, when the first is asked for once more.
		x := s.open(t, m.conn, "x-"+m.in)
		tx = begin(t, x)
		publishIn(t, tx, m.out, messages(1, 12)...)
		recoverTx(t, s, token, true, broker.Confirmed)
		if err := recoverTx(t, s, token, false, broker.LeaseLost); !errors.Is(err, broker.ErrConflict) {
			t.Errorf("abort of what is committed: %v", err)
		}
		publishIn(t, tx, m.out, messages(1, 13)...)
		second := prepare(t, tx)
		if err := x.Close(ctxOf(t, mustCome)); err != nil {
			t.Fatal(err)
		}
		recoverTx(t, s, second, false, broker.Confirmed)
		recoverTx(t, s, second, false, broker.Confirmed)
		if err := recoverTx(t, s, second, true, broker.LeaseLost); !errors.Is(err, broker.ErrAborted) {
			t.Errorf("commit of what is aborted: %v", err)
		}
		s.committed(t, m.out, 2)
	})
}

// The same identity runs one transaction after the other where epochs don't rise:
// the token of the first must not end the second.
func TestTxnPrepareOneAfterTheOther(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		c, out := s.dial(t), s.topic(t, 1)
		x := s.open(t, c, "x-"+out)
		tx := begin(t, x)
		publishIn(t, tx, out, messages(1, 0)...)
		first := prepare(t, tx)
		commitTx(t, tx, broker.Confirmed)
		tx = begin(t, x)
		publishIn(t, tx, out, messages(1, 1)...)
		recoverTx(t, s, first, true, broker.Confirmed)
		if err := tx.Abort(ctxOf(t, mustCome)); err != nil {
			t.Fatalf("the second was ended by the first's token: %v", err)
		}
		s.committed(t, out, 1)
	})
}

// Opening the ID before recovering aborts what was prepared, and that is said.
func TestTxnPreparedThenOpened(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		c, out := s.dial(t), s.topic(t, 1)
		x := s.open(t, c, "x-"+out)
		tx := begin(t, x)
		publishIn(t, tx, out, messages(1, 0)...)
		token := prepare(t, tx)
		if err := x.Close(ctxOf(t, mustCome)); err != nil {
			t.Fatal(err)
		}
		s.open(t, c, "x-"+out)
		if err := recoverTx(t, s, token, true, broker.LeaseLost); !errors.Is(err, broker.ErrAborted) {
			t.Errorf("%v", err)
		}
		s.committed(t, out, 0)
	})
}

// A transaction that outlives its time is aborted, prepared or not; its holder may go
// on, or is told to open the ID anew.
func TestTxnTimeout(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		if s.real {
			t.Skip("the broker looks for late transactions every 10 s; TestLocalTransactionTimeout has its limit")
		}
		m := move(t, s, 2, broker.TransactionTimeout(300*time.Millisecond))
		tx := begin(t, m.x)
		publishIn(t, tx, m.out, messages(2, 10)...)
		ackIn(t, tx, m.ds...)
		token := prepare(t, tx)
		s.committed(t, m.out, 0) // once it is aborted
		err := commitTx(t, tx, broker.LeaseLost)
		if !errors.Is(err, broker.ErrFenced) && !errors.Is(err, broker.ErrAborted) {
			t.Errorf("%v", err)
		}
		if err := recoverTx(t, s, token, true, broker.LeaseLost); !errors.Is(err, broker.ErrAborted) {
			t.Errorf("%v", err)
		}
		m.ds = receive(t, m.rcv, 2)
		next, err := m.x.Begin(ctxOf(t, mustCome))
		if errors.Is(err, broker.ErrFenced) {
			next, err = s.open(t, m.conn, "x-"+m.in).Begin(ctxOf(t, mustCome))
		}
		if err != nil {
			t.Fatal(err)
		}
		publishIn(t, next, m.out, messages(1, 20)...)
		ackIn(t, next, m.ds...)
		commitTx(t, next, broker.Confirmed)
		s.committed(t, m.out, 1)
		m.stands(t, 2)
	})
}

func TestTxnRefusals(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		c, out := s.dial(t), s.topic(t, 1)
		if _, err := broker.OpenTransactor(t.Context(), c, "x", broker.TransactionTimeout(time.Hour)); !errors.Is(err, broker.ErrUnsupported) || !strings.Contains(err.Error(), "15m") {
			t.Errorf("an hour: %v", err)
		}
		for _, token := range []string{"", "x", tokenKind, tokenKind + "{}", tokenKind + `{"id":"x","topic":"t","producer":1,"epoch":-1}`} {
			if _, err := broker.RecoverTransaction(t.Context(), c, []byte(token), true); !errors.Is(err, broker.ErrInvalid) {
				t.Errorf("token %q: %v", token, err)
			}
		}
		x := s.open(t, c, "x-"+out)
		tx := begin(t, x)
		token := prepare(t, tx) // of nothing
		recoverTx(t, s, token, true, broker.Confirmed)
		if _, err := broker.RecoverTransaction(t.Context(), c, []byte(strings.Replace(string(token), `"cluster":"`, `"cluster":"other-`, 1)), true); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("a token of another cluster: %v", err)
		}
		commitTx(t, tx, broker.Confirmed)
		tx = begin(t, x)
		if _, err := tx.Publish(ctxOf(t, mustCome), "not-there", messages(1, 0)...); !errors.Is(err, broker.ErrNotFound) {
			t.Errorf("no such topic: %v", err)
		}
		if _, err := tx.Publish(ctxOf(t, mustCome), out, broker.Message{}); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("no ID: %v", err)
		}
		publishIn(t, tx, out, messages(1, 0)...)
		commitTx(t, tx, broker.Confirmed) // which harmed nothing
		s.committed(t, out, 1)
	})
}
