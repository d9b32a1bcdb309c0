package pubsub

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// receiver is the driver.Receiver.
type receiver struct {
	c           *conn
	name        string // full
	lease       time.Duration
	wait        time.Duration // of a pull
	exactlyOnce bool
	ordered     bool
	counted     bool   // the service counts deliveries
	limit       int    // of deliveries, where it is enforced here
	deadLetter  string // full name of the topic; empty for none
	epoch       *driver.Epoch

	pending error // for the next Receive, which alone touches it

	mu      sync.Mutex
	running *pull // left by a cancelled Receive
	slabs   []*slab
	shut    bool

	receiving chan struct{} // holds a token while Receive runs
	closing   chan struct{} // Receive ends
	settles   sync.WaitGroup
	pulls     sync.WaitGroup
	life      context.Context // of pulls and of what gives their messages back
	end       context.CancelFunc
	abort     context.Context // of settles
	endSettle context.CancelFunc
}

func (c *conn) OpenReceiver(ctx context.Context, subscription string, o broker.ReceiverOptions) (driver.Receiver, error) {
	name, err := c.subscriptionName(subscription)
	if err != nil {
		return nil, err
	}
	if o.StartFrom != nil {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "open receiver of %s: StartFrom: the service keeps the place of a subscription, and Seek moves it for all", name)
	}
	s, err := c.subs.GetSubscription(ctx, &pb.GetSubscriptionRequest{Subscription: name})
	switch {
	case err != nil:
		return nil, failure(ctx, err, "open receiver of %s", name)
	case s.GetPushConfig().GetPushEndpoint() != "" || s.GetBigqueryConfig() != nil || s.GetCloudStorageConfig() != nil:
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "open receiver of %s: the service pushes or exports what is in it", name)
	case s.Detached:
		return nil, broker.Errorf(broker.ErrNotFound, nil, "open receiver of %s: it is detached from its topic", name)
	}
	r := &receiver{c: c, name: name, lease: time.Duration(s.AckDeadlineSeconds) * time.Second,
		exactlyOnce: s.EnableExactlyOnceDelivery, ordered: s.EnableMessageOrdering, epoch: new(driver.Epoch),
		receiving: make(chan struct{}, 1), closing: make(chan struct{})}
	r.wait = min(c.opts.pullWait, r.lease/4)
	if p := s.DeadLetterPolicy; p != nil {
		r.counted, r.deadLetter = true, p.DeadLetterTopic
		if n, err := strconv.Atoi(s.Labels[labelMaxDeliveries]); err == nil && n > 0 {
			r.limit = n
		}
	}
	r.life, r.end = context.WithCancel(context.Background())
	r.abort, r.endSettle = context.WithCancel(context.Background())
	return r, nil
}

// Receive pulls once after the other until one brings something.
func (r *receiver) Receive(ctx context.Context, most int, out *driver.Batch) error {
	select {
	case r.receiving <- struct{}{}:
	case <-r.closing: // Close keeps the token
		return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name)
	}
	defer func() { <-r.receiving }()
	if err := r.pending; err != nil {
		r.pending = nil
		return err
	}
	r.sweep()
	for spent := 0; ; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p := r.begin(most)
		if p == nil {
			return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name)
		}
		msgs, err := r.await(ctx, p, &spent)
		if err != nil {
			return err
		}
		if len(msgs) == 0 {
			continue
		}
		asked := p.asked
		if r.exactlyOnce && r.c.Now().Sub(asked) > r.lease/2 {
			asked, msgs = r.confirm(msgs)
		} else if r.c.Now().Sub(asked) >= r.lease {
			// Whose these are by now there is no telling, as the service confirms
			// nothing. What is still ours comes again at once.
			r.giveBackBeside(msgs)
			msgs = nil
		}
		if len(msgs) > most {
			// A pull that was taken over had asked for more.
			r.giveBackBeside(msgs[most:])
			msgs = msgs[:most]
		}
		if r.limit > 0 {
			if msgs, err = r.moveOver(ctx, msgs); err != nil {
				r.pending = err
			}
		}
		r.add(msgs, asked.Add(r.lease), out)
		if out.Len() > 0 {
			return nil
		}
		if err := r.pending; err != nil {
			r.pending = nil
			return err
		}
	}
}

// add hands messages out.
func (r *receiver) add(msgs []*pb.ReceivedMessage, lease time.Time, out *driver.Batch) {
	if len(msgs) == 0 {
		return
	}
	out.Grow(out.Len() + len(msgs))
	s := newSlab(len(msgs))
	for i, m := range msgs {
		d, token := out.Add()
		if m.Message != nil {
			fill(d, m.Message)
		}
		if r.counted && m.DeliveryAttempt > 0 {
			d.Attempt = broker.Attempt{Number: int(m.DeliveryAttempt), Trust: broker.Approximate} // PS-F-26
		}
		d.Lease = lease
		token.Epoch, token.Tag, token.Ref = r.epoch, uint64(i), s.add(m, lease)
	}
	r.mu.Lock()
	r.slabs = append(r.slabs, s)
	r.mu.Unlock()
}

