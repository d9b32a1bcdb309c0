package pubsub

import (
	"strconv"
	"strings"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"

	"github.com/onceline/onceline/localstack/clock"
)

// subscription is one subscription and the messages that it holds. The server's
// lock guards all of it. Its configuration is replaced, never changed.
type subscription struct {
	server  *Server
	topic   *topic // nil once it is deleted or detached
	cfg     *pb.Subscription
	accepts func(attributes map[string]string) bool
	gone    bool

	fresh  fifo[*item]      // ready, never delivered, without order
	again  fifo[*item]      // ready, to be delivered again
	lanes  map[string]*lane // by ordering key
	active fifo[*lane]      // lanes that may have something ready

	leases map[uint64]*item // by lease: the latest of each message, until it is settled
	stale  map[uint64]*item // leases before the latest, of subscriptions without exactly-once delivery
	last   uint64           // lease given out
	all    fifo[*item]      // in order of publishing, for Seek and retention
	open   int              // items that are not done

	due     alarms
	timer   *clock.Timer
	ringAt  time.Time
	waiters []*waiter
}

// state is where an item stands.
type state uint8

const (
	ready   state = iota // to be handed out
	held                 // leased, or past its lease and not handed out again
	backing              // waits for its retry policy
	done                 // acked, dead-lettered or forgotten
)

// item is one message in one subscription.
type item struct {
	msg      *pb.PubsubMessage
	size     int
	attempts int32
	state    state
	queued   bool   // in fresh or again
	lease    uint64 // 0: the message isn't known to anybody
	deadline time.Time
	holder   *puller  // the stream that it was handed to, while it is held
	stale    []uint64 // leases that ran out before the present one; see Server.ack

	lane       *lane  // nil for messages without order
	at         uint64 // place in it
	ackedEarly bool   // done before an earlier one of its lane
}

func newSubscription(s *Server, t *topic, cfg *pb.Subscription) *subscription {
	return &subscription{server: s, topic: t, cfg: cfg, lanes: map[string]*lane{}, leases: map[uint64]*item{}, stale: map[uint64]*item{}}
}

// append stores published messages.
func (q *subscription) append(msgs []*pb.PubsubMessage) {
	q.forget()
	items := make([]item, len(msgs))
	n := 0
	for _, m := range msgs {
		if q.accepts != nil && !q.accepts(m.Attributes) {
			continue // as if it had been acked at once
		}
		it := &items[n]
		n++
		it.msg, it.size = m, proto.Size(m)
		q.all.push(it)
		q.open++
		if q.cfg.EnableMessageOrdering && m.OrderingKey != "" {
			q.laneOf(m.OrderingKey).append(it)
			continue
		}
		q.queue(it)
	}
	if n > 0 {
		q.rouse()
	}
}

// queue makes an unordered item ready.
func (q *subscription) queue(it *item) {
	it.state = ready
	if it.queued {
		return
	}
	it.queued = true
	if it.attempts > 0 {
		q.again.push(it)
	} else {
		q.fresh.push(it)
	}
}

// take hands out up to most messages and bytes to p; p is nil for a Pull.
func (q *subscription) take(p *puller, most, bytes int, lease time.Duration) []*pb.ReceivedMessage {
	q.forget()
	defer q.arm()
	var out []*pb.ReceivedMessage
	var batch []pb.ReceivedMessage
	deadline := q.server.clock.Now().Add(lease)
	hand := func(it *item) bool {
		if len(out) > 0 && it.size > bytes {
			return false
		}
		bytes -= it.size
		if len(batch) == 0 {
			// What was acked and comes again isn't counted before it is handed out.
			batch = make([]pb.ReceivedMessage, min(most-len(out), max(q.open, 8)))
		}
		r := &batch[0]
		batch = batch[1:]
		q.hand(it, r, p, deadline)
		out = append(out, r)
		return true
	}
	for _, list := range []*fifo[*item]{&q.again, &q.fresh} {
		for len(out) < most {
			it, ok := list.first()
			if !ok {
				break
			}
			if it.state == ready && !hand(it) {
				return out
			}
			it.queued = false
			list.pop()
		}
	}
	for range q.active.len() {
		if len(out) >= most {
			break
		}
		l := q.active.pop()
		l.active = false
		full, before := false, len(out)
		for len(out) < most && !full {
			it := l.next(p, len(out) > before)
			if it == nil {
				break
			}
			if full = !hand(it); !full {
				l.handed(it, p)
			}
		}
		l.activate()
		if full {
			break
		}
	}
	return out
}

// hand leases an item.
func (q *subscription) hand(it *item, r *pb.ReceivedMessage, p *puller, deadline time.Time) {
	if it.lease != 0 {
		delete(q.leases, it.lease)
		if !q.cfg.EnableExactlyOnceDelivery && !q.server.ignoreStale {
			q.stale[it.lease] = it
			it.stale = append(it.stale, it.lease)
		}
	}
	q.last++
	it.lease, it.state, it.deadline = q.last, held, deadline
	it.attempts++
	it.holder = p
	if p != nil {
		p.messages++
		p.bytes += it.size
	}
	q.leases[it.lease] = it
	q.alarm(alarm{deadline, it, it.lease})
	r.AckId = q.ackID(it.lease)
	r.Message = it.msg
	if q.cfg.DeadLetterPolicy != nil {
		r.DeliveryAttempt = it.attempts // PS-F-26
	}
}

