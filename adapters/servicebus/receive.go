package servicebus

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	// maxCredits is how many messages the SDK lets one pull ask for.
	maxCredits = 5000

	// The bounds of a lock (SB-F-13, SB-F-32).
	minLock = 5 * time.Second
	maxLock = 5 * time.Minute

	// openTrips is about how many round trips it takes to connect, authorize and
	// attach: how a round trip is estimated without asking for one.
	openTrips = 12

	// restGap is how long the rest of a pull is waited for after its first message:
	// the SDK's own measure. It runs out only where less comes than was asked for,
	// and then the next pull asks for less.
	restGap = 20 * time.Millisecond

	maxBackOff = time.Second
)

// receiver is the driver.Receiver.
type receiver struct {
	c        *conn
	name     string
	src      source
	sessions bool
	lease    time.Duration // of the entity; 0 where nobody told
	rtt      time.Duration

	// Of the one caller of Receive, or of Close after it.
	box    *inbox      // nil: no session is held
	parked []*inbox    // sessions with deliveries in hand and no new messages
	idle   *time.Timer // runs tidy

	accepting *acceptance // a session that is waited for, or nil
	down      bool        // the link may have to be made again
	linking   *linking    // that this is under way, or nil

	mu      sync.Mutex
	slabs   []*slab
	boxes   map[*inbox]struct{}    // all that aren't closed
	aside   *azservicebus.Receiver // for settling by lock token alone
	cancel  context.CancelFunc     // of the pull under way, or of the last one
	lapEnd  time.Time              // when that one is to end
	lap     *time.Timer            // runs endLap: one timer for all pulls
	lapping bool                   // it is set, for lapEnd or before
	calls   []*settling            // the Settles under way
	settles sync.WaitGroup         // the same, counted; none enters after shut
	shut    bool

	spare   chan *settling // to a worker that waits
	waiting atomic.Int32   // workers that do, and those about to
	hands   sync.WaitGroup // all workers

	receiving chan struct{}   // holds a token while Receive runs
	open      context.Context // Receive ends with it
	close     context.CancelFunc
	life      context.Context // all else does
	end       context.CancelFunc
	reapers   driver.Tasks // that make links and close lost ones
}

func (c *conn) OpenReceiver(ctx context.Context, subscription string, o broker.ReceiverOptions) (driver.Receiver, error) {
	src, err := parseSource(subscription)
	if err != nil {
		return nil, err
	}
	if o.StartFrom != nil {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "open receiver %s: StartFrom: the broker keeps what isn't settled, and no more", subscription)
	}
	r := &receiver{c: c, name: subscription, src: src, boxes: map[*inbox]struct{}{}, receiving: make(chan struct{}, 1), spare: make(chan *settling)}
	r.open, r.close = context.WithCancel(context.Background())
	r.life, r.end = context.WithCancel(context.Background())
	r.idle = time.AfterFunc(time.Hour, r.tidy)
	r.idle.Stop()
	r.lap = time.AfterFunc(time.Hour, r.endLap)
	r.lap.Stop()
	facts := c.describeSource(ctx, &src)
	if facts != nil {
		r.lease = facts.lease
		r.sessions = facts.sessions && !src.dead
	}
	if err := r.attach(ctx); err != nil {
		_ = r.Close(ctx)
		return nil, err
	}
	return r, nil
}

// attach makes the link of a receiver without sessions, by which the service
// says whether there is such an entity, and whether it has sessions.
func (r *receiver) attach(ctx context.Context) error {
	begin := time.Now()
	if r.sessions {
		return nil // known from the entity's settings
	}
	for try := 1; ; try++ {
		in, err := r.src.open(r.c.client)
		if err != nil {
			return failure(ctx, err, "open receiver %s", r.name)
		}
		err = within(ctx, r.life, func(ctx context.Context) error {
			_, err := in.PeekMessages(ctx, 1, nil)
			return err
		})
		if err == nil {
			r.adopt(&inbox{in: in, plain: in, ask: firstAsk})
			break
		}
		r.discard(in)
		if needsSession(err) {
			r.sessions = true
			break
		}
		if kind := kindOf(err); kind != broker.ErrUnavailable || try == reopenTries || !pause(ctx, reopenWait) {
			return failure(ctx, err, "open receiver %s", r.name)
		}
	}
	r.rtt = time.Since(begin) / openTrips
	return nil
}

