package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
)

// loop is a broker with inputs "in", outputs "out" and dead letters "dead".
type loop struct {
	t    *testing.T
	b    *memory.Broker
	c    broker.Conn
	pub  broker.Publisher
	rcv  broker.Receiver
	x    broker.Transactor
	mu   sync.Mutex
	errs []error
}

func newLoop(t *testing.T) *loop {
	l := &loop{t: t, b: memory.New()}
	t.Cleanup(l.b.Close)
	l.c = l.b.Conn()
	for _, e := range []broker.Entity{{Topic: "in", Subscription: "in/p", DeadLetter: "dead", Ordered: true}, {Topic: "out", Subscription: "out/r"}, {Topic: "dead", Subscription: "dead/r"}} {
		if err := l.c.Ensure(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if l.pub, err = l.c.OpenPublisher(t.Context(), "in"); err != nil {
		t.Fatal(err)
	}
	if l.rcv, err = l.c.OpenReceiver(t.Context(), "in/p"); err != nil {
		t.Fatal(err)
	}
	if l.x, err = broker.OpenTransactor(t.Context(), l.c, "loop"); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *loop) feed(n int) {
	for i := range n {
		if _, err := l.pub.Publish(l.t.Context(), broker.Message{ID: fmt.Sprintf("m%03d", i), Key: fmt.Sprint(i % 3), Body: []byte("x")}); err != nil {
			l.t.Fatal(err)
		}
	}
}

func (l *loop) hook(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

func (l *loop) saw(kind error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.errs, func(err error) bool { return errors.Is(err, kind) })
}

// run runs Process until topic has n messages, and returns what it has then in all.
func (l *loop) run(h broker.ProcessHandler, o broker.ProcessOptions, outs, letters int) (out, dead []broker.Delivery) {
	l.t.Helper()
	o.ErrorHook = l.hook
	if o.Backoff == (broker.Backoff{}) {
		o.Backoff = broker.Backoff{Min: time.Millisecond, Max: 2 * time.Millisecond}
	}
	ctx, cancel := context.WithCancel(l.t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- broker.Process(ctx, l.rcv, l.x, h, o) }()
	out = l.take("out/r", outs)
	dead = l.take("dead/r", letters)
	cancel()
	if err := <-ended; err != nil {
		l.t.Fatal(err)
	}
	out = append(out, l.rest("out/r")...)
	dead = append(dead, l.rest("dead/r")...)
	if len(out) != outs || len(dead) != letters {
		l.t.Fatalf("%d outputs and %d dead letters, want %d and %d", len(out), len(dead), outs, letters)
	}
	return out, dead
}

func (l *loop) take(sub string, n int) (ds []broker.Delivery) {
	l.t.Helper()
	r, err := l.c.OpenReceiver(l.t.Context(), sub)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), 20*time.Second)
	defer cancel()
	for len(ds) < n {
		got, err := r.Receive(ctx, n-len(ds))
		if err != nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.t.Fatalf("%s has %d of %d: %v; %v", sub, len(ds), n, err, l.errs)
		}
		for i := range got {
			if _, err := got[i].Ack(ctx); err != nil {
				l.t.Fatal(err)
			}
		}
		ds = append(ds, got...)
	}
	if err := r.Close(ctx); err != nil {
		l.t.Fatal(err)
	}
	return ds
}

// rest is what is there at once.
func (l *loop) rest(sub string) []broker.Delivery {
	r, err := l.c.OpenReceiver(l.t.Context(), sub)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), 20*time.Millisecond)
	defer cancel()
	ds, _ := r.Receive(ctx, 1000)
	return ds
}

// echo is a handler with an output for each input.
func echo(_ context.Context, in []broker.Delivery) (out []broker.Output, _ error) {
	for _, d := range in {
		out = append(out, broker.Output{Topic: "out", Message: broker.Message{ID: "o" + d.ID, Key: d.Key, Body: d.Body}})
	}
	return out, nil
}

func inOrder(t *testing.T, ds []broker.Delivery) {
	t.Helper()
	last := map[string]string{}
	for _, d := range ds {
		if d.ID <= last[d.Key] {
			t.Errorf("key %s: %s behind %s", d.Key, d.ID, last[d.Key])
		}
		last[d.Key] = d.ID
	}
}

func TestProcess(t *testing.T) {
	l := newLoop(t)
	l.feed(60)
	out, _ := l.run(echo, broker.ProcessOptions{Batch: 7}, 60, 0)
	inOrder(t, out)
	if s, err := l.b.Stats("in/p"); err != nil || s.Ready+s.InFlight+s.Waiting > 0 {
		t.Errorf("inputs are left: %+v", s)
	}
	if len(l.errs) > 0 {
		t.Error(l.errs)
	}
}

// Failures abort, and the one at fault is found: named, or alone. In the end it is a
// dead letter, and everything else went through once and in order.
func TestProcessFailures(t *testing.T) {
	bad := errors.New("bad")
	for name, fail := range map[string]func(i int) error{
		"named":   func(i int) error { return broker.FailedAt(i, bad) },
		"unnamed": func(int) error { return bad },
		"poison":  func(i int) error { return broker.FailedAt(i, broker.Poison(bad)) },
		"panic":   func(int) error { panic("bad") },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t)
			l.feed(30)
			tries := map[string]int{}
			out, dead := l.run(func(ctx context.Context, in []broker.Delivery) ([]broker.Output, error) {
				for i, d := range in {
					if d.ID == "m010" {
						tries[d.ID]++
						return nil, fail(i)
					}
				}
				return echo(ctx, in)
			}, broker.ProcessOptions{Batch: 8, MaxAttempts: 3}, 29, 1)
			inOrder(t, out)
			if d := dead[0]; d.ID != "m010" || !strings.Contains(d.Headers.Get("onceline-dead-letter-reason"), "bad") {
				t.Errorf("dead is %s: %v", d.ID, d.Headers)
			}
			if name == "poison" && tries["m010"] != 1 || name == "named" && tries["m010"] != 3 {
				t.Errorf("tried %d times", tries["m010"])
			}
		})
	}
}

