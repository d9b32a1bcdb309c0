package servicebus

import (
	"time"

	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/servicebus/amqp"
)

// handleMax is the highest handle of a link in a session, as the service says.
const handleMax = 4999

// channel is an AMQP session, which Service Bus's own sessions leave no name for.
// The server's mutex guards it.
type channel struct {
	c      *conn
	number uint16
	links  map[uint32]*link // by the client's handle, which is ours as well

	nextIn  uint32   // transfers that have come
	granted uint32   // that may come still
	nextOut uint32   // transfers that have gone
	room    uint32   // that the client takes still
	held    [][]byte // frames of a message that the window cut in two, with their headers

	out deliveries
}

func newChannel(c *conn, number uint16, g amqp.Begin) *channel {
	return &channel{c: c, number: number, links: map[uint32]*link{}, nextIn: g.NextOutgoingID, granted: window,
		nextOut: 1, room: g.IncomingWindow}
}

// end drops all links.
func (ch *channel) end(now time.Time) {
	for _, l := range ch.links {
		l.drop(now)
	}
	clear(ch.links)
}

// flow takes windows and, with a handle, a link's credit.
func (ch *channel) flow(fields *amqp.Fields) error {
	w, err := amqp.ReadFlow(fields)
	if err != nil {
		return err
	}
	s := ch.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	// The window counts from what the client had seen when it wrote.
	seen := uint32(1)
	if w.NextIncomingID != nil {
		seen = *w.NextIncomingID
	}
	ch.room = min(seen+w.IncomingWindow-ch.nextOut, 1<<31)
	if int32(seen+w.IncomingWindow-ch.nextOut) < 0 {
		ch.room = 0
	}
	ch.flushHeld()
	if !w.HasHandle {
		if w.Echo {
			ch.sendFlow()
		}
		ch.resume(now)
		return nil
	}
	l := ch.links[w.Handle]
	if l == nil {
		return nil // of a link that we have just detached
	}
	if l.receives || l.node != nil { // credit for a sender to us is ours to give
		l.grant(w, now)
		return nil
	}
	inj := s.strike(fault.Receive, "flow", l.path())
	if inj == nil {
		l.grant(w, now)
		return nil
	}
	s.carryOut(inj, ch.c, func(now time.Time, _ bool) bool {
		if !l.gone {
			l.grant(w, now)
		}
		return !l.gone
	}, func(code int) { l.detach(errorFor(code)) })
	return nil
}

// resume hands out what waited for the window or for the client to read.
func (ch *channel) resume(now time.Time) {
	for _, l := range ch.links {
		l.pump(now)
	}
}

// sendFlow tells the session's windows alone.
func (ch *channel) sendFlow() {
	ch.granted = window
	b, at := ch.c.begin(amqp.FrameAMQP, ch.number)
	ch.c.send(ch.windows().Append(b), at)
}

func (ch *channel) windows() amqp.Flow {
	next := ch.nextIn
	return amqp.Flow{NextIncomingID: &next, IncomingWindow: ch.granted, NextOutgoingID: ch.nextOut, OutgoingWindow: window}
}

// dispose tells the client what became of one of its deliveries, or that one of
// ours is settled.
func (ch *channel) dispose(role bool, id uint32, state amqp.State) {
	b, at := ch.c.begin(amqp.FrameAMQP, ch.number)
	ch.c.send(amqp.Disposition{Role: role, First: id, Last: id, Settled: true, State: state}.Append(b), at)
}

// sendMessage sends a message in as many frames as the client's frame size asks
// for. What the window has no room for waits for the next flow; nothing else is
// sent in between, as ready says.
func (ch *channel) sendMessage(t amqp.Transfer, payload []byte) {
	room := int(ch.c.peerFrame) - 64 - len(t.DeliveryTag)
	for first := true; first || len(payload) > 0; first = false {
		n := min(room, len(payload))
		t.More = n < len(payload)
		ch.sendTransfer(t, payload[:n])
		payload = payload[n:]
	}
}

func (ch *channel) sendTransfer(t amqp.Transfer, payload []byte) {
	if ch.room == 0 {
		b, at := amqp.BeginFrame(nil, amqp.FrameAMQP, ch.number)
		ch.held = append(ch.held, amqp.EndFrame(append(t.Append(b), payload...), at))
		return
	}
	ch.room--
	ch.nextOut++
	b, at := ch.c.begin(amqp.FrameAMQP, ch.number)
	ch.c.send(append(t.Append(b), payload...), at)
}

func (ch *channel) flushHeld() {
	for len(ch.held) > 0 && ch.room > 0 {
		ch.room--
		ch.nextOut++
		b, at := ch.c.begin(amqp.FrameAMQP, ch.number)
		b = append(b[:at], ch.held[0]...)
		ch.c.send(b, at)
		ch.held = ch.held[1:]
	}
}

// ready says whether a message may be sent now.
func (ch *channel) ready() bool {
	if ch.room == 0 || len(ch.held) > 0 {
		return false
	}
	if ch.c.full() {
		ch.c.stalled.Store(true)
		// The writer may have emptied it before it could see that.
		return !ch.c.full()
	}
	return true
}

// deliveries are those that we have sent and the client hasn't settled, by their
// IDs, which follow each other.
type deliveries struct {
	first uint32 // the ID of slots[head]
	slots []delivery
	head  int
}

// delivery is a message handed out on a link under a lock, by the lock's token: what
// is never settled must not keep the message.
type delivery struct {
	l     *link // nil in an empty slot
	token amqp.UUID
}

// add returns the ID of d. One that is settled when sent leaves an empty slot.
func (d *deliveries) add(x delivery) uint32 {
	d.slots = append(d.slots, x)
	id := d.first + uint32(len(d.slots)-d.head-1)
	if x.l == nil {
		d.compact()
	}
	return id
}

// take removes and returns the delivery with an ID; its link is nil if there is
// none.
func (d *deliveries) take(id uint32) delivery {
	i := id - d.first
	if i >= uint32(len(d.slots)-d.head) {
		return delivery{}
	}
	x := d.slots[d.head+int(i)]
	d.slots[d.head+int(i)] = delivery{}
	d.compact()
	return x
}

// get returns the delivery with an ID and leaves it there.
func (d *deliveries) get(id uint32) delivery {
	i := id - d.first
	if i >= uint32(len(d.slots)-d.head) {
		return delivery{}
	}
	return d.slots[d.head+int(i)]
}

// bounds clips a range of IDs to those that are known.
func (d *deliveries) bounds(first, last uint32) (from uint32, n int) {
	from = first
	if int32(from-d.first) < 0 {
		from = d.first
	}
	end := d.first + uint32(len(d.slots)-d.head) // behind the last
	if int32(last+1-end) < 0 {
		end = last + 1
	}
	return from, max(int(int32(end-from)), 0)
}

func (d *deliveries) compact() {
	for d.head < len(d.slots) && d.slots[d.head].l == nil {
		d.head++
		d.first++
	}
	if d.head == len(d.slots) {
		d.slots, d.head = d.slots[:0], 0
	} else if d.head > 1024 && d.head > len(d.slots)/2 {
		n := copy(d.slots, d.slots[d.head:])
		clear(d.slots[n:])
		d.slots, d.head = d.slots[:n], 0
	}
}
