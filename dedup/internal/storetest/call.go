package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// RunCalls runs the behaviours of stores of external calls, each on a store of its own.
func RunCalls(t *testing.T, setup func(t *testing.T) dedup.CallDriver) {
	for _, b := range []struct {
		name string
		test func(*testing.T, dedup.CallDriver)
	}{
		{"Records", callRecords}, {"Open", callsOpen}, {"Expire", callsExpire}, {"Copies", callCopies}, {"Crashes", callCrashes},
	} {
		t.Run(b.name, func(t *testing.T) { b.test(t, setup(t)) })
	}
}

// sameCall compares records, times to the microsecond.
func sameCall(a, b dedup.Call) bool {
	at := func(a, b time.Time) bool { return a.UnixMicro() == b.UnixMicro() }
	return a.Consumer == b.Consumer && a.ID == b.ID && a.State == b.State && a.Version == b.Version && a.Token == b.Token && a.Attempts == b.Attempts &&
		at(a.First, b.First) && at(a.Changed, b.Changed) && at(a.Due, b.Due) && bytes.Equal(a.Request, b.Request) && bytes.Equal(a.Result, b.Result) && a.Note == b.Note
}

// callRecords: a record is added once, changed by who knows its version, and comes
// back as it was written.
func callRecords(t *testing.T, d dedup.CallDriver) {
	ctx, now := t.Context(), time.Now()
	if c, err := d.LoadCall(ctx, "c", "a"); err != nil || c.State != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	c := dedup.Call{Consumer: "c", ID: "a\x00é\xff", State: dedup.CallStarted, Token: [8]byte{0, 1, 2, 255}, Attempts: 1, First: now, Changed: now.Add(1), Due: now.Add(time.Hour),
		Request: bytes.Repeat([]byte{0, 255}, 16)}
	stored, err := d.AddCall(ctx, c)
	if c.Version = 1; err != nil || !sameCall(stored, c) {
		t.Errorf("added %+v, %v; want %+v", stored, err, c)
	}
	other := c
	other.Token, other.Attempts = [8]byte{9}, 7
	if stored, err = d.AddCall(ctx, other); err != nil || !sameCall(stored, c) {
		t.Errorf("added again %+v, %v; want %+v", stored, err, c)
	}
	for _, wrong := range []int64{0, 2} {
		if other.Version = wrong; change(t, d, other) {
			t.Errorf("changed by one who knows version %d", wrong)
		}
	}
	c.State, c.Result, c.Note, c.Changed, c.Attempts = dedup.CallDone, []byte("answer\x00\xff"), "by hand, für \"alle\"", now.Add(time.Minute), 2
	if !change(t, d, c) || change(t, d, c) {
		t.Error("not changed, or twice")
	}
	c.Version++
	if stored, err = d.LoadCall(ctx, c.Consumer, c.ID); err != nil || !sameCall(stored, c) {
		t.Errorf("loaded %+v, %v; want %+v", stored, err, c)
	}
	if stored, err = d.LoadCall(ctx, "other", c.ID); err != nil || stored.State != 0 {
		t.Errorf("of another consumer: %+v, %v", stored, err)
	}
	if _, err := d.AddCall(ctx, dedup.Call{Consumer: "c"}); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("without an ID: %v", err)
	}
}

func change(t *testing.T, d dedup.CallDriver, c dedup.Call) bool {
	t.Helper()
	ok, err := d.ChangeCall(t.Context(), c)
	if err != nil {
		t.Error(err)
	}
	return ok
}

