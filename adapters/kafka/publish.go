package kafka

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// publisher publishes to one topic.
type publisher struct {
	conn  *conn
	topic string
	body  int       // Limits.Body
	stamp bool      // the time goes into a header too, for the broker may overwrite the record's
	own   *producer // at most once, or of a transactor; nil: the connection's shared one
	joins joins
	gone  chan struct{} // closed by Close

	sequenced bool // own numbers its records: a transactor's
}

func (c *conn) newPublisher(topic string, body int, atMostOnce bool) (*publisher, error) {
	keeps, _ := c.keepsTime.Load(topic)
	p := &publisher{conn: c, topic: topic, body: body, stamp: keeps != true, gone: make(chan struct{})}
	if !atMostOnce {
		_, err := c.shared() // a bad option shows here, not at the first Publish
		return p, err
	}
	own, err := c.newProducer(
		kgo.DisableIdempotentWrite(),
		kgo.RecordRetries(0),
		kgo.RequestRetries(0),
	)
	p.own = own
	return p, err
}

func (p *publisher) Limits() broker.Limits { return broker.Limits{Body: p.body} }

// As sets a **kgo.Client to the client that publishes now.
func (p *publisher) As(target any) bool {
	t, ok := target.(**kgo.Client)
	if !ok {
		return false
	}
	prod, err := p.producer()
	if err != nil {
		return false
	}
	*t = prod.cl
	return true
}

func (p *publisher) producer() (*producer, error) {
	if p.own != nil {
		return p.own, nil
	}
	return p.conn.shared()
}

// slot is one message in the SDK's hands. It is the record's context too, so
// that one function serves all promises and finds its way back here without an
// allocation. It never ends: the SDK must not drop a record that may be in
// flight, for it would give the record's sequence number to another one, which
// the broker then takes for a copy of the first (franz-go issue 1217). Its
// methods read no field, for the SDK may call them after the promise.
type slot struct {
	rec    kgo.Record
	flight *flight
	err    error
	state  atomic.Uint32
	// Of an abandoned slot only.
	key   joinKey
	ready chan struct{}
}

func (*slot) Deadline() (end time.Time, ok bool) { return }
func (*slot) Done() <-chan struct{}              { return nil }
func (*slot) Err() error                         { return nil }
func (*slot) Value(any) any                      { return nil }

// The states of a slot.
const (
	pending uint32 = iota
	answered
	abandoned
)

// flight is a batch in the SDK's hands. It is used again only if every record
// had its answer before Publish returned.
type flight struct {
	pub      *publisher
	producer *producer
	doubts   uint64 // of the producer, when the flight began
	slots    []slot
	headers  []kgo.RecordHeader
	user     bool   // some headers are the user's
	given    bool   // the bodies are the user's
	buf      []byte // ids, keys, bodies that aren't given: the caller may change its own after Publish returned
	left     atomic.Int64
	done     chan struct{} // one token when left reaches 0
}

// hangar keeps flights for the next batches. It is no sync.Pool, for that is
// emptied by the garbage collector, and to clear fresh memory for the bodies of
// a batch costs more than to copy them.
type hangar struct {
	mu   sync.Mutex
	list []*flight
	size int
}

// maxHangar bounds the memory for bodies that a producer keeps between batches.
const maxHangar = 16 << 20

func (h *hangar) get() *flight {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.list)
	if n == 0 {
		return &flight{done: make(chan struct{}, 1)}
	}
	f := h.list[n-1]
	h.list[n-1] = nil
	h.list = h.list[:n-1]
	h.size -= f.footprint()
	return f
}

func (h *hangar) put(f *flight) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := f.footprint(); h.size+n <= maxHangar {
		h.list = append(h.list, f)
		h.size += n
	}
}

// footprint is about how many bytes the flight holds.
func (f *flight) footprint() int { return cap(f.buf) + 256*cap(f.slots) + 64*cap(f.headers) }

