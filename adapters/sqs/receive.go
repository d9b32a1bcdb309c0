package sqs

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	// healing is how long the service may fail to answer before Receive returns
	// an error.
	healing = 10 * time.Second

	// replayable is how long a receive whose answer was lost can be asked again
	// (SQS-F-27: five minutes).
	replayable = 4 * time.Minute

	// The pauses between polls that don't wait, and after failures.
	shortPause = 50 * time.Millisecond
	longPause  = 500 * time.Millisecond
)

// receiver is the driver.Receiver.
type receiver struct {
	c     *conn
	q     *Queue
	life  life // ends polls and settles that Close gives up on
	epoch driver.Epoch

	attempts attempts // of the one caller of Receive
	busy     bool     // likewise: the last poll brought all that it asked for, and soon
	guard    guard
	letters  letters

	mu      sync.Mutex
	open    *poll  // one that a Receive waits for or has left
	lost    []lost // receives of a FIFO queue whose answer never came
	pending error  // to be returned by the next Receive
	slabs   []*slab
	shut    bool

	settles   sync.WaitGroup // calls of Settle; none enters after shut
	polls     sync.WaitGroup
	work      chan *poll    // of the poller; closed by Close
	receiving chan struct{} // holds a token while Receive runs
	closing   chan struct{} // Receive ends
}

// lost is a receive that can be asked for again.
type lost struct {
	attempt string
	most    int
	asked   time.Time
}

func (c *conn) OpenReceiver(ctx context.Context, subscription string, o broker.ReceiverOptions) (driver.Receiver, error) {
	if o.StartFrom != nil {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "open receiver %s: StartFrom: a queue has no positions to go to", subscription)
	}
	q, err := c.look(ctx, subscription)
	if err != nil {
		return nil, err
	}
	r := &receiver{c: c, q: q, life: newLife(), attempts: newAttempts(), receiving: make(chan struct{}, 1),
		closing: make(chan struct{}), work: make(chan *poll, 1)}
	r.polls.Go(r.poller)
	return r, nil
}

// Receive polls until a poll brings something.
func (r *receiver) Receive(ctx context.Context, most int, out *driver.Batch) error {
	select {
	case r.receiving <- struct{}{}:
	case <-r.closing: // Close keeps the token
		return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.q.Name)
	}
	defer func() { <-r.receiving }()
	if err := r.begins(); err != nil {
		return err
	}
	began := time.Now()
	var failing time.Time // since when no poll has been answered
	pause := shortPause
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p := r.next(ctx, most, r.waitFor(time.Since(began)))
		select {
		case <-p.done:
		case <-ctx.Done():
			if r.leave(p) {
				return context.Cause(ctx)
			}
		case <-r.closing:
			if !r.leave(p) {
				r.returnAll(p)
			}
			return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.q.Name)
		}
		<-p.done // at once
		r.forget(p)
		if p.err == nil {
			failing = time.Time{}
			r.busy = len(p.out) == p.most && time.Since(p.began) < soon
			r.collect(p, most, out)
			if out.Len() > 0 {
				if len(p.out) == batchSize && out.Len() < most {
					r.rest(ctx, most, out)
				}
				return nil
			}
			if err := r.takePending(); err != nil {
				return err
			}
			if r.waitFor(0) > 0 && time.Since(p.began) >= p.wait/2 {
				continue // the next one waits, as this one did
			}
		} else {
			err := r.failed(p)
			if err != nil {
				return err
			}
			now := time.Now()
			if failing.IsZero() {
				failing, pause = now, shortPause
			}
			if now.Sub(failing) > healing {
				f := explain(p.err, nil)
				return broker.Errorf(f.kind, p.err, "receive from %s", r.q.Name)
			}
		}
		if err := r.pause(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, longPause)
		if failing.IsZero() {
			pause = min(pause, longPause/2)
		}
	}
}

// begins is what a Receive does first: it returns what an earlier one could not,
// and drops the slabs that hold nothing to give back any more.
func (r *receiver) begins() error {
	now := r.c.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	keep := r.slabs[:0]
	for _, s := range r.slabs {
		if !s.done(now) {
			keep = append(keep, s)
		}
	}
	clear(r.slabs[len(keep):])
	r.slabs = keep
	err := r.pending
	r.pending = nil
	return err
}

func (r *receiver) takePending() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.pending
	r.pending = nil
	return err
}

// note keeps an error that no call returns for the next Receive. One that heals
// by itself isn't kept.
func (r *receiver) note(err error) {
	if errors.Is(err, broker.ErrUnavailable) || errors.Is(err, broker.ErrBusy) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == nil {
		r.pending = err
	}
}

// waitFor is how long the next poll waits. A Receive begins with short ones, so
// that one that is soon cancelled leaves no long poll behind, which Close would
// have to wait for. Longer than a quarter of the lease none waits, for the lease
// counts from before the poll.
func (r *receiver) waitFor(already time.Duration) time.Duration {
	most := min(r.c.opts.wait, r.q.Lease/4).Truncate(time.Second)
	if most <= 0 {
		if r.q.wait > 0 {
			return time.Second // the SDK doesn't send a wait of zero, which then means the queue's own
		}
		return 0
	}
	return min(max(already.Truncate(time.Second), time.Second), most)
}

