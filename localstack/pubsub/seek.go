package pubsub

import (
	"context"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// snapshot is what a subscription had not acked at a time.
type snapshot struct {
	cfg     *pb.Snapshot
	unacked map[string]bool // by message ID
	taken   time.Time       // what was published later is unacked too
}

// snapshotLife is how long a snapshot lives; the service's depends on the oldest
// message in it.
const snapshotLife = 7 * 24 * time.Hour

// Seek moves a subscription to a time or a snapshot: what was published before
// counts as acked, the rest as not, as far as it is still there (PS-F-29).
func (s *Server) Seek(_ context.Context, r *pb.SeekRequest) (*pb.SeekResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.consumable(r.Subscription)
	if err != nil {
		return nil, err
	}
	switch target := r.Target.(type) {
	case *pb.SeekRequest_Time:
		if target.Time == nil {
			return nil, invalid("No time was specified in the SeekRequest")
		}
		at := target.Time.AsTime()
		q.seek(func(m *pb.PubsubMessage) bool { return !m.PublishTime.AsTime().Before(at) })
	case *pb.SeekRequest_Snapshot:
		snap := s.snapshot(target.Snapshot)
		if snap == nil {
			return nil, status.Error(codes.NotFound, "Snapshot does not exist")
		}
		if q.topic == nil || q.topic.cfg.Name != snap.cfg.Topic {
			return nil, status.Error(codes.FailedPrecondition, "The snapshot is of another topic")
		}
		q.seek(func(m *pb.PubsubMessage) bool {
			return snap.unacked[m.MessageId] || m.PublishTime.AsTime().After(snap.taken)
		})
	default:
		return nil, invalid("No target was specified in the SeekRequest. Must specify either a time or a snapshot")
	}
	return &pb.SeekResponse{}, nil
}

// seek makes what wanted says unacked, and all else acked. Leases end.
func (q *subscription) seek(wanted func(*pb.PubsubMessage) bool) {
	items := append([]*item(nil), q.all.items[q.all.head:]...)
	q.drop()
	for _, old := range items {
		it := &item{msg: old.msg, size: old.size, attempts: old.attempts, state: done}
		q.all.push(it)
		if !wanted(it.msg) {
			continue
		}
		it.state = ready
		q.open++
		if q.cfg.EnableMessageOrdering && it.msg.OrderingKey != "" {
			q.laneOf(it.msg.OrderingKey).append(it)
		} else {
			q.queue(it)
		}
	}
	q.rouseAll()
}

// snapshot returns one that hasn't expired. The lock is held.
func (s *Server) snapshot(name string) *snapshot {
	snap := s.snapshots[name]
	if snap != nil && !s.clock.Now().Before(snap.cfg.ExpireTime.AsTime()) {
		delete(s.snapshots, name)
		return nil
	}
	return snap
}

// CreateSnapshot is the service's. From then on the subscription keeps acked
// messages only as its retention settings say, so that a snapshot brings back
// what they kept.
func (s *Server) CreateSnapshot(_ context.Context, r *pb.CreateSnapshotRequest) (*pb.Snapshot, error) {
	if err := checkName("snapshots", r.Name); err != nil {
		return nil, err
	}
	if err := checkLabels(r.Labels); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q, err := s.consumable(r.Subscription)
	if err != nil {
		return nil, err
	}
	if s.snapshot(r.Name) != nil {
		return nil, status.Error(codes.AlreadyExists, "Snapshot already exists")
	}
	now := s.clock.Now()
	snap := &snapshot{taken: now, unacked: map[string]bool{},
		cfg: &pb.Snapshot{Name: r.Name, Topic: q.cfg.Topic, ExpireTime: timestamppb.New(now.Add(snapshotLife)), Labels: r.Labels}}
	for _, it := range q.all.items[q.all.head:] {
		if it.state != done {
			snap.unacked[it.msg.MessageId] = true
		}
	}
	s.snapshots[r.Name] = snap
	return snap.cfg, nil
}

// GetSnapshot is the service's.
func (s *Server) GetSnapshot(_ context.Context, r *pb.GetSnapshotRequest) (*pb.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if snap := s.snapshot(r.Snapshot); snap != nil {
		return snap.cfg, nil
	}
	return nil, status.Error(codes.NotFound, "Snapshot does not exist")
}

// ListSnapshots is the service's.
func (s *Server) ListSnapshots(_ context.Context, r *pb.ListSnapshotsRequest) (*pb.ListSnapshotsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, next, err := page(s.snapshots, r.Project+"/", r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	res := &pb.ListSnapshotsResponse{NextPageToken: next}
	for _, n := range names {
		if snap := s.snapshot(n); snap != nil {
			res.Snapshots = append(res.Snapshots, snap.cfg)
		}
	}
	return res, nil
}

// UpdateSnapshot is the service's.
func (s *Server) UpdateSnapshot(_ context.Context, r *pb.UpdateSnapshotRequest) (*pb.Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := s.snapshot(r.GetSnapshot().GetName())
	if snap == nil {
		return nil, status.Error(codes.NotFound, "Snapshot does not exist")
	}
	cfg := proto.Clone(snap.cfg).(*pb.Snapshot)
	for _, path := range r.GetUpdateMask().GetPaths() {
		switch path {
		case "labels":
			cfg.Labels = r.Snapshot.Labels
		case "expire_time":
			if r.Snapshot.ExpireTime == nil {
				return nil, invalid("expire_time is not set")
			}
			cfg.ExpireTime = r.Snapshot.ExpireTime
		default:
			return nil, invalid("Invalid update_mask provided in the request: %q can't be updated", path)
		}
	}
	snap.cfg = cfg
	return cfg, nil
}

// DeleteSnapshot is the service's.
func (s *Server) DeleteSnapshot(_ context.Context, r *pb.DeleteSnapshotRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snapshot(r.Snapshot) == nil {
		return nil, status.Error(codes.NotFound, "Snapshot does not exist")
	}
	delete(s.snapshots, r.Snapshot)
	return &emptypb.Empty{}, nil
}
