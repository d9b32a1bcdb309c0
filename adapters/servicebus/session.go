package servicebus

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	// acceptWait is how long one try to get a session waits where there is none.
	acceptWait = 20 * time.Second

	// maxParked is how many sessions are kept beside the current one because there
	// are deliveries of them in hand.
	maxParked = 32

	parkedWait = 5 * time.Millisecond

	// firstWait bounds how long the first message of a session takes to come. The
	// service grants none without messages, but what there was may have expired.
	firstWait = 5 * time.Second
)

// receiveSession takes from the session that is held until nothing more comes of
// it, then lets it go and accepts the next one. A session with deliveries in hand
// can't be let go, for they would be lost: it is parked, looked into between
// tries to accept another, and let go when they are settled.
func (r *receiver) receiveSession(ctx context.Context, max int, out *driver.Batch) error {
	for fails := 0; ; {
		if ctx.Err() != nil {
			return r.ended(ctx)
		}
		b := r.box
		if b == nil {
			if r.unpark(ctx, max, out) {
				return nil
			}
			if len(r.parked) >= maxParked {
				pause(ctx, parkedWait)
				continue
			}
			err := r.accept(ctx)
			switch {
			case err == nil:
				fails = 0
			case ctx.Err() != nil:
			case !heals(kindOf(err)):
				return broker.Errorf(kindOf(err), err, "receive from %s: accept a session", r.name)
			case noSession(err):
			default:
				fails++
				r.backOff(ctx, fails)
			}
			continue
		}
		ms, lost, err := r.takeSession(ctx, b, max)
		switch {
		case len(ms) > 0:
			r.hand(b, ms, time.Time{}, out)
			return nil
		case lost:
			// The link is lost and with it the session: the SDK would take it back
			// in silence, and old deliveries would settle under the new lock.
			r.box = nil
			r.letGo(b)
			if err != nil && !heals(kindOf(err)) && kindOf(err) != broker.ErrLeaseLost {
				return broker.Errorf(kindOf(err), err, "receive from %s", r.name)
			}
		case err != nil:
			return r.ended(ctx) // tidy lets it go if no other call goes on with it soon
		case b.held.Load() > 0:
			r.box = nil
			r.parked = append(r.parked, b)
		default:
			r.box = nil
			r.letGo(b)
		}
	}
}

// takeSession is take, for as long as another message of the session is worth waiting
// for, over all calls that wait for it, with the session's lock renewed first if it has
// run for half of its time.
func (r *receiver) takeSession(ctx context.Context, b *inbox, most int) (ms []*azservicebus.ReceivedMessage, lost bool, err error) {
	if b.epoch.Ended() {
		return nil, true, errSessionLost
	}
	if left := b.lockEnd().Sub(r.c.Now()); left < b.lock/2 {
		if err := r.renew(ctx, b); err != nil {
			return nil, ctx.Err() == nil, err
		}
	}
	limit := max(r.c.opts.sessionIdle, 4*b.trip)
	if b.trip == 0 {
		limit = firstWait
	}
	begun := time.Now()
	if b.stand.done != nil {
		begun = b.stand.begun
	}
	ms, lost, err = r.take(ctx, b, most, limit-time.Since(begun))
	if b.trip == 0 && len(ms) > 0 {
		b.trip = max(time.Since(begun), 1)
	}
	return ms, lost, err
}

// unpark looks into the parked sessions, and reports whether there were messages.
func (r *receiver) unpark(ctx context.Context, max int, out *driver.Batch) bool {
	for i := 0; i < len(r.parked); {
		b := r.parked[i]
		if b.held.Load() <= 0 || b.epoch.Ended() || !b.lockEnd().After(r.c.Now()) {
			r.parked = slices.Delete(r.parked, i, i+1)
			r.letGo(b)
			continue
		}
		// Its lock is renewed by those who extend what they have in hand, not here.
		ms, lost, err := r.take(ctx, b, max, 0)
		if len(ms) > 0 {
			r.parked = slices.Delete(r.parked, i, i+1)
			r.box = b
			r.hand(b, ms, time.Time{}, out)
			return true
		}
		if lost {
			r.parked = slices.Delete(r.parked, i, i+1)
			r.letGo(b)
			continue
		}
		if err != nil {
			return false
		}
		i++
	}
	return false
}

// acceptance is a try to get a session. It takes a dozen round trips, and may wait for
// one at the service; so it goes on between calls of Receive, or those whose contexts
// are shorter would never get any.
type acceptance struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the rest is there
	box    *inbox        // not adopted yet
	err    error
}

// errStillAccepting says that the try goes on.
var errStillAccepting = errors.New("no session yet")