func (r *receiver) adopt(b *inbox) {
	r.box = b
	r.mu.Lock()
	r.boxes[b] = struct{}{}
	r.mu.Unlock()
}

// discard closes something of the SDK in the background: its peer may be gone.
func (r *receiver) discard(in interface{ Close(context.Context) error }) {
	r.reapers.Do(func() { r.bury(in) })
}

func (r *receiver) bury(in interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(r.life, closeGrace)
	defer cancel()
	_ = in.Close(ctx) // nothing is expected of it any more
}

func (r *receiver) Receive(ctx context.Context, max int, out *driver.Batch) error {
	select {
	case r.receiving <- struct{}{}: // held by tidy for an instant, or by Close for good
		defer func() { <-r.receiving }()
	case <-r.open.Done():
		return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name)
	}
	if r.sessions {
		r.idle.Stop()
		defer func() {
			if out.Len() == 0 {
				r.idle.Reset(acceptHold)
			} else {
				r.idle.Reset(idleHold)
			}
		}()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(r.open, cancel)()
		return r.receiveSession(ctx, max, out)
	}
	for fails := 0; ; {
		ms, asked, err := r.pull(ctx, r.box, max)
		if len(ms) > 0 {
			r.hand(r.box, ms, asked, out)
			return nil
		}
		if ctx.Err() != nil || r.open.Err() != nil {
			return r.ended(ctx)
		}
		if err != nil && lapped(err) {
			continue
		}
		// Without an error the link was lost, and the next pull makes a new one.
		if err != nil && !heals(kindOf(err)) {
			return broker.Errorf(kindOf(err), err, "receive from %s", r.name)
		}
		if fails++; !r.backOff(ctx, fails) {
			return r.ended(ctx)
		}
	}
}

var pullOptions = azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: restGap}

// pull asks the SDK for up to max messages and waits for the first of them, for a
// quarter of the lease at most, which is counted from when a message was asked for.
func (r *receiver) pull(ctx context.Context, b *inbox, max int) ([]*azservicebus.ReceivedMessage, time.Time, error) {
	lap := maxLock
	if r.lease > 0 {
		lap = r.lease / 4
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.Now().Add(lap)
	r.mu.Lock()
	r.cancel, r.lapEnd = cancel, end
	if !r.lapping {
		r.lapping = true
		r.lap.Reset(lap)
	}
	if r.open.Err() != nil {
		cancel()
	}
	r.mu.Unlock()
	if r.down {
		if err := r.relink(ctx, b); err != nil {
			return nil, time.Time{}, err
		}
	}
	n := min(max, b.ask, maxCredits)
	asked := r.c.Now()
	var ms []*azservicebus.ReceivedMessage
	at, err := seen(ctx, r.life, func(ctx context.Context) (err error) {
		ms, err = b.in.ReceiveMessages(ctx, n, &pullOptions)
		return err
	})
	if len(ms) > 0 {
		b.learn(n, len(ms))
	} else {
		b.credits = n
		// Without an error the link was lost, and a pull that never got as far as to
		// wait for messages had none.
		r.down = err == nil || !lapped(err) || at&taking == 0
	}
	return ms, asked, err
}

// lapped reports whether a pull ended with its context, and not because the SDK would
// have had to repair something.
func lapped(err error) bool { return cancelled(err) && !errors.Is(err, errAttemptOver) }

// linking is the making of a link that was lost. It takes a dozen round trips, so it
// goes on between calls of Receive: those whose contexts are shorter would never get
// one.
type linking struct {
	done chan struct{} // closed when err is there
	err  error
}

// relink makes the link again, or waits until that is done.
func (r *receiver) relink(ctx context.Context, b *inbox) error {
	if r.linking == nil {
		l := &linking{done: make(chan struct{})}
		r.linking = l
		r.reapers.Do(func() { // ends with the receiver
			defer close(l.done)
			l.err = within(r.open, r.life, func(ctx context.Context) error {
				_, err := b.plain.PeekMessages(ctx, 1, nil)
				return err
			})
		})
	}
	select {
	case <-r.linking.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := r.linking.err
	r.linking, r.down = nil, err != nil
	return err
}

// endLap ends the pull that has lasted for its lap. The timer isn't set anew for
// each pull: it may be early, for a pull that has ended meanwhile.
func (r *receiver) endLap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if left := time.Until(r.lapEnd); left > 0 {
		r.lap.Reset(left)
		return
	}
	r.lapping = false
	r.cancel()
	r.dismiss()
}

// heals reports whether a failed pull may work when it is tried again.
func heals(kind error) bool { return kind == broker.ErrUnavailable || kind == broker.ErrBusy }

func (r *receiver) backOff(ctx context.Context, fails int) bool {
	if fails == 1 {
		return ctx.Err() == nil
	}
	return pause(ctx, min(reopenWait<<min(fails, 10), maxBackOff))
}

func (r *receiver) ended(ctx context.Context) error {
	if r.open.Err() != nil {
		return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name)
	}
	return context.Cause(ctx)
}

