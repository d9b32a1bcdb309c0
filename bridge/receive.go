package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
)

// hopeless reports whether an error of Receive is one that waiting doesn't cure.
func hopeless(err error) bool {
	for _, e := range []error{broker.ErrClosed, broker.ErrInvalid, broker.ErrUnsupported, broker.ErrUnauthorized, broker.ErrNotFound, broker.ErrConflict} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// receive takes messages in hand as far as there is room.
func (r *run) receive() {
	if r.o.HoldOff > 0 && !pause(r.ctx, r.o.HoldOff) {
		return
	}
	failures := 0
	quiet := time.Now() // since when the source has had nothing
	for {
		room := r.room()
		if room == 0 {
			return
		}
		ctx, cancel := r.ctx, context.CancelFunc(func() {})
		if r.o.Idle > 0 {
			ctx, cancel = context.WithTimeout(r.ctx, max(time.Until(quiet.Add(r.o.Idle)), time.Millisecond))
		}
		ds, err := r.from.Receive(ctx, room)
		timedOut := ctx.Err() != nil && r.ctx.Err() == nil
		cancel()
		switch {
		case len(ds) > 0:
			r.take(ds)
			quiet, failures = time.Now(), 0
		case r.ctx.Err() != nil:
			return
		case timedOut:
			if r.idle() {
				r.end(errEnough)
				return
			}
			quiet = time.Now() // what is in hand may be given back
		case err != nil && hopeless(err):
			r.end(fmt.Errorf("bridge: receive: %w", err))
			return
		case err != nil:
			failures++
			r.failed(fmt.Errorf("bridge: receive: %w", err))
			if !pause(r.ctx, r.o.delay(failures)) {
				return
			}
			quiet = time.Now() // a source that isn't there isn't empty
		}
	}
}

// room waits until there is room for messages, and returns for how many; 0 is the end.
func (r *run) room() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.ctx.Err() != nil {
			return 0
		}
		n := r.o.InFlight - len(r.hand)
		if r.bytes >= r.o.Bytes {
			n = 0
		}
		if r.o.Count > 0 {
			if r.closed >= r.o.Count {
				r.mu.Unlock()
				r.end(errEnough)
				r.mu.Lock()
				return 0
			}
			n = min(n, int(min(r.o.Count-r.closed, uint64(r.o.InFlight)))-len(r.hand))
		}
		if n > 0 {
			return n
		}
		r.await(r.ctx, -1)
	}
}

// idle reports whether nothing is in hand.
func (r *run) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.hand) == 0
}

// take puts deliveries into the queues of their keys.
func (r *run) take(ds []broker.Delivery) {
	now := time.Now()
	r.stats.received.Add(uint64(len(ds)))
	tasks := make([]task, len(ds))
	for i := range ds {
		t := &tasks[i]
		t.d, t.id = &ds[i], ds[i].ID
		if t.id == "" && r.o.ID != nil {
			t.id = r.o.ID(t.d)
		}
		t.ident = r.moved.ident(t.id, t.d.Copy)
		t.arm(ds[i].Lease, now)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.hand) == 0 {
		r.since = now
	}
	for i := range tasks {
		t := &tasks[i]
		of := name{key: t.d.Key}
		switch {
		case of.key != "":
		case t.id != "":
			of = name{id: t.id, copy: t.d.Copy} // two copies of a message don't pass each other
		default:
			r.serial++
			of.serial = r.serial
		}
		if t.first = r.firsts[t.ident]; !t.first.IsZero() {
			delete(r.firsts, t.ident)
		}
		q := r.queues[of]
		if q == nil {
			q = &queue{name: of}
			r.queues[of] = q
			r.ready = append(r.ready, q)
		}
		t.q = q
		r.replaces(q, t)
		q.tasks = append(q.tasks, t)
		r.hand[t] = struct{}{}
		r.bytes += len(t.d.Body)
	}
	r.stats.inHand.Store(int64(len(r.hand)))
	r.signal()
}

// replaces finds out that the source has handed out again what is in hand: the earlier
// delivery is lost, and what is behind it comes again behind t; mu is held.
func (r *run) replaces(q *queue, t *task) {
	if t.d.Position == (broker.Position{}) {
		return
	}
	for _, old := range q.tasks {
		if old.ident == t.ident && old.d.Position == t.d.Position && !old.lost {
			r.lose(old)
			if t.first.IsZero() {
				t.first = r.firsts[t.ident]
				delete(r.firsts, t.ident)
			}
			return
		}
	}
}
