package rabbitmq

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
)

const (
	// patience bounds how long a publish that didn't leave yet waits for a
	// connection, or for a node that takes publishes again.
	patience = 5 * time.Second
	// maxBytes is of the bodies without an answer, for one sender.
	maxBytes = 8 << 20
	// bigBody is from how many bytes on a message goes alone: over a limit that
	// only the node knows, it would take with it what is in flight.
	bigBody = 1 << 20
)

// sender publishes with confirms and makes its channel anew when it is lost. It
// bounds what is in flight.
type sender struct {
	line  *line
	what  string                          // for errors: "publish to orders"
	most  int                             // messages in flight
	check func(ctx context.Context) error // asked before a channel is opened
	life  context.Context                 // ends with shut
	end   context.CancelFunc
	close <-chan struct{} // life's end: Publish gives up

	limit atomic.Int64 // of a message's size, once the node has told it; 0 before
	frame atomic.Int64 // the size of a frame, which headers must fit into

	mu       sync.Mutex
	cur      *confirmer
	opening  *opening // nil if there is none
	late     error    // for the next caller: those who waited had left
	flying   int
	bytes    int
	room     chan struct{} // made by who waits, closed when there is more of it
	derelict []derelict    // nobody waits for these any more, and they hold room
}

type derelict struct {
	mark *amqp.DeferredConfirmation
	size int
}

func newSender(l *line, what string, most int, check func(context.Context) error) *sender {
	sn := &sender{line: l, what: what, most: most, check: check}
	sn.life, sn.end = context.WithCancel(context.Background())
	sn.close = sn.life.Done()
	return sn
}

// opening is the making of a channel. It takes several round trips, so it goes on when
// its callers have left: those whose contexts are shorter would never get one.
type opening struct {
	done    chan struct{} // closed when c or err is there
	c       *confirmer
	err     error
	waiting int // callers
}

// ready returns a channel that lives. The first of its callers has it opened.
func (sn *sender) ready(ctx context.Context) (*confirmer, error) {
	sn.mu.Lock()
	if c := sn.cur; c != nil && c.alive() {
		sn.mu.Unlock()
		return c, nil
	}
	if err := sn.late; err != nil {
		sn.late = nil
		sn.mu.Unlock()
		return nil, err
	}
	o := sn.opening
	if o == nil && sn.life.Err() == nil {
		n := &opening{done: make(chan struct{})}
		if sn.line.tasks.Go(func() { sn.reopen(n) }) {
			o, sn.opening = n, n
		}
	}
	if o == nil {
		sn.mu.Unlock()
		return nil, broker.ErrClosed
	}
	o.waiting++
	sn.mu.Unlock()
	select {
	case <-o.done:
		return o.c, o.err
	case <-ctx.Done():
	case <-sn.close:
		return nil, broker.ErrClosed
	}
	sn.mu.Lock()
	o.waiting--
	sn.mu.Unlock()
	return nil, sn.line.why(context.Cause(ctx))
}

// reopen is one try to open a channel.
func (sn *sender) reopen(o *opening) {
	ctx, cancel := context.WithTimeoutCause(sn.life, renewBound, errNoSession)
	defer cancel()
	defer context.AfterFunc(sn.line.life, cancel)()
	o.c, o.err = sn.open(ctx)
	sn.mu.Lock()
	shut := sn.life.Err() != nil // and has seen cur without this one
	switch {
	case o.err == nil && !shut:
		sn.cur = o.c
	case o.err != nil && o.waiting == 0 && !again(o.err):
		sn.late = o.err
	}
	sn.opening = nil
	sn.mu.Unlock()
	close(o.done)
	if o.err == nil && shut {
		_ = o.c.ch.Close() // its end is the connection's, at the latest
	}
}

func (sn *sender) open(ctx context.Context) (*confirmer, error) {
	s, err := sn.line.session(ctx)
	if err != nil {
		return nil, err
	}
	// A node that takes no publishes doesn't read the call either.
	if err := sn.unblocked(ctx, s); err != nil {
		return nil, err
	}
	if err := sn.check(ctx); err != nil {
		return nil, err
	}
	ch, err := s.channel(ctx)
	if err != nil {
		return nil, err
	}
	sn.frame.Store(maxFrame)
	if n := s.conn.Config.FrameSize; n > 0 {
		sn.frame.Store(int64(n))
	}
	c, err := await(ctx, sn.line, func() (*confirmer, error) {
		if err := ch.Confirm(false); err != nil {
			return nil, err
		}
		return newConfirmer(s, ch), nil
	}, func(c *confirmer) { _ = c.ch.Close() })
	if err != nil {
		return nil, err
	}
	return c, nil
}

// run publishes a flight and waits for its answers as long as ctx lasts. What has
// not left when the channel ended goes by another one, unless it would overtake a
// message of its key that will be tried again. Where wait is false nothing waits
// for a connection.
func (sn *sender) run(ctx context.Context, f *flight, wait bool) {
	begin := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		sn.once(ctx, f, wait)
		if !wait || f.stop == nil || ctx.Err() != nil || !again(f.stop) || time.Since(begin) > patience || f.gave != nil && f.keysLeft() {
			return
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
			f.stop = nil
		case <-ctx.Done():
		case <-sn.close:
		}
		if t.Stop(); f.stop != nil {
			return
		}
	}
}

// once is run on one channel.
func (sn *sender) once(ctx context.Context, f *flight, wait bool) {
	f.from, f.done = f.sent, f.sent
	c, err := sn.current(ctx, wait)
	if err != nil {
		f.stop = err
		return
	}
	c.enter(f)
	for f.sent < f.n && f.stop == nil {
		var n int
		if n, f.stop = sn.reserve(ctx, c, f); f.stop == nil {
			from := f.sent
			f.stop = c.send(f, n)
			sn.release(f, f.sent, from+n) // what didn't leave
		}
	}
	gave := c.wait(ctx, f, f.sent, sn.close)
	if limit := c.conclude(f, gave); limit > 0 {
		sn.limit.Store(int64(limit))
	}
	sn.land(f, gave)
}

