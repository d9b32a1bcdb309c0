package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/internal/bubbletest"
)

// provider is who is called. It may take calls with the same key for one.
type provider struct {
	mu    sync.Mutex
	keeps time.Duration // how long it knows a key
	seen  map[string]time.Time
	paid  int // calls that took place
	then  func() error
}

func (p *provider) call(_ context.Context, key string) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at, ok := p.seen[key]; !ok || time.Since(at) >= p.keeps {
		p.paid++
		p.seen[key] = time.Now()
	}
	if p.then != nil {
		if err := p.then(); err != nil {
			return nil, err
		}
	}
	return fmt.Appendf(nil, "receipt %d", p.paid), nil
}

// calling makes calls to a provider.
type calling struct {
	*dedup.Calls
	t *testing.T
	s *fakeCalls
	p *provider
}

func newCalling(t *testing.T, o dedup.CallOptions) *calling {
	t.Helper()
	s := newFakeCalls()
	c, err := dedup.NewCalls(s, "c", o)
	if err != nil {
		t.Fatal(err)
	}
	return &calling{c, t, s, &provider{keeps: o.Idempotent, seen: map[string]time.Time{}}}
}

func (c *calling) once(id string, want dedup.Outcome, what error, result string) {
	c.t.Helper()
	outcome, got, err := c.Once(c.t.Context(), id, []byte(id), c.p.call)
	if outcome != want || !errors.Is(err, what) || (err == nil) != outcome.OK() || string(got) != result {
		c.t.Errorf("%s: %v, %q: %v; want %v, %q: %v", id, outcome, got, err, want, result, what)
	}
}

var errTimeout = errors.New("timeout")

// TestCallOnce: the answer is kept; one that didn't take place is made later; another
// request under the ID is refused.
func TestCallOnce(t *testing.T) {
	c := newCalling(t, dedup.CallOptions{MaxResult: 20})
	c.once("a", dedup.Applied, nil, "receipt 1")
	c.once("a", dedup.Duplicate, nil, "receipt 1")
	if outcome, _, err := c.Once(t.Context(), "a", []byte("other"), c.p.call); outcome != dedup.Failed || !errors.Is(err, dedup.ErrOtherRequest) || !errors.Is(err, broker.ErrConflict) {
		t.Errorf("%v: %v", outcome, err)
	}
	if outcome, result, err := c.Once(t.Context(), "a", nil, c.p.call); outcome != dedup.Duplicate || string(result) != "receipt 1" {
		t.Errorf("%v, %q: %v", outcome, result, err)
	}
	declined := errors.New("declined")
	c.p.then = func() error { c.p.paid, c.p.seen = 1, map[string]time.Time{}; return dedup.NotDone(declined) }
	c.once("b", dedup.Failed, declined, "")
	c.once("b", dedup.Failed, declined, "")
	c.p.then = nil
	c.once("b", dedup.Applied, nil, "receipt 2")
	if outcome, _, err := c.Once(t.Context(), "", nil, c.p.call); outcome != dedup.Failed || !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("%v: %v", outcome, err)
	}
	if outcome, _, err := c.Once(t.Context(), strings.Repeat("i", 16<<10+1), nil, c.p.call); outcome != dedup.Failed || !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("of an ID that no column takes: %v: %v", outcome, err)
	}
	long := strings.Repeat("x", 21)
	for _, want := range []string{long, ""} {
		if outcome, result, err := c.Once(t.Context(), "long", nil, func(context.Context, string) ([]byte, error) { return []byte(long), nil }); !outcome.OK() || string(result) != want {
			t.Errorf("%v, %q: %v", outcome, result, err)
		}
	}
	if call, err := c.Find(t.Context(), "long"); err != nil || !strings.Contains(call.Note, "not kept") {
		t.Errorf("%+v, %v", call, err)
	}
	if _, err := c.Find(t.Context(), "nobody"); !errors.Is(err, broker.ErrNotFound) {
		t.Error(err)
	}
	if s := c.Stats(); s.Applied != 3 || s.Duplicate != 3 || s.Failed != 5 {
		t.Errorf("%+v", s)
	}
}

