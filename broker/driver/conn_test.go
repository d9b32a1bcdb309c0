package driver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/internal/bubbletest"
)

func TestConn(t *testing.T) {
	f := newFake()
	c := driver.New(f)
	ctx := t.Context()
	p, err := c.OpenPublisher(ctx, "t", broker.PublishAtMostOnce())
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.OpenReceiver(ctx, "s", broker.StartFrom(func(string) (broker.Position, bool) { return broker.Position{}, false }))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{c.Ensure(ctx, broker.Entity{Topic: "e"}), c.Delete(ctx, broker.Entity{Topic: "e"})} {
		if err != nil {
			t.Error(err)
		}
	}
	if got := fmt.Sprint(f.took()); got != "[open publisher t at-most-once open receiver s true ensure e delete e]" {
		t.Errorf("%s", got)
	}
	var inner *fake
	if !c.As(&inner) || inner != f || !r.As(&inner) || c.As(new(int)) {
		t.Error("As doesn't reach the driver")
	}
	if d, ok := driver.Unwrap(c); !ok || d != driver.Conn(f) {
		t.Error("Unwrap")
	}

	// What was closed by itself isn't closed again.
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	f.took()
	f.errs = []error{errors.New("the client's own")}
	if err := c.Close(ctx); !errors.Is(err, f.errs[0]) {
		t.Error(err)
	}
	if got := fmt.Sprint(f.took()); got != "[close receiver s close]" {
		t.Errorf("%s", got)
	}
	if err := c.Close(ctx); !errors.Is(err, f.errs[0]) || f.took() != nil {
		t.Errorf("second Close: %v", err)
	}
	_, errP := c.OpenPublisher(ctx, "t")
	_, errR := c.OpenReceiver(ctx, "s")
	for i, err := range []error{errP, errR, c.Ensure(ctx, broker.Entity{Topic: "e"}), c.Delete(ctx, broker.Entity{Topic: "e"})} {
		if !errors.Is(err, broker.ErrClosed) {
			t.Errorf("%d after Close: %v", i, err)
		}
	}
}

func TestConnRefusesNonsense(t *testing.T) {
	f := newFake()
	c := driver.New(f)
	defer c.Close(t.Context())
	ctx := t.Context()
	_, errP := c.OpenPublisher(ctx, "")
	_, errR := c.OpenReceiver(ctx, "")
	for i, err := range []error{errP, errR, c.Ensure(ctx, broker.Entity{}), c.Delete(ctx, broker.Entity{}),
		c.Ensure(ctx, broker.Entity{Topic: "t", Window: -1}), c.Ensure(ctx, broker.Entity{Topic: "t", Lease: -1}),
		c.Ensure(ctx, broker.Entity{Topic: "t", MaxDeliveries: -1}), c.Ensure(ctx, broker.Entity{Topic: "t", Partitions: -1}),
		c.Ensure(ctx, broker.Entity{Topic: "t", MaxBody: -1})} {
		if !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if got := f.took(); got != nil {
		t.Errorf("reached the driver: %q", got)
	}
	missing := broker.Errorf(broker.ErrNotFound, nil, "t")
	f.open = func(context.Context) error { return missing }
	_, errP = c.OpenPublisher(ctx, "t")
	_, errR = c.OpenReceiver(ctx, "s")
	if errP != missing || errR != missing {
		t.Errorf("%v, %v", errP, errR)
	}
}

// The driver isn't called after its Close, however the calls race with it, and
// what was opened meanwhile is closed.
func TestConnCloseRaces(t *testing.T) {
	for range 100 {
		f := newFake() // panics when it is used after Close
		c := driver.New(f)
		var wait sync.WaitGroup
		check := func(err error) {
			if err != nil && !errors.Is(err, broker.ErrClosed) {
				t.Error(err)
			}
		}
		start := make(chan struct{})
		for range 3 {
			wait.Go(func() { <-start; _, err := c.OpenPublisher(t.Context(), "t"); check(err) })
			wait.Go(func() { <-start; _, err := c.OpenReceiver(t.Context(), "s"); check(err) })
			wait.Go(func() { <-start; check(c.Ensure(t.Context(), broker.Entity{Topic: "t"})) })
			wait.Go(func() { <-start; check(c.Delete(t.Context(), broker.Entity{Topic: "t"})) })
			wait.Go(func() {
				<-start
				view, err := driver.Unfenced(c)
				check(err)
				if err == nil {
					_, err = view.OpenPublisher(t.Context(), "v")
					check(err)
				}
			})
			wait.Go(func() { <-start; check(c.Close(t.Context())) })
		}
		close(start)
		wait.Wait()
		log := f.took()
		count := func(prefix string) (n int) {
			for _, l := range log {
				if len(l) >= len(prefix) && l[:len(prefix)] == prefix {
					n++
				}
			}
			return n
		}
		if count("open publisher") != count("close publisher") || count("open receiver") != count("close receiver") {
			t.Fatalf("left open: %q", log)
		}
		if i := slices.Index(log, "close"); i != len(log)-1 {
			t.Fatalf("the connection was closed before the rest: %q", log)
		}
	}
}

// A call that hangs keeps Close no longer than its context; what it opens late
// is closed.
func TestConnCloseIsBounded(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		f := newFake()
		release := make(chan struct{})
		f.open = func(context.Context) error { <-release; return nil }
		c := driver.New(f)
		opened := make(chan error)
		go func() { _, err := c.OpenPublisher(context.Background(), "t"); opened <- err }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := c.Close(ctx); err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		f.mu.Lock()
		f.closed = false // the late publisher may still be closed
		f.mu.Unlock()
		close(release)
		if err := <-opened; !errors.Is(err, broker.ErrClosed) {
			t.Errorf("%v", err)
		}
		if got := fmt.Sprint(f.took()); got != "[open publisher t at-least-once close close publisher t]" {
			t.Errorf("%s", got)
		}
	})
}
