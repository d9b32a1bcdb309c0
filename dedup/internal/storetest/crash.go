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

// errStore is what a broken store says.
var errStore = errors.New("broken store")

// breaking is a store whose next transactions go wrong, each in its own way.
type breaking[T any] struct {
	dedup.PositionDriver[T]
	plan []func(d dedup.PositionDriver[T], ctx context.Context, f func(T) error) error
}

func (b *breaking[T]) Transact(ctx context.Context, f func(T) error) error {
	if len(b.plan) == 0 {
		return b.PositionDriver.Transact(ctx, f)
	}
	next := b.plan[0]
	b.plan = b.plan[1:]
	return next(b.PositionDriver, ctx, f)
}

// The ways in which a transaction goes wrong.
func beforeClaim[T any](_ dedup.PositionDriver[T], _ context.Context, _ func(T) error) error {
	return fmt.Errorf("%w: %w", dedup.ErrLost, errStore)
}

func beforeCommit[T any](d dedup.PositionDriver[T], ctx context.Context, f func(T) error) error {
	return d.Transact(ctx, func(tx T) error {
		if err := f(tx); err != nil {
			return err
		}
		return fmt.Errorf("%w: %w", dedup.ErrLost, errStore)
	})
}

// commitUnknown loses the answer to a commit, which took place or not.
func commitUnknown[T any](committed bool) func(d dedup.PositionDriver[T], ctx context.Context, f func(T) error) error {
	return func(d dedup.PositionDriver[T], ctx context.Context, f func(T) error) error {
		ran := errors.New("not committed")
		err := d.Transact(ctx, func(tx T) error {
			if err := f(tx); err != nil || committed {
				return err
			}
			return ran
		})
		if err == nil || errors.Is(err, ran) {
			return fmt.Errorf("%w: %w", dedup.ErrCommitUnknown, errStore)
		}
		return err
	}
}

// crashPoints: whatever goes wrong, and however often, each message has its effect
// once, and what the caller is told is never that it failed
// (mikenelsonjr/Accelerators#13).
func crashPoints[T any](t *testing.T, s Setup[T]) {
	ctx := t.Context()
	type plan = []func(d dedup.PositionDriver[T], ctx context.Context, f func(T) error) error
	committed, not := commitUnknown[T](true), commitUnknown[T](false)
	all := plan{committed, committed, committed, committed}
	var want []string
	for _, c := range []struct {
		name  string
		plan  plan
		once  dedup.Outcome
		err   error
		again dedup.Outcome // when it is delivered again
	}{
		{"before claim", plan{beforeClaim[T]}, dedup.Applied, nil, dedup.Duplicate},
		{"before commit", plan{beforeCommit[T]}, dedup.Applied, nil, dedup.Duplicate},
		{"commit lost", plan{not}, dedup.Applied, nil, dedup.Duplicate},
		{"answer lost", plan{committed}, dedup.Applied, nil, dedup.Duplicate},
		{"all in a row", plan{beforeClaim[T], not, committed}, dedup.Applied, nil, dedup.Duplicate},
		{"never there", plan{beforeClaim[T], beforeClaim[T], beforeClaim[T], beforeClaim[T]}, dedup.Unknown, dedup.ErrLost, dedup.Applied},
		{"never committed", plan{not, not, not, not}, dedup.Unknown, dedup.ErrCommitUnknown, dedup.Applied},
		{"answer lost, then gone", plan{committed, beforeClaim[T], beforeClaim[T], beforeClaim[T]}, dedup.Unknown, dedup.ErrCommitUnknown, dedup.Duplicate},
		{"all answers lost", all, dedup.Applied, nil, dedup.Duplicate},
	} {
		d := &breaking[T]{PositionDriver: s.Driver}
		in := dedup.New[T](d, "c", quick)
		d.plan = slices.Clone(c.plan)
		id := "once, " + c.name
		outcome, err := in.Once(ctx, byID(id), s.effect(id))
		if outcome != c.once || !errors.Is(err, c.err) || err != nil && !errors.Is(err, errStore) {
			t.Errorf("%s: %v: %v; want %v: %v", c.name, outcome, err, c.once, c.err)
		}
		if errors.Is(err, dedup.ErrCommitUnknown) != errors.Is(err, broker.ErrUnknownOutcome) {
			t.Errorf("%s: %v", c.name, err)
		}
		d.plan = nil
		outcome, err = in.Once(ctx, byID(id), s.effect(id))
		is(t, outcome, err, c.again, nil)
		want = append(want, id)

		d.plan = slices.Clone(c.plan)
		ids := series(c.name, 6)
		broken := errors.New("broken")
		results, _ := dedup.OnceBatch(ctx, in, ids, byID, func(ctx context.Context, tx T, id string) error {
			if id == ids[2] {
				return broken
			}
			return s.Effect(ctx, tx, id)
		})
		outcomesWant := slices.Repeat([]dedup.Outcome{c.once}, 6)
		if c.once != dedup.Unknown {
			outcomesWant[2] = dedup.Failed
		}
		outcomes(t, results, outcomesWant...)
		d.plan = nil
		results, err = dedup.OnceBatch(ctx, in, ids, byID, s.Effect)
		if err != nil {
			t.Error(err)
		}
		outcomesWant = slices.Repeat([]dedup.Outcome{c.again}, 6)
		outcomesWant[2] = dedup.Applied
		outcomes(t, results, outcomesWant...)
		want = append(want, ids...)
		if t.Failed() {
			t.Fatalf("at %q", c.name)
		}
	}
	s.ledger(t, each(want...))
}

// busyEffect: a message whose effect is always refused for another's sake doesn't
// take its batch with it.
func busyEffect[T any](t *testing.T, s Setup[T]) {
	d := &busy[T]{PositionDriver: s.Driver}
	in := dedup.New[T](d, "c", quick)
	ids := series("m", 5)
	runs := 0
	results, err := dedup.OnceBatch(t.Context(), in, ids, byID, func(ctx context.Context, tx T, id string) error {
		if id == ids[3] {
			runs++
			return errStore
		}
		return s.Effect(ctx, tx, id)
	})
	ok := dedup.Applied
	outcomes(t, results, ok, ok, ok, dedup.Unknown, ok)
	if !errors.Is(err, errStore) || runs != 8 {
		t.Errorf("%d runs, %v", runs, err)
	}
	s.ledger(t, each(ids[0], ids[1], ids[2], ids[4]))
}

type busy[T any] struct{ dedup.PositionDriver[T] }

func (b *busy[T]) Fault(err error) dedup.Fault {
	if errors.Is(err, errStore) {
		return dedup.Busy
	}
	return b.PositionDriver.Fault(err)
}
