package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
)

const day = 24 * time.Hour

// clock is one that tests move.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time       { return time.Unix(c.at.Load(), 0) }
func (c *clock) move(d time.Duration) { c.at.Add(int64(d / time.Second)) }

// TestDays: a message whose time's markers aren't kept is outside of the window, and
// never clamped into it; what another process made or dropped is seen.
func TestDays(t *testing.T) {
	p := connect(t, start(t), 4)
	var c clock
	noon := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	c.at.Store(noon.Unix())
	o := postgres.Options{Window: 2 * day, Ahead: day, Now: c.now}
	s, schema := open(t, p, o)
	o.Schema = schema
	other, err := postgres.New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	in := dedup.New[pgx.Tx](s, "c", dedup.Options{})
	n := 0
	apply := func(at time.Time, want dedup.Outcome) {
		t.Helper()
		n++
		key := dedup.Key{ID: fmt.Sprint("m", at.Unix()), At: at}
		outcome, err := in.Once(ctx, key, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insert(schema), key.ID)
			return err
		})
		if outcome != want || want == dedup.OutsideWindow && !errors.Is(err, broker.ErrWindowExceeded) {
			t.Errorf("of %v: %v: %v; want %v", at, outcome, err, want)
		}
	}
	midnight := noon.Truncate(day)
	apply(noon, dedup.Applied)
	apply(noon, dedup.Duplicate)
	apply(midnight.Add(-2*day), dedup.Applied)
	apply(midnight.Add(-2*day-time.Minute), dedup.OutsideWindow)
	apply(midnight.Add(2*day-time.Minute), dedup.Applied)
	apply(midnight.Add(2*day), dedup.OutsideWindow)
	// In one batch, those outside harm no other.
	ats := []time.Time{noon.Add(-9 * day), noon.Add(time.Minute), noon, noon.Add(9 * day), {}}
	results, err := dedup.OnceBatch(ctx, in, ats, func(at time.Time) dedup.Key { return dedup.Key{ID: fmt.Sprint("m", at.Unix()), At: at} },
		func(ctx context.Context, tx pgx.Tx, at time.Time) error {
			_, err := tx.Exec(ctx, insert(schema), fmt.Sprint("m", at.Unix()))
			return err
		})
	for i, want := range []dedup.Outcome{dedup.OutsideWindow, dedup.Applied, dedup.Duplicate, dedup.OutsideWindow, dedup.Applied} {
		if results[i].Outcome != want {
			t.Errorf("message %d of the batch: %v: %v; want %v", i, results[i].Outcome, results[i].Err, want)
		}
	}
	if !errors.Is(err, dedup.ErrOutsideWindow) {
		t.Error(err)
	}

	// A day later another process makes and drops a partition.
	c.move(day)
	m, err := other.Maintain(ctx)
	if err != nil || !slices.Equal(m.Made, []string{"onceline_marker_timed_20260312"}) || len(m.Dropped) != 1 || m.Dropped[0] != "onceline_marker_timed_20260308" {
		t.Errorf("%+v, %v", m, err)
	}
	apply(midnight.Add(2*day), dedup.Applied)
	apply(midnight.Add(-2*day), dedup.OutsideWindow)
	apply(noon, dedup.Duplicate)
	if m, err := s.Maintain(ctx); err != nil || len(m.Made)+len(m.Dropped) != 0 {
		t.Errorf("again: %+v, %v", m, err)
	}
	// The partition a marker is in is dropped only when its last minute is outside.
	c.at.Store(midnight.Add(3*day - time.Minute).Unix())
	if m, err := s.Maintain(ctx); err != nil || !slices.Equal(m.Dropped, []string{"onceline_marker_timed_20260309"}) {
		t.Errorf("%+v, %v", m, err)
	}
	apply(noon, dedup.Duplicate)
	c.at.Store(midnight.Add(3 * day).Unix())
	if m, err := s.Maintain(ctx); err != nil || !slices.Equal(m.Dropped, []string{"onceline_marker_timed_20260310"}) {
		t.Errorf("%+v, %v", m, err)
	}
	apply(noon, dedup.OutsideWindow)
}

