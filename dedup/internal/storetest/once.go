package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// once: a message has its effect once for each consumer (MassTransit/MassTransit#3543),
// and its key must be valid.
func once[T any](t *testing.T, s Setup[T]) {
	ctx := t.Context()
	billing, shipping := dedup.New[T](s.Driver, "billing", quick), dedup.New[T](s.Driver, "shipping", quick)
	for _, step := range []struct {
		in   *dedup.Inbox[T]
		want dedup.Outcome
	}{{billing, dedup.Applied}, {billing, dedup.Duplicate}, {billing, dedup.Duplicate}, {shipping, dedup.Applied}, {shipping, dedup.Duplicate}} {
		outcome, err := step.in.Once(ctx, byID("a"), s.effect("a"))
		is(t, outcome, err, step.want, nil)
	}
	outcome, err := billing.Once(ctx, dedup.Key{Consumer: "audit", ID: "a"}, s.effect("a"))
	is(t, outcome, err, dedup.Applied, nil)
	outcome, err = billing.Once(ctx, byID(""), s.effect("nobody"))
	is(t, outcome, err, dedup.Failed, broker.ErrInvalid)
	s.ledger(t, map[string]int{"a": 3})
	if st := billing.Stats(); st.Applied != 2 || st.Duplicate != 2 || st.Failed != 1 {
		t.Errorf("stats %+v", st)
	}
}

// failed: nothing of an effect that fails or panics stands, its marker neither.
func failed[T any](t *testing.T, s Setup[T]) {
	ctx, in := t.Context(), dedup.New[T](s.Driver, "c", quick)
	broken := errors.New("broken")
	outcome, err := in.Once(ctx, byID("a"), func(ctx context.Context, tx T) error {
		if err := s.Effect(ctx, tx, "a"); err != nil {
			return err
		}
		return broker.Poison(broken)
	})
	is(t, outcome, err, dedup.Failed, broken)
	outcome, err = in.Once(ctx, byID("a"), func(ctx context.Context, tx T) error {
		if err := s.Effect(ctx, tx, "a"); err != nil {
			return err
		}
		panic("broken")
	})
	var p *broker.PanicError
	if outcome != dedup.Failed || !errors.As(err, &p) {
		t.Errorf("panic: %v: %v", outcome, err)
	}
	s.ledger(t, nil)
	outcome, err = in.Once(ctx, byID("a"), s.effect("a"))
	is(t, outcome, err, dedup.Applied, nil)
	s.ledger(t, each("a"))
}

// refusedStatement: the store's error for the effect's own statement is the
// effect's failure.
func refusedStatement[T any](t *testing.T, s Setup[T]) {
	ctx, in := t.Context(), dedup.New[T](s.Driver, "c", quick)
	runs := 0
	outcome, err := in.Once(ctx, byID("a"), func(ctx context.Context, tx T) error {
		runs++
		return s.Bad(ctx, tx)
	})
	if outcome != dedup.Failed || err == nil || runs != 1 {
		t.Errorf("%v after %d runs: %v", outcome, runs, err)
	}
	outcome, err = in.Once(ctx, byID("a"), s.effect("a"))
	is(t, outcome, err, dedup.Applied, nil)
	s.ledger(t, each("a"))
}

// swallowedError: an effect that hides its statement's error isn't Applied where
// that error undid it.
func swallowedError[T any](t *testing.T, s Setup[T]) {
	ctx, in := t.Context(), dedup.New[T](s.Driver, "c", quick)
	outcome, err := in.Once(ctx, byID("a"), func(ctx context.Context, tx T) error {
		err := s.Effect(ctx, tx, "a")
		_ = s.Bad(ctx, tx)
		return err
	})
	if s.Aborts {
		if outcome != dedup.Failed || err == nil {
			t.Errorf("%v: %v", outcome, err)
		}
		s.ledger(t, nil)
		return
	}
	is(t, outcome, err, dedup.Applied, nil)
	s.ledger(t, each("a"))
}

// cancelled: a context that ends leaves nothing, and counts as nobody's fault.
func cancelled[T any](t *testing.T, s Setup[T]) {
	in := dedup.New[T](s.Driver, "c", quick)
	cause := errors.New("shutting down")
	ctx, cancel := context.WithCancelCause(t.Context())
	outcome, err := in.Once(ctx, byID("a"), func(ctx context.Context, tx T) error {
		err := s.Effect(ctx, tx, "a")
		cancel(cause)
		return err
	})
	is(t, outcome, err, dedup.Unknown, cause)
	outcome, err = in.Once(ctx, byID("a"), s.effect("a"))
	is(t, outcome, err, dedup.Unknown, cause)
	results, err := dedup.OnceBatch(ctx, in, []string{"a", "b"}, byID, s.Effect)
	outcomes(t, results, dedup.Unknown, dedup.Unknown)
	if !errors.Is(err, cause) {
		t.Error(err)
	}
	s.ledger(t, nil)
	outcome, err = in.Once(t.Context(), byID("a"), s.effect("a"))
	is(t, outcome, err, dedup.Applied, nil)
	s.ledger(t, each("a"))
}

// bucket: a producer that starts again on the other side of a bucket's border, with
// another time for the same message, makes a duplicate where the key has no time,
// and a second message where the caller took the time into the key. That is why
// only the business event's time may be taken.
func bucket[T any](t *testing.T, s Setup[T]) {
	ctx, in := t.Context(), dedup.New[T](s.Driver, "c", quick)
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	before, after := midnight.Add(-time.Second), midnight.Add(time.Second)
	for _, step := range []struct {
		at   time.Time
		id   string
		want dedup.Outcome
	}{
		{time.Time{}, "plain", dedup.Applied}, {time.Time{}, "plain", dedup.Duplicate},
		{before, "event", dedup.Applied}, {before, "event", dedup.Duplicate}, {before.Add(time.Millisecond), "event", dedup.Duplicate},
		{after, "event", dedup.Applied}, {after, "event", dedup.Duplicate},
		{time.Time{}, "event", dedup.Applied},
	} {
		outcome, err := in.Once(ctx, dedup.Key{ID: step.id, At: step.at}, s.effect(step.id))
		is(t, outcome, err, step.want, nil)
	}
	results, err := dedup.OnceBatch(ctx, in, []time.Time{after, {}, before, after.Add(time.Hour)}, func(at time.Time) dedup.Key {
		return dedup.Key{ID: "event", At: at}
	}, func(ctx context.Context, tx T, _ time.Time) error { return s.Effect(ctx, tx, "event") })
	if err != nil {
		t.Error(err)
	}
	outcomes(t, results, dedup.Duplicate, dedup.Duplicate, dedup.Duplicate, dedup.Applied)
	s.ledger(t, map[string]int{"plain": 1, "event": 4})
	outcome, err := in.Once(ctx, dedup.Key{ID: "old", At: time.Unix(-1, 0)}, s.effect("old"))
	is(t, outcome, err, dedup.Failed, broker.ErrInvalid)
}
