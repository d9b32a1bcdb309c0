package pubsub

import (
	"context"
	"math"
	"slices"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceline/onceline/localstack/fault"
)

// waiter is a call that waits for messages. It is woken when there may be some.
type waiter struct{ wake chan struct{} }

// rouse wakes the first who waits.
func (q *subscription) rouse() {
	if len(q.waiters) > 0 {
		w := q.waiters[0]
		q.waiters = q.waiters[1:]
		w.wake <- struct{}{} // has room, for a waiter in the list was not woken
	}
}

func (q *subscription) rouseAll() {
	for len(q.waiters) > 0 {
		q.rouse()
	}
}

// pending reports whether there may be something for the next who waits.
func (q *subscription) pending() bool {
	return q.fresh.len() > 0 || q.again.len() > 0 || q.active.len() > 0
}

// leave takes w from the list; one that was woken meanwhile wakes the next.
func (q *subscription) leave(w *waiter) {
	if i := slices.Index(q.waiters, w); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
		return
	}
	select {
	case <-w.wake:
		q.rouse()
	default:
	}
}

// Waits of a Pull: of one whose client names no deadline, and what is left of a
// client's deadline for the answer, at most: messages that are on their way as it
// ends are leased to nobody.
const (
	pullWait   = 90 * time.Second
	pullMargin = time.Second
)