func (sn *sender) current(ctx context.Context, wait bool) (*confirmer, error) {
	sn.mu.Lock()
	c := sn.cur
	sn.mu.Unlock()
	if c != nil && c.alive() {
		return c, nil
	}
	if !wait && !sn.line.up() {
		return nil, errSessionOver
	}
	short, cancel := context.WithTimeoutCause(ctx, patience, errNoSession)
	defer cancel()
	return sn.ready(short)
}

// reserve waits for room and returns how many messages may go.
func (sn *sender) reserve(ctx context.Context, c *confirmer, f *flight) (n int, err error) {
	if err := sn.unblocked(ctx, c.s); err != nil {
		return 0, err
	}
	for {
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		if f.done < f.sent && (f.size(f.sent) > bigBody || f.size(f.sent-1) > bigBody) {
			if err := sn.await(ctx, c, f, f.sent); err != nil {
				return 0, err
			}
		}
		if !c.alive() {
			return 0, errChannelOver
		}
		sn.mu.Lock()
		size := 0
		for n = 0; n < chunk && f.sent+n < f.n && sn.flying+n < sn.most; n++ {
			body := f.size(f.sent + n)
			if n > 0 && (body > bigBody || size > bigBody) || sn.bytes+size+body > maxBytes && sn.flying+n > 0 {
				break
			}
			size += body
		}
		if n > 0 {
			sn.flying += n
			sn.bytes += size
			sn.mu.Unlock()
			return n, nil
		}
		swept := sn.sweep()
		if sn.room == nil {
			sn.room = make(chan struct{})
		}
		room := sn.room
		sn.mu.Unlock()
		switch {
		case swept:
		case f.done < f.sent:
			// Room that this flight holds itself: half of it, so that not every
			// confirm is followed by a message of its own.
			if err := sn.await(ctx, c, f, f.done+(f.sent-f.done+1)/2); err != nil {
				return 0, err
			}
		default:
			// Others hold it. Those whom nobody waits for are looked at now and
			// then.
			t := time.NewTimer(20 * time.Millisecond)
			select {
			case <-room:
			case <-t.C:
			case <-ctx.Done():
				err = context.Cause(ctx)
			case <-c.ended:
				err = c.cause
			case <-sn.close:
				err = broker.ErrClosed
			}
			t.Stop()
			if err != nil {
				return 0, err
			}
		}
	}
}

// await waits for the answers to messages [f.done, to) and gives back their room.
func (sn *sender) await(ctx context.Context, c *confirmer, f *flight, to int) error {
	if err := c.wait(ctx, f, to, sn.close); err != nil {
		return err
	}
	sn.release(f, f.done, to)
	f.done = to
	return nil
}

// unblocked waits until the node takes publishes.
func (sn *sender) unblocked(ctx context.Context, s *session) error {
	b := s.blocked()
	if b == nil {
		return nil
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-b:
		return nil
	case <-t.C:
	case <-ctx.Done():
		return broker.Errorf(broker.ErrBusy, errors.Join(errBlocked, context.Cause(ctx)), "rabbitmq")
	case <-sn.close:
		return broker.ErrClosed
	}
	return broker.Errorf(broker.ErrBusy, errBlocked, "rabbitmq")
}

// release gives back the room of messages [from, to).
func (sn *sender) release(f *flight, from, to int) {
	if from >= to {
		return
	}
	size := 0
	for i := from; i < to; i++ {
		size += f.size(i)
	}
	sn.mu.Lock()
	sn.give(to-from, size)
	sn.mu.Unlock()
}

func (sn *sender) give(n, size int) {
	sn.flying -= n
	sn.bytes -= size
	if sn.room != nil {
		close(sn.room)
		sn.room = nil
	}
}

// land gives back the room of a flight that is over. Messages without an answer
// go on holding theirs until it comes.
func (sn *sender) land(f *flight, gave error) {
	if gave == nil || f.done == f.sent {
		sn.release(f, f.done, f.sent)
		return
	}
	sn.mu.Lock()
	defer sn.mu.Unlock()
	n, size := 0, 0
	for i := f.done; i < f.sent; i++ {
		if m := f.marks[i]; m != nil && !closed(m.Done()) {
			sn.derelict = append(sn.derelict, derelict{m, f.size(i)})
			continue
		}
		n++
		size += f.size(i)
	}
	sn.give(n, size)
}

// sweep gives back the room of messages whose answer came when nobody waited any
// more, and reports whether there were any.
func (sn *sender) sweep() bool {
	n, size := 0, 0
	keep := sn.derelict[:0]
	for _, d := range sn.derelict {
		if closed(d.mark.Done()) {
			n++
			size += d.size
		} else {
			keep = append(keep, d)
		}
	}
	clear(sn.derelict[len(keep):])
	sn.derelict = keep
	if n > 0 {
		sn.give(n, size)
	}
	return n > 0
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// shut ends what is in flight when ctx ends, and closes the channel.
func (sn *sender) shut(ctx context.Context) error {
	sn.end()
	sn.mu.Lock()
	c := sn.cur
	sn.mu.Unlock()
	if c == nil || !c.alive() {
		return nil
	}
	_, err := await(ctx, sn.line, func() (struct{}, error) { return struct{}{}, c.ch.Close() }, nil)
	if err != nil && !errors.Is(err, amqp.ErrClosed) {
		return broker.Errorf(broker.ErrUnavailable, err, "close %s", sn.what)
	}
	return nil
}
