package pubsub

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// What the vendor documents and its own emulator doesn't enforce.
func TestDocumentedLimits(t *testing.T) {
	_, r := startRig(t)
	topic := r.topic()
	at := map[string]string{}
	for i := range 101 {
		at[fmt.Sprint(i)] = "x"
	}
	x := []byte("x")
	for name, ms := range map[string][]*pb.PubsubMessage{
		"key of 1025":        {{Data: x, OrderingKey: strings.Repeat("k", 1025)}},
		"two keys":           {{Data: x, OrderingKey: "a"}, {Data: x, OrderingKey: "b"}},
		"a key and none":     {{Data: x, OrderingKey: "a"}, {Data: x}},
		"101 attributes":     {{Attributes: at}},
		"no name":            {{Attributes: map[string]string{"": "x"}}},
		"name of 257":        {{Attributes: map[string]string{strings.Repeat("k", 257): "x"}}},
		"the service's name": {{Attributes: map[string]string{"google": "x"}}},
		"value of 1025":      {{Attributes: map[string]string{"k": strings.Repeat("x", 1025)}}},
		"over 10 MB":         {{Data: make([]byte, 6_000_000)}, {Data: make([]byte, 4_000_000)}},
	} {
		if _, err := r.topics.Publish(t.Context(), &pb.PublishRequest{Topic: topic, Messages: ms}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.topics.Publish(t.Context(), &pb.PublishRequest{Topic: topic, Messages: []*pb.PubsubMessage{{Data: make([]byte, 9_999_000)}}}); err != nil {
		t.Errorf("just below 10 MB: %v", err)
	}
	for name, s := range map[string]*pb.Subscription{
		"deadline 9":               {AckDeadlineSeconds: 9},
		"push with exactly-once":   {EnableExactlyOnceDelivery: true, PushConfig: &pb.PushConfig{PushEndpoint: "https://x"}},
		"a filter that is none":    {Filter: "nonsense ("},
		"a label in capitals":      {Labels: map[string]string{"A": "x"}},
		"back-offs the wrong way":  {RetryPolicy: &pb.RetryPolicy{MinimumBackoff: durationpb.New(20 * time.Second), MaximumBackoff: durationpb.New(10 * time.Second)}},
		"a filter of over 256":     {Filter: `attributes.x = "` + strings.Repeat("x", 256) + `"`},
		"AND and OR without order": {Filter: `attributes:a AND attributes:b OR attributes:c`},
	} {
		s.Topic, s.Name = topic, "projects/p/subscriptions/bad"
		if _, err := r.subs.CreateSubscription(t.Context(), s); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// By default a late ack without exactly-once delivery takes effect, as the vendor
// says that it may; with RefuseLateAcks one with it is refused from the deadline
// on.
func TestLateAckSwitches(t *testing.T) {
	_, r := startRig(t, RefuseLateAcks())
	topic, sub := r.subscription(&pb.Subscription{})
	r.publish(topic, "", "x")
	stale := r.expect(sub, "x")
	r.advance(11 * time.Second)
	held := r.expect(sub, "x")
	same(t, "stale ack", r.ack(sub, stale...), "OK")
	same(t, "the holder's nack", r.modify(sub, 0, held...), "OK")
	r.none(sub, "it was acked from under its holder")

	topic, sub = r.subscription(&pb.Subscription{EnableExactlyOnceDelivery: true})
	r.publish(topic, "", "x")
	ms := r.expect(sub, "x")
	r.advance(11 * time.Second)
	same(t, "late ack", r.ack(sub, ms...), "invalid")
	same(t, "late extension", r.modify(sub, 20, ms...), "invalid")
	same(t, "ack of the next delivery", r.ack(sub, r.expect(sub, "x")...), "OK")
}

func TestAttemptsAreASubscriptionsOwn(t *testing.T) {
	_, r := startRig(t)
	dead := r.topic()
	policy := &pb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: 7}
	topic, sub := r.subscription(&pb.Subscription{DeadLetterPolicy: policy})
	other := sub + "-other"
	if _, err := r.subs.CreateSubscription(t.Context(), &pb.Subscription{Name: other, Topic: topic, DeadLetterPolicy: policy}); err != nil {
		t.Fatal(err)
	}
	r.publish(topic, "", "x")
	for want := range int32(3) {
		ms := r.expect(sub, "x")
		if ms[0].DeliveryAttempt != want+1 {
			t.Errorf("attempt %d", ms[0].DeliveryAttempt)
		}
		r.modify(sub, 0, ms...)
	}
	if ms := r.expect(other, "x"); ms[0].DeliveryAttempt != 1 {
		t.Errorf("the other's attempt is %d", ms[0].DeliveryAttempt)
	}
}

func TestRetryPolicy(t *testing.T) {
	_, r := startRig(t)
	for _, ordered := range []bool{false, true} {
		topic, sub := r.subscription(&pb.Subscription{EnableMessageOrdering: ordered, RetryPolicy: &pb.RetryPolicy{MinimumBackoff: durationpb.New(10 * time.Second), MaximumBackoff: durationpb.New(15 * time.Second)}})
		r.publish(topic, "k", "x")
		for _, wait := range []time.Duration{10 * time.Second, 15 * time.Second} { // doubled, and capped
			same(t, "nack", r.modify(sub, 0, r.expect(sub, "x")...), "OK")
			r.advance(wait - 100*time.Millisecond)
			r.none(sub, "too early")
			r.advance(200 * time.Millisecond)
		}
		r.ack(sub, r.expect(sub, "x")...)
	}
}

func TestRetention(t *testing.T) {
	_, r := startRig(t)
	topic, sub := r.subscription(&pb.Subscription{MessageRetentionDuration: durationpb.New(10 * time.Minute)})
	r.publish(topic, "", "old")
	r.advance(11 * time.Minute)
	r.publish(topic, "", "new")
	r.ack(sub, r.expect(sub, "new")...)
	r.none(sub, "the old one is over its retention")
}

func TestSeek(t *testing.T) {
	s, r := startRig(t)
	topic, sub := r.subscription(&pb.Subscription{RetainAckedMessages: true, EnableMessageOrdering: true})
	before := s.Clock().Now().Add(-time.Second)
	r.publish(topic, "k", "1", "2")
	r.publish(topic, "", "3")
	ms := r.pull(sub, 3)
	r.ack(sub, ms...)
	seek := func(r2 *pb.SeekRequest, want codes.Code) {
		t.Helper()
		r2.Subscription = sub
		if _, err := r.subs.Seek(t.Context(), r2); status.Code(err) != want {
			t.Errorf("seek: %v", err)
		}
	}
	at := func(w time.Time) *pb.SeekRequest {
		return &pb.SeekRequest{Target: &pb.SeekRequest_Time{Time: timestamppb.New(w)}}
	}
	seek(at(before), codes.OK) // over acked messages
	if ms = r.pull(sub, 10); len(ms) != 3 {
		t.Fatalf("came %s", data(ms))
	}
	snap := "projects/p/snapshots/snap"
	if _, err := r.subs.CreateSnapshot(t.Context(), &pb.CreateSnapshotRequest{Name: snap, Subscription: sub}); err != nil {
		t.Fatal(err)
	}
	seek(at(s.Clock().Now().Add(time.Hour)), codes.OK)
	r.none(sub, "all is acked")
	same(t, "ack of a lease that ended by Seek", r.ack(sub, ms...), "OK")
	seek(&pb.SeekRequest{Target: &pb.SeekRequest_Snapshot{Snapshot: snap}}, codes.OK)
	if ms = r.pull(sub, 10); len(ms) != 3 {
		t.Fatalf("from the snapshot: %s", data(ms))
	}
	seek(&pb.SeekRequest{Target: &pb.SeekRequest_Snapshot{Snapshot: snap + "-none"}}, codes.NotFound)
	seek(&pb.SeekRequest{}, codes.InvalidArgument)
	if err := r.subs.DeleteSnapshot(t.Context(), &pb.DeleteSnapshotRequest{Snapshot: snap}); err != nil {
		t.Error(err)
	}
}

func TestFilter(t *testing.T) {
	a := map[string]string{"k": "value", "empty": ""}
	for filter, want := range map[string]bool{
		``:                               true,
		`attributes:k`:                   true,
		`attributes:x`:                   false,
		`attributes:empty`:               true,
		`attributes.k = "value"`:         true,
		`attributes.k="other"`:           false,
		`attributes.k != "other"`:        true,
		`attributes.x != "other"`:        true,
		`attributes."k" = "value"`:       true,
		`hasPrefix(attributes.k, "val")`: true,
		`hasPrefix(attributes.x, "")`:    false,
		`NOT attributes:x`:               true,
		`-attributes:k`:                  false,
		`attributes:k AND attributes:x`:  false,
		`attributes:k OR attributes:x`:   true,
		`(attributes:x OR attributes:k) AND NOT (attributes:x)`: true,
	} {
		f, err := parseFilter(filter)
		if err != nil {
			t.Errorf("%s: %v", filter, err)
		} else if got := f == nil || f(a); got != want {
			t.Errorf("%s: %v", filter, got)
		}
	}
	_, r := startRig(t)
	topic, sub := r.subscription(&pb.Subscription{Filter: `attributes.kind = "a"`})
	for _, kind := range []string{"b", "a", "b"} {
		if _, err := r.topics.Publish(t.Context(), &pb.PublishRequest{Topic: topic, Messages: []*pb.PubsubMessage{{Data: []byte(kind), Attributes: map[string]string{"kind": kind}}}}); err != nil {
			t.Fatal(err)
		}
	}
	r.expect(sub, "a")
	r.none(sub, "filtered")
}

func FuzzFilter(f *testing.F) {
	f.Add(`NOT (attributes:a AND hasPrefix(attributes."b", "\"x"))`)
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := parseFilter(s); err == nil && p != nil {
			p(map[string]string{"a": "b"})
		}
	})
}

// googleapis/google-cloud-go#6255: messages of a key keep their order, also where
// their IDs get longer.
func TestCaseOrderOfOneKey(t *testing.T) {
	s, r := startRig(t)
	s.nextID = 9_999_999_999_999_990
	topic, sub := r.subscription(&pb.Subscription{EnableMessageOrdering: true})
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint(i))
		r.publish(topic, "k", fmt.Sprint(i))
	}
	r.expect(sub, want...)
}

