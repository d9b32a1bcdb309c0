package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// record is a message of a log.
type record int64

func (r record) offset() int64 { return int64(r) }

func (r record) id() string { return fmt.Sprintf("r-%03d", int64(r)) }

func records(from, to int64) []record {
	var rs []record
	for o := from; o <= to; o++ {
		rs = append(rs, record(o))
	}
	return rs
}

func ids(rs []record) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.id())
	}
	return out
}

func (s *Setup[T]) apply(ctx context.Context, p *dedup.Position[T], at dedup.Partition, prev int64, rs []record) (int64, error) {
	return dedup.AppliedFrom(ctx, p, at, prev, rs, record.offset, func(ctx context.Context, tx T, r record) error { return s.Effect(ctx, tx, r.id()) })
}

var orders = dedup.Partition{Topic: "orders", Epoch: "1", Name: "0"}

// position: what was applied is left out, gaps in the offsets are no matter, another
// partition, consumer or epoch has a position of its own.
func position[T any](t *testing.T, s Setup[T]) {
	ctx, o := t.Context(), quick
	o.MaxBatch = 8
	p := dedup.NewPosition[T](s.Driver, "c", o)
	at := func(want int64, err error, partition dedup.Partition) {
		t.Helper()
		if got, loadErr := p.Load(ctx, partition); err != nil || loadErr != nil || got != want {
			t.Errorf("position %d (%v), want %d: %v", got, loadErr, want, err)
		}
	}
	at(dedup.Start, nil, orders)
	last, err := s.apply(ctx, p, orders, dedup.Start, records(0, 19))
	at(19, err, orders)
	last, err = s.apply(ctx, p, orders, last, records(10, 25)) // the broker gave some again
	at(25, err, orders)
	last, err = s.apply(ctx, p, orders, last, records(10, 25))
	at(25, err, orders)
	last, err = s.apply(ctx, p, orders, last, []record{30, 40}) // what is between was compacted away
	at(40, err, orders)
	if last != 40 {
		t.Errorf("returned %d", last)
	}
	want := each(ids(append(records(0, 25), 30, 40))...)
	s.ledger(t, want)

	for _, again := range []dedup.Partition{{Topic: "orders", Epoch: "2", Name: "0"}, {Topic: "orders", Epoch: "1", Name: "1"}} {
		_, err = s.apply(ctx, p, again, dedup.Start, records(0, 0))
		at(0, err, again)
		want["r-000"]++
	}
	other := dedup.NewPosition[T](s.Driver, "other", o)
	if last, err = s.apply(ctx, other, orders, dedup.Start, records(0, 1)); last != 1 || err != nil {
		t.Errorf("another consumer: %d, %v", last, err)
	}
	want["r-000"]++
	want["r-001"]++
	s.ledger(t, want)

	for _, bad := range [][]record{{50, 50}, {52, 51}, {-3}} {
		if _, err := s.apply(ctx, p, orders, 40, bad); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("offsets %v: %v", bad, err)
		}
	}
	from := p.StartFrom(ctx, "orders", "1", func(partition string, err error) { t.Errorf("%s: %v", partition, err) })
	if got, ok := from("0"); !ok || got.Offset != 41 {
		t.Errorf("starts from %+v, %v", got, ok)
	}
	if got, ok := from("new"); ok {
		t.Errorf("starts from %+v where nothing was applied", got)
	}
}

