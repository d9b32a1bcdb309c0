package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/mysql"
)

// flushing has the server flush commits before it answers, or not: what it does with a
// commit between showing and flushing it is made to last, until another is flushed.
func flushing(t *testing.T, db *sql.DB, on bool) {
	t.Helper()
	n := 0
	if on {
		n = 1
	}
	exec(t, db, "SET GLOBAL innodb_flush_log_at_timeout = 2700", fmt.Sprintf("SET GLOBAL innodb_flush_log_at_trx_commit = %d", n))
}

// TestCopyOutlivesCrash: a copy isn't told to be one as long as a crash could take the
// commit back that it rests on, with the effect, although it can be seen already (MY-F-390):
// its message would be acked, and the effect lost.
func TestCopyOutlivesCrash(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	s := open(t, db, mysql.Options{})
	in := dedup.New[*sql.Tx](s, "c", dedup.Options{Attempts: 20})
	apply := func(keys []dedup.Key, want dedup.Outcome) {
		t.Helper()
		results, _ := dedup.OnceBatch(t.Context(), in, keys, func(k dedup.Key) dedup.Key { return k },
			func(ctx context.Context, tx *sql.Tx, k dedup.Key) error { return effect(ctx, tx, k.ID) })
		for i, r := range results {
			if r.Outcome != want {
				t.Errorf("%s: %v: %v; want %v", keys[i].ID, r.Outcome, r.Err, want)
			}
		}
	}
	owned := func(keys []dedup.Key) { // a transaction of the caller's, in which nothing is fresh
		t.Helper()
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			t.Fatal(err)
		}
		claims, err := in.ClaimTx(t.Context(), tx, keys...)
		if err != nil || claims[0] != dedup.Seen {
			t.Errorf("%v, %v", claims, err)
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
	}
	for name, copied := range map[string]func(keys []dedup.Key){
		"many":  func(keys []dedup.Key) { apply(keys, dedup.Duplicate) },
		"owned": owned,
	} {
		keys := []dedup.Key{{ID: name + "1"}, {ID: name + "2"}}
		flushing(t, db, false)
		apply(keys, dedup.Applied)
		flushing(t, db, true)
		copied(keys)
		if err := server.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		apply(keys, dedup.Duplicate)
		got, err := ledger(t.Context(), db)
		if err != nil || got[keys[0].ID] != 1 || got[keys[1].ID] != 1 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestNoMessageOfNothing: no message is sent of a transaction that a crash can take back,
// although its rows can be seen already.
func TestNoMessageOfNothing(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	s := open(t, db, mysql.Options{})
	out := dedup.NewOutbox(s, "orders", dedup.OutboxOptions{})
	for _, window := range []time.Duration{time.Minute, 0} {
		id := fmt.Sprint("of ", window)
		flushing(t, db, false)
		if err := out.InTx(t.Context(), func(tx *sql.Tx) error {
			return errors.Join(effect(t.Context(), tx, id), out.AddTx(t.Context(), tx, broker.Message{ID: id}))
		}); err != nil {
			t.Fatal(err)
		}
		flushing(t, db, true)
		sent := 0
		to := publisher{window: window, answer: func(m broker.Message) broker.Receipt {
			if sent++; m.ID != id {
				t.Errorf("sent %s", m.ID)
			}
			if err := server.Kill(t.Context()); err != nil {
				t.Error(err)
			}
			return broker.Receipt{Verdict: broker.Stored}
		}}
		_, _ = dedup.NewRelay(s, "orders", to, dedup.RelayOptions{PublishTimeout: time.Minute, ErrorHook: func(error) {}}).Drain(t.Context())
		if got, err := ledger(t.Context(), db); err != nil || sent != 1 || got[id] != 1 {
			t.Errorf("%s: sent %d times, %v, %v", id, sent, got, err)
		}
		exec(t, db, "DELETE FROM onceline_outbox")
	}
}

type publisher struct {
	window time.Duration
	answer func(m broker.Message) broker.Receipt
}

func (p publisher) Publish(_ context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	receipts := make([]broker.Receipt, len(msgs))
	for i := range msgs {
		receipts[i] = p.answer(msgs[i])
	}
	return receipts, nil
}

func (p publisher) Limits() broker.Limits       { return broker.Limits{Window: p.window} }
func (p publisher) As(any) bool                 { return false }
func (p publisher) Close(context.Context) error { return nil }
