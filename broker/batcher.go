package broker

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Batcher makes batches out of single messages without lingering: while one
// batch of a lane is in flight the next one grows, so that the batches are as
// large as the broker is slow and a message that finds an idle lane leaves at
// once. There is no timer to tune. It is a [Publisher], safe for concurrent use.
//
// A key stays in its lane, and a lane has one batch in flight, so the order of
// each key is that of the calls. Messages without a key go to an idle lane if
// there is one.
//
// A [Retry] belongs under the Batcher, not over it: NewBatcher(Retry(p, policy),
// lanes, max). Then a batch that is tried again holds back its lane, which keeps
// the order of its keys, and the window guard bounds what is really sent.
type Batcher struct {
	p     Publisher
	give  func(context.Context, ...Message) ([]Receipt, error) // publishes
	now   func() time.Time
	max   int
	lanes []lane
	seed  maphash.Seed
	turn  atomic.Uint64 // counts messages without a key
	last  atomic.Uint64 // the lane that one of them went to
	calls sync.Pool     // of the Batcher: a shared one would mix the bubbles of testing/synctest

	ctx    context.Context // of all batches; ends when Close gives up
	cancel context.CancelCauseFunc

	flying  atomic.Int32 // lanes with a goroutine
	aloft   atomic.Int32 // lanes with a batch in the air
	closed  atomic.Bool
	landing sync.Once
	landed  chan struct{} // closed when the last batch after Close is through
	once    sync.Once
	err     error // of Close
}

// NewBatcher returns a Batcher that publishes through p with up to lanes batches
// in flight, each of up to max messages. Values under one count as one. At most
// 2*lanes*max messages are held; further calls block. The Batcher owns p: its
// Close closes p.
//
// More lanes help where a round trip is long and keys are many; on a broker
// that orders by topic one lane is right. An adapter splits a batch that is
// larger than its broker takes.
func NewBatcher(p Publisher, lanes, max int) *Batcher {
	if lanes < 1 {
		lanes = 1
	}
	if max < 1 {
		max = 1
	}
	b := &Batcher{p: p, give: givenTo(p), now: clockOf(p), max: max, lanes: make([]lane, lanes), seed: maphash.MakeSeed(), landed: make(chan struct{})}
	b.calls.New = newCall
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
	return b
}

// Go queues m and returns; done is called exactly once with its receipt. Go
// blocks while the lane of m is full, which is the back-pressure.
//
// ctx bounds that wait and the stay in the queue: a message whose ctx ends
// before its batch leaves is Refused and not sent. A batch in flight is cut
// short when the contexts of all its messages have ended, not before, for it
// carries other people's messages too. Values of ctx may not reach the publisher.
//
// done runs on the lane's goroutine, in the order of the lane, or on the
// caller's if m can't be queued. It holds no lock, but until it returns its lane
// stands still: it must not block, and must not call Go or Publish of the same
// Batcher. m's Body and Headers belong to the Batcher until done is called, and for
// good where the receipt is Unknown: an SDK may hold them still, and nothing is copied.
func (b *Batcher) Go(ctx context.Context, m Message, done func(Receipt)) {
	if done == nil {
		panic("broker: Batcher.Go without a done function: the receipt would be lost")
	}
	if err := b.add(ctx, b.laneOf(m.Key), &m, item{ctx: ctx, done: done}); err != nil {
		done(Receipt{Verdict: Refused, Err: err})
	}
}

// Publish is [Publisher.Publish] by way of the growing batches: concurrent calls
// share round trips. Each message has its lane, so a call may be answered for by
// several batches, and an error of one batch harms no other.
//
// When ctx ends, Publish returns at once: what waits in a lane is taken back and
// Refused, what is in a batch in flight is Unknown. That batch goes on for the
// sake of the other messages in it, so Body and Headers of a message that is
// Unknown must not be written to afterwards; a later Publish of the same ID and
// key follows the batch in flight, never overtakes it.
func (b *Batcher) Publish(ctx context.Context, msgs ...Message) ([]Receipt, error) {
	if len(msgs) == 0 {
		return nil, nil
	}
	c := b.calls.Get().(*call)
	c.receipts, c.left, c.gone = make([]Receipt, len(msgs)), len(msgs), false
	var unkeyed *lane
	for i := range msgs {
		if msgs[i].Time.IsZero() {
			msgs[i].Time = b.now() // here, for the caller's slice may be retried
		}
		var l *lane
		switch {
		case msgs[i].Key != "":
			l = b.laneOf(msgs[i].Key)
		default:
			if unkeyed == nil || i%b.max == 0 {
				unkeyed = b.laneOf("")
			}
			l = unkeyed
		}
		if err := b.add(ctx, l, &msgs[i], item{ctx: ctx, call: c, at: i}); err != nil {
			c.answer(i, Receipt{Verdict: Refused, Err: err})
		}
	}
	select {
	case <-c.ready:
	case <-ctx.Done():
		b.withdraw(ctx, c)
		if receipts := c.abandon(ctx, msgs); receipts != nil {
			return receipts, firstError(receipts)
		}
		<-c.ready // the answer came with the end
	}
	receipts := c.receipts
	c.receipts = nil
	b.calls.Put(c)
	return receipts, firstError(receipts)
}

// Now is the publisher's clock.
func (b *Batcher) Now() time.Time { return b.now() }

// Limits returns those of the publisher under it.
func (b *Batcher) Limits() Limits { return b.p.Limits() }

// As asks the publisher under it.
func (b *Batcher) As(target any) bool { return b.p.As(target) }

// Close refuses new messages (ErrClosed), waits until the queued ones have
// their receipts, and closes the publisher under it. When ctx ends first, what
// is still queued is Refused, the batches in flight are cut, their messages
// Unknown, and the error says so. It is idempotent; a second call waits for the
// first and returns its error.
func (b *Batcher) Close(ctx context.Context) error {
	b.once.Do(func() {
		for i := range b.lanes {
			l := &b.lanes[i]
			l.mu.Lock()
			l.closed = true
			l.openRoom()
			l.mu.Unlock()
		}
		b.closed.Store(true)
		if b.flying.Load() == 0 {
			b.landing.Do(func() { close(b.landed) })
		}
		select {
		case <-b.landed:
		case <-ctx.Done():
			select {
			case <-b.landed: // both at once: nothing is cut
			default:
				b.err = Errorf(ErrUnknownOutcome, context.Cause(ctx), "close batcher: messages were still under way")
			}
		}
		b.cancel(Errorf(ErrClosed, nil, "batcher"))
		b.err = errors.Join(b.err, b.p.Close(ctx))
	})
	return b.err
}

var _ Publisher = (*Batcher)(nil)

// clockOf is the clock of a publisher that has one: those of package driver
// read their broker's, which may be movable, and wrappers pass it on.
func clockOf(p Publisher) func() time.Time {
	if c, ok := p.(interface{ Now() time.Time }); ok {
		return c.Now
	}
	return time.Now
}