// next is the poll to wait for: one that an earlier Receive left, one whose
// answer was lost, or a new one.
func (r *receiver) next(ctx context.Context, most int, wait time.Duration) *poll {
	if p := r.takeOver(); p != nil {
		return p
	}
	busy := r.busy && r.q.wait == 0
	r.busy = false
	if busy {
		wait = 0
	}
	attempt := ""
	if r.q.FIFO {
		if l, ok := r.takeLost(); ok {
			most, attempt = l.most, l.attempt
		} else {
			attempt = r.attempts.next()
		}
	}
	p := r.newPoll(most, wait, attempt)
	if busy {
		r.inline(ctx, p)
		return p
	}
	r.mu.Lock()
	r.open = p
	r.mu.Unlock()
	r.work <- p
	return p
}

// forget takes a poll whose answer is here from its place.
func (r *receiver) forget(p *poll) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == p {
		r.open = nil
	}
}

func (r *receiver) takeLost() (l lost, ok bool) {
	now := r.c.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.lost) > 0 {
		l, r.lost = r.lost[0], r.lost[1:]
		if now.Sub(l.asked) < replayable {
			return l, true
		}
	}
	return lost{}, false
}

// unanswered remembers a FIFO receive whose answer was lost: what the service
// handed out with it can be had by asking again (SQS-F-27).
func (r *receiver) unanswered(p *poll) {
	if p.attempt == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = append(r.lost, lost{p.attempt, p.most, p.asked})
}

// failed decides about a poll's error: nil is one to try again after.
func (r *receiver) failed(p *poll) error {
	f := explain(p.err, nil)
	if !f.answered && !f.surely {
		r.unanswered(p)
	}
	if f.kind == broker.ErrUnavailable || f.kind == broker.ErrBusy {
		return nil
	}
	return broker.Errorf(f.kind, p.err, "receive from %s", r.q.Name)
}

func (r *receiver) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.closing:
		return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.q.Name)
	}
}

// rest asks for what lies beyond the first ten, side by side and without
// waiting.
func (r *receiver) rest(ctx context.Context, most int, out *driver.Batch) {
	if r.q.wait > 0 {
		return // a receive without a wait can't be asked for on such a queue
	}
	n := min((most-out.Len()+batchSize-1)/batchSize, r.c.opts.requests)
	polls := make([]*poll, n)
	for i, left := 0, most-out.Len(); i < n; i++ {
		attempt := ""
		if r.q.FIFO {
			attempt = r.attempts.next()
		}
		p := r.newPoll(left, 0, attempt)
		polls[i] = p
		r.polls.Go(func() { r.runFor(p) })
		left -= p.most
	}
	for _, p := range polls {
		select {
		case <-p.done:
		case <-ctx.Done():
			if r.leave(p) {
				continue
			}
		case <-r.closing:
			if r.leave(p) {
				continue
			}
		}
		<-p.done
		if p.err != nil {
			if err := r.failed(p); err != nil {
				r.note(err)
			}
			continue
		}
		r.collect(p, most, out)
	}
}

// collect adds what a poll brought to out. What is too much, for the poll was
// another Receive's, and what is damaged, goes back.
func (r *receiver) collect(p *poll, most int, out *driver.Batch) {
	room := min(len(p.out), most-out.Len())
	if len(p.out) == 0 {
		return
	}
	deadline := p.asked.Add(r.q.Lease)
	if r.q.FIFO && !r.c.Now().Before(deadline) {
		// Born expired. On a FIFO queue an expired handle is refused, so that to
		// give back can't take the message from somebody else (SQS-F-22).
		r.giveBackBeside(p.out)
		return
	}
	out.Grow(out.Len() + room)
	s := newSlab(room, p.asked)
	i := 0
	for ; i < len(p.out) && len(s.items) < room; i++ {
		m := &p.out[i]
		if m.ReceiptHandle == nil {
			r.note(broker.Errorf(broker.ErrRefused, nil, "receive from %s: a message came without a receipt handle", r.q.Name))
			continue
		}
		if !whole(m) {
			r.note(broker.Errorf(broker.ErrRefused, errChecksum, "receive from %s: a message came damaged and was given back", r.q.Name))
			r.giveBackBeside(p.out[i : i+1])
			continue
		}
		d, t := out.Add()
		fill(&d.Message, m)
		h := s.add(m, deadline)
		n := attemptOf(m)
		h.attempt = int32(min(n, math.MaxInt32))
		d.Attempt = broker.Attempt{Number: n, Trust: broker.Approximate}
		d.Lease = deadline
		d.Position = position(m.Attributes["SequenceNumber"], m.MessageId)
		t.Epoch, t.Ref = &r.epoch, h
	}
	if i < len(p.out) {
		r.giveBackBeside(p.out[i:])
	}
	r.mu.Lock()
	r.slabs = append(r.slabs, s)
	r.mu.Unlock()
}

func (r *receiver) As(target any) bool {
	if t, ok := target.(**receiver); ok {
		*t = r // for the tests of this package: the type is out of reach elsewhere
		return true
	}
	return r.c.asQueue(r.q, target)
}

// AsDelivery sets target to the *types.Message of a delivery.
func (r *receiver) AsDelivery(t *driver.Token, target any) bool { return asMessage(t, target) }
