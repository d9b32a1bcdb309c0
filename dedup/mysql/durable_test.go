package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/mysql"
)

// TestCopyOutlivesCrash: a copy isn't told to be one as long as a crash could take the
// commit back that it rests on, with the effect, although it can be seen already (MY-F-390):
// its message would be acked, and the effect lost.
func TestCopyOutlivesCrash(t *testing.T) {
	server := start(t)
	db := newDatabase(t, server, connect(t, server, ""))
	s := open(t, db, mysql.Options{})
	in := dedup.New[*sql.Tx](s, "c", dedup.Options{Attempts: 20})
	// What the server does with a commit between showing it and flushing it, made to
	// last: nothing flushes the log but another commit.
	visible := func(on bool) {
		t.Helper()
		n := 1
		if on {
			n = 0
		}
		exec(t, db, "SET GLOBAL innodb_flush_log_at_timeout = 2700", fmt.Sprintf("SET GLOBAL innodb_flush_log_at_trx_commit = %d", n))
	}
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
		visible(true)
		apply(keys, dedup.Applied)
		visible(false)
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
