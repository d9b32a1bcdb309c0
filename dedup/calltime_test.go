package dedup_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/internal/bubbletest"
)

// TestCallAtTheEndOfTheKey: an attempt that is begun while the provider knows the key
// doesn't reach it after it has forgotten: neither a request that is slow on its way,
// nor the retries of a client that goes on until its context ends.
func TestCallAtTheEndOfTheKey(t *testing.T) {
	for after, want := range map[time.Duration]dedup.Outcome{
		24*time.Hour - 50*time.Second: dedup.Applied,
		24*time.Hour - 16*time.Second: dedup.Applied,
		24*time.Hour - 14*time.Second: dedup.Unknown,
		24*time.Hour - time.Second:    dedup.Unknown,
	} {
		bubbletest.Run(t, func(t *testing.T) {
			c := newCalling(t, dedup.CallOptions{Idempotent: 24 * time.Hour})
			c.p.then = func() error { return errTimeout }
			c.once("a", dedup.Unknown, errTimeout, "")
			time.Sleep(after)
			c.p.then = nil
			outcome, _, err := c.Once(t.Context(), "a", []byte("a"), func(ctx context.Context, key string) ([]byte, error) {
				time.Sleep(10 * time.Second) // whatever the context says: it is on its way
				return c.p.call(ctx, key)
			})
			if outcome != want || c.p.paid != 1 {
				t.Errorf("%v before the end: %v: %v, %d payments; want %v", 24*time.Hour-after, outcome, err, c.p.paid, want)
			}
		})
		bubbletest.Run(t, func(t *testing.T) {
			c := newCalling(t, dedup.CallOptions{Idempotent: 24 * time.Hour})
			c.p.then = func() error { return errTimeout }
			c.once("a", dedup.Unknown, errTimeout, "")
			time.Sleep(after)
			outcome, _, err := c.Once(t.Context(), "a", []byte("a"), func(ctx context.Context, key string) ([]byte, error) {
				for ctx.Err() == nil {
					_, _ = c.p.call(ctx, key)
					time.Sleep(time.Second)
				}
				return nil, ctx.Err()
			})
			if outcome != dedup.Unknown || c.p.paid != 1 {
				t.Errorf("%v before the end, with retries: %v: %v, %d payments", 24*time.Hour-after, outcome, err, c.p.paid)
			}
		})
	}
}

// TestCallBegunTooLate: an attempt whose time is over before its call, for the store
// was slow or the process stood still, isn't made: somebody else may have been told
// meanwhile that it didn't take place. Nor is one whose context has ended. Both leave
// nothing that has to be reconciled.
func TestCallBegunTooLate(t *testing.T) {
	for name, added := range map[string]func(cancel func()){
		"the store was slow": func(func()) { time.Sleep(61 * time.Second) },
		"the context ended":  func(cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				c := newCalling(t, dedup.CallOptions{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c.s.added = func() { added(cancel) }
				outcome, _, err := c.Once(ctx, "a", []byte("a"), c.p.call)
				if outcome != dedup.Unknown || err == nil || errors.Is(err, dedup.ErrUnresolved) || c.p.paid != 0 {
					t.Errorf("%v: %v, %d payments", outcome, err, c.p.paid)
				}
				c.s.added = nil
				if call, err := c.Find(t.Context(), "a"); err != nil || call.State != dedup.CallFree {
					t.Errorf("%+v, %v", call, err)
				}
				c.once("a", dedup.Applied, nil, "receipt 1")
			})
		})
	}
	bubbletest.Run(t, func(t *testing.T) { // what time is left is that of the record
		c := newCalling(t, dedup.CallOptions{})
		c.s.added = func() { time.Sleep(20 * time.Second) }
		began := time.Now()
		_, _, err := c.Once(t.Context(), "a", nil, func(ctx context.Context, _ string) ([]byte, error) {
			if at, ok := ctx.Deadline(); !ok || !at.Equal(began.Add(time.Minute)) {
				t.Errorf("until %v, %v after the beginning", at, at.Sub(began))
			}
			return nil, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// TestCallFreeTakesAnother: a call that surely didn't take place doesn't bind its ID to
// what was asked: who got a bad request in first can't keep the good one out.
func TestCallFreeTakesAnother(t *testing.T) {
	c := newCalling(t, dedup.CallOptions{})
	if outcome, _, err := c.Once(t.Context(), "a", []byte("forged"), func(context.Context, string) ([]byte, error) {
		return nil, dedup.NotDone(errors.New("bad signature"))
	}); outcome != dedup.Failed {
		t.Errorf("%v: %v", outcome, err)
	}
	c.once("a", dedup.Applied, nil, "receipt 1")
	if outcome, _, err := c.Once(t.Context(), "a", []byte("forged"), c.p.call); !errors.Is(err, dedup.ErrOtherRequest) {
		t.Errorf("%v: %v", outcome, err)
	}
}