// confirm renews the leases of what came after a long wait, so that the rest of
// one isn't handed out for a whole: the service says whose they still are. It
// returns the time from which the leases count.
func (r *receiver) confirm(msgs []*pb.ReceivedMessage) (asked time.Time, still []*pb.ReceivedMessage) {
	asked = r.c.Now()
	ctx, cancel := context.WithTimeout(r.life, r.lease/4)
	defer cancel()
	err := r.modify(ctx, ids(msgs), int32(r.lease/time.Second))
	if err == nil {
		return asked, msgs
	}
	why := reasons(err)
	if why == nil {
		return asked, nil // no telling; they come again after their lease
	}
	return asked, slices.DeleteFunc(msgs, func(m *pb.ReceivedMessage) bool { return why[m.AckId] != "" })
}

func ids(msgs []*pb.ReceivedMessage) []string {
	list := make([]string, len(msgs))
	for i := range msgs {
		list[i] = msgs[i].AckId
	}
	return list
}

func (r *receiver) modify(ctx context.Context, ids []string, seconds int32) error {
	return r.c.subs.ModifyAckDeadline(ctx, &pb.ModifyAckDeadlineRequest{Subscription: r.name, AckIds: ids, AckDeadlineSeconds: seconds}, once)
}

// giveBackBeside is giveBack for a Receive, which doesn't wait for it: its answer may
// be lost, and the caller's context may be short. Close waits. What can't be given
// back comes again after its lease.
func (r *receiver) giveBackBeside(msgs []*pb.ReceivedMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut {
		return // Close has given up on this Receive
	}
	r.pulls.Go(func() { _ = r.giveBack(r.life, msgs) })
}

// giveBack ends leases, so that the messages come again at once. That costs each
// of them an attempt.
func (r *receiver) giveBack(ctx context.Context, msgs []*pb.ReceivedMessage) error {
	var errs []error
	for list := range slices.Chunk(ids(msgs), maxAcks) {
		ctx, cancel := context.WithTimeout(ctx, giveBackTime)
		err := r.modify(ctx, list, 0)
		cancel()
		if err != nil && reasons(err) == nil { // what is somebody else's already needs no giving back
			errs = append(errs, failure(ctx, err, "give back %d messages of %s: they come again after their lease", len(list), r.name))
		}
	}
	return errors.Join(errs...)
}

// giveBackTime bounds each request that gives messages back.
const giveBackTime = 5 * time.Second

// sweep drops the slabs that hold nothing to give back any more.
func (r *receiver) sweep() {
	now := r.c.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slabs = slices.DeleteFunc(r.slabs, func(s *slab) bool { return !s.open(now) })
}

func (r *receiver) As(target any) bool {
	if p, own := target.(**receiver); own { // which this package alone can name
		*p = r
		return true
	}
	return r.c.As(target)
}

// AsDelivery sets target to the *pubsubpb.ReceivedMessage of a delivery.
func (r *receiver) AsDelivery(t *driver.Token, target any) bool {
	h, ok := t.Ref.(*held)
	if p, want := target.(**pb.ReceivedMessage); ok && want {
		*p = h.msg
		return true
	}
	return false
}

// closeGrace bounds what Close waits for where its context doesn't.
const closeGrace = 10 * time.Second

// Close ends Receive, lets the settles under way and a pull that was left running
// have their answers, and gives back what was neither settled nor has outlived its
// lease. That costs each message an attempt. A pull is not cancelled before ctx
// ends, for what it may bring would stay leased to nobody: Close can take as long
// as the service waits for messages ([PullWait]). It returns an error if something
// could not be given back.
func (r *receiver) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	close(r.closing)
	select {
	case r.receiving <- struct{}{}:
	case <-ctx.Done(): // a Receive that moves dead letters
	}
	r.mu.Lock()
	r.shut = true
	r.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { r.endSettle(); r.end() })
	r.settles.Wait()
	r.epoch.End()
	var rest []*pb.ReceivedMessage
	now := r.c.Now()
	r.mu.Lock()
	for _, s := range r.slabs {
		for i := range s.items {
			if h := &s.items[i]; !h.spent.Load() && !h.expired(now) {
				rest = append(rest, h.msg)
			}
		}
	}
	r.slabs = nil
	r.mu.Unlock()
	err := r.giveBack(ctx, rest)
	r.pulls.Wait()
	stop()
	r.end()
	r.endSettle()
	return err
}
