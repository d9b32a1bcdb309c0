package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// groupReceiver is one member of a consumer group, for one topic.
//
// Records pass through three places: franz-go's buffer, the partition's queue
// here, and the caller's hands. Only the last one counts as a delivery. The
// queue keeps every record from the moment it was polled until the committed
// offset may pass it.
type groupReceiver struct {
	conn         *conn
	topic, group string
	name         string
	wishes       wishes
	from         func(string) (broker.Position, bool)
	watch        func(broker.Assignment)
	session      time.Duration
	beats        beats
	cl           *kgo.Client
	stop         context.CancelFunc // ends everything the client does
	polls        context.Context    // of the polls; ended by Close
	endPolls     context.CancelFunc

	mu      sync.Mutex
	member  string // of the session that parts are from
	parts   map[int32]*part
	ready   fifo    // polled, not handed out
	urgent  fifo    // given back, or next of their key: before ready
	delayed dueHeap // nacked with a delay that still runs
	waiting int     // records that wait for an earlier one of their key
	polling bool    // a poll is under way
	pollErr error   // for the next Receive
	closing bool
	wake    chan struct{} // one token: something changed that Receive waits for
	idle    chan struct{} // one token: no poll is under way
	commits chan struct{} // holds a token while somebody commits
}

const (
	// maxWaiting bounds the records that wait for an earlier one of their key:
	// with that many, nothing more is fetched until some are settled.
	maxWaiting = 10_000
	// minPoll is how many records a poll takes over from franz-go's buffer, where
	// they wait already, even if fewer are asked for: the next calls to Receive
	// then find theirs without one. Nothing counts as delivered by that.
	minPoll = 4096
	// maxRevoke bounds the commit when partitions are taken away, during which
	// the group waits for this member.
	maxRevoke = 3 * time.Second
)