// positionFenced: an owner that was replaced does no harm, whatever it has read.
func positionFenced[T any](t *testing.T, s Setup[T]) {
	ctx := t.Context()
	p := dedup.NewPosition[T](s.Driver, "c", quick)
	want := each(ids(records(0, 105))...)
	if _, err := s.apply(ctx, p, orders, dedup.Start, records(0, 100)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.apply(ctx, p, orders, 100, records(101, 105)); err != nil {
		t.Fatal(err)
	}
	for _, zombie := range []struct {
		prev     int64
		from, to int64
	}{
		{100, 101, 110},          // overlaps what the owner did
		{100, 500, 510},          // jumps ahead
		{dedup.Start, 0, 200},    // thinks it is the first
		{110, 111, 120},          // thinks that it did more than it did
		{50, 500, 500},           // one message
		{dedup.Start, 600, 1000}, // far ahead
	} {
		last, err := s.apply(ctx, p, orders, zombie.prev, records(zombie.from, zombie.to))
		if !errors.Is(err, dedup.ErrFenced) || last != zombie.prev {
			t.Errorf("from %d to %d behind %d: %d, %v", zombie.from, zombie.to, zombie.prev, last, err)
		}
	}
	s.ledger(t, want)
	last, err := s.apply(ctx, p, orders, 105, records(106, 120))
	if last != 120 || err != nil {
		t.Errorf("the owner: %d, %v", last, err)
	}
	s.ledger(t, each(ids(records(0, 120))...))
}

// positionFailed: what comes before a message that fails is applied, what comes
// behind it is not.
func positionFailed[T any](t *testing.T, s Setup[T]) {
	ctx, o := t.Context(), quick
	o.MaxBatch = 10
	p := dedup.NewPosition[T](s.Driver, "c", o)
	broken := errors.New("broken")
	last := dedup.Start
	for _, bad := range []record{13, 0, 10, 19, 20} {
		prev := last
		var err error
		last, err = dedup.AppliedFrom(ctx, p, orders, prev, records(0, 29), record.offset, func(ctx context.Context, tx T, r record) error {
			if r == bad {
				return errors.Join(s.Bad(ctx, tx), broken)
			}
			return s.Effect(ctx, tx, r.id())
		})
		if bad.offset() <= prev { // it was applied before
			if err != nil || last != 29 {
				t.Errorf("bad %d: %d, %v", bad, last, err)
			}
			break
		}
		if want := bad.offset() - 1; last != want || !errors.Is(err, broken) {
			t.Errorf("bad %d: at %d, %v; want %d", bad, last, err, want)
		}
		s.ledger(t, each(ids(records(0, last))...))
	}
	if got, err := p.Load(ctx, orders); got != last || err != nil {
		t.Errorf("stored %d, returned %d, %v", got, last, err)
	}
	s.ledger(t, each(ids(records(0, last))...))
}

// positionOwners: owners that all think they own the partition apply each message
// once between them.
func positionOwners[T any](t *testing.T, s Setup[T]) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p := dedup.NewPosition[T](s.Driver, "c", dedup.Options{Attempts: 20, MaxBatch: 10})
	log := records(0, 79)
	fenced := [consumers]int{}
	together(func(c int) {
		for {
			last, err := p.Load(ctx, orders)
			if err != nil {
				t.Error(err)
				return
			}
			if last == log[len(log)-1].offset() {
				return
			}
			next := log[last+1 : min(int(last)+1+7, len(log))]
			switch _, err := s.apply(ctx, p, orders, last, next); {
			case errors.Is(err, dedup.ErrFenced):
				fenced[c]++
			case err != nil:
				t.Error(err)
				return
			}
		}
	})
	s.ledger(t, each(ids(log)...))
	t.Logf("fenced: %v", fenced)
}

// positionCrashPoints: the same as crashPoints for positions.
func positionCrashPoints[T any](t *testing.T, s Setup[T]) {
	ctx := t.Context()
	type plan = []func(d dedup.PositionDriver[T], ctx context.Context, f func(T) error) error
	committed, not := commitUnknown[T](true), commitUnknown[T](false)
	d := &breaking[T]{PositionDriver: s.Driver}
	p := dedup.NewPosition[T](d, "c", quick)
	last := dedup.Start
	for i, plan := range []plan{
		{beforeClaim[T]}, {beforeCommit[T]}, {not}, {committed}, {beforeClaim[T], not, committed},
		{not, not, not, not}, {beforeClaim[T], beforeClaim[T], beforeClaim[T], beforeClaim[T]},
	} {
		d.plan = slices.Clone(plan)
		rs := records(last+1, last+5)
		got, err := s.apply(ctx, p, orders, last, rs)
		if len(plan) == 4 { // nothing helps
			if !errors.Is(err, broker.ErrUnknownOutcome) && !errors.Is(err, broker.ErrUnavailable) {
				t.Errorf("plan %d: %v", i, err)
			}
			d.plan = nil
			if got, err = p.Load(ctx, orders); err != nil || got != last {
				t.Errorf("plan %d: stored %d, %v", i, got, err)
			}
			got, err = s.apply(ctx, p, orders, got, rs)
		}
		if err != nil || got != last+5 {
			t.Fatalf("plan %d: at %d, %v", i, got, err)
		}
		last = got
	}
	s.ledger(t, each(ids(records(0, last))...))
}