// googleapis/nodejs-pubsub#1646: exactly-once delivery is enforced, so a client's
// code for confirmed acks runs.
func TestCaseInventedAckID(t *testing.T) {
	_, r := startRig(t)
	topic, sub := r.subscription(&pb.Subscription{EnableExactlyOnceDelivery: true})
	r.publish(topic, "", "x")
	ms := r.expect(sub, "x")
	same(t, "ack", r.ack(sub, ms...), "OK")
	same(t, "an ack ID that is used up", r.ack(sub, ms...), "invalid")
	same(t, "an invented one", r.ack(sub, &pb.ReceivedMessage{AckId: sub + ":999"}), "InvalidArgument")
}

// A client that is gone gets no message: it would be leased to nobody.
func TestCancelledPullGetsNothing(t *testing.T) {
	s, r := startRig(t)
	topic, sub := r.subscription(&pb.Subscription{})
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = r.subs.Pull(ctx, &pb.PullRequest{Subscription: sub, MaxMessages: 1}) // cancelled
		}()
		until(t, "the pull to wait", func() bool { return s.waiting(sub) == 1 })
		cancel()
		<-done
		until(t, "the pull to leave", func() bool { return s.waiting(sub) == 0 })
		r.publish(topic, "", "x")
		r.ack(sub, r.expect(sub, "x")...)
	}
}