func (c *conn) newGroup(topic, group string, w wishes, o broker.ReceiverOptions) (*groupReceiver, error) {
	r := &groupReceiver{
		conn: c, topic: topic, group: group, name: topic + "/" + group, wishes: w, from: o.StartFrom, watch: o.Assigned,
		session: c.opts.Session,
		parts:   map[int32]*part{},
		wake:    make(chan struct{}, 1),
		idle:    make(chan struct{}, 1),
		commits: make(chan struct{}, 1),
	}
	if r.session == 0 {
		r.session = 45 * time.Second
	}
	r.beats.bound = r.session / 2
	if c.opts.NextGen {
		r.beats.bound = time.Second
	}
	start := kgo.NewOffset().AtStart()
	if c.opts.Latest {
		start = kgo.NewOffset().AtEnd()
	}
	isolation := kgo.ReadCommitted()
	if c.opts.Uncommitted {
		isolation = kgo.ReadUncommitted()
	}
	life, stop := context.WithCancel(context.Background())
	opts := []kgo.Opt{
		kgo.WithContext(life),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(start),
		kgo.FetchIsolationLevel(isolation),
		kgo.SessionTimeout(r.session),
		kgo.HeartbeatInterval(min(3*time.Second, r.session/10)),
		// What is polled is noted in the partition's queue before a rebalance
		// may take the partition away, or a record fetched for one assignment
		// could be noted under the next.
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(r.assigned),
		kgo.OnPartitionsRevoked(r.revoked),
		kgo.OnPartitionsLost(r.lost),
		kgo.WithHooks(&r.beats),
	}
	if o.StartFrom != nil {
		opts = append(opts, kgo.AdjustFetchOffsetsFn(r.adjust))
	}
	if c.opts.Instance != "" {
		opts = append(opts, kgo.InstanceID(c.opts.Instance))
	}
	if c.opts.NextGen {
		opts = append(opts, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	cl, err := kgo.NewClient(c.client(opts...)...)
	if err != nil {
		stop()
		return nil, broker.Errorf(broker.ErrInvalid, err, "open receiver %s", r.name)
	}
	r.cl, r.stop = cl, stop
	r.polls, r.endPolls = context.WithCancel(life)
	return r, nil
}

// signal wakes Receive. It doesn't block.
func (r *groupReceiver) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// poll fetches up to n records and notes them. It runs beside Receive, for
// franz-go makes a poll wait for a rebalance that is under way, whatever the
// context says.
func (r *groupReceiver) poll(n int) {
	fetches := r.cl.PollRecords(r.polls, n)
	r.mu.Lock()
	err := r.note(fetches)
	if err != nil {
		r.pollErr = err
	}
	// Before another poll can begin, whose own block this would lift.
	r.cl.AllowRebalance()
	r.polling = false
	r.signal()
	select {
	case r.idle <- struct{}{}:
	default:
	}
	r.mu.Unlock()
}

// note takes polled records into the queues. r.mu is held.
func (r *groupReceiver) note(fetches kgo.Fetches) error {
	total := fetches.NumRecords()
	var slab []entry
	if total > 0 {
		slab = make([]entry, total)
		r.ready.grow(total)
	}
	var failed error
	for i := range fetches {
		for j := range fetches[i].Topics {
			t := &fetches[i].Topics[j]
			for k := range t.Partitions {
				p := &t.Partitions[k]
				if p.Err != nil {
					failed = r.fetchFailed(failed, p)
				}
				if len(p.Records) == 0 {
					continue
				}
				part := r.parts[p.Partition]
				if part == nil || part.ended {
					failed = r.stray(failed, part)
					continue
				}
				part.grow(len(p.Records))
				if part.first < 0 {
					part.first = p.Records[0].Offset
				}
				for _, rec := range p.Records {
					e := &slab[0]
					slab = slab[1:]
					e.rec, e.part = rec, part
					part.queue = append(part.queue, e)
					r.ready.push(e)
				}
			}
		}
	}
	return failed
}

// fetchFailed logs an error of fetching that franz-go deals with, and returns
// one that won't heal.
func (r *groupReceiver) fetchFailed(before error, p *kgo.FetchPartition) error {
	switch {
	case r.closing || errors.Is(p.Err, context.Canceled):
		return before
	case errors.Is(p.Err, kgo.ErrClientClosed):
		return broker.Errorf(broker.ErrClosed, p.Err, "receive from %s", r.name)
	}
	var group *kgo.ErrGroupSession
	var loss *kgo.ErrDataLoss
	if errors.As(p.Err, &loss) {
		r.conn.log.Error("kafka: the broker lost records", "subscription", r.name, "partition", p.Partition, "err", p.Err)
		return before
	}
	if !errors.As(p.Err, &group) && kindOf(p.Err, nil) == nil || wontHeal(p.Err) {
		// A batch that can't be read stays where it is: it doesn't heal either.
		return broker.Errorf(kindOf(p.Err, broker.ErrUnavailable), p.Err, "receive from %s, partition %d", r.name, p.Partition)
	}
	r.conn.log.Warn("kafka: fetching", "subscription", r.name, "partition", p.Partition, "err", p.Err)
	return before
}

// stray drops records of a partition that a commit found to be lost before the
// group did. They come again after the next assignment; if that doesn't come,
// somebody must know.
func (r *groupReceiver) stray(before error, p *part) error {
	if p == nil || time.Since(p.fenced) < 2*r.session {
		return before
	}
	return broker.Errorf(broker.ErrUnavailable, nil, "receive from %s: the group refused this member's commit and doesn't rebalance; open the receiver anew", r.name)
}

// Receive is driver.Receiver's.
func (r *groupReceiver) Receive(ctx context.Context, limit int, out *driver.Batch) error {
	for {
		r.mu.Lock()
		due := r.promote(time.Now())
		r.handOut(limit, out)
		if out.Len() > 0 {
			r.mu.Unlock()
			return nil
		}
		if err := r.pollErr; err != nil {
			r.pollErr = nil
			r.mu.Unlock()
			return err
		}
		if r.closing {
			r.mu.Unlock()
			return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name)
		}
		if err := ctx.Err(); err != nil {
			r.mu.Unlock()
			return context.Cause(ctx)
		}
		if !r.polling && r.waiting < maxWaiting {
			r.polling = true
			select {
			case <-r.idle:
			default:
			}
			go r.poll(max(limit, minPoll))
		}
		r.mu.Unlock()
		if !r.await(ctx, due) {
			return context.Cause(ctx)
		}
	}
}

// await waits for a change, for due if it isn't zero, or for ctx; false if
// ctx ended and nothing else happened.
func (r *groupReceiver) await(ctx context.Context, due time.Duration) bool {
	var timer <-chan time.Time
	if due > 0 {
		t := time.NewTimer(due)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-r.wake:
	case <-timer:
	case <-ctx.Done():
		select {
		case <-r.wake: // what arrived as ctx ended is handed out
		default:
			return false
		}
	}
	return true
}

// As sets a **kgo.Client to the member's client.
func (r *groupReceiver) As(target any) bool {
	if t, ok := target.(**kgo.Client); ok {
		*t = r.cl
		return true
	}
	return false
}

// AsDelivery sets a **kgo.Record to the delivery's record.
func (r *groupReceiver) AsDelivery(t *driver.Token, target any) bool {
	p, ok := target.(**kgo.Record)
	if ok {
		*p = t.Ref.(*entry).rec
	}
	return ok
}

var _ driver.Receiver = (*groupReceiver)(nil)