// Publish is driver.Publisher's.
func (p *publisher) Publish(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	p.publish(ctx, msgs, receipts, false)
}

// PublishGiven is driver.GivenPublisher's.
func (p *publisher) PublishGiven(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	p.publish(ctx, msgs, receipts, true)
}

func (p *publisher) publish(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt, given bool) {
	joined := p.joins.find(msgs)
	prod, err := p.producer()
	if err != nil {
		p.refuse(receipts, joined, 0, broker.ErrUnavailable, err)
		return
	}
	var first, second *flight
	var more []*flight
	for at := 0; at < len(msgs); {
		n := min(prod.chunk, len(msgs)-at)
		if err := prod.room.Acquire(ctx, int64(n)); err != nil {
			// The buffer is full of records that wait for the broker.
			p.refuse(receipts[at:], joined, at, broker.ErrBusy, context.Cause(ctx))
			break
		}
		f := p.start(ctx, prod, msgs[at:at+n], joined, at, given)
		switch at += n; {
		case first == nil:
			first = f
		case second == nil:
			second = f
		default:
			more = append(more, f)
		}
	}
	at := 0
	for _, f := range [2]*flight{first, second} {
		at = p.land(ctx, f, msgs, receipts, joined, at)
	}
	for _, f := range more {
		at = p.land(ctx, f, msgs, receipts, joined, at)
	}
	for i, s := range joined {
		p.awaitJoined(ctx, s, &receipts[i])
	}
}

// refuse fills the receipts, which begin with message at, that have no join.
func (p *publisher) refuse(receipts []broker.Receipt, joined map[int]*slot, at int, kind, cause error) {
	err := broker.Errorf(kind, cause, "publish to %s", p.topic)
	for i := range receipts {
		if joined[at+i] == nil {
			receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: err}
		}
	}
}

// start hands messages to the SDK, but those that join one in flight.
func (p *publisher) start(ctx context.Context, prod *producer, msgs []broker.Message, joined map[int]*slot, at int, given bool) *flight {
	f := prod.hangar.get()
	f.pub, f.producer, f.doubts, f.given = p, prod, prod.doubts.Load(), given
	size, headers := 0, 0
	for i := range msgs {
		size += sizeOf(&msgs[i], given)
		headers += ownHeaders + len(msgs[i].Headers)
	}
	f.user = headers > ownHeaders*len(msgs)
	if cap(f.buf) < size {
		clear(f.slots[:cap(f.slots)]) // their records point to the old one
		f.buf = make([]byte, 0, size)
	}
	if cap(f.headers) < headers {
		f.headers = make([]kgo.RecordHeader, 0, headers)
	}
	if cap(f.slots) < len(msgs) {
		f.slots = make([]slot, len(msgs))
	}
	f.slots = f.slots[:len(msgs)]
	life := context.Background()
	if p.own != nil && !p.sequenced {
		life = ctx // without sequence numbers the SDK may drop it
	}
	// One more than there are messages, so that the flight can't be over before
	// all have started.
	f.left.Store(int64(len(msgs)) + 1)
	buf, hs := f.buf[:0], f.headers[:0]
	for i := range msgs {
		s, m := &f.slots[i], &msgs[i]
		s.flight, s.err = f, nil
		s.state.Store(pending)
		if joined[at+i] != nil {
			s.state.Store(answered)
			f.finish()
			continue
		}
		n := len(hs)
		hs, buf = headersOf(hs, buf, m, p.stamp)
		s.rec = kgo.Record{Topic: p.topic, Headers: hs[n:len(hs):len(hs)], Timestamp: m.Time, Context: s}
		if m.Key != "" {
			n := len(buf)
			buf = append(buf, m.Key...)
			s.rec.Key = buf[n:len(buf):len(buf)]
		}
		if given && len(m.Body) > 0 { // an empty one isn't none, which would delete
			s.rec.Value = m.Body
		} else {
			n := len(buf)
			buf = append(buf, m.Body...)
			s.rec.Value = buf[n:len(buf):len(buf)]
		}
		prod.cl.TryProduce(life, &s.rec, settled)
	}
	f.buf, f.headers = buf, hs
	f.finish()
	return f
}