// TestCallIdempotent: a provider that knows calls by their key is called again, until
// it may have forgotten.
func TestCallIdempotent(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		c := newCalling(t, dedup.CallOptions{Idempotent: 24 * time.Hour})
		c.p.then = func() error { return errTimeout }
		for range 3 {
			c.once("a", dedup.Unknown, broker.ErrUnknownOutcome, "")
			c.once("a", dedup.Unknown, errTimeout, "")
			time.Sleep(time.Hour)
		}
		c.p.then = func() error { panic("broken") }
		c.once("a", dedup.Unknown, broker.ErrUnknownOutcome, "")
		// What is refused now says nothing of the attempts before.
		c.p.then = func() error { return dedup.NotDone(errTimeout) }
		c.once("a", dedup.Unknown, broker.ErrUnknownOutcome, "")
		c.p.then = nil
		c.once("a", dedup.Applied, nil, "receipt 1")
		if call, err := c.Find(t.Context(), "a"); err != nil || call.Attempts != 9 || call.State != dedup.CallDone || call.Note != "" {
			t.Errorf("%+v, %v", call, err)
		}

		c.p.then = func() error { return errTimeout }
		c.once("late", dedup.Unknown, errTimeout, "")
		c.p.then = nil
		time.Sleep(24 * time.Hour)
		c.once("late", dedup.Unknown, dedup.ErrUnresolved, "")
		c.once("late", dedup.Unknown, broker.ErrUnknownOutcome, "")
		if call, err := c.Find(t.Context(), "late"); err != nil || call.State != dedup.CallUnresolved || !strings.Contains(call.Note, "timeout; the first was 24h0m0s ago") {
			t.Errorf("%+v, %v", call, err)
		}
		if c.p.paid != 2 {
			t.Errorf("%d payments", c.p.paid)
		}
	})
}

// TestCallReconciled: a provider that knows no keys isn't called again: the call is
// on the list, and goes on when it is resolved or resumed.
func TestCallReconciled(t *testing.T) {
	c := newCalling(t, dedup.CallOptions{})
	ctx := t.Context()
	c.p.then = func() error { return errTimeout }
	for _, id := range []string{"took", "not", "open"} {
		c.once(id, dedup.Unknown, dedup.ErrUnresolved, "")
		c.once(id, dedup.Unknown, dedup.ErrUnresolved, "")
	}
	c.p.then = nil
	if c.p.paid != 3 {
		t.Errorf("%d payments", c.p.paid)
	}
	list, err := c.Open(ctx, dedup.Call{}, 2)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	rest, err := c.Open(ctx, list[1], 2)
	if err != nil || len(rest) != 1 {
		t.Fatalf("%+v, %v", rest, err)
	}
	away := errors.New("provider is away")
	n, err := c.Reconcile(ctx, func(_ context.Context, call dedup.Call) (dedup.Answer, []byte, string, error) {
		if call.State != dedup.CallUnresolved || call.Note != "timeout" || call.Attempts != 1 {
			t.Errorf("%+v", call)
		}
		switch call.ID {
		case "took":
			return dedup.TookPlace, []byte("receipt 1"), "seen in the list of payments", nil
		case "not":
			return dedup.DidNot, nil, "not there", nil
		}
		return dedup.TookPlace, nil, "", away
	})
	if n != 2 || !errors.Is(err, away) {
		t.Errorf("%d decided, %v", n, err)
	}
	c.once("took", dedup.Duplicate, nil, "receipt 1")
	c.once("not", dedup.Applied, nil, "receipt 4")
	c.once("open", dedup.Unknown, dedup.ErrUnresolved, "")
	all, err := c.Open(ctx, dedup.Call{}, 0)
	if err != nil || len(all) != 1 || all[0].ID != "open" {
		t.Fatalf("%+v, %v", all, err)
	}
	c.s.took = true
	if err := c.Resolve(ctx, all[0], nil, "by hand"); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{"resolve": c.Resolve(ctx, all[0], nil, ""), "resume": c.Resume(ctx, all[0], "")} {
		if !errors.Is(err, broker.ErrConflict) {
			t.Errorf("%s again: %v", name, err)
		}
	}
	done, err := c.Find(ctx, "open")
	if err != nil || done.Note != "by hand" || !errors.Is(c.Resume(ctx, done, ""), broker.ErrConflict) {
		t.Errorf("%+v, %v", done, err)
	}
	if n, err := c.Reconcile(ctx, nil); n != 0 || err != nil {
		t.Errorf("of an empty list %d, %v", n, err)
	}
}

