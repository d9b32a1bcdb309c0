package pubsub

import (
	"context"
	"slices"
	"strconv"
	"strings"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// topic is one topic. Its configuration is replaced, never changed.
type topic struct {
	cfg  *pb.Topic
	subs []*subscription
}

// deletedTopic is the topic of a subscription whose topic is gone.
const deletedTopic = "_deleted-topic_"

// CreateTopic is the service's.
func (s *Server) CreateTopic(_ context.Context, r *pb.Topic) (*pb.Topic, error) {
	if err := checkName("topics", r.Name); err != nil {
		return nil, err
	}
	if err := checkTopic(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.topics[r.Name] != nil {
		return nil, status.Error(codes.AlreadyExists, "Topic already exists")
	}
	cfg := proto.Clone(r).(*pb.Topic)
	cfg.State = pb.Topic_ACTIVE
	s.topics[r.Name] = &topic{cfg: cfg}
	return cfg, nil
}

func checkTopic(t *pb.Topic) error {
	switch {
	case t.SchemaSettings != nil:
		return status.Error(codes.Unimplemented, "schemas are not modelled")
	case t.IngestionDataSourceSettings != nil:
		return status.Error(codes.Unimplemented, "ingestion is not modelled")
	case len(t.MessageTransforms) > 0:
		return status.Error(codes.Unimplemented, "message transforms are not modelled")
	}
	if err := checkLabels(t.Labels); err != nil {
		return err
	}
	return checkRetention(t.MessageRetentionDuration)
}

// UpdateTopic is the service's.
func (s *Server) UpdateTopic(_ context.Context, r *pb.UpdateTopicRequest) (*pb.Topic, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.topic(r.GetTopic().GetName())
	if err != nil {
		return nil, err
	}
	if len(r.GetUpdateMask().GetPaths()) == 0 {
		return nil, invalid("The update_mask in the request must be set, and must contain a non-empty paths list.")
	}
	cfg := proto.Clone(t.cfg).(*pb.Topic)
	for _, path := range r.UpdateMask.Paths {
		switch path {
		case "labels":
			cfg.Labels = r.Topic.Labels
		case "message_retention_duration":
			cfg.MessageRetentionDuration = r.Topic.MessageRetentionDuration
		case "message_storage_policy":
			cfg.MessageStoragePolicy = r.Topic.MessageStoragePolicy
		case "kms_key_name":
			cfg.KmsKeyName = r.Topic.KmsKeyName
		default:
			return nil, invalid("Invalid update_mask provided in the request: %q can't be updated", path)
		}
	}
	if err := checkTopic(cfg); err != nil {
		return nil, err
	}
	t.cfg = cfg
	return cfg, nil
}

// topic returns one that exists. The lock is held.
func (s *Server) topic(name string) (*topic, error) {
	if t := s.topics[name]; t != nil {
		return t, nil
	}
	return nil, status.Error(codes.NotFound, "Topic not found")
}

// GetTopic is the service's.
func (s *Server) GetTopic(_ context.Context, r *pb.GetTopicRequest) (*pb.Topic, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.topic(r.Topic)
	if err != nil {
		return nil, err
	}
	return t.cfg, nil
}

// ListTopics is the service's.
func (s *Server) ListTopics(_ context.Context, r *pb.ListTopicsRequest) (*pb.ListTopicsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, next, err := page(s.topics, r.Project+"/", r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	res := &pb.ListTopicsResponse{NextPageToken: next}
	for _, n := range names {
		res.Topics = append(res.Topics, s.topics[n].cfg)
	}
	return res, nil
}

// page is the names under prefix behind token, sorted.
func page[V any](all map[string]V, prefix string, size int32, token string) (names []string, next string, err error) {
	if size < 0 {
		return nil, "", invalid("page_size is negative")
	}
	for n := range all {
		if strings.HasPrefix(n, prefix) && n > token {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	if size > 0 && len(names) > int(size) {
		names = names[:size]
		next = names[size-1]
	}
	return names, next, nil
}

// ListTopicSubscriptions is the service's.
func (s *Server) ListTopicSubscriptions(_ context.Context, r *pb.ListTopicSubscriptionsRequest) (*pb.ListTopicSubscriptionsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.topic(r.Topic)
	if err != nil {
		return nil, err
	}
	of := map[string]struct{}{}
	for _, sub := range t.subs {
		of[sub.cfg.Name] = struct{}{}
	}
	names, next, err := page(of, "", r.PageSize, r.PageToken)
	return &pb.ListTopicSubscriptionsResponse{Subscriptions: names, NextPageToken: next}, err
}

// ListTopicSnapshots is the service's.
func (s *Server) ListTopicSnapshots(_ context.Context, r *pb.ListTopicSnapshotsRequest) (*pb.ListTopicSnapshotsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.topic(r.Topic); err != nil {
		return nil, err
	}
	of := map[string]struct{}{}
	for n, snap := range s.snapshots {
		if snap.cfg.Topic == r.Topic {
			of[n] = struct{}{}
		}
	}
	names, next, err := page(of, "", r.PageSize, r.PageToken)
	return &pb.ListTopicSnapshotsResponse{Snapshots: names, NextPageToken: next}, err
}

// DeleteTopic is the service's: subscriptions stay, with what they hold.
func (s *Server) DeleteTopic(_ context.Context, r *pb.DeleteTopicRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.topic(r.Topic)
	if err != nil {
		return nil, err
	}
	delete(s.topics, r.Topic)
	for _, sub := range t.subs {
		sub.topic = nil
		cfg := proto.Clone(sub.cfg).(*pb.Subscription)
		cfg.Topic = deletedTopic
		sub.cfg = cfg
	}
	return &emptypb.Empty{}, nil
}

// DetachSubscription is the service's.
func (s *Server) DetachSubscription(_ context.Context, r *pb.DetachSubscriptionRequest) (*pb.DetachSubscriptionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, err := s.subscription(r.Subscription)
	if err != nil {
		return nil, err
	}
	sub.detach()
	sub.drop()
	cfg := proto.Clone(sub.cfg).(*pb.Subscription)
	cfg.Detached = true
	sub.cfg = cfg
	sub.rouseAll()
	return &pb.DetachSubscriptionResponse{}, nil
}

// Publish stores all messages of a request for each subscription, or refuses it.
func (s *Server) Publish(_ context.Context, r *pb.PublishRequest) (*pb.PublishResponse, error) {
	if err := checkPublish(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.topic(r.Topic)
	if err != nil {
		return nil, err
	}
	return &pb.PublishResponse{MessageIds: s.publish(t, r.Messages)}, nil
}

// publish stores messages that are the topic's own from now on. The lock is
// held.
func (s *Server) publish(t *topic, msgs []*pb.PubsubMessage) []string {
	now := timestamppb.New(s.clock.Now())
	ids := make([]string, len(msgs))
	for i, m := range msgs {
		s.nextID++
		m.MessageId = strconv.FormatUint(s.nextID, 10)
		m.PublishTime = now
		ids[i] = m.MessageId
	}
	for _, sub := range t.subs {
		sub.append(msgs)
	}
	return ids
}