func (s *Server) waiting(sub string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subs[sub].waiters)
}

func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

func TestAdmin(t *testing.T) {
	_, r := startRig(t)
	topic, sub := r.subscription(&pb.Subscription{})
	update := func(s *pb.Subscription, paths ...string) error {
		s.Name = sub
		_, err := r.subs.UpdateSubscription(t.Context(), &pb.UpdateSubscriptionRequest{Subscription: s, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		return err
	}
	if err := update(&pb.Subscription{EnableExactlyOnceDelivery: true, AckDeadlineSeconds: 20}, "enable_exactly_once_delivery", "ack_deadline_seconds"); err != nil {
		t.Error(err)
	}
	if got, err := r.subs.GetSubscription(t.Context(), &pb.GetSubscriptionRequest{Subscription: sub}); err != nil || !got.EnableExactlyOnceDelivery || got.AckDeadlineSeconds != 20 {
		t.Errorf("%v %v", got, err)
	}
	for _, path := range []string{"enable_message_ordering", "filter", "topic", "nonsense"} {
		if err := update(&pb.Subscription{}, path); status.Code(err) != codes.InvalidArgument {
			t.Errorf("update of %s: %v", path, err)
		}
	}
	if err := update(&pb.Subscription{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("update of nothing: %v", err)
	}
	n := 0
	for s, err := range r.subs.ListSubscriptions(t.Context(), &pb.ListSubscriptionsRequest{Project: "projects/p", PageSize: 1}).All() {
		if err != nil || s.Name != sub {
			t.Errorf("listed %v, %v", s, err)
		}
		n++
	}
	for s, err := range r.topics.ListTopicSubscriptions(t.Context(), &pb.ListTopicSubscriptionsRequest{Topic: topic}).All() {
		if err != nil || s != sub {
			t.Errorf("listed %v, %v", s, err)
		}
		n++
	}
	if n != 2 {
		t.Errorf("listed %d", n)
	}
	// A subscription outlives its topic, with what it holds; its end wakes who waits.
	r.publish(topic, "", "x")
	if err := r.topics.DeleteTopic(t.Context(), &pb.DeleteTopicRequest{Topic: topic}); err != nil {
		t.Fatal(err)
	}
	r.ack(sub, r.expect(sub, "x")...)
	if got, err := r.subs.GetSubscription(t.Context(), &pb.GetSubscriptionRequest{Subscription: sub}); err != nil || got.Topic != deletedTopic {
		t.Errorf("%v %v", got, err)
	}
	errs := make(chan error, 1)
	go func() {
		_, err := pb.NewSubscriberClient(r.conn).Pull(t.Context(), &pb.PullRequest{Subscription: sub, MaxMessages: 1})
		errs <- err
	}()
	if err := r.subs.DeleteSubscription(t.Context(), &pb.DeleteSubscriptionRequest{Subscription: sub}); err != nil {
		t.Fatal(err)
	}
	if err := <-errs; status.Code(err) != codes.NotFound {
		t.Errorf("a pull on it: %v", err)
	}
}

// What is acked is forgotten, also behind a message that stays and with leases
// that would run for long.
func TestAckedIsForgotten(t *testing.T) {
	s, r := startRig(t)
	topic, sub := r.subscription(&pb.Subscription{AckDeadlineSeconds: 600})
	r.publish(topic, "", "stays")
	r.expect(sub, "stays")
	batch := make([]string, 500)
	for i := range batch {
		batch[i] = "x"
	}
	for range 20 {
		r.publish(topic, "", batch...)
		same(t, "ack", r.ack(sub, r.expect(sub, batch...)...), "OK")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.subs[sub]
	if q.all.len() > 3000 || len(q.due) > 3000 || len(q.leases) != 1 || len(q.stale) != 0 || q.open != 1 {
		t.Errorf("%d items, %d alarms, %d leases, %d stale, %d open", q.all.len(), len(q.due), len(q.leases), len(q.stale), q.open)
	}
}