// hand gives messages to the caller.
func (r *receiver) hand(b *inbox, ms []*azservicebus.ReceivedMessage, asked time.Time, out *driver.Batch) {
	s := newSlab(ms, b)
	now := r.c.Now()
	var last time.Time // of the leases
	out.Grow(len(ms))
	for i, m := range ms {
		d, t := out.Add()
		fill(&d.Message, m)
		if m.DeliveryCount > 0 {
			d.Attempt = broker.Attempt{Number: int(m.DeliveryCount), Trust: broker.Exact}
		}
		if m.SequenceNumber != nil {
			d.Position.Offset = uint64(*m.SequenceNumber)
		}
		if b.session == nil {
			d.Lease = deadline(m.LockedUntil, r.lease, asked, now)
		} else {
			d.Lease = b.lockEnd()
		}
		if d.Lease.After(last) {
			last = d.Lease
		}
		t.Epoch, t.Ref = b.epoch, &s.items[i]
	}
	s.extend(last)
	r.mu.Lock()
	defer r.mu.Unlock()
	keep := r.slabs[:0]
	for _, old := range r.slabs {
		if !old.done(now) {
			keep = append(keep, old)
		}
	}
	clear(r.slabs[len(keep):])
	r.slabs = append(keep, s)
}

// deadline is when a lock ends, by this process's clock. The service tells it by
// its own, which is believed where it agrees with what is known here: the lock
// began between then and now, and lasts for lease. Otherwise the clocks differ,
// and it is counted from then, or, where nobody told how long a lock lasts, for
// the shortest that there is.
func deadline(until *time.Time, lease time.Duration, then, now time.Time) time.Time {
	from, to := then.Add(minLock), now.Add(maxLock)
	if lease > 0 {
		from, to = then.Add(lease), now.Add(lease)
	}
	if until == nil || until.After(to) || until.Before(from) && lease > 0 || !until.After(now) {
		return from
	}
	return *until
}

func (r *receiver) As(target any) bool {
	if t, ok := target.(**azservicebus.Receiver); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		for b := range r.boxes {
			if b.plain != nil {
				*t = b.plain
				return true
			}
		}
		return false
	}
	return r.c.As(target)
}

func (r *receiver) AsDelivery(t *driver.Token, target any) bool {
	h, ok := t.Ref.(*held)
	if !ok {
		return false
	}
	switch p := target.(type) {
	case **azservicebus.ReceivedMessage:
		*p = h.msg
	case **azservicebus.SessionReceiver:
		*p = h.box.session
		return h.box.session != nil
	default:
		return false
	}
	return true
}