// TestExpire: markers without a time are kept for the window from when they were
// written, and then the message is a new one.
func TestExpire(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 2)
	s, schema := open(t, p, postgres.Options{Window: day})
	in := dedup.New[pgx.Tx](s, "c", dedup.Options{})
	once := func(id string, want dedup.Outcome) {
		t.Helper()
		if outcome, err := in.Once(t.Context(), byID(id), func(context.Context, pgx.Tx) error { return nil }); outcome != want {
			t.Errorf("%s: %v: %v; want %v", id, outcome, err, want)
		}
	}
	once("old", dedup.Applied)
	p.exec(t, fmt.Sprintf("UPDATE %q.onceline_marker SET seen = now() - interval '25 hours'", schema),
		fmt.Sprintf("INSERT INTO %q.onceline_marker SELECT gen_random_uuid(), now() - interval '25 hours' FROM generate_series(1, 12000)", schema))
	once("young", dedup.Applied)
	once("old", dedup.Duplicate)
	m, err := s.Maintain(t.Context())
	if err != nil || m.Deleted != 12001 {
		t.Errorf("%+v, %v", m, err)
	}
	once("old", dedup.Applied)
	once("old", dedup.Duplicate) // it is kept anew
	once("young", dedup.Duplicate)
}

// TestDropBesideClaims: a day is dropped while consumers claim, one of them in a slow
// effect, and nobody is held up for long.
func TestDropBesideClaims(t *testing.T) {
	p := connect(t, start(t), 6)
	var c clock
	c.at.Store(time.Now().Unix())
	s, schema := open(t, p, postgres.Options{Window: 2 * day, Now: c.now})
	in := dedup.New[pgx.Tx](s, "c", dedup.Options{})
	p.exec(t, fmt.Sprintf(`INSERT INTO %q.onceline_marker_timed
		SELECT (lpad(to_hex((extract(epoch FROM now() - interval '2 days') / 60)::int), 8, '0') || substr(md5(i::text), 1, 24))::uuid FROM generate_series(1, 100000) i`, schema))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	holding, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		outcome, err := in.Once(t.Context(), dedup.Key{ID: "slow", At: time.Now()}, func(ctx context.Context, tx pgx.Tx) error {
			close(holding)
			<-release
			return nil
		})
		if outcome != dedup.Applied {
			t.Errorf("slow: %v: %v", outcome, err)
		}
	})
	<-holding
	var worst [3]time.Duration
	var done [3]int
	for w := range worst {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				began := time.Now()
				outcome, err := in.Once(context.WithoutCancel(ctx), dedup.Key{ID: fmt.Sprint(w, "-", i), At: time.Now()}, func(context.Context, pgx.Tx) error { return nil })
				if outcome != dedup.Applied {
					t.Errorf("%v: %v", outcome, err)
					return
				}
				worst[w], done[w] = max(worst[w], time.Since(began)), done[w]+1
			}
		})
	}
	c.move(day)
	time.AfterFunc(1500*time.Millisecond, func() { close(release) })
	began := time.Now()
	m, err := s.Maintain(t.Context())
	took := time.Since(began)
	cancel()
	wg.Wait()
	if err != nil || len(m.Dropped) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
	t.Logf("dropped after %v; claims %v, longest %v", took, done, worst)
	for _, d := range worst {
		if d > time.Second { // without a bound of the wait it would be all the time of the slow effect
			t.Errorf("a claim took %v", d)
		}
	}
}

// TestWindowMadeLonger: days whose markers were dropped don't come back, empty, when
// the window is made longer, when another process has a longer one, or when the clock
// goes back: their messages stay outside.
func TestWindowMadeLonger(t *testing.T) {
	p := connect(t, start(t), 4)
	var c clock
	noon := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	c.at.Store(noon.Unix())
	o := postgres.Options{Window: 2 * day, Ahead: day, Now: c.now}
	s, schema := open(t, p, o)
	o.Schema, o.Window = schema, 9*day
	longer, err := postgres.New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	once := func(s *postgres.Store, at time.Time, want dedup.Outcome) {
		t.Helper()
		outcome, err := dedup.New[pgx.Tx](s, "c", dedup.Options{}).Once(ctx, dedup.Key{ID: "paid", At: at}, func(context.Context, pgx.Tx) error { return nil })
		if outcome != want {
			t.Errorf("of %v: %v: %v; want %v", at, outcome, err, want)
		}
	}
	once(s, noon, dedup.Applied)
	c.move(5 * day)
	if m, err := s.Maintain(ctx); err != nil || len(m.Dropped) != 4 {
		t.Fatalf("%+v, %v", m, err)
	}
	once(s, noon, dedup.OutsideWindow)
	once(s, noon.Add(4*day), dedup.Applied)
	for _, step := range []struct {
		s    *postgres.Store
		back time.Duration
	}{{longer, 0}, {s, -4 * day}, {longer, -day}} {
		c.move(step.back)
		if m, err := step.s.Maintain(ctx); err != nil || len(m.Made) != 0 {
			t.Errorf("%+v, %v", m, err)
		}
		if err := longer.Migrate(ctx); err != nil {
			t.Error(err)
		}
		once(step.s, noon, dedup.OutsideWindow)
		once(step.s, noon.Add(4*day), dedup.Duplicate)
	}
}
