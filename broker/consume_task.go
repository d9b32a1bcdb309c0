package broker

import (
	"context"
	"sync"
	"time"
)

// consumer is one Consume under way. All its state is under mu; the settler, the
// heart and the workers are its goroutines.
type consumer struct {
	r   Receiver
	h   Handler
	o   ConsumeOptions
	ctx context.Context // the caller's: ends receiving

	handling  context.Context // of the handlers: ends with the drain timeout
	handleEnd context.CancelCauseFunc
	settling  context.Context // of the settles: ends when Consume gives up
	settleEnd context.CancelFunc
	undrain   func() bool // takes back the AfterFunc of ctx

	mu          sync.Mutex
	work        sync.Cond // a task is ready, or it is over
	room        sync.Cond // there is room for deliveries, or ctx ended
	ready       queue
	tails       map[string]*task  // the last unfinished task of each key
	blocked     map[string]*block // keys with a failed message on its way back
	hand        ring              // all tasks in hand
	inFlight    int
	running     int
	calls       uint64 // of Receive, begun
	draining    bool   // nothing new is started
	received    bool   // nothing new comes
	over        bool   // the goroutines end
	attempts    attempts
	finished    []*task   // for the settler
	nextBeat    time.Time // when the heart wakes by itself
	fixedLeases bool      // the hook knows that leases can't be extended

	idle       chan struct{} // closed when all that was received is done with
	wakeSettle chan struct{}
	wakeHeart  chan struct{}
	workers    sync.WaitGroup
	others     sync.WaitGroup // settler and heart
}

// task is a delivery in hand. Those of one Receive share a slab.
type task struct {
	d      *Delivery
	next   *task // in the ready queue
	after  *task // the next of its key
	before *task // in the ring of all in hand, as is behind
	behind *task
	stage  stage
	worker *worker // while running

	deadline  time.Time // of the lease; zero: none, or it can't be kept
	margin    time.Duration
	beat      time.Time // when it is to be extended
	extending bool      // an Extend is under way
	fixed     bool      // its lease can't be extended
	lost      bool      // its lease is lost

	action Action
	delay  time.Duration
	reason string
	due    time.Time // when the settle, or a resting one's handler, is to be tried (again)
	tries  int       // answers lost
}

type stage uint8

const (
	waiting  stage = iota // in the ready queue or behind another of its key
	running               // its handler runs
	ended                 // for the settler
	held                  // given back when its delay is over, here
	resting               // handled again when its delay is over, with its key behind it
	settles               // a settle is under way or was sent
	released              // out of hand
)

// block keeps the later messages of a key from being handled before the failed
// one is back.
type block struct {
	by    *task
	id    string
	copy  string
	delay time.Duration // of the last that was given back
	open  bool          // by isn't settled yet
	until uint64        // once it is: the last Receive that may bring what overtook it
}

// next is the delay of one more message behind the failed one. It grows, so that
// also a broker which goes by time alone has a chance to bring them in order.
func (b *block) next() time.Duration {
	b.delay += time.Millisecond
	return b.delay
}

func newConsumer(ctx context.Context, r Receiver, h Handler, o ConsumeOptions) *consumer {
	c := &consumer{r: r, h: h, o: o, ctx: ctx, tails: map[string]*task{}, blocked: map[string]*block{},
		idle: make(chan struct{}), wakeSettle: make(chan struct{}, 1), wakeHeart: make(chan struct{}, 1)}
	c.work.L, c.room.L = &c.mu, &c.mu
	values := context.WithoutCancel(ctx)
	c.handling, c.handleEnd = context.WithCancelCause(values)
	c.settling, c.settleEnd = context.WithCancel(values)
	return c
}

func (c *consumer) start() {
	for range c.o.Workers {
		c.workers.Go(func() { c.labour(&worker{}) })
	}
	c.others.Go(c.settleAll)
	c.others.Go(c.heart)
	c.undrain = context.AfterFunc(c.ctx, c.drain)
}

// reserve waits for room and returns how many deliveries may come, and the
// number of the Receive that asks for them.
func (c *consumer) reserve() (n int, call uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.inFlight >= c.o.MaxInFlight && !c.draining {
		c.room.Wait()
	}
	c.calls++
	return min(c.o.Batch, c.o.MaxInFlight-c.inFlight), c.calls
}

