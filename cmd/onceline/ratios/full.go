package ratios

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
)

const day = 24 * time.Hour

// fullGroup measures tables that are full, and what it takes to drop a day of markers.
func fullGroup(o *Options) group {
	return &groupOf[*fullBench]{"PostgreSQL with full tables", newFullBench,
		[]measurement[*fullBench]{
			{Promise{Name: "postgres.bytes", What: "bytes of a marker without a time, table and indexes, of a million", Bound: 95, Most: true, Unit: "B", Exact: true},
				func(ctx context.Context, x *fullBench) (sample, error) {
					return x.bytes(ctx, "onceline_marker", func(int) time.Time { return time.Time{} })
				}},
			{Promise{Name: "postgres.bytes-timed", What: "bytes of a marker with the time of its event, table and index, of a million in a day", Bound: 95, Most: true, Unit: "B", Exact: true},
				func(ctx context.Context, x *fullBench) (sample, error) {
					return x.bytes(ctx, table(x.oldest()), func(i int) time.Time { // as they come in the course of the day
						return x.oldest().Add(time.Duration(float64(day) * float64(i) / float64(x.markers)))
					})
				}},
			{Promise{Name: "postgres.drop", What: "time to drop a day of a million markers, beside two who insert", Bound: 1, Most: true, Unit: "s"},
				func(ctx context.Context, x *fullBench) (sample, error) {
					d, err := x.dropped(ctx, "drop")
					return sample{d.took, fmt.Sprintf("beside %d inserts, the longest of which is postgres.stall's", d.inserts)}, err
				}},
			{Promise{Name: "postgres.stall", What: fmt.Sprintf("longest of all inserts while days are dropped, every other one behind a handler that holds its transaction for %v", holds), Bound: 200, Most: true, Unit: "ms"},
				func(ctx context.Context, x *fullBench) (sample, error) {
					d, err := x.dropped(ctx, "stall")
					if err != nil {
						return sample{}, err
					}
					return sample{[]float64{slices.Max(d.longest)}, fmt.Sprintf("of %d inserts beside %d drops, longest of each %.0f ms; with no drop under way %.0f ms", d.inserts, len(d.longest), d.longest, d.calm)}, nil
				}},
		}}
}

// holds is for how long a slow handler has its transaction open while a day is dropped.
const holds = 300 * time.Millisecond

// fullBench is a store whose clock is moved on by a day for each drop.
type fullBench struct {
	*postgresServer
	o       *Options
	s       *postgres.Store
	markers int
	days    int
	began   time.Time
	moved   atomic.Int64 // days
	last    *drops
}

// drops is what was seen while all full days were dropped.
type drops struct {
	took, longest []float64 // seconds, milliseconds
	inserts       int
	calm          float64 // the longest insert while none was dropped, milliseconds
	told          map[string]bool
}

