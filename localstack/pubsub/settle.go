package pubsub

import (
	"context"
	"strconv"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// What an exactly-once subscription says of an ack ID that it can't settle
// (PS-F-13, PS-F-38).
const (
	reasonFailure   = "EXACTLY_ONCE_ACKID_FAILURE"
	domain          = "pubsub.googleapis.com"
	invalidAckID    = "PERMANENT_FAILURE_INVALID_ACK_ID"
	unorderedAckID  = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
	attrDeliveries  = "CloudPubSubDeadLetterSourceDeliveryCount" // PS-F-37, and the next three
	attrSource      = "CloudPubSubDeadLetterSourceSubscription"
	attrProject     = "CloudPubSubDeadLetterSourceSubscriptionProject"
	attrPublishTime = "CloudPubSubDeadLetterSourceTopicPublishTime"
)

// Acknowledge is the service's.
func (s *Server) Acknowledge(_ context.Context, r *pb.AcknowledgeRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.subscription(r.Subscription)
	if err != nil {
		return nil, err
	}
	if len(r.AckIds) == 0 {
		return nil, invalid("No ack ids specified.")
	}
	if err := s.acknowledge(q, r.AckIds); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// acknowledge settles what it can of ids. A malformed one refuses the request; a
// stale one is an error with exactly-once delivery, and none without (PS-F-16).
// The lock is held.
func (s *Server) acknowledge(q *subscription, ids []string) error {
	leases, err := q.parseAckIDs(ids)
	if err != nil {
		return err
	}
	once := q.cfg.EnableExactlyOnceDelivery
	var disordered map[*lane]bool
	if once && q.cfg.EnableMessageOrdering {
		disordered = q.disordered(leases)
	}
	var failed map[string]string
	for i, lease := range leases {
		it := q.leases[lease]
		switch {
		case it == nil && !once:
			if it = q.stale[lease]; it != nil {
				q.ack(it) // PS-F-16: it may succeed, though another holds the message
			}
		case it == nil, once && s.strict && s.overdue(it):
			failed = fail(failed, ids[i], invalidAckID)
		case disordered[it.lane]:
			failed = fail(failed, ids[i], unorderedAckID)
		default:
			q.ack(it)
		}
	}
	return failure(failed)
}

// disordered are the keys of which the leases don't form the beginning of what
// is held, in order: a subscription with exactly-once delivery takes none of
// them (PS-F-38).
func (q *subscription) disordered(leases []uint64) map[*lane]bool {
	var bad map[*lane]bool
	next := map[*lane]uint64{} // by lane: places before it are settled, or in this request
	for _, lease := range leases {
		it := q.leases[lease]
		if it == nil || it.lane == nil {
			continue
		}
		l := it.lane
		from, seen := next[l]
		if !seen {
			from = l.base
		}
		ok := it.at >= from
		for at := from; ok && at < it.at; at++ {
			ok = l.items[at-l.base].state != held
		}
		if !ok {
			if bad == nil {
				bad = map[*lane]bool{}
			}
			bad[l] = true
		}
		next[l] = max(from, it.at+1)
	}
	return bad
}

func (s *Server) overdue(it *item) bool { return it.deadline.Before(s.clock.Now()) }

// parseAckIDs reads ids, or refuses the request for one that was never given out.
func (q *subscription) parseAckIDs(ids []string) ([]uint64, error) {
	leases := make([]uint64, len(ids))
	for i, id := range ids {
		lease, ok := q.parseAckID(id)
		if !ok {
			return nil, invalid("Invalid ack id (ack_id=%s)", id)
		}
		leases[i] = lease
	}
	return leases, nil
}

func fail(failed map[string]string, id, why string) map[string]string {
	if failed == nil {
		failed = map[string]string{}
	}
	failed[id] = why
	return failed
}

// failure is the answer that names the ack IDs that failed, nil for none.
func failure(failed map[string]string) error {
	if len(failed) == 0 {
		return nil
	}
	st, err := status.New(codes.InvalidArgument, "Some acknowledgement ids in the request were invalid. This could be because the acknowledgement ids have expired or the acknowledgement ids were malformed.").
		WithDetails(&errdetails.ErrorInfo{Reason: reasonFailure, Domain: domain, Metadata: failed})
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return st.Err()
}

// ModifyAckDeadline is the service's: 0 gives messages back, anything else moves
// the end of their leases.
func (s *Server) ModifyAckDeadline(_ context.Context, r *pb.ModifyAckDeadlineRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.subscription(r.Subscription)
	if err != nil {
		return nil, err
	}
	if len(r.AckIds) == 0 {
		return nil, invalid("No ack ids specified")
	}
	if err := s.modify(q, r.AckIds, r.AckDeadlineSeconds); err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, nil
}

// modify moves leases. A lease that ran out is taken up again if the message
// wasn't handed out meanwhile. The lock is held.
func (s *Server) modify(q *subscription, ids []string, seconds int32) error {
	switch {
	case seconds < 0:
		return invalid("Ack deadline cannot be negative")
	case seconds > maxDeadline:
		return invalid("Ack deadline is over %d seconds", maxDeadline)
	}
	leases, err := q.parseAckIDs(ids)
	if err != nil {
		return err
	}
	once := q.cfg.EnableExactlyOnceDelivery
	var failed map[string]string
	for i, lease := range leases {
		it := q.leases[lease]
		if it == nil || once && s.strict && s.overdue(it) {
			if once {
				failed = fail(failed, ids[i], invalidAckID)
			}
			continue
		}
		switch {
		case seconds == 0 && it.state == held:
			q.giveUp(it, true)
		case seconds == 0: // ready already
			delete(q.leases, it.lease)
			it.lease = 0
		default:
			q.extend(it, time.Duration(seconds)*time.Second)
		}
	}
	q.arm()
	return failure(failed)
}

// extend moves the end of a lease, which may have run out.
func (q *subscription) extend(it *item, d time.Duration) {
	if it.state != held {
		if it.lane != nil && !it.lane.retake(it) {
			return
		}
		it.state = held
	}
	it.deadline = q.server.clock.Now().Add(d)
	q.alarm(alarm{it.deadline, it, it.lease})
}

// deadLetter publishes a message that used up its deliveries to the dead-letter
// topic, and reports whether it could: where that is gone it stays.
func (q *subscription) deadLetter(it *item) bool {
	t := q.server.topics[q.cfg.DeadLetterPolicy.DeadLetterTopic]
	if t == nil {
		return false
	}
	m := proto.Clone(it.msg).(*pb.PubsubMessage)
	if m.Attributes == nil {
		m.Attributes = map[string]string{}
	}
	m.Attributes[attrDeliveries] = strconv.Itoa(int(it.attempts))
	m.Attributes[attrSource] = idOf(q.cfg.Name)
	m.Attributes[attrProject] = projectOf(q.cfg.Name)
	m.Attributes[attrPublishTime] = it.msg.PublishTime.AsTime().UTC().Format("2006-01-02T15:04:05.000Z07:00")
	q.server.publish(t, []*pb.PubsubMessage{m})
	return true
}