func (q *subscription) ackID(lease uint64) string {
	b := make([]byte, 0, len(q.cfg.Name)+21)
	b = append(b, q.cfg.Name...)
	b = append(b, ':')
	return string(strconv.AppendUint(b, lease, 10))
}

// parseAckID returns the lease in an ack ID, or false for what this subscription
// never gave out.
func (q *subscription) parseAckID(id string) (uint64, bool) {
	name, number, ok := strings.Cut(id, ":")
	if !ok || name != q.cfg.Name {
		return 0, false
	}
	n, err := strconv.ParseUint(number, 10, 64)
	return n, err == nil && n > 0 && n <= q.last
}

// release takes an item from its holder, as its lease ends in whatever way.
func (q *subscription) release(it *item) {
	if p := it.holder; p != nil {
		p.messages--
		p.bytes -= it.size
		it.holder = nil
		if p.full {
			p.full = false
			q.rouseAll()
		}
	}
	if it.lane != nil {
		it.lane.released()
	}
}

// ack settles an item for good.
func (q *subscription) ack(it *item) {
	delete(q.leases, it.lease)
	it.lease = 0
	for _, lease := range it.stale {
		delete(q.stale, lease)
	}
	it.stale = nil
	was := it.state
	it.state = done
	q.open--
	if l := it.lane; l != nil && it.at > l.base {
		it.ackedEarly = true
	}
	if was == held {
		q.release(it)
	}
	if it.lane != nil {
		it.lane.trim()
	}
}

// giveUp ends a delivery without an ack: the message goes to the dead-letter
// topic, waits for its retry policy, or is ready again. nacked leases are unknown
// from then on; expired ones can be acked until the message is handed out again.
func (q *subscription) giveUp(it *item, nacked bool) {
	if nacked {
		delete(q.leases, it.lease)
		it.lease = 0
	}
	p := q.cfg.DeadLetterPolicy
	if p != nil && it.attempts >= p.MaxDeliveryAttempts && q.deadLetter(it) {
		q.ack(it)
		return
	}
	it.state = ready
	if d := q.backoff(it); d > 0 {
		it.state = backing
		it.deadline = q.server.clock.Now().Add(d)
		q.alarm(alarm{it.deadline, it, uint64(it.attempts)})
		q.arm()
	}
	if it.lane != nil {
		it.lane.rewind(it)
		if !nacked {
			it.lane.revoke(it)
		}
	}
	q.release(it)
	if it.state == ready && it.lane == nil {
		q.queue(it)
	}
	q.rouse()
}

// backoff is how long the retry policy holds a message back. The vendor says
// that it grows from the minimum to the maximum, and not how; here it doubles.
func (q *subscription) backoff(it *item) time.Duration {
	if q.cfg.RetryPolicy == nil {
		return 0
	}
	low, high := backoffs(q.cfg.RetryPolicy)
	return min(low<<min(it.attempts-1, 16), high)
}

// forget drops what is done from the front of the list, unless Seek may want it,
// and what has outlived its retention.
func (q *subscription) forget() {
	keep := q.cfg.RetainAckedMessages || q.topic != nil && q.topic.cfg.MessageRetentionDuration != nil
	retention := q.retention()
	if !keep && q.all.len() > 1024 && q.all.len() > 4*q.open {
		// One message that stays must not keep all that were acked behind it.
		q.all.keep(func(it *item) bool { return it.state != done })
	}
	for {
		it, ok := q.all.first()
		if !ok {
			return
		}
		old := q.server.clock.Now().Sub(it.msg.PublishTime.AsTime()) > retention
		if !old && (it.state != done || keep) || old && it.state == held {
			return
		}
		q.all.pop()
		if it.state != done {
			if it.lease == 0 {
				it.lease = q.last + 1 // of nobody, for ack to delete
			}
			q.ack(it)
		}
	}
}

// retention is how long unacked messages are kept, or acked ones for Seek.
func (q *subscription) retention() time.Duration {
	d := q.cfg.MessageRetentionDuration.AsDuration()
	if q.topic != nil && q.topic.cfg.MessageRetentionDuration != nil {
		d = max(d, q.topic.cfg.MessageRetentionDuration.AsDuration())
	}
	return d
}

// drop forgets all messages.
func (q *subscription) drop() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
	for {
		it, ok := q.all.first()
		if !ok {
			break
		}
		q.all.pop()
		if it.state == held {
			q.release(it)
		}
		it.state, it.lease = done, 0
	}
	q.fresh, q.again, q.active = fifo[*item]{}, fifo[*item]{}, fifo[*lane]{}
	q.lanes, q.leases, q.stale, q.due, q.open = map[string]*lane{}, map[uint64]*item{}, map[uint64]*item{}, nil, 0
}