// accept takes the next session that has messages and isn't locked. Where there are
// others to look into, it doesn't wait for long.
func (r *receiver) accept(ctx context.Context) error {
	if r.accepting == nil {
		r.accepting = r.beginAccept()
	}
	a := r.accepting
	var enough <-chan time.Time
	if len(r.parked) > 0 {
		t := time.NewTimer(max(r.c.opts.sessionIdle, 4*openTrips*r.rtt))
		defer t.Stop()
		enough = t.C
	}
	select {
	case <-a.done:
	case <-enough:
		return errStillAccepting
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	r.accepting = nil
	a.cancel()
	if a.err == nil {
		r.adopt(a.box)
	}
	return a.err
}

// beginAccept starts a try, which ends with the receiver.
func (r *receiver) beginAccept() *acceptance {
	ctx, cancel := context.WithTimeout(r.open, acceptWait)
	a := &acceptance{cancel: cancel, done: make(chan struct{})}
	r.reapers.Do(func() {
		defer close(a.done)
		a.box, a.err = r.acceptOne(ctx)
	})
	return a
}

// dropAccept ends the try that goes on, if there is one: a session that it has got by
// now is others' at once.
func (r *receiver) dropAccept() {
	a := r.accepting
	if a == nil {
		return
	}
	r.accepting = nil
	a.cancel()
	r.reapers.Do(func() {
		if <-a.done; a.box != nil {
			r.bury(a.box.in)
		}
	})
}

func (r *receiver) acceptOne(ctx context.Context) (*inbox, error) {
	asked := r.c.Now()
	var s *azservicebus.SessionReceiver
	err := within(ctx, r.life, func(ctx context.Context) (err error) {
		ctx.(*attempt).accepts = true
		if r.src.queue != "" {
			s, err = r.c.client.AcceptNextSessionForQueue(ctx, r.src.queue, nil)
		} else {
			s, err = r.c.client.AcceptNextSessionForSubscription(ctx, r.src.topic, r.src.subscription, nil)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	b := &inbox{in: s, session: s, epoch: new(driver.Epoch), ask: firstAsk, lock: r.lease}
	until := s.LockedUntil()
	now := r.c.Now()
	if b.lock == 0 {
		b.lock = min(max(until.Sub(now), minLock), maxLock)
	}
	// The lock may have begun at any time of the wait, but the service grants it as it
	// answers.
	asked = now.Add(-min(now.Sub(asked), b.lock/4))
	b.until = deadline(&until, r.lease, asked, now)
	return b, nil
}

// noSession reports whether there was no session to accept.
func noSession(err error) bool {
	var coded *azservicebus.Error
	return cancelled(err) || errors.Is(err, errStillAccepting) || errors.As(err, &coded) && coded.Code == azservicebus.CodeTimeout
}

const (
	// idleHold is how long a session without deliveries in hand is kept when nobody
	// calls Receive.
	idleHold = 500 * time.Millisecond

	// acceptHold is how long a try to get one goes on when nobody does, and one that
	// nothing came of is kept: long enough for the next call to take it over, and so
	// short that others don't miss what it may get.
	acceptHold = 50 * time.Millisecond
)

// tidy lets sessions go that are held for nothing.
func (r *receiver) tidy() {
	select {
	case r.receiving <- struct{}{}:
		defer func() { <-r.receiving }()
	default:
		return // Receive sees to them, or Close
	}
	if r.open.Err() != nil {
		return
	}
	r.dropAccept()
	r.mu.Lock()
	r.dismiss()
	r.mu.Unlock()
	keep := r.parked[:0]
	for _, b := range r.parked {
		if b.held.Load() > 0 {
			keep = append(keep, b)
		} else {
			r.letGo(b)
		}
	}
	clear(r.parked[len(keep):])
	r.parked = keep
	if b := r.box; b != nil && b.held.Load() <= 0 {
		r.box = nil
		r.letGo(b)
	}
	if r.box != nil || len(r.parked) > 0 {
		r.idle.Reset(idleHold)
	}
}

// letGo ends a session's handles and closes its link, which frees its lock.
func (r *receiver) letGo(b *inbox) {
	b.epoch.End()
	r.mu.Lock()
	delete(r.boxes, b)
	r.mu.Unlock()
	r.reapers.Do(func() {
		b.stop()
		r.bury(b.in)
	})
}

func (b *inbox) lockEnd() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until
}

// renew renews the lock of a session, for all its deliveries. If that fails for
// another reason than the context the session is lost.
func (r *receiver) renew(ctx context.Context, b *inbox) error {
	b.renewing.Lock()
	defer b.renewing.Unlock()
	if b.epoch.Ended() {
		return errSessionLost
	}
	asked := r.c.Now()
	err := within(ctx, r.life, func(ctx context.Context) error { return b.session.RenewSessionLock(ctx, nil) })
	if err != nil {
		if ctx.Err() == nil {
			b.epoch.End()
		}
		return err
	}
	until := b.session.LockedUntil()
	end := deadline(&until, r.lease, asked, r.c.Now())
	b.mu.Lock()
	b.until = end
	b.mu.Unlock()
	return nil
}