func newFullBench(ctx context.Context, o *Options) (*fullBench, error) {
	server, err := startPostgres(ctx, 0)
	if err != nil {
		return nil, err
	}
	x := &fullBench{postgresServer: server, o: o, markers: o.Markers, days: 6, began: time.Now().UTC()}
	if o.Quick {
		x.days = 2
	}
	x.s, err = postgres.New(x.pool, postgres.Options{Window: time.Duration(x.days) * day, Now: x.now})
	if err == nil {
		err = x.s.Migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

// now is the store's clock.
func (x *fullBench) now() time.Time { return x.began.Add(time.Duration(x.moved.Load()) * day) }

// oldest is the first day of the window.
func (x *fullBench) oldest() time.Time {
	return x.now().Truncate(day).Add(-time.Duration(x.days) * day)
}

// table is that of a day.
func table(at time.Time) string { return "onceline_marker_timed_" + at.Format("20060102") }

// bytes fills a table as an inbox does, in batches, the keys as they come.
func (x *fullBench) bytes(ctx context.Context, table string, at func(i int) time.Time) (sample, error) {
	in := dedup.New[pgx.Tx](x.s, "c", dedup.Options{})
	const size = 500
	for from := 0; from < x.markers; from += size {
		keys := make([]dedup.Key, min(size, x.markers-from))
		for i := range keys {
			keys[i] = key(from + i)
			keys[i].At = at(from + i)
		}
		if err := x.s.Transact(ctx, func(tx pgx.Tx) error {
			_, err := in.ClaimTx(ctx, tx, keys...)
			return err
		}); err != nil {
			return sample{}, err
		}
	}
	var rows int
	var bytes, heap float64
	if err := x.pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM "+table+"), pg_total_relation_size($1::text::regclass)::float8, pg_relation_size($1::text::regclass)::float8", table).
		Scan(&rows, &bytes, &heap); err != nil {
		return sample{}, err
	}
	if rows != x.markers { // a second measurement has them all as copies
		return sample{}, fmt.Errorf("%d markers, not %d", rows, x.markers)
	}
	return sample{[]float64{bytes / float64(rows)}, fmt.Sprintf("%d markers, %.1f bytes of each in the table itself", rows, heap/float64(rows))}, nil
}

// fill fills the days of the window before today, in one statement each.
func (x *fullBench) fill(ctx context.Context) error {
	for number := range x.days {
		at := x.oldest().Add(time.Duration(number) * day)
		var rows int
		if err := x.pool.QueryRow(ctx, "SELECT count(*) FROM "+table(at)).Scan(&rows); err != nil {
			return err
		}
		if rows >= x.markers {
			continue
		}
		x.o.Progress("postgres.drop: filling day %d of %d", number+1, x.days)
		minute := dedup.MinuteMarker(at).Bytes
		if _, err := x.pool.Exec(ctx, "INSERT INTO "+table(at)+` SELECT (lpad(to_hex($1::bigint + i * 1440 / $2), 8, '0') || substr(md5(i::text), 1, 24))::uuid
			FROM generate_series(0::bigint, $2::bigint - 1) i`, int64(binary.BigEndian.Uint32(minute[:])), int64(x.markers)); err != nil {
			return err
		}
	}
	return x.exec(ctx, "CHECKPOINT") // what is to be written of all that is no matter of the drop
}

// dropped fills and drops all days, unless what was seen when that was done last hasn't
// been told to who asks.
func (x *fullBench) dropped(ctx context.Context, who string) (*drops, error) {
	if x.last != nil && !x.last.told[who] {
		x.last.told[who] = true
		return x.last, nil
	}
	d := &drops{told: map[string]bool{who: true}}
	if err := x.fill(ctx); err != nil {
		return d, err
	}
	for number := range x.days {
		x.o.Progress("postgres.drop: dropping day %d of %d", number+1, x.days)
		if err := x.dropOne(ctx, d, number%2 == 1); err != nil {
			return d, err
		}
	}
	x.last = d
	return d, nil
}

// dropOne drops the oldest day that is left while two insert, perhaps behind a slow
// handler, whose time is none of the drop's own.
func (x *fullBench) dropOne(ctx context.Context, d *drops, slow bool) error {
	in := dedup.New[pgx.Tx](x.s, fmt.Sprint("drop ", x.moved.Load()), dedup.Options{})
	today, oldest := x.now(), table(x.oldest())
	inserting, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	var counts [2]int
	var longest, calm [2]time.Duration
	var dropping atomic.Bool
	errs := make([]error, 3)
	warm := make(chan struct{}, 2)
	for w := range counts {
		all.Go(func() {
			began := time.Now()
			warmed := false
			for i := 0; inserting.Err() == nil; i++ {
				before := dropping.Load()
				at := time.Now()
				outcome, err := in.Once(ctx, dedup.Key{ID: fmt.Sprint(w, "-", i), At: today}, func(context.Context, pgx.Tx) error { return nil })
				if outcome != dedup.Applied {
					errs[w] = fmt.Errorf("an insert is %v: %w", outcome, err)
					break
				}
				took := time.Since(at)
				if counts[w]++; before || dropping.Load() {
					longest[w] = max(longest[w], took)
				} else {
					calm[w] = max(calm[w], took)
				}
				if !warmed && time.Since(began) > holds {
					warmed = true
					warm <- struct{}{}
				}
			}
			if !warmed {
				warm <- struct{}{}
			}
		})
	}
	<-warm
	<-warm
	release := func() {}
	if slow {
		holding, ended := make(chan struct{}), make(chan struct{})
		release = sync.OnceFunc(func() { close(ended) })
		all.Go(func() {
			held := sync.OnceFunc(func() { close(holding) })
			defer held()
			outcome, err := in.Once(ctx, dedup.Key{ID: "slow", At: today}, func(ctx context.Context, _ pgx.Tx) error {
				held()
				select {
				case <-ended:
				case <-ctx.Done():
				}
				return ctx.Err()
			})
			if outcome != dedup.Applied {
				errs[2] = fmt.Errorf("the slow handler is %v: %w", outcome, err)
			}
		})
		<-holding
		timer := time.AfterFunc(holds, release)
		defer timer.Stop()
	}
	x.moved.Add(1)
	dropping.Store(true)
	began := time.Now()
	m, err := x.s.Maintain(ctx)
	took := time.Since(began)
	dropping.Store(false)
	stop()
	release()
	all.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	if len(m.Dropped) != 1 || m.Dropped[0] != oldest {
		return fmt.Errorf("dropped %q, want %s", m.Dropped, oldest)
	}
	if !slow {
		d.took = append(d.took, took.Seconds())
	}
	d.longest = append(d.longest, milliseconds(longest))
	d.inserts += counts[0] + counts[1]
	d.calm = max(d.calm, milliseconds(calm))
	return nil
}

func milliseconds(ds [2]time.Duration) float64 {
	return float64(max(ds[0], ds[1]).Microseconds()) / 1000
}
