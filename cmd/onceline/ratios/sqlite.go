package ratios

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
)

func sqliteGroup(o *Options) group {
	return &groupOf[*sqliteBench]{"SQLite", func(ctx context.Context, o *Options) (*sqliteBench, error) { return newSQLiteBench(ctx) },
		[]measurement[*sqliteBench]{
			{Promise{Name: "sqlite.batch", What: "inbox, batches of 100, beside one message per transaction", Bound: 6, Unit: "×"},
				func(ctx context.Context, x *sqliteBench) (sample, error) {
					return pairs(ctx, o.Pairs, 1, x.singles(100), x.batches(100, 5))
				}},
		}}
}

// sqliteBench is a file with a store and accounts.
type sqliteBench struct {
	dir  string
	s    *sqlite.Store
	in   *dedup.Inbox[*sql.Tx]
	next int
}

func newSQLiteBench(ctx context.Context) (x *sqliteBench, err error) {
	x = new(sqliteBench)
	if x.dir, err = os.MkdirTemp("", "onceline-ratios-"); err != nil {
		return nil, err
	}
	if x.s, err = sqlite.Open(ctx, filepath.Join(x.dir, "ratios.db"), sqlite.Options{}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(x.dir))
	}
	x.in = dedup.New[*sql.Tx](x.s, "c", dedup.Options{})
	for _, query := range []string{
		"CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL DEFAULT 0)",
		fmt.Sprintf("WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %d) INSERT INTO account (id) SELECT i FROM n", accounts-1),
	} {
		if _, err := x.s.DB().ExecContext(ctx, query); err != nil {
			return nil, errors.Join(err, x.close())
		}
	}
	return x, nil
}

func (x *sqliteBench) close() error { return errors.Join(x.s.Close(), os.RemoveAll(x.dir)) }

func (x *sqliteBench) ids(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		x.next++
		ids[i] = x.next
	}
	return ids
}

func (x *sqliteBench) effect(ctx context.Context, tx *sql.Tx, id int) error {
	_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + 1 WHERE id = ?", account(id))
	return err
}

func (x *sqliteBench) singles(n int) way {
	return way{n, func(ctx context.Context) error {
		for _, id := range x.ids(n) {
			outcome, err := x.in.Once(ctx, key(id), func(ctx context.Context, tx *sql.Tx) error { return x.effect(ctx, tx, id) })
			if err := applied([]dedup.Result{{Outcome: outcome}}, err); err != nil {
				return err
			}
		}
		return nil
	}}
}

func (x *sqliteBench) batches(size, times int) way {
	return way{size * times, func(ctx context.Context) error {
		for range times {
			if err := applied(dedup.OnceBatch(ctx, x.in, x.ids(size), key, x.effect)); err != nil {
				return err
			}
		}
		return nil
	}}
}
