package broker

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// lane is a growing batch and, while flying, a goroutine that sends the one
// before it. An idle lane has no goroutine.
type lane struct {
	mu     sync.Mutex
	grows  batch
	spare  batch // the buffers of the batch before, for the next one
	air    []item
	flight *flight // of air, where its end depends on several contexts
	room   chan struct{}
	closed bool
	flying atomic.Bool // written under mu
	aloft  atomic.Bool // a batch is in the air: the next message has to wait; written under mu
	_      [64]byte    // lanes are used by different processors
}

type batch struct {
	msgs  []Message
	items []item
}

// item is who waits for a message's receipt: done, or place at of call.
type item struct {
	ctx  context.Context
	done func(Receipt)
	call *call
	at   int
}

// laneOf chooses a lane: by hash for a key, otherwise one that has nothing in
// the air, and in turns of a few dozen, so that neighbours share a batch and a
// lock: a lane whose goroutine is about to take off still takes messages along.
func (b *Batcher) laneOf(key string) *lane {
	n := uint64(len(b.lanes))
	if key != "" {
		return &b.lanes[maphash.String(b.seed, key)%n]
	}
	run := uint64(min(64, b.max))
	turn := b.turn.Add(1)
	if uint64(b.aloft.Load()) == n {
		return &b.lanes[turn/run%n]
	}
	last := b.last.Load()
	if l := &b.lanes[last]; turn%run != 0 && !l.aloft.Load() {
		return l
	}
	for range n {
		if last++; last == n {
			last = 0
		}
		if l := &b.lanes[last]; !l.aloft.Load() {
			b.last.Store(last)
			return l
		}
	}
	return &b.lanes[turn/run%n]
}

// add puts m into l's growing batch. An error means that it is not there.
func (b *Batcher) add(ctx context.Context, l *lane, m *Message, it item) error {
	if ctx.Err() != nil {
		return notSent(ctx, m.ID)
	}
	l.mu.Lock()
	for {
		if l.closed {
			l.mu.Unlock()
			return Errorf(ErrClosed, nil, "publish %q", m.ID)
		}
		if len(l.grows.msgs) < b.max {
			break
		}
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		l.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return notSent(ctx, m.ID)
		}
		l.mu.Lock()
	}
	l.grows.msgs = append(l.grows.msgs, *m)
	l.grows.items = append(l.grows.items, it)
	if !l.flying.Load() {
		l.flying.Store(true)
		b.flying.Add(1)
		go b.fly(l)
	}
	l.mu.Unlock()
	return nil
}

// openRoom wakes those who wait for room in l; l.mu is held.
func (l *lane) openRoom() {
	if l.room != nil {
		close(l.room)
		l.room = nil
	}
}

// fly sends what grows in l, batch after batch, until nothing has grown.
func (b *Batcher) fly(l *lane) {
	var full, dead batch
	for {
		l.mu.Lock()
		if full.msgs != nil {
			l.air, l.flight = nil, nil
			l.spare = full.empty()
		}
		if len(l.grows.msgs) == 0 {
			l.flying.Store(false)
			if l.aloft.Load() {
				l.aloft.Store(false)
				b.aloft.Add(-1)
			}
			l.mu.Unlock()
			break
		}
		if !l.aloft.Load() {
			l.aloft.Store(true)
			b.aloft.Add(1)
		}
		full, l.grows, l.spare = l.grows, l.spare, batch{}
		full, dead = full.sift()
		ctx := b.takeOff(l, full.items)
		l.openRoom()
		l.mu.Unlock()

		for i := range dead.items {
			it := &dead.items[i]
			it.answer(Receipt{Verdict: Refused, Err: notSent(it.ctx, dead.msgs[i].ID)})
		}
		if len(full.msgs) > 0 {
			b.send(ctx, l, full)
		}
	}
	if b.flying.Add(-1) == 0 && b.closed.Load() {
		b.landing.Do(func() { close(b.landed) })
	}
}

// empty returns the batch's buffers without what they hold: other people's
// bodies.
func (b batch) empty() batch {
	clear(b.msgs)
	clear(b.items)
	return batch{b.msgs[:0], b.items[:0]}
}

// wanted reports whether no context of the batch has ended.
func (b batch) wanted() bool {
	var last <-chan struct{}
	for i := range b.items {
		ctx := b.items[i].ctx
		if done := ctx.Done(); i == 0 || done != last { // or it is the one before
			if last = done; ctx.Err() != nil {
				return false
			}
		}
	}
	return true
}

// sift takes out of a batch what nobody wants to be sent any more.
func (b batch) sift() (live, dead batch) {
	if b.wanted() {
		return b, dead
	}
	n := 0
	for i := range b.items {
		if b.items[i].ctx.Err() != nil {
			dead.msgs, dead.items = append(dead.msgs, b.msgs[i]), append(dead.items, b.items[i])
			continue
		}
		if n != i {
			b.msgs[n], b.items[n] = b.msgs[i], b.items[i]
		}
		n++
	}
	clear(b.msgs[n:])
	clear(b.items[n:])
	return batch{b.msgs[:n], b.items[:n]}, dead
}

