package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// worker runs handlers, one at a time.
type worker struct {
	task *task // being handled
	ctx  context.Context
	end  context.CancelCauseFunc
	uses int
}

// usesOfContext is how many handlers in a row may share a context: a context of
// its own for each would be most of what a delivery costs here. It is renewed
// when it was ended, when the worker is idle, and after so many, so that what
// handlers forget to detach from it doesn't pile up.
const usesOfContext = 32

// context returns the one for the next handler; mu is held.
func (w *worker) context(c *consumer) context.Context {
	if w.ctx != nil && w.uses < usesOfContext && w.ctx.Err() == nil {
		w.uses++
		return w.ctx
	}
	w.drop()
	w.ctx, w.end = context.WithCancelCause(c.handling)
	w.uses = 1
	return w.ctx
}

func (w *worker) drop() {
	if w.ctx != nil {
		w.end(nil)
		w.ctx, w.end = nil, nil
	}
}

// labour takes one task after the other until the consumer is over.
func (c *consumer) labour(w *worker) {
	c.mu.Lock()
	// A handler that ends its goroutine (runtime.Goexit, by t.FailNow) takes
	// only this worker along.
	defer func() {
		if t := w.task; t != nil {
			c.mu.Lock()
			report := c.handled(w, t, errGoexit)
			c.mu.Unlock()
			c.report(report)
			c.workers.Go(func() { c.labour(&worker{}) })
		}
		w.drop()
	}()
	for {
		t := c.ready.pop()
		if t == nil {
			if c.over {
				c.mu.Unlock()
				return
			}
			w.drop()
			c.work.Wait()
			continue
		}
		report := c.begin(w, t)
		if report == nil {
			ctx := w.context(c)
			c.mu.Unlock()
			err := run(ctx, c.h, t.d)
			c.mu.Lock()
			report = c.handled(w, t, err)
		}
		if report != nil {
			c.mu.Unlock()
			c.report(report)
			c.mu.Lock()
		}
	}
}

func (c *consumer) report(err error) {
	if err != nil {
		c.o.ErrorHook(err)
	}
}

// begin makes t the worker's task. Otherwise it says why not.
func (c *consumer) begin(w *worker, t *task) error {
	switch {
	case t.lost:
		c.hold(t, 0, false)
		c.release(t)
		return Errorf(ErrLeaseLost, nil, "consume %q: not handled: its lease ended before a worker was free", t.d.ID)
	case c.handling.Err() != nil && c.o.Semantics == AtMostOnce:
		c.unline(t)
		c.release(t)
		return Errorf(ErrUnavailable, context.Cause(c.handling), "consume %q: acked at most once, but not handled", t.d.ID)
	}
	t.stage, t.worker, w.task = running, w, t
	c.running++
	return nil
}

