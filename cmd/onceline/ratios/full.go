package ratios

import (
	"context"
	"errors"
	"fmt"
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
					return x.bytes(ctx, x.table(0), func(i int) time.Time { // as they come in the course of the day
						return x.oldest.Add(time.Duration(float64(day) * float64(i) / float64(x.markers)))
					})
				}},
			{Promise{Name: "postgres.drop", What: "time to drop a day of a million markers, beside two who insert", Bound: 1, Most: true, Unit: "s"},
				func(ctx context.Context, x *fullBench) (sample, error) {
					if err := x.drop(ctx); err != nil {
						return sample{}, err
					}
					return sample{x.took, "the longest insert beside each is postgres.stall's"}, nil
				}},
			{Promise{Name: "postgres.stall", What: fmt.Sprintf("longest insert while days are dropped, every other one behind a handler that holds its transaction for %v", holds), Bound: 200, Most: true, Unit: "ms"},
				func(ctx context.Context, x *fullBench) (sample, error) {
					if err := x.drop(ctx); err != nil {
						return sample{}, err
					}
					return sample{x.longest, fmt.Sprintf("%d inserts; the longest of as many without a drop %.0f ms", x.inserts, x.calm)}, nil
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
	oldest  time.Time // the day of number 0
	began   time.Time
	moved   atomic.Int64 // days

	// Of the drops, once they are done.
	dropped       bool
	took, longest []float64
	inserts       int
	calm          float64
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
	x.oldest = x.began.Truncate(day).Add(-time.Duration(x.days) * day)
	x.s, err = postgres.New(x.pool, postgres.Options{Window: time.Duration(x.days) * day,
		Now: func() time.Time { return x.began.Add(time.Duration(x.moved.Load()) * day) }})
	if err == nil {
		err = x.s.Migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, x.close())
	}
	return x, nil
}

// table is that of a day.
func (x *fullBench) table(number int) string {
	return "onceline_marker_timed_" + x.oldest.Add(time.Duration(number)*day).Format("20060102")
}

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

// fill fills the days that are empty, in one statement each.
func (x *fullBench) fill(ctx context.Context) error {
	for number := range x.days {
		table := x.table(number)
		var full bool
		if err := x.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+table+")").Scan(&full); err != nil {
			return err
		}
		if full {
			continue
		}
		x.o.Progress("postgres.drop: filling day %d of %d", number+1, x.days)
		minute := dedup.MinuteMarker(x.oldest.Add(time.Duration(number) * day)).Bytes
		first := uint32(minute[0])<<24 | uint32(minute[1])<<16 | uint32(minute[2])<<8 | uint32(minute[3])
		if _, err := x.pool.Exec(ctx, "INSERT INTO "+table+` SELECT (lpad(to_hex($1::bigint + i * 1440 / $2), 8, '0') || substr(md5(i::text), 1, 24))::uuid
			FROM generate_series(0::bigint, $2::bigint - 1) i`, int64(first), int64(x.markers)); err != nil {
			return err
		}
	}
	return x.exec(ctx, "CHECKPOINT") // what is to be written of all that is no matter of the drop
}

// drop drops all days, once.
func (x *fullBench) drop(ctx context.Context) error {
	if x.dropped {
		return nil
	}
	if err := x.fill(ctx); err != nil {
		return err
	}
	for number := range x.days {
		x.o.Progress("postgres.drop: dropping day %d of %d", number+1, x.days)
		if err := x.dropOne(ctx, number); err != nil {
			return err
		}
	}
	x.dropped = true
	return nil
}

// dropOne drops the oldest day that is left while two insert, and every other time
// behind a slow handler. Only what isn't behind one counts as the drop's time.
func (x *fullBench) dropOne(ctx context.Context, number int) error {
	slow := number%2 == 1
	in := dedup.New[pgx.Tx](x.s, fmt.Sprint("drop ", number), dedup.Options{})
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
				outcome, err := in.Once(ctx, dedup.Key{ID: fmt.Sprint(w, "-", i), At: x.began}, func(context.Context, pgx.Tx) error { return nil })
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
			outcome, err := in.Once(ctx, dedup.Key{ID: "slow", At: x.began}, func(ctx context.Context, _ pgx.Tx) error {
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
	if len(m.Dropped) != 1 || m.Dropped[0] != x.table(number) {
		return fmt.Errorf("dropped %q, want %s", m.Dropped, x.table(number))
	}
	if !slow {
		x.took = append(x.took, took.Seconds())
	}
	x.longest = append(x.longest, float64(max(longest[0], longest[1]).Microseconds())/1000)
	x.inserts += counts[0] + counts[1]
	x.calm = max(x.calm, float64(max(calm[0], calm[1]).Microseconds())/1000)
	return nil
}