// settled is every record's promise.
func settled(r *kgo.Record, err error) {
	s := r.Context.(*slot)
	f := s.flight
	s.err = err
	if err != nil && deadProducer(err) {
		f.producer.dead.Store(true)
	}
	if !s.state.CompareAndSwap(pending, answered) {
		f.pub.joins.late(s)
	}
	f.finish()
}

func (f *flight) finish() {
	if f.left.Add(-1) == 0 {
		f.producer.room.Release(int64(len(f.slots)))
		f.done <- struct{}{}
	}
}

// land waits for a flight and writes its receipts, which begin with message at.
func (p *publisher) land(ctx context.Context, f *flight, msgs []broker.Message, receipts []broker.Receipt, joined map[int]*slot, at int) int {
	if f == nil {
		return at
	}
	n := len(f.slots)
	over := true
	select {
	case <-f.done:
	default:
		select {
		case <-f.done:
		case <-ctx.Done():
			over = false
		case <-p.gone:
			over = false
		}
	}
	if !over {
		p.joins.abandon(f, msgs[at:at+n], p.own == nil)
	}
	var lost error
	for i := range f.slots {
		s := &f.slots[i]
		switch {
		case joined[at+i] != nil:
		case s.state.Load() == answered && s.err == nil:
			s.stored(&receipts[at+i])
		case s.state.Load() == answered:
			receipts[at+i] = s.receipt()
		default:
			if lost == nil {
				lost = broker.Errorf(broker.ErrUnknownOutcome, p.why(ctx), "publish to %s", p.topic)
			}
			receipts[at+i].Err = lost
		}
	}
	if over {
		f.recycle()
	}
	return at + n
}

func (p *publisher) why(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return broker.ErrClosed
}

// recycle keeps the flight's memory for the next one, which overwrites it. What
// it points to until then is itself and errors, but for bodies that were given and
// the names of the user's headers, which may be cut from anything.
func (f *flight) recycle() {
	if f.user {
		clear(f.headers)
	}
	if f.given {
		for i := range f.slots {
			f.slots[i].rec.Value = nil
		}
	}
	home := &f.producer.hangar
	f.pub, f.producer = nil, nil
	home.put(f)
}

// stored writes the receipt of a slot that was answered well.
func (s *slot) stored(r *broker.Receipt) {
	r.Verdict = broker.Stored
	r.Position.Partition, r.Position.Offset = partName(s.rec.Partition), uint64(s.rec.Offset)
}

// receipt is what the broker said of an answered slot.
func (s *slot) receipt() (r broker.Receipt) {
	if s.err == nil {
		s.stored(&r)
		return r
	}
	if kind := refusal(s.err, s.flight.producer.doubts.Load() != s.flight.doubts); kind != nil {
		return broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(kind, s.err, "publish to %s", s.rec.Topic)}
	}
	return broker.Receipt{Err: broker.Errorf(broker.ErrUnknownOutcome, s.err, "publish to %s", s.rec.Topic)}
}

func positionOf(r *kgo.Record) broker.Position {
	return broker.Position{Partition: strconv.Itoa(int(r.Partition)), Offset: uint64(r.Offset)}
}

// Close is driver.Publisher's. What was abandoned stays with the connection's
// client until it is answered or the connection closes; nobody can join it any
// more.
func (p *publisher) Close(ctx context.Context) error {
	close(p.gone)
	p.joins.forget()
	if p.own != nil {
		p.own.stop()
		p.own.close(ctx)
	}
	return nil
}

var _ driver.Publisher = (*publisher)(nil)