// send publishes one batch and hands out the receipts.
func (b *Batcher) send(ctx context.Context, l *lane, full batch) {
	var receipts []Receipt
	var err error
	verdict := Verdict(Unknown)
	if b.ctx.Err() != nil { // Close has given up on the queue
		verdict, err = Refused, context.Cause(b.ctx)
	} else {
		receipts, err = b.give(ctx, full.msgs...)
		if l.flight != nil {
			l.flight.land()
		}
	}
	for i := range full.items {
		r := Receipt{Verdict: verdict, Err: err}
		if i < len(receipts) {
			r = receipts[i]
		}
		if r.Verdict == Unknown && r.Err == nil {
			r.Err = Errorf(ErrUnknownOutcome, err, "publish %q", full.msgs[i].ID)
		}
		full.items[i].answer(r)
	}
}

// flight is the context of a batch whose messages have several: it ends when
// all of theirs have ended.
type flight struct {
	cancel context.CancelCauseFunc
	left   atomic.Int32 // who still waits
	stops  []func() bool
}

func (f *flight) leave(n int32, cause error) {
	if f.left.Add(-n) == 0 {
		f.cancel(cause)
	}
}

func (f *flight) land() {
	for _, stop := range f.stops {
		stop()
	}
	f.cancel(nil)
}

// takeOff returns the context of a batch that leaves; l.mu is held. The usual
// cases, one context for all or one that never ends, cost nothing. A Publish
// tells by itself when it leaves (withdraw); the context of a Go is watched.
func (b *Batcher) takeOff(l *lane, items []item) context.Context {
	l.air = items
	if len(items) == 0 {
		return nil
	}
	first := items[0].ctx.Done()
	same := true
	for i := range items {
		done := items[i].ctx.Done()
		if done == nil {
			return b.ctx
		}
		same = same && done == first
	}
	if same {
		return items[0].ctx
	}
	f := &flight{}
	ctx, cancel := context.WithCancelCause(b.ctx)
	f.cancel = cancel
	f.left.Store(1) // held until all are counted
	var last <-chan struct{}
	for i := range items {
		if items[i].call != nil {
			f.left.Add(1)
			continue
		}
		member := items[i].ctx
		if member.Done() == last {
			continue
		}
		last = member.Done()
		f.left.Add(1)
		f.stops = append(f.stops, context.AfterFunc(member, func() { f.leave(1, context.Cause(member)) }))
	}
	f.leave(1, context.Cause(items[0].ctx))
	l.flight = f
	return ctx
}

// withdraw takes back what of c still waits in a lane, and leaves the batches
// in flight.
func (b *Batcher) withdraw(ctx context.Context, c *call) {
	for i := range b.lanes {
		l := &b.lanes[i]
		l.mu.Lock()
		if l.flight != nil {
			var mine int32
			for j := range l.air {
				if l.air[j].call == c {
					mine++
				}
			}
			if mine > 0 {
				l.flight.leave(mine, context.Cause(ctx))
			}
		}
		msgs, items := l.grows.msgs, l.grows.items
		n := 0
		for j := range items {
			if items[j].call == c {
				c.answer(items[j].at, Receipt{Verdict: Refused, Err: notSent(ctx, msgs[j].ID)})
				continue
			}
			if n != j {
				msgs[n], items[n] = msgs[j], items[j]
			}
			n++
		}
		if n < len(items) {
			clear(msgs[n:])
			clear(items[n:])
			l.grows = batch{msgs[:n], items[:n]}
			l.openRoom()
		}
		l.mu.Unlock()
	}
}

// call is one Publish that waits for its receipts.
type call struct {
	mu       sync.Mutex
	receipts []Receipt
	left     int
	gone     bool          // the caller has left
	ready    chan struct{} // gets one value when left is zero
}

func newCall() any { return &call{ready: make(chan struct{}, 1)} }

func (c *call) answer(at int, r Receipt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.receipts[at] = r
	}
	if c.left--; c.left == 0 {
		c.ready <- struct{}{}
	}
}

// abandon returns the receipts as they stand, the missing ones Unknown; nil if
// none is missing.
func (c *call) abandon(ctx context.Context, msgs []Message) []Receipt {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return nil
	}
	c.gone = true
	for i := range c.receipts {
		if r := &c.receipts[i]; r.Verdict == Unknown && r.Err == nil {
			r.Err = Errorf(ErrUnknownOutcome, context.Cause(ctx), "publish %q: its batch is in flight", msgs[i].ID)
		}
	}
	return c.receipts
}

func (it *item) answer(r Receipt) {
	if it.call != nil {
		it.call.answer(it.at, r)
		return
	}
	it.done(r)
}

// notSent is the error of a message whose context ended before it was sent.
func notSent(ctx context.Context, id string) error {
	return Errorf(ErrUnavailable, context.Cause(ctx), "publish %q: not sent", id)
}

// firstError is the error that Publish returns beside receipts.
func firstError(receipts []Receipt) error {
	for i := range receipts {
		if receipts[i].Err != nil {
			return receipts[i].Err
		}
	}
	return nil
}