// Pull hands out messages, up to max_messages, and waits for the first: until
// shortly before the client's deadline, and then answers with none (PS-F-41).
func (s *Server) Pull(ctx context.Context, r *pb.PullRequest) (*pb.PullResponse, error) {
	if r.MaxMessages <= 0 {
		return nil, invalid("No max_messages specified")
	}
	wait := pullWait
	if at, ok := ctx.Deadline(); ok {
		left := time.Until(at)
		wait = left - min(left/2, pullMargin)
	}
	//lint:ignore SA1019 deprecated, and still sent by old clients
	if r.GetReturnImmediately() {
		wait = 0
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	w := &waiter{wake: make(chan struct{}, 1)}
	for {
		s.mu.Lock()
		q, err := s.consumable(r.Subscription)
		if err != nil {
			s.mu.Unlock()
			return nil, err
		}
		// A client that is gone gets nothing: its messages would stay leased.
		if err := ctx.Err(); err != nil {
			s.mu.Unlock()
			return nil, status.FromContextError(err).Err()
		}
		out := q.take(nil, int(min(r.MaxMessages, maxPull)), maxPublish, q.lease())
		if len(out) > 0 || wait <= 0 {
			if q.pending() {
				q.rouse()
			}
			s.mu.Unlock()
			return &pb.PullResponse{ReceivedMessages: out}, nil
		}
		q.waiters = append(q.waiters, w)
		s.mu.Unlock()
		select {
		case <-w.wake:
			continue
		case <-ctx.Done():
			err = status.FromContextError(ctx.Err()).Err()
		case <-late.C:
		}
		s.mu.Lock()
		q.leave(w)
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		return &pb.PullResponse{}, nil
	}
}

// consumable returns a subscription that messages can be had from. The lock is
// held.
func (s *Server) consumable(name string) (*subscription, error) {
	q, err := s.subscription(name)
	if err != nil {
		return nil, err
	}
	if q.cfg.Detached {
		return nil, status.Error(codes.FailedPrecondition, "Subscription is detached from its topic")
	}
	return q, nil
}

func (q *subscription) lease() time.Duration {
	return time.Duration(q.cfg.AckDeadlineSeconds) * time.Second
}

// puller is one StreamingPull, with what it holds.
type puller struct {
	messages, bytes       int
	maxMessages, maxBytes int
	full                  bool // it waits for room
	lease                 time.Duration
	pings                 int // keep-alives to be answered
	keepAlive             bool
}

// room is how much more may be handed to the stream.
func (p *puller) room() (messages, bytes int) {
	return p.maxMessages - p.messages, p.maxBytes - p.bytes
}

// limit reads a flow control setting: zero and less mean none.
func limit(n int64) int {
	if n <= 0 || n > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(n)
}

// StreamingPull hands out messages as they come, as far as the client's flow
// control allows.
func (s *Server) StreamingPull(ss pb.Subscriber_StreamingPullServer) error {
	r, err := ss.Recv()
	if err != nil {
		return err
	}
	s.mu.Lock()
	q, err := s.consumable(r.Subscription)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := checkDeadline(r.StreamAckDeadlineSeconds); err != nil {
		return err
	}
	p := &puller{maxMessages: limit(r.MaxOutstandingMessages), maxBytes: limit(r.MaxOutstandingBytes),
		lease: time.Duration(r.StreamAckDeadlineSeconds) * time.Second, keepAlive: r.ProtocolVersion >= 1}
	w := &waiter{wake: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancelCause(ss.Context())
	sent := make(chan error, 1)
	go func() {
		err := s.sendTo(ctx, ss, q, p, w)
		sent <- err
		cancel(err)
	}()
	received := make(chan error, 1)
	go func() { received <- s.receiveFrom(ss, q, p, r) }() // ends with the stream, which ends as this returns
	select {
	case err = <-sent:
	case err = <-received:
		cancel(err)
		<-sent
	}
	s.mu.Lock()
	q.forsake(p)
	s.mu.Unlock()
	return err
}

// forsake takes what a stream holds out of its account: it stays leased.
func (q *subscription) forsake(p *puller) {
	for _, it := range q.leases {
		if it.holder == p {
			it.holder = nil
			if it.lane != nil {
				it.lane.owner = nil
			}
		}
	}
}

// receiveFrom takes a stream's requests until the client closes its side.
func (s *Server) receiveFrom(ss pb.Subscriber_StreamingPullServer, q *subscription, p *puller, first *pb.StreamingPullRequest) error {
	for r := first; ; {
		if len(r.ModifyDeadlineAckIds) != len(r.ModifyDeadlineSeconds) {
			return invalid("modify_deadline_seconds and modify_deadline_ack_ids differ in length")
		}
		s.mu.Lock()
		if r != first && p.keepAlive && len(r.AckIds) == 0 && len(r.ModifyDeadlineAckIds) == 0 {
			p.pings++
			q.rouseAll()
		}
		if r.StreamAckDeadlineSeconds >= minDeadline && r.StreamAckDeadlineSeconds <= maxDeadline {
			p.lease = time.Duration(r.StreamAckDeadlineSeconds) * time.Second
		}
		// What of these fails has no answer in a stream.
		if len(r.AckIds) > 0 {
			_ = s.acknowledge(q, r.AckIds)
		}
		for i, id := range r.ModifyDeadlineAckIds {
			_ = s.modify(q, []string{id}, r.ModifyDeadlineSeconds[i])
		}
		s.mu.Unlock()
		var err error
		if r, err = ss.Recv(); err != nil {
			return nil // the client is done, or gone
		}
	}
}

// sendTo sends messages until ctx ends or the subscription does.
func (s *Server) sendTo(ctx context.Context, ss pb.Subscriber_StreamingPullServer, q *subscription, p *puller, w *waiter) error {
	for {
		s.mu.Lock()
		if _, err := s.consumable(q.cfg.Name); err != nil || q.gone {
			s.mu.Unlock()
			return status.Error(codes.NotFound, "Subscription does not exist")
		}
		if ctx.Err() != nil {
			s.mu.Unlock()
			return nil
		}
		messages, bytes := p.room()
		var out []*pb.ReceivedMessage
		if messages > 0 && bytes > 0 {
			out = q.take(p, min(messages, maxPull), min(bytes, maxPublish), p.lease)
		} else {
			p.full = true
		}
		ping := p.pings > 0 && len(out) == 0
		if ping {
			p.pings--
		}
		cfg := q.cfg
		if len(out) == 0 && !ping {
			q.waiters = append(q.waiters, w)
		} else if q.pending() {
			q.rouse()
		}
		s.mu.Unlock()
		if len(out) == 0 && !ping {
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
			}
			s.mu.Lock()
			q.leave(w)
			s.mu.Unlock()
			return nil
		}
		if i := s.strikeHandout(cfg.Name, out); i != nil {
			i.Answered(true)
			if i.Fault().Cut {
				cut(ctx)
			}
			continue
		}
		if err := ss.Send(&pb.StreamingPullResponse{ReceivedMessages: out,
			SubscriptionProperties: &pb.StreamingPullResponse_SubscriptionProperties{
				ExactlyOnceDeliveryEnabled: cfg.EnableExactlyOnceDelivery, MessageOrderingEnabled: cfg.EnableMessageOrdering,
			}}); err != nil {
			return err
		}
		if s.trace != nil && len(out) > 0 {
			s.note("StreamingPull", &pb.PullRequest{Subscription: cfg.Name}, &pb.PullResponse{ReceivedMessages: out}, nil)
		}
	}
}

// strikeHandout claims a fault for a response of a stream.
func (s *Server) strikeHandout(name string, out []*pb.ReceivedMessage) *fault.Injection {
	if len(out) == 0 {
		return nil
	}
	return s.faults.StrikeHandout("StreamingPull", func(match string) bool { return s.concerns(name, match) })
}