// accept takes what a Receive brought into hand.
func (c *consumer) accept(ds []Delivery, call uint64) {
	acked := c.o.Semantics == AtMostOnce && c.ctx.Err() == nil
	if acked {
		ds = c.ackFirst(ds)
	}
	tasks := make([]task, len(ds))
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, b := range c.blocked {
		if !b.open && call > b.until {
			delete(c.blocked, key)
		}
	}
	giveBack := !acked && (c.draining || c.ctx.Err() != nil)
	for i := range tasks {
		t := &tasks[i]
		t.d = &ds[i]
		c.hand.add(t)
		c.inFlight++
		if c.o.Semantics == AtLeastOnce {
			c.arm(t, t.d.Lease, now)
		}
		if giveBack {
			c.give(t, 0)
			continue
		}
		if b := c.blocked[t.key(c)]; b != nil {
			if t.d.ID != b.id || t.d.Copy != b.copy {
				c.attempts.spare(t.d)
				c.give(t, b.next())
				continue
			}
			delete(c.blocked, t.d.Key) // the failed one is back
		}
		c.line(t)
	}
}

// key is the ordering key that counts.
func (t *task) key(c *consumer) string {
	if c.o.Unordered {
		return ""
	}
	return t.d.Key
}

// line puts t behind the last of its key, or where a worker takes it.
func (c *consumer) line(t *task) {
	if key := t.key(c); key != "" {
		last := c.tails[key]
		c.tails[key] = t
		if last != nil {
			last.after = t
			return
		}
	}
	c.ready.push(t)
	c.work.Signal()
}

// unline lets the next of t's key go on.
func (c *consumer) unline(t *task) {
	key := t.key(c)
	if key == "" {
		return
	}
	if t.after == nil {
		delete(c.tails, key)
		return
	}
	c.ready.push(t.after)
	c.work.Signal()
	t.after = nil
}

// hold gives back all that stands behind t, which failed, and blocks its key.
func (c *consumer) hold(t *task, delay time.Duration, open bool) {
	key := t.key(c)
	if key == "" {
		return
	}
	delete(c.tails, key)
	b := &block{by: t, id: t.d.ID, copy: t.d.Copy, delay: delay, open: open, until: c.calls}
	c.blocked[key] = b
	for f := t.after; f != nil; {
		next := f.after
		f.after = nil
		c.attempts.spare(f.d)
		c.give(f, b.next())
		f = next
	}
	t.after = nil
}

// give hands t to the settler to be given back.
func (c *consumer) give(t *task, delay time.Duration) {
	t.action, t.delay = Nack, delay
	c.finish(t)
}

// finish hands t to the settler.
func (c *consumer) finish(t *task) {
	t.stage = ended
	c.finished = append(c.finished, t)
	if len(c.finished) == 1 {
		wake(c.wakeSettle)
	}
}

// release lets go of t.
func (c *consumer) release(t *task) {
	if t.stage == released {
		return
	}
	t.stage = released
	if b := c.blocked[t.key(c)]; b != nil && b.by == t {
		b.open, b.until, b.by = false, c.calls, nil
	}
	c.hand.remove(t)
	c.inFlight--
	c.room.Signal()
	c.checkIdle()
}

func (c *consumer) checkIdle() {
	if c.received && c.inFlight == 0 {
		c.received = false // once
		close(c.idle)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// queue is a list of ready tasks.
type queue struct{ head, tail *task }

func (q *queue) push(t *task) {
	if q.head == nil {
		q.head = t
	} else {
		q.tail.next = t
	}
	q.tail = t
}

func (q *queue) pop() *task {
	t := q.head
	if t != nil {
		q.head, t.next = t.next, nil
	}
	return t
}

// ring is the list of all tasks in hand.
type ring struct{ first *task }

func (r *ring) add(t *task) {
	t.behind = r.first
	if r.first != nil {
		r.first.before = t
	}
	r.first = t
}

func (r *ring) remove(t *task) {
	if t.before != nil {
		t.before.behind = t.behind
	} else {
		r.first = t.behind
	}
	if t.behind != nil {
		t.behind.before = t.before
	}
	t.before, t.behind = nil, nil
}
