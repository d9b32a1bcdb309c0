package pubsub

import (
	"context"
	"slices"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// CreateSubscription is the service's.
func (s *Server) CreateSubscription(_ context.Context, r *pb.Subscription) (*pb.Subscription, error) {
	if err := checkName("subscriptions", r.Name); err != nil {
		return nil, err
	}
	cfg := proto.Clone(r).(*pb.Subscription)
	if cfg.AckDeadlineSeconds == 0 {
		cfg.AckDeadlineSeconds = minDeadline
	}
	if cfg.MessageRetentionDuration == nil {
		cfg.MessageRetentionDuration = durationpb.New(defaultRetention)
	}
	if p := cfg.DeadLetterPolicy; p != nil && p.MaxDeliveryAttempts == 0 {
		p.MaxDeliveryAttempts = minAttempts
	}
	if p := cfg.RetryPolicy; p != nil {
		low, high := backoffs(p)
		p.MinimumBackoff, p.MaximumBackoff = durationpb.New(low), durationpb.New(high)
	}
	cfg.PushConfig = &pb.PushConfig{}
	cfg.State = pb.Subscription_ACTIVE
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkSubscription(r); err != nil {
		return nil, err
	}
	accepts, err := parseFilter(cfg.Filter)
	if err != nil {
		return nil, invalid("The filter can't be parsed: %v", err)
	}
	if s.subs[r.Name] != nil {
		return nil, status.Error(codes.AlreadyExists, "Subscription already exists")
	}
	t := s.topics[r.Topic]
	if t == nil {
		return nil, status.Error(codes.NotFound, "Subscription topic does not exist")
	}
	sub := newSubscription(s, t, cfg)
	sub.accepts = accepts
	t.subs = append(t.subs, sub)
	s.subs[r.Name] = sub
	return cfg, nil
}

// checkSubscription holds a configuration against the limits. The lock is held.
func (s *Server) checkSubscription(c *pb.Subscription) error {
	switch {
	case c.GetPushConfig().GetPushEndpoint() != "" && c.EnableExactlyOnceDelivery:
		return invalid("Exactly-once delivery is for pull subscriptions alone") // PS-F-07
	case c.GetPushConfig().GetPushEndpoint() != "":
		return status.Error(codes.Unimplemented, "push is not modelled")
	case c.BigqueryConfig != nil || c.CloudStorageConfig != nil || len(c.MessageTransforms) > 0:
		return status.Error(codes.Unimplemented, "exports and message transforms are not modelled")
	}
	if c.AckDeadlineSeconds != 0 {
		if err := checkDeadline(c.AckDeadlineSeconds); err != nil {
			return err
		}
	}
	if err := checkRetention(c.MessageRetentionDuration); err != nil {
		return err
	}
	if err := checkRetry(c.RetryPolicy); err != nil {
		return err
	}
	if err := checkLabels(c.Labels); err != nil {
		return err
	}
	if err := checkDeadLetter(c.DeadLetterPolicy); err != nil {
		return err
	}
	if p := c.DeadLetterPolicy; p != nil && s.topics[p.DeadLetterTopic] == nil {
		return status.Error(codes.NotFound, "Dead letter topic not found")
	}
	return nil
}

// subscription returns one that exists. The lock is held.
func (s *Server) subscription(name string) (*subscription, error) {
	if sub := s.subs[name]; sub != nil {
		return sub, nil
	}
	return nil, status.Error(codes.NotFound, "Subscription does not exist")
}

// GetSubscription is the service's.
func (s *Server) GetSubscription(_ context.Context, r *pb.GetSubscriptionRequest) (*pb.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, err := s.subscription(r.Subscription)
	if err != nil {
		return nil, err
	}
	return sub.cfg, nil
}

// UpdateSubscription is the service's. Topic, filter and ordering are for good
// (PS-F-40).
func (s *Server) UpdateSubscription(_ context.Context, r *pb.UpdateSubscriptionRequest) (*pb.Subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := r.GetSubscription()
	sub, err := s.subscription(want.GetName())
	if err != nil {
		return nil, err
	}
	if len(r.GetUpdateMask().GetPaths()) == 0 {
		return nil, invalid("The update_mask in the request must be set, and must contain a non-empty paths list.")
	}
	want = proto.Clone(want).(*pb.Subscription)
	cfg := proto.Clone(sub.cfg).(*pb.Subscription)
	for _, path := range r.UpdateMask.Paths {
		switch path {
		case "ack_deadline_seconds":
			if err := checkDeadline(want.AckDeadlineSeconds); err != nil {
				return nil, err
			}
			cfg.AckDeadlineSeconds = want.AckDeadlineSeconds
		case "retain_acked_messages":
			cfg.RetainAckedMessages = want.RetainAckedMessages
		case "message_retention_duration":
			cfg.MessageRetentionDuration = want.MessageRetentionDuration
			if cfg.MessageRetentionDuration == nil {
				cfg.MessageRetentionDuration = durationpb.New(defaultRetention)
			}
		case "labels":
			cfg.Labels = want.Labels
		case "expiration_policy":
			cfg.ExpirationPolicy = want.ExpirationPolicy
		case "dead_letter_policy", "dead_letter_policy.dead_letter_topic", "dead_letter_policy.max_delivery_attempts":
			cfg.DeadLetterPolicy = want.DeadLetterPolicy
			if p := cfg.DeadLetterPolicy; p != nil && p.MaxDeliveryAttempts == 0 {
				p.MaxDeliveryAttempts = minAttempts
			}
		case "retry_policy":
			cfg.RetryPolicy = want.RetryPolicy
		case "enable_exactly_once_delivery":
			cfg.EnableExactlyOnceDelivery = want.EnableExactlyOnceDelivery
		case "push_config":
			if want.GetPushConfig().GetPushEndpoint() != "" {
				return nil, status.Error(codes.Unimplemented, "push is not modelled")
			}
		default:
			return nil, invalid("Invalid update_mask provided in the request: %q can't be updated", path)
		}
	}
	if err := s.checkSubscription(cfg); err != nil {
		return nil, err
	}
	sub.cfg = cfg
	return cfg, nil
}

// ModifyPushConfig is the service's, for configurations without a push.
func (s *Server) ModifyPushConfig(_ context.Context, r *pb.ModifyPushConfigRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.subscription(r.Subscription); err != nil {
		return nil, err
	}
	if r.GetPushConfig().GetPushEndpoint() != "" {
		return nil, status.Error(codes.Unimplemented, "push is not modelled")
	}
	return &emptypb.Empty{}, nil
}

// ListSubscriptions is the service's.
func (s *Server) ListSubscriptions(_ context.Context, r *pb.ListSubscriptionsRequest) (*pb.ListSubscriptionsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, next, err := page(s.subs, r.Project+"/", r.PageSize, r.PageToken)
	if err != nil {
		return nil, err
	}
	res := &pb.ListSubscriptionsResponse{NextPageToken: next}
	for _, n := range names {
		res.Subscriptions = append(res.Subscriptions, s.subs[n].cfg)
	}
	return res, nil
}

// DeleteSubscription is the service's: its messages are gone, and who waits for
// one is told.
func (s *Server) DeleteSubscription(_ context.Context, r *pb.DeleteSubscriptionRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, err := s.subscription(r.Subscription)
	if err != nil {
		return nil, err
	}
	delete(s.subs, r.Subscription)
	sub.detach()
	sub.drop()
	sub.gone = true
	sub.rouseAll()
	return &emptypb.Empty{}, nil
}

// detach takes the subscription from its topic.
func (q *subscription) detach() {
	if t := q.topic; t != nil {
		t.subs = slices.DeleteFunc(t.subs, func(o *subscription) bool { return o == q })
		q.topic = nil
	}
}