// handled decides what becomes of t after its handler returned err; mu is held.
// It returns what the hook is to be told.
func (c *consumer) handled(w *worker, t *task, err error) (report error) {
	w.task, t.worker = nil, nil
	c.running--
	attempt := t.d.Attempt.Number
	switch {
	case c.o.Semantics == AtMostOnce:
		c.unline(t)
		c.release(t)
	case t.lost:
		c.hold(t, 0, false)
		c.release(t)
		return Errorf(ErrLeaseLost, err, "consume %q: lost while it was handled; the result isn't settled", t.d.ID)
	case err == nil:
		c.attempts.forget(t.d)
		t.action = Ack
		c.unline(t)
		c.finish(t)
	case c.handling.Err() != nil:
		// Cut by the end of the drain: that is no verdict on the message.
		c.attempts.spare(t.d)
		c.hold(t, 0, true)
		c.give(t, 0)
	case IsPoison(err):
		c.bury(t, err)
	case isA[*postponed](err):
		delay, _ := Postponed(err)
		if delay <= 0 {
			delay = c.o.Backoff.Min
		}
		// Longer than any back-off is the broker's to wait, and of what has no key,
		// longer than a moment.
		if delay > c.o.Backoff.Max || t.key(c) == "" && delay > restKeyless || !c.rest(t, delay) {
			c.attempts.spare(t.d)
			c.hold(t, delay, true)
			c.give(t, delay)
		}
	default:
		attempt = c.attempts.fail(t.d)
		if c.o.MaxAttempts > 0 && attempt >= c.o.MaxAttempts {
			err = fmt.Errorf("after %s: %w", amount(attempt, "attempt"), err)
			c.bury(t, err)
			break
		}
		if delay := c.o.Backoff.pause(attempt, c.o.Rand); t.key(c) == "" || !c.rest(t, delay) {
			c.hold(t, delay, true)
			c.give(t, delay)
		}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("handle %q, attempt %d: %w", t.d.ID, attempt, err)
}

// restKeyless is how long a message without a key that was postponed rests in hand at
// most. It takes a place of MaxInFlight from others meanwhile.
const restKeyless = 5 * time.Second

// rest keeps t in hand for its delay and has it handled again then, if its lease can
// be kept. Those of its key behind it wait with it: to give them back would cost each a
// delivery that never reached the handler, and a broker that counts deliveries drops
// or dead-letters a message for that.
func (c *consumer) rest(t *task, delay time.Duration) bool {
	if t.fixed || c.draining {
		return false
	}
	t.due = time.Now().Add(delay)
	c.finish(t)
	t.stage = resting
	return true
}

// bury has t dead-lettered.
func (c *consumer) bury(t *task, err error) {
	t.action, t.reason = DeadLetter, reasonOf(err)
	c.unline(t)
	c.finish(t)
}

// reasonSize bounds a dead-letter reason, which travels in a header.
const reasonSize = 1024

// reasonOf is the text of err in a size and charset that any broker takes,
// without a stack.
func reasonOf(err error) string {
	text := fmt.Sprint(err) // which survives an Error method that panics
	var p *PanicError
	if errors.As(err, &p) {
		text = strings.Replace(text, p.Error(), p.short(), 1)
	}
	if len(text) > reasonSize {
		text = text[:reasonSize]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "")
}

// PanicError is the error of a handler that panicked.
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // of the handler's goroutine, as debug.Stack writes it
}

func (e *PanicError) Error() string { return e.short() + "\n\n" + string(e.Stack) }

func (e *PanicError) short() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

var errGoexit = errors.New("handler ended its goroutine")

// run runs the handler and turns a panic into an error.
func run(ctx context.Context, h Handler, d *Delivery) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return h(ctx, d)
}

// drain stops what isn't running and gives it back. It is called as ctx ends,
// or once receiving has ended for another reason.
func (c *consumer) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return
	}
	c.draining = true
	c.room.Broadcast()
	wake(c.wakeSettle) // what is held for its delay goes back now
	if c.o.Semantics == AtMostOnce {
		return // what is acked is handled
	}
	clear(c.tails)
	for t := c.hand.first; t != nil; t = t.behind {
		t.after = nil
	}
	c.ready = queue{}
	c.giveBackWaiting()
}

// giveBackWaiting gives back all tasks that wait, in the order they came: the
// ring has the youngest first.
func (c *consumer) giveBackWaiting() {
	var oldest *task
	for t := c.hand.first; t != nil; t = t.behind {
		oldest = t
	}
	for t := oldest; t != nil; t = t.before {
		if t.stage == waiting {
			t.next = nil
			c.give(t, 0)
		}
	}
}

// errDrained is why handlers are cut at the end of the drain timeout.
var errDrained = errors.New("consume ends: drain timeout")

// end waits for what is in hand, bounded, and for the goroutines.
func (c *consumer) end() (err error) {
	c.undrain()
	c.drain()
	c.mu.Lock()
	c.received = true
	c.checkIdle()
	c.mu.Unlock()

	timeout := time.NewTimer(c.o.DrainTimeout)
	defer timeout.Stop()
	select {
	case <-c.idle:
	case <-timeout.C:
		c.handleEnd(errDrained)
		timeout.Reset(c.o.SettleTimeout)
		select {
		case <-c.idle:
		case <-timeout.C:
			c.settleEnd()
			err = c.leave()
		}
	}
	c.mu.Lock()
	c.over = true
	stuck := c.running
	c.work.Broadcast()
	c.mu.Unlock()
	wake(c.wakeSettle)
	wake(c.wakeHeart)
	c.others.Wait()
	if stuck == 0 {
		c.workers.Wait()
	}
	c.handleEnd(nil)
	c.settleEnd()
	return err
}

// leave says what is left behind when time is up.
func (c *consumer) leave() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running > 0 {
		return Errorf(ErrUnknownOutcome, errDrained, "consume: handlers that don't return: %d; messages that aren't settled: theirs and %d more",
			c.running, c.inFlight-c.running)
	}
	return Errorf(ErrUnknownOutcome, errDrained, "consume: not settled: %s", amount(c.inFlight, "message"))
}