// callsOpen: the list has what is unresolved and what is overdue, a page at a time.
func callsOpen(t *testing.T, d dedup.CallDriver) {
	ctx, now := t.Context(), time.Now()
	var want []string
	for i := range 30 {
		c := dedup.Call{Consumer: "c", ID: fmt.Sprint("m", i), First: now, Changed: now, Due: now.Add(time.Hour), State: dedup.CallState(1 + i%4)}
		switch {
		case c.State == dedup.CallStarted && i%8 == 0:
			c.Due = now.Add(-time.Second)
			want = append(want, c.ID)
		case c.State == dedup.CallUnresolved:
			want = append(want, c.ID)
		case c.State != dedup.CallStarted:
			c.Due = now.Add(-time.Hour)
		}
		if _, err := d.AddCall(ctx, c); err != nil {
			t.Fatal(err)
		}
		if c.Consumer, c.State = "other", dedup.CallUnresolved; i == 0 {
			if _, err := d.AddCall(ctx, c); err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	var after dedup.Marker
	for {
		page, err := d.OpenCalls(ctx, "c", now, after, 4)
		if err != nil || len(page) > 4 {
			t.Fatalf("%d on a page, %v", len(page), err)
		}
		if len(page) == 0 {
			break
		}
		for _, c := range page {
			m, err := c.Marker()
			if err != nil || m.Compare(after) <= 0 {
				t.Errorf("%s is out of order, %v", c.ID, err)
			}
			after = m
			got = append(got, c.ID)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("open are %v, want %v", got, want)
	}
}

// callsExpire: what is done or free goes after its time, what is open never.
func callsExpire(t *testing.T, d dedup.CallDriver) {
	ctx, now := t.Context(), time.Now()
	for _, consumer := range []string{"c", "other"} {
		for state := dedup.CallStarted; state <= dedup.CallFree; state++ {
			for _, age := range []time.Duration{time.Hour, 3 * time.Hour} {
				c := dedup.Call{Consumer: consumer, ID: fmt.Sprint(state, age), State: state, First: now.Add(-age), Changed: now.Add(-age), Due: now.Add(-age)}
				if _, err := d.AddCall(ctx, c); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, want := range []int64{2, 0} {
		if n, err := d.ExpireCalls(ctx, "c", now.Add(-2*time.Hour)); n != want || err != nil {
			t.Errorf("%d expired, %v; want %d", n, err, want)
		}
	}
	for state := dedup.CallStarted; state <= dedup.CallFree; state++ {
		gone := state == dedup.CallDone || state == dedup.CallFree
		for age, want := range map[time.Duration]bool{time.Hour: true, 3 * time.Hour: !gone} {
			if c, err := d.LoadCall(ctx, "c", fmt.Sprint(state, age)); (c.State != 0) != want || err != nil {
				t.Errorf("%v of %v: %+v, %v", state, age, c, err)
			}
		}
	}
}

// callCopies: copies that come at the same time make one call.
func callCopies(t *testing.T, d dedup.CallDriver) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := dedup.NewCalls(d, "c", dedup.CallOptions{Attempts: 20})
	if err != nil {
		t.Fatal(err)
	}
	var calls [20]atomic.Int64
	together(func(int) {
		for i := range calls {
			for {
				outcome, result, err := c.Once(ctx, fmt.Sprint("m", i), []byte("request"), func(context.Context, string) ([]byte, error) {
					calls[i].Add(1)
					return fmt.Appendf(nil, "answer %d", i), nil
				})
				if outcome == dedup.InFlight {
					continue
				}
				if !outcome.OK() || string(result) != fmt.Sprintf("answer %d", i) {
					t.Errorf("%v, %q: %v", outcome, result, err)
				}
				break
			}
		}
	})
	for i := range calls {
		if calls[i].Load() != 1 {
			t.Errorf("%d calls of %d", calls[i].Load(), i)
		}
	}
}

// losing is a store whose next calls get no answer, whether they took place or not.
type losing struct {
	dedup.CallDriver
	mu   sync.Mutex
	plan []func() (took bool)
}

func lose[A any](l *losing, f func() (A, error)) (A, error) {
	l.mu.Lock()
	var next func() bool
	if len(l.plan) > 0 {
		next, l.plan = l.plan[0], l.plan[1:]
	}
	l.mu.Unlock()
	var none A
	switch {
	case next == nil:
		return f()
	case !next():
		return none, fmt.Errorf("%w: %w", dedup.ErrLost, errStore)
	}
	if _, err := f(); err != nil {
		return none, err
	}
	return none, fmt.Errorf("%w: %w", dedup.ErrCommitUnknown, errStore)
}

func (l *losing) AddCall(ctx context.Context, c dedup.Call) (dedup.Call, error) {
	return lose(l, func() (dedup.Call, error) { return l.CallDriver.AddCall(ctx, c) })
}

func (l *losing) ChangeCall(ctx context.Context, c dedup.Call) (bool, error) {
	return lose(l, func() (bool, error) { return l.CallDriver.ChangeCall(ctx, c) })
}

// callCrashes: whichever answers of the store are lost, one call is made, and its
// answer kept.
func callCrashes(t *testing.T, d dedup.CallDriver) {
	yes, no, none := func() bool { return true }, func() bool { return false }, []func() bool(nil)
	for i, plan := range [][]func() bool{
		none, {yes}, {no}, {yes, yes}, {no, no}, {yes, no, yes}, {no, yes, no, yes}, {nil, yes}, {nil, no}, {nil, yes, yes}, {nil, no, yes}, {nil, yes, no, no},
	} {
		l := &losing{CallDriver: d, plan: plan}
		c, err := dedup.NewCalls(l, "c", dedup.CallOptions{Attempts: 6, Rand: func() float64 { return 0 }})
		if err != nil {
			t.Fatal(err)
		}
		id, calls := fmt.Sprint("m", i), 0
		for _, want := range []dedup.Outcome{dedup.Applied, dedup.Duplicate} {
			outcome, result, err := c.Once(t.Context(), id, nil, func(context.Context, string) ([]byte, error) { calls++; return []byte(id), nil })
			if outcome != want || string(result) != id || err != nil || calls != 1 {
				t.Errorf("plan %d: %v, %q, %v after %d calls; want %v", i, outcome, result, err, calls, want)
			}
		}
	}
}