// An output that the broker refuses is its input's failure (twmb/franz-go#1217).
func TestProcessBadOutput(t *testing.T) {
	l := newLoop(t)
	l.feed(6)
	_, dead := l.run(func(ctx context.Context, in []broker.Delivery) ([]broker.Output, error) {
		out, _ := echo(ctx, in)
		for i := range out {
			if in[i].ID == "m004" {
				out[i].ID = ""
			}
		}
		return out, nil
	}, broker.ProcessOptions{Batch: 6, MaxAttempts: 2}, 5, 1)
	if dead[0].ID != "m004" {
		t.Errorf("dead is %s", dead[0].ID)
	}
}

// The answer to a commit is lost, either way: it is resolved, and nothing is done twice.
func TestProcessCommitUnknown(t *testing.T) {
	for _, kind := range []memory.Kind{memory.LoseResponse, memory.LoseRequest} {
		t.Run(kind.String(), func(t *testing.T) {
			l := newLoop(t)
			l.feed(9)
			lost := l.b.Inject(memory.Fault{Op: memory.Commit, Kind: kind, Times: 1})
			handled := map[string]int{}
			l.run(func(ctx context.Context, in []broker.Delivery) ([]broker.Output, error) {
				for _, d := range in {
					handled[d.ID]++
				}
				return echo(ctx, in)
			}, broker.ProcessOptions{MaxTime: 100 * time.Millisecond}, 9, 0)
			if lost.Hits() != 1 || !l.saw(broker.ErrUnknownOutcome) {
				t.Fatalf("hits %d, %v", lost.Hits(), l.errs)
			}
			for id, n := range handled {
				if n != 1 {
					t.Errorf("%s was handled %d times", id, n)
				}
			}
		})
	}
}

// A handler that is too slow costs its batch, which comes again smaller.
func TestProcessTooSlow(t *testing.T) {
	l := newLoop(t)
	l.feed(9)
	l.run(func(ctx context.Context, in []broker.Delivery) ([]broker.Output, error) {
		if len(in) > 2 {
			<-ctx.Done()
		}
		return echo(ctx, in)
	}, broker.ProcessOptions{MaxTime: 50 * time.Millisecond, Batch: 8}, 9, 0)
	if !l.saw(context.DeadlineExceeded) {
		t.Error(l.errs)
	}
}

// The batch under way is finished when Process is told to end, and nothing else.
func TestProcessEnds(t *testing.T) {
	l := newLoop(t)
	l.feed(10)
	ctx, cancel := context.WithCancel(t.Context())
	err := broker.Process(ctx, l.rcv, l.x, func(hctx context.Context, in []broker.Delivery) ([]broker.Output, error) {
		cancel()
		if hctx.Err() != nil {
			t.Error("the handler's context ended with Process's")
		}
		return echo(hctx, in)
	}, broker.ProcessOptions{Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	if ds := l.rest("out/r"); len(ds) != 1 {
		t.Errorf("%d outputs", len(ds))
	}
}

// A second instance under the same ID ends the first, whose batch has no effect.
func TestProcessReplaced(t *testing.T) {
	l := newLoop(t)
	l.feed(3)
	err := broker.Process(t.Context(), l.rcv, l.x, func(ctx context.Context, in []broker.Delivery) ([]broker.Output, error) {
		if _, err := broker.OpenTransactor(ctx, l.c, "loop"); err != nil {
			t.Error(err)
		}
		return echo(ctx, in)
	}, broker.ProcessOptions{ErrorHook: l.hook, Backoff: broker.Backoff{Min: time.Millisecond, Max: time.Millisecond}})
	if !errors.Is(err, broker.ErrFenced) {
		t.Fatal(err)
	}
	if ds := l.rest("out/r"); len(ds) != 0 {
		t.Errorf("%d outputs of an instance that was replaced", len(ds))
	}
}

// scoped is a transactor that says what it covers, and does nothing.
type scoped struct {
	broker.Transactor
	s broker.Scope
}

func (s scoped) Scope() broker.Scope { return s.s }

func TestProcessRefusals(t *testing.T) {
	l := newLoop(t)
	full := broker.Scope{Publishes: true, Settles: true, Atomic: true, Timeout: 10 * time.Second}
	for name, c := range map[string]struct {
		change func(*broker.Scope)
		o      broker.ProcessOptions
		want   error
	}{
		"no settles": {func(s *broker.Scope) { s.Settles = false }, broker.ProcessOptions{}, broker.ErrUnsupported},
		"torn":       {func(s *broker.Scope) { s.Atomic = false }, broker.ProcessOptions{}, broker.ErrUnsupported},
		"too long":   {func(*broker.Scope) {}, broker.ProcessOptions{MaxTime: 9500 * time.Millisecond}, broker.ErrInvalid},
		"negative":   {func(*broker.Scope) {}, broker.ProcessOptions{MaxTime: -1}, broker.ErrInvalid},
	} {
		s := full
		c.change(&s)
		if err := broker.Process(t.Context(), l.rcv, scoped{l.x, s}, echo, c.o); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := broker.Process(t.Context(), nil, l.x, echo, broker.ProcessOptions{}); !errors.Is(err, broker.ErrInvalid) {
		t.Error(err)
	}
}
