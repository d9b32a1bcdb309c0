package postgres_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
)

// compare runs ways in turns, that many rounds, so that what else the machine does
// hits all, and reports for each the time of the first over its
// own, the median of the rounds: how many times as fast as the first it is.
func compare(b *testing.B, rounds int, ways []way) {
	b.Helper()
	ratios := make([][]float64, len(ways))
	rates := make([][]float64, len(ways))
	for _, w := range ways {
		w.run(b) // prepares its statements
	}
	for range rounds {
		var first float64
		for i, w := range ways {
			began := time.Now()
			w.run(b)
			per := time.Since(began).Seconds() / float64(w.messages)
			if i == 0 {
				first = per
			}
			ratios[i] = append(ratios[i], first/per)
			rates[i] = append(rates[i], 1/per)
		}
	}
	for i, w := range ways {
		slices.Sort(ratios[i])
		slices.Sort(rates[i])
		b.Logf("%-40s %7.2f × (%.2f to %.2f)  %8.0f msg/s", w.name, ratios[i][rounds/2], ratios[i][1], ratios[i][rounds-2], rates[i][rounds/2])
		if i > 0 {
			b.ReportMetric(ratios[i][rounds/2], w.unit)
		}
	}
	b.ReportMetric(0, "ns/op")
}

type way struct {
	name, unit string
	messages   int
	run        func(b *testing.B)
}

// bench is a store with accounts to update.
type bench struct {
	p          *pool
	s          *postgres.Store
	in         *dedup.Inbox[pgx.Tx]
	pos        *dedup.Position[pgx.Tx]
	update     string
	plain      string // the claim by hand
	plainBatch string
	next       int
	last       int64
}

func newBench(b *testing.B) *bench {
	b.Helper()
	server := start(b)
	p := connect(b, server, 2)
	// Past the proxy for faults, which would be on the way of every statement.
	var port uint16
	if err := p.QueryRow(b.Context(), "SELECT current_setting('port')::int").Scan(&port); err != nil {
		b.Fatal(err)
	}
	p.config.Port = port
	p.reopen(b)
	if d := os.Getenv("ONCELINE_BENCH_RTT"); d != "" {
		rtt, err := time.ParseDuration(d)
		if err != nil {
			b.Fatal(err)
		}
		p.config.DialFunc = slowly(rtt)
	}
	s, schema := open(b, p, postgres.Options{})
	p.exec(b, fmt.Sprintf("CREATE TABLE %q.account (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50)", schema),
		fmt.Sprintf("INSERT INTO %q.account (id) SELECT generate_series(0, 9999)", schema), fmt.Sprintf("VACUUM ANALYZE %q.account", schema))
	return &bench{
		p: p, s: s, in: dedup.New[pgx.Tx](s, "c", dedup.Options{MaxBatch: 500}), pos: dedup.NewPosition[pgx.Tx](s, "c", dedup.Options{MaxBatch: 500}), last: dedup.Start,
		update: fmt.Sprintf("UPDATE %q.account SET balance = balance + 1 WHERE id = $1", schema),
		plain:  fmt.Sprintf("INSERT INTO %q.onceline_marker (key) SELECT $1::uuid WHERE pg_try_advisory_xact_lock($2) ON CONFLICT DO NOTHING", schema),
		plainBatch: fmt.Sprintf(`INSERT INTO %q.onceline_marker (key) SELECT key FROM unnest($1::uuid[], $2::bigint[]) AS u (key, lock)
			WHERE pg_try_advisory_xact_lock(lock) ON CONFLICT DO NOTHING RETURNING key`, schema),
	}
}

func (x *bench) ids(n int) []int {
	ids := make([]int, n)
	for i := range ids {
		x.next++
		ids[i] = x.next
	}
	return ids
}

func key(id int) dedup.Key { return dedup.Key{ID: fmt.Sprintf("order-%d:paid:v1", id)} }

func account(id int) int { return id * 7919 % 10000 }

func (x *bench) effect(ctx context.Context, tx pgx.Tx, id int) error {
	_, err := tx.Exec(ctx, x.update, account(id))
	return err
}

func (x *bench) queue(b *pgx.Batch, id int) { b.Queue(x.update, account(id)) }

func all(b *testing.B, results []dedup.Result, err error) {
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range results {
		if r.Outcome != dedup.Applied {
			b.Fatal(r)
		}
	}
}

func (x *bench) singles(n int) way {
	return way{"inbox, one message per transaction", "single-x", n, func(b *testing.B) {
		for _, id := range x.ids(n) {
			if o, err := x.in.Once(b.Context(), key(id), func(ctx context.Context, tx pgx.Tx) error { return x.effect(ctx, tx, id) }); o != dedup.Applied {
				b.Fatal(o, err)
			}
		}
	}}
}

func (x *bench) sequential(size, times int) way {
	return way{fmt.Sprintf("inbox, batch %d, sequential", size), fmt.Sprintf("sequential-%d-x", size), size * times, func(b *testing.B) {
		for range times {
			results, err := dedup.OnceBatch(b.Context(), x.in, x.ids(size), key, x.effect)
			all(b, results, err)
		}
	}}
}