// TestCallCrashed: a process that ends between the beginning and the end leaves a call
// that another makes again with the same key, or that is to be reconciled; not before
// its time, in which it may still be at work (Particular/NServiceBus#5648).
func TestCallCrashed(t *testing.T) {
	for _, idempotent := range []time.Duration{0, time.Hour} {
		bubbletest.Run(t, func(t *testing.T) {
			c := newCalling(t, dedup.CallOptions{Idempotent: idempotent, Bound: 10 * time.Second})
			finish := make(chan error)
			done := make(chan struct{})
			slow := func(ctx context.Context, key string) ([]byte, error) {
				if at, ok := ctx.Deadline(); !ok || time.Until(at) != 10*time.Second {
					t.Errorf("bound by %v, %v", at, ok)
				}
				_, _ = c.p.call(ctx, key)
				return []byte("receipt 1"), <-finish
			}
			go func() {
				defer close(done)
				outcome, result, err := c.Once(t.Context(), "a", []byte("a"), slow)
				if outcome != dedup.Applied || string(result) != "receipt 1" {
					t.Errorf("who was slow: %v, %q: %v", outcome, result, err)
				}
			}()
			time.Sleep(19 * time.Second)
			c.once("a", dedup.InFlight, dedup.ErrInFlight, "")
			if list, err := c.Open(t.Context(), dedup.Call{}, 0); len(list) != 0 || err != nil {
				t.Errorf("%+v, %v", list, err)
			}
			time.Sleep(time.Second)
			if list, err := c.Open(t.Context(), dedup.Call{}, 0); len(list) != 1 || list[0].State != dedup.CallStarted || err != nil {
				t.Errorf("%+v, %v", list, err)
			}
			if idempotent == 0 {
				c.once("a", dedup.Unknown, dedup.ErrUnresolved, "")
			} else {
				c.once("a", dedup.Applied, nil, "receipt 1")
			}
			// It wasn't dead, and knows the truth.
			finish <- nil
			<-done
			c.once("a", dedup.Duplicate, nil, "receipt 1")
			if c.p.paid != 1 {
				t.Errorf("%d payments", c.p.paid)
			}
		})
	}
}

// TestCallRecordLost: the call took place, and the store is gone: the next copy calls
// again if it may, and only then.
func TestCallRecordLost(t *testing.T) {
	for _, idempotent := range []time.Duration{0, time.Hour} {
		bubbletest.Run(t, func(t *testing.T) {
			c := newCalling(t, dedup.CallOptions{Idempotent: idempotent})
			c.s.fail = fmt.Errorf("%w: gone", dedup.ErrLost)
			outcome, result, err := c.Once(t.Context(), "a", nil, c.p.call)
			if outcome != dedup.Unknown || string(result) != "receipt 1" || !errors.Is(err, dedup.ErrCommitUnknown) {
				t.Errorf("%v, %q: %v", outcome, result, err)
			}
			c.s.fail = nil
			c.once("a", dedup.InFlight, dedup.ErrInFlight, "")
			time.Sleep(2 * time.Minute)
			if idempotent == 0 {
				c.once("a", dedup.Unknown, dedup.ErrUnresolved, "")
			} else {
				c.once("a", dedup.Applied, nil, "receipt 1")
			}
			if c.p.paid != 1 {
				t.Errorf("%d payments", c.p.paid)
			}
		})
	}
}

