package rabbitmq

import (
	"time"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// due is when a delivery that leaves now is late; 0 is never. In V4 only quorum
// queues have leases (RMQ-F-13).
func (c *consumer) due() int64 {
	if c.timeout <= 0 || !c.q.leases() {
		return 0
	}
	at := c.q.now() + c.timeout
	c.q.watchLease(at)
	return at
}

// getDue is the same for a message fetched by basic.get.
func (ch *channel) getDue(q *queue) int64 {
	if q.consumerTimeout <= 0 || !q.leases() {
		return 0
	}
	return q.now() + q.consumerTimeout
}

func (q *queue) leases() bool { return q.quorum || q.v.s.release == V3 }

// watchLease sees to it that the queue looks for late deliveries at the given
// time. V4's quorum queues do so themselves, at the instant.
func (q *queue) watchLease(at int64) {
	s := q.v.s
	if at == 0 || s.release == V3 || q.lease != nil && q.leaseAt <= at {
		return
	}
	if q.lease != nil {
		q.lease.Stop()
	}
	q.leaseAt = at
	q.lease = s.clock.AfterFunc(time.UnixMilli(at).Sub(s.clock.Now()), func() { s.enter(q.endLeases) })
}

// endLeases takes back what is late. The messages come back without a failed
// delivery counted; their consumers get no more until they have settled what they
// hold, and are told by a basic.cancel. Where the client doesn't understand that,
// its channel is closed (RMQ-F-13, RMQ-F-15).
func (q *queue) endLeases() {
	q.lease, q.leaseAt = nil, 0
	if q.deleted {
		return
	}
	now, next := q.now(), int64(0)
	var late []*channel
	for c := range q.v.s.conns {
		if c.vhost != q.v {
			continue
		}
		for _, ch := range c.sorted() {
			if ch.endLeases(q, now, &next) {
				late = append(late, ch)
			}
		}
	}
	for _, ch := range late {
		ch.tellLate(q)
	}
	if q.active != nil && q.active.late > 0 { // another may have its turn
		q.active = nil
		q.activate()
	}
	q.watchLease(next)
	q.pump()
}

// endLeases takes back the channel's late deliveries of q, and says whether there
// were any. next becomes the earliest time of those that aren't late yet.
func (ch *channel) endLeases(q *queue, now int64, next *int64) bool {
	any := false
	for i := ch.unacked.start; i < len(ch.unacked.list); i++ {
		p := &ch.unacked.list[i]
		if p.q != q || p.back || p.due == 0 {
			continue
		}
		if p.due > now {
			if *next == 0 || p.due < *next {
				*next = p.due
			}
			continue
		}
		any = true
		p.back = true
		if p.c != nil {
			p.c.inflight--
			ch.inflight--
			p.c.late++
		}
		q.requeue(p.item, false)
		p.item = item{}
	}
	return any
}

// tellLate tells the client of its consumers whose deliveries were taken back.
func (ch *channel) tellLate(q *queue) {
	told := false
	for _, c := range ch.order {
		if c.q == q && c.late > 0 && ch.c.canCancel {
			c.notifyCancel()
			told = true
		}
	}
	if !told {
		ch.fail(ch.lateRefusal(-1))
	}
}

func (ch *channel) lateRefusal(ms int64) *exception {
	return refuse(amqp.PreconditionFailed, "delivery acknowledgement on channel %d timed out. Timeout value used: %d ms. This timeout value can be configured, see consumers doc guide to learn more", ch.id, ms)
}

// startTicking makes a channel of V3 look for late deliveries by itself, on any
// kind of queue, at each tick.
func (ch *channel) startTicking() {
	s := ch.c.s
	if s.release != V3 || s.tick <= 0 || s.timeout <= 0 {
		return
	}
	ch.ticking = s.clock.AfterFunc(s.tick, func() { s.enter(ch.tickOnce) })
}

func (ch *channel) tickOnce() {
	if ch.closed {
		return
	}
	if now := ch.c.s.now(); ch.unacked.len() > 0 {
		for _, p := range ch.unacked.list[ch.unacked.start:] {
			if p.q != nil && p.due > 0 && p.due < now {
				ch.fail(ch.lateRefusal(ch.c.s.timeout.Milliseconds()))
				return
			}
		}
	}
	ch.startTicking()
}