func (x *bench) pipelined(size, times int) way {
	return way{fmt.Sprintf("inbox, batch %d, pipelined", size), fmt.Sprintf("pipelined-%d-x", size), size * times, func(b *testing.B) {
		for range times {
			results, err := postgres.OncePipelined(b.Context(), x.in, x.ids(size), key, x.queue)
			all(b, results, err)
		}
	}}
}

// pipelinedBad has one bad effect in a hundred, at random places.
func (x *bench) pipelinedBad(size, times int) way {
	return way{fmt.Sprintf("inbox, batch %d, pipelined, 1 %% bad", size), fmt.Sprintf("pipelined-%d-bad-x", size), size * times, func(b *testing.B) {
		for range times {
			ids := x.ids(size)
			bad := func(id int) bool { return uint64(id)*0x9E3779B97F4A7C15%100 == 0 }
			results, _ := postgres.OncePipelined(b.Context(), x.in, ids, key, func(batch *pgx.Batch, id int) {
				if bad(id) {
					batch.Queue(x.update+" AND 1/(id - id) > 0", account(id)) // divides by zero
					return
				}
				x.queue(batch, id)
			})
			for i, r := range results {
				if (r.Outcome == dedup.Failed) != bad(ids[i]) {
					b.Fatal(r)
				}
			}
		}
	}}
}

func (x *bench) position(size, times int) way {
	return way{fmt.Sprintf("position, batch %d, pipelined", size), fmt.Sprintf("position-%d-x", size), size * times, func(b *testing.B) {
		at := dedup.Partition{Topic: "orders", Name: "0"}
		for range times {
			offsets := make([]int64, size)
			for i := range offsets {
				offsets[i] = x.last + 1 + int64(i)
			}
			var err error
			if x.last, err = postgres.AppliedFromPipelined(b.Context(), x.pos, at, x.last, offsets, func(o int64) int64 { return o },
				func(batch *pgx.Batch, o int64) { x.queue(batch, int(o)) }); err != nil {
				b.Fatal(err)
			}
		}
	}}
}

// BenchmarkInbox compares the ways to apply messages with the single one. With
// ONCELINE_BENCH_RTT=2.7ms every round trip takes that much longer.
func BenchmarkInbox(b *testing.B) {
	x := newBench(b)
	compare(b, 9, []way{x.singles(100), x.sequential(100, 2), x.pipelined(10, 10), x.pipelined(100, 4), x.pipelined(500, 2), x.position(100, 4), x.position(500, 2)})
}

// BenchmarkBad is what one bad effect in a hundred costs the batch of a hundred.
func BenchmarkBad(b *testing.B) {
	x := newBench(b)
	compare(b, 15, []way{x.pipelined(100, 10), x.pipelinedBad(100, 10)})
}

// BenchmarkByHand compares the inbox with the same statements written by hand.
func BenchmarkByHand(b *testing.B) {
	x := newBench(b)
	begin := "begin isolation level read committed read write; set local lock_timeout = 5000; set local statement_timeout = 30000; set local idle_in_transaction_session_timeout = 60000"
	compare(b, 61, []way{
		{"by hand, one message per transaction", "", 20, func(b *testing.B) {
			for _, id := range x.ids(20) {
				x.byHand(b, begin, id)
			}
		}},
		x.singles(20),
	})
	compare(b, 61, []way{
		{"by hand, batch 100, pipelined", "", 100, func(b *testing.B) {
			x.byHandPipelined(b, begin, x.ids(100))
		}},
		x.pipelined(100, 1),
	})
}

func (x *bench) byHand(b *testing.B, begin string, id int) {
	ctx := b.Context()
	tx, err := x.p.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		b.Fatal(err)
	}
	m, err := dedup.Key{Consumer: "hand", ID: key(id).ID}.Marker()
	if err != nil {
		b.Fatal(err)
	}
	tag, err := tx.Exec(ctx, x.plain, m.Bytes, m.Lock())
	if err != nil || tag.RowsAffected() != 1 {
		b.Fatal(tag, err)
	}
	if err := x.effect(ctx, tx, id); err != nil {
		b.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		b.Fatal(err)
	}
}

func (x *bench) byHandPipelined(b *testing.B, begin string, ids []int) {
	ctx := b.Context()
	tx, err := x.p.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		b.Fatal(err)
	}
	keys, locks := make([][16]byte, len(ids)), make([]int64, len(ids))
	markers := make([]dedup.Marker, len(ids))
	for i, id := range ids {
		if markers[i], err = (dedup.Key{Consumer: "hand", ID: key(id).ID}).Marker(); err != nil {
			b.Fatal(err)
		}
	}
	slices.SortFunc(markers, dedup.Marker.Compare)
	for i, m := range markers {
		keys[i], locks[i] = m.Bytes, m.Lock()
	}
	rows, err := tx.Query(ctx, x.plainBatch, keys, locks)
	if err != nil {
		b.Fatal(err)
	}
	fresh, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
	if err != nil || len(fresh) != len(ids) {
		b.Fatal(len(fresh), err)
	}
	batch := &pgx.Batch{}
	for _, id := range ids {
		x.queue(batch, id)
	}
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		b.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		b.Fatal(err)
	}
}
