package localstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack/clock"
	"github.com/onceline/onceline/localstack/fault"
)

// Clocked is an emulator whose leases, windows and delays go by a clock of its
// own, which tells the real time until it is moved.
type Clocked interface {
	Emulator

	// Now returns the broker's time.
	Now() time.Time

	// Advance moves the broker's time ahead, and returns when all that became due
	// by it has happened.
	Advance(d time.Duration)
}

// model is a broker of our own, in this process.
type model interface {
	// Serve answers the connections of l until Close.
	Serve(l net.Listener) error
	Faults() *fault.Set
	Clock() *clock.Clock
	// Restart ends all connections and loses what the vendor's broker would lose
	// in a clean stop and start, or in a crash.
	Restart(kill bool)
	// Close ends Serve and waits for all goroutines.
	Close(ctx context.Context) error
}

// modelled is the emulator around a model. Its data live in this process; what
// is durable outlives Restart and Kill, and nothing outlives Close.
type modelled struct {
	name, address, url string
	versions           map[string]string
	model              model
	front              *front
	trace              *tracer
	serving            chan error // the end of Serve

	mu     sync.Mutex // one lifecycle call at a time
	closed bool
}

// serve runs m behind a front on a port, and further ones, of 127.0.0.1; 0 is a
// free one.
func serve(name string, m model, trace *tracer, versions map[string]string, ports ...int) (*modelled, error) {
	e := &modelled{name: name, versions: versions, model: m, front: newFront(), trace: trace, serving: make(chan error, 1)}
	if len(ports) == 0 {
		ports = []int{0}
	}
	for i, port := range ports {
		addr, err := e.front.listen(port)
		if err != nil {
			err = fmt.Errorf("localstack: %s: %w", name, err)
			return nil, errors.Join(err, e.front.end(context.Background()), m.Close(context.Background()))
		}
		if i == 0 {
			e.address, e.url = addr, urlOf(name, addr)
		}
	}
	go func() { e.serving <- m.Serve(e.front) }()
	e.front.resume()
	return e, nil
}

// Name returns the name by which the emulator was started.
func (e *modelled) Name() string { return e.name }

// URL returns the address for clients.
func (e *modelled) URL() string { return e.url }

// Address returns host:port for clients.
func (e *modelled) Address() string { return e.address }

// DirectURL equals URL: the faults are in the broker itself, so there is no way
// around them and nothing to gain by one.
func (e *modelled) DirectURL() string { return e.url }

// Versions returns what is modelled.
func (e *modelled) Versions() map[string]string { return maps.Clone(e.versions) }

// Real is false: this is a model of the vendor's broker.
func (e *modelled) Real() bool { return false }

// Now returns the broker's time.
func (e *modelled) Now() time.Time { return e.model.Clock().Now() }

// Advance moves the broker's time ahead.
func (e *modelled) Advance(d time.Duration) { e.model.Clock().Advance(d) }

// Inject arms a fault until it is used up or removed.
func (e *modelled) Inject(f Fault) *Injection {
	if picky, ok := e.model.(interface{ Inject(Fault) *Injection }); ok {
		return picky.Inject(f) // it knows what it can't do
	}
	return e.model.Faults().Inject(f, nil)
}

// Trace calls f with a line for each request from now on; nil ends it.
func (e *modelled) Trace(f func(line string)) { e.trace.set(f) }

// Freeze stops all bytes in both directions on all connections.
func (e *modelled) Freeze() { e.front.gate.close() }

// Thaw ends Freeze.
func (e *modelled) Thaw() { e.front.gate.open() }

// Slow makes all connections slow, until it is called again.
func (e *modelled) Slow(s Slowness) { e.front.gate.slowDown(s) }

// Disconnect closes all client connections and returns how many there were.
func (e *modelled) Disconnect() int { return e.front.disconnect() }

// Restart stops the broker cleanly and starts it again on its durable state.
func (e *modelled) Restart(ctx context.Context) error { return e.again(ctx, false) }

// Kill ends the broker as a crash would, and starts it again on what that left.
// It is modelled: what the vendor's broker has promised to keep is kept.
func (e *modelled) Kill(ctx context.Context) error { return e.again(ctx, true) }

func (e *modelled) again(ctx context.Context, kill bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("%w (%s)", ErrClosed, e.name)
	}
	e.front.pause()
	defer e.front.resume()
	restarted := make(chan struct{})
	go func() { defer close(restarted); e.model.Restart(kill) }()
	// A model that waits for its connections to end needs them to end.
	e.front.disconnect()
	select {
	case <-restarted:
	case <-ctx.Done():
		return fmt.Errorf("localstack: %s: restart: %w", e.name, context.Cause(ctx))
	}
	e.front.disconnect()
	return nil
}

// Close stops the broker and waits for its goroutines.
func (e *modelled) Close(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	errs := []error{e.model.Close(ctx), e.front.Close(), e.front.end(ctx)}
	select {
	case err := <-e.serving:
		errs = append(errs, err)
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("localstack: %s: waiting for its end: %w", e.name, context.Cause(ctx)))
	}
	return errors.Join(errs...)
}
