package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
)

var errBroken = errors.New("broken")

func byID(id string) dedup.Key { return dedup.Key{ID: id} }

func series(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%03d", prefix, i)
	}
	return ids
}

// unsendable can't be encoded as any argument.
type unsendable chan int

// TestPipelined: a message that fails, in whatever way, takes none of its batch with
// it, and is applied when it comes again.
func TestPipelined(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 3)
	s, schema := open(t, p, postgres.Options{})
	query := insert(schema)
	count := fmt.Sprintf("SELECT count(*) FROM %q.ledger WHERE id = $1", schema)
	queueGood := func(b *pgx.Batch, id string) { b.Queue(query, id) }
	fails := map[string]func(b *pgx.Batch, id string){
		"statement": func(b *pgx.Batch, id string) { b.Queue(query, id); b.Queue(query, nil) },
		"callback": func(b *pgx.Batch, id string) {
			b.Queue(query, id).Exec(func(pgconn.CommandTag) error { return errBroken })
		},
		"row": func(b *pgx.Batch, id string) {
			b.Queue(query, id)
			b.Queue(count, id).QueryRow(func(row pgx.Row) error {
				var n int
				if err := row.Scan(&n); err != nil || n != 1 {
					return fmt.Errorf("%d rows of %s: %v", n, id, err)
				}
				return errBroken
			})
			b.Queue(query, id)
		},
		"panic": func(b *pgx.Batch, id string) {
			b.Queue(query, id).Query(func(pgx.Rows) error { panic(errBroken) })
		},
		"queue panics": func(b *pgx.Batch, id string) { b.Queue(query, id); panic(errBroken) },
		"encode":       func(b *pgx.Batch, id string) { b.Queue(query, id); b.Queue(query, make(unsendable)) },
		"prepare":      func(b *pgx.Batch, id string) { b.Queue(query, id); b.Queue("SELECT no such thing") },
	}
	for name, fail := range fails {
		for _, bad := range [][]int{{0}, {99}, {16}, {15, 17, 16, 48}, {3, 5, 50, 51, 52, 77, 98}} {
			t.Run(fmt.Sprint(name, bad), func(t *testing.T) {
				in := dedup.New[pgx.Tx](s, t.Name(), dedup.Options{Attempts: 10})
				p.exec(t, fmt.Sprintf("TRUNCATE %q.ledger", schema))
				ids := series("m", 100)
				results, err := postgres.OncePipelined(t.Context(), in, ids, byID, func(b *pgx.Batch, id string) {
					if slices.ContainsFunc(bad, func(i int) bool { return ids[i] == id }) {
						fail(b, id)
						return
					}
					queueGood(b, id)
				})
				if err == nil {
					t.Error("no error")
				}
				for i, r := range results {
					want := dedup.Applied
					if slices.Contains(bad, i) {
						want = dedup.Failed
					}
					if r.Outcome != want {
						t.Fatalf("message %d is %v: %v; want %v", i, r.Outcome, r.Err, want)
					}
				}
				check(t, p, schema, ids, func(i int) bool { return !slices.Contains(bad, i) })
				results, err = postgres.OncePipelined(t.Context(), in, ids, byID, queueGood)
				if err != nil {
					t.Error(err)
				}
				for i, r := range results {
					if (r.Outcome == dedup.Applied) != slices.Contains(bad, i) || !r.Outcome.OK() {
						t.Errorf("again, message %d is %v", i, r.Outcome)
					}
				}
				check(t, p, schema, ids, func(int) bool { return true })
			})
		}
	}
}

// check checks that exactly the messages for which has is true have one row.
func check(t *testing.T, p *pool, schema string, ids []string, has func(i int) bool) {
	t.Helper()
	got, err := p.ledger(context.WithoutCancel(t.Context()), fmt.Sprintf("%q.ledger", schema))
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		want := 0
		if has(i) {
			want = 1
		}
		if got[id] != want {
			t.Errorf("%d effects of %s, want %d", got[id], id, want)
		}
	}
}

// TestPipelinedEdges: copies in a batch, messages without statements, more than a
// transaction takes, statements that return rows.
func TestPipelinedEdges(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 2)
	s, schema := open(t, p, postgres.Options{})
	in := dedup.New[pgx.Tx](s, "c", dedup.Options{})
	ids := series("m", 250)
	ids[249] = ids[0]
	seen := 0
	results, err := postgres.OncePipelined(t.Context(), in, ids, byID, func(b *pgx.Batch, id string) {
		if id == ids[7] {
			return
		}
		b.Queue(insert(schema)+" RETURNING id", id).QueryRow(func(row pgx.Row) error {
			var got string
			err := row.Scan(&got)
			if got == id {
				seen++
			}
			return err
		})
	})
	if err != nil || seen != 248 {
		t.Errorf("%d rows seen, %v", seen, err)
	}
	for i, r := range results {
		want := dedup.Applied
		if i == 249 {
			want = dedup.Duplicate
		}
		if r.Outcome != want {
			t.Errorf("message %d is %v: %v", i, r.Outcome, r.Err)
		}
	}
	check(t, p, schema, ids, func(i int) bool { return i != 7 })
}

// TestPositionPipelined: what comes before a message that fails is applied and
// what comes behind isn't.
func TestPositionPipelined(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 2)
	s, schema := open(t, p, postgres.Options{})
	pos := dedup.NewPosition[pgx.Tx](s, "c", dedup.Options{})
	at := dedup.Partition{Topic: "orders", Name: "0"}
	offsets := make([]int64, 250)
	ids := series("m", 250)
	for i := range offsets {
		offsets[i] = int64(i)
	}
	last := dedup.Start
	for _, bad := range []int64{130, 131, 0, 249, -1} {
		got, err := postgres.AppliedFromPipelined(t.Context(), pos, at, last, offsets, func(o int64) int64 { return o }, func(b *pgx.Batch, o int64) {
			b.Queue(insert(schema), ids[o])
			if o == bad {
				b.Queue(insert(schema), nil)
			}
		})
		if want := bad > last; want != (err != nil) {
			t.Errorf("bad %d behind %d: %v", bad, last, err)
		}
		if bad > last && got != bad-1 || bad < last && got != 249 {
			t.Errorf("bad %d behind %d: at %d", bad, last, got)
		}
		last = got
		check(t, p, schema, ids, func(i int) bool { return int64(i) <= last })
		if _, err := postgres.AppliedFromPipelined(t.Context(), pos, at, dedup.Start, offsets[:1], func(o int64) int64 { return o }, func(b *pgx.Batch, o int64) {
			b.Queue(insert(schema), ids[o])
		}); !errors.Is(err, dedup.ErrFenced) {
			t.Errorf("a zombie: %v", err)
		}
	}
}