// TestCallCancelled: the end of a call is recorded when its context has ended.
func TestCallCancelled(t *testing.T) {
	c := newCalling(t, dedup.CallOptions{})
	ctx, cancel := context.WithCancelCause(t.Context())
	stopping := errors.New("stopping")
	outcome, _, err := c.Once(ctx, "a", []byte("a"), func(ctx context.Context, key string) ([]byte, error) {
		cancel(stopping)
		return c.p.call(ctx, key)
	})
	if outcome != dedup.Applied || err != nil {
		t.Errorf("%v: %v", outcome, err)
	}
	c.once("a", dedup.Duplicate, nil, "receipt 1")
}

// TestCallExpire: the record outlives the provider's memory, and doesn't outlive its
// window.
func TestCallExpire(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		c := newCalling(t, dedup.CallOptions{Idempotent: 30 * 24 * time.Hour})
		c.once("a", dedup.Applied, nil, "receipt 1")
		time.Sleep(30 * 24 * time.Hour)
		if n, err := c.Expire(t.Context()); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		c.once("a", dedup.Duplicate, nil, "receipt 1")
		time.Sleep(time.Microsecond)
		if n, err := c.Expire(t.Context()); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
	for _, o := range []dedup.CallOptions{
		{Bound: -1}, {Idempotent: -1}, {Window: -1}, {Window: time.Hour, Idempotent: 2 * time.Hour}, {Window: time.Hour, Horizon: dedup.Horizon{Replay: 2 * time.Hour}},
	} {
		if _, err := dedup.NewCalls(newFakeCalls(), "c", o); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := dedup.NewCalls(nil, "c", dedup.CallOptions{}); !errors.Is(err, broker.ErrInvalid) {
		t.Error(err)
	}
}

// TestCallHandler: what a handler answers to Consume.
func TestCallHandler(t *testing.T) {
	c := newCalling(t, dedup.CallOptions{})
	handle := dedup.CallHandler(c.Calls, func(ctx context.Context, key string, d *broker.Delivery) ([]byte, error) {
		return c.p.call(ctx, key)
	})
	deliver := func(id, body string) error {
		return handle(t.Context(), &broker.Delivery{Message: broker.Message{ID: id, Body: []byte(body)}})
	}
	if err := errors.Join(deliver("a", "x"), deliver("a", "x")); err != nil || c.p.paid != 1 {
		t.Error(err, c.p.paid)
	}
	if err := deliver("a", ""); !errors.Is(err, dedup.ErrOtherRequest) {
		t.Error(err)
	}
	if err := deliver("", "x"); !errors.Is(err, broker.ErrInvalid) {
		t.Error(err)
	}
	c.p.then = func() error { return errTimeout }
	if err := deliver("b", "x"); !errors.Is(err, dedup.ErrUnresolved) || !errors.Is(err, errTimeout) {
		t.Error(err)
	}
	if got := fmt.Sprint(dedup.CallState(0), dedup.CallStarted, dedup.CallDone, dedup.CallUnresolved, dedup.CallFree, dedup.CallState(9)); got != "none started done unresolved free CallState(9)" {
		t.Error(got)
	}
}

// TestCallNote: what a provider says of its trouble is kept as far as it is a note, so
// that no database refuses the record for it.
func TestCallNote(t *testing.T) {
	c := newCalling(t, dedup.CallOptions{})
	page := "<html>\x00\xff" + strings.Repeat("stack trace ", 1<<20)
	for id, err := range map[string]error{"open": errors.New(page), "not": dedup.NotDone(errors.New(page))} {
		c.p.then = func() error { return err }
		if outcome, _, err := c.Once(t.Context(), id, nil, c.p.call); outcome.OK() {
			t.Errorf("%s: %v: %v", id, outcome, err)
		}
		if call, err := c.Find(t.Context(), id); err != nil || len(call.Note) > 600 || !strings.HasPrefix(call.Note, "<html>") || strings.ContainsRune(call.Note, 0) {
			t.Errorf("%s: a note of %d bytes, %v", id, len(call.Note), err)
		}
	}
}
