package pubsub

import (
	"os"
	"strings"
	"testing"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// What follows was asked of the vendor's own emulator, 0.8.20, and is asked of
// this one always. Where the two differ on purpose, the case says so by real.

func TestFidelity(t *testing.T) {
	_, r := startRig(t, IgnoreStaleAcks())
	fidelity(t, r, false)
}

// TestReal asks the vendor's emulator, or anything else that speaks the protocol
// without credentials. It takes half a minute, for leases end in real time.
func TestReal(t *testing.T) {
	addr := os.Getenv("ONCELINE_PUBSUB")
	if addr == "" {
		t.Skip("ONCELINE_PUBSUB names no server")
	}
	fidelity(t, dial(t, addr), true)
}

func fidelity(t *testing.T, r *rig, real bool) {
	for _, once := range []bool{false, true} {
		name, stale := "plain", "OK"
		if once {
			name, stale = "exactly-once", "invalid"
		}
		on := func(r *rig, t *testing.T) *rig { c := *r; c.t = t; return &c }
		t.Run(name+"/settle", func(t *testing.T) { fidelitySettle(t, on(r, t), once, stale) })
		t.Run(name+"/expiry", func(t *testing.T) { fidelityExpiry(t, on(r, t), once, stale) })
		t.Run(name+"/order", func(t *testing.T) { fidelityOrder(t, on(r, t), once, real) })
	}
	t.Run("dead letter", func(t *testing.T) { c := *r; c.t = t; fidelityDeadLetter(t, &c) })
	t.Run("answers", func(t *testing.T) { c := *r; c.t = t; fidelityAnswers(t, &c) })
}

func fidelitySettle(t *testing.T, r *rig, once bool, stale string) {
	topic, sub := r.subscription(&pb.Subscription{EnableExactlyOnceDelivery: once})
	r.publish(topic, "", "a", "b", "c")
	ms := r.expect(sub, "a", "b", "c")
	same(t, "ack", r.ack(sub, ms[0]), "OK")
	same(t, "ack again", r.ack(sub, ms[0]), stale)
	same(t, "extend what is acked", r.modify(sub, 30, ms[0]), stale)
	same(t, "nack", r.modify(sub, 0, ms[1]), "OK")
	same(t, "ack of what was nacked", r.ack(sub, ms[1]), stale)
	again := r.expect(sub, "b")
	same(t, "ack of an old delivery", r.ack(sub, ms[1]), stale)
	same(t, "nack of an old delivery", r.modify(sub, 0, ms[1]), stale)
	same(t, "extension of an old delivery", r.modify(sub, 20, ms[1]), stale)
	same(t, "nack of the new one", r.modify(sub, 0, again...), "OK")
	again = r.expect(sub, "b") // nothing of the old delivery took effect
	same(t, "ack", r.ack(sub, again...), "OK")
	want := "OK"
	if once {
		want = "ok invalid"
	}
	same(t, "ack of one held and one acked", r.ack(sub, ms[2], ms[0]), want)
	r.none(sub, "all is acked")
}

func fidelityExpiry(t *testing.T, r *rig, once bool, stale string) {
	topic, sub := r.subscription(&pb.Subscription{EnableExactlyOnceDelivery: once})
	r.publish(topic, "", "acked late")
	ms := r.expect(sub, "acked late")
	same(t, "shorten", r.modify(sub, 1, ms...), "OK")
	r.advance(1500 * time.Millisecond)
	same(t, "late ack of what nobody else has", r.ack(sub, ms...), "OK")
	r.none(sub, "acked late")

	r.publish(topic, "", "extended late")
	ms = r.expect(sub, "extended late")
	same(t, "shorten", r.modify(sub, 1, ms...), "OK")
	r.advance(1500 * time.Millisecond)
	same(t, "late extension", r.modify(sub, 30, ms...), "OK")
	r.none(sub, "extended")
	same(t, "ack", r.ack(sub, ms...), "OK")

	r.publish(topic, "", "taken over")
	ms = r.expect(sub, "taken over")
	same(t, "shorten", r.modify(sub, 1, ms...), "OK")
	r.advance(1500 * time.Millisecond)
	again := r.expect(sub, "taken over")
	same(t, "late ack, another has it", r.ack(sub, ms...), stale)
	same(t, "nack of who has it", r.modify(sub, 0, again...), "OK")
	again = r.expect(sub, "taken over")
	same(t, "ack", r.ack(sub, again...), "OK")
}

func fidelityOrder(t *testing.T, r *rig, once, real bool) {
	ordered := func() (topic, sub string) {
		return r.subscription(&pb.Subscription{EnableExactlyOnceDelivery: once, EnableMessageOrdering: true})
	}
	topic, sub := ordered()
	r.publish(topic, "k", "1", "2", "3", "4", "5")
	ms := r.expect(sub, "1", "2", "3")
	r.none(sub, "a batch of the key is outstanding")
	early := "OK"
	if once {
		early = "unordered unordered"
	}
	same(t, "acks ahead of the first", r.ack(sub, ms[1:]...), early)
	same(t, "nack of the first", r.modify(sub, 0, ms[0]), "OK")
	if !real { // which waits for the leases of what was acked
		if once {
			r.none(sub, "2 and 3 are held")
			same(t, "nack of the rest", r.modify(sub, 0, ms[1:]...), "OK")
		}
		again := r.expect(sub, "1", "2", "3", "4", "5") // those that were acked too
		same(t, "ack of all", r.ack(sub, again...), "OK")
		r.none(sub, "all is acked")
	}

	topic, sub = ordered()
	r.publish(topic, "k", "1", "2", "3", "4")
	ms = r.expect(sub, "1", "2", "3")
	same(t, "shorten the first", r.modify(sub, 1, ms[0]), "OK")
	same(t, "and not the others", r.modify(sub, 30, ms[1:]...), "OK")
	r.advance(1500 * time.Millisecond)
	again := r.expect(sub, "1", "2", "3") // though 2 and 3 had leases
	back := "OK"
	if once {
		back = "unordered unordered unordered"
	}
	same(t, "acks in the wrong order", r.ack(sub, again[2], again[1], again[0]), back)
	if once {
		same(t, "acks in order", r.ack(sub, again...), "OK")
	}
	ms = r.expect(sub, "4")
	same(t, "nack with delay", r.modify(sub, 1, ms...), "OK")
	r.none(sub, "not yet")
	r.publish(topic, "k", "5")
	r.none(sub, "behind 4")
	r.advance(1500 * time.Millisecond)
	same(t, "ack", r.ack(sub, r.expect(sub, "4", "5")...), "OK")
}

func fidelityDeadLetter(t *testing.T, r *rig) {
	dead, letters := r.subscription(&pb.Subscription{})
	topic, sub := r.subscription(&pb.Subscription{DeadLetterPolicy: &pb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: 5}})
	r.publish(topic, "key", "poison")
	for i := range int32(5) {
		ms := r.expect(sub, "poison")
		if ms[0].DeliveryAttempt != i+1 {
			t.Errorf("attempt %d, want %d", ms[0].DeliveryAttempt, i+1)
		}
		same(t, "nack", r.modify(sub, 0, ms...), "OK")
	}
	r.none(sub, "it is dead-lettered") // by this pull, on the vendor's emulator
	ms := r.expect(letters, "poison")
	a := ms[0].Message.Attributes
	id := topic[strings.LastIndexByte(topic, '/')+1:]
	when, err := time.Parse(time.RFC3339, a[attrPublishTime])
	if a[attrDeliveries] != "5" || a[attrSource] != id || a[attrProject] != "p" || err != nil || when.IsZero() || len(a) != 4 {
		t.Errorf("attributes %v, %v", a, err)
	}
	if ms[0].Message.OrderingKey != "key" || ms[0].DeliveryAttempt != 0 {
		t.Errorf("came as %v", ms[0])
	}
}

// Codes of refused requests.
func fidelityAnswers(t *testing.T, r *rig) {
	ctx := t.Context()
	topic, sub := r.subscription(&pb.Subscription{})
	code := func(what string, err error, want string) {
		t.Helper()
		same(t, what, status.Code(err).String(), want)
	}
	create := func(s *pb.Subscription) error {
		s.Topic, s.Name = topic, strings.Replace(topic, "topics", "subscriptions", 1)+"-other"
		_, err := r.subs.CreateSubscription(ctx, s)
		return err
	}
	code("deadline 601", create(&pb.Subscription{AckDeadlineSeconds: 601}), "InvalidArgument")
	code("retention 1 min", create(&pb.Subscription{MessageRetentionDuration: durationpb.New(time.Minute)}), "InvalidArgument")
	code("retention 32 d", create(&pb.Subscription{MessageRetentionDuration: durationpb.New(32 * 24 * time.Hour)}), "InvalidArgument")
	code("back-off 601 s", create(&pb.Subscription{RetryPolicy: &pb.RetryPolicy{MinimumBackoff: durationpb.New(601 * time.Second)}}), "InvalidArgument")
	code("4 attempts", create(&pb.Subscription{DeadLetterPolicy: &pb.DeadLetterPolicy{DeadLetterTopic: topic, MaxDeliveryAttempts: 4}}), "OutOfRange")
	code("101 attempts", create(&pb.Subscription{DeadLetterPolicy: &pb.DeadLetterPolicy{DeadLetterTopic: topic, MaxDeliveryAttempts: 101}}), "OutOfRange")
	code("no dead-letter topic", create(&pb.Subscription{DeadLetterPolicy: &pb.DeadLetterPolicy{DeadLetterTopic: "projects/p/topics/none", MaxDeliveryAttempts: 5}}), "NotFound")
	_, err := r.topics.CreateTopic(ctx, &pb.Topic{Name: topic})
	code("topic again", err, "AlreadyExists")
	_, err = r.subs.CreateSubscription(ctx, &pb.Subscription{Name: sub, Topic: topic})
	code("subscription again", err, "AlreadyExists")
	for _, id := range []string{"1x", "ab", "goog1", "a b c", strings.Repeat("x", 256)} {
		_, err = r.topics.CreateTopic(ctx, &pb.Topic{Name: "projects/p/topics/" + id})
		code("topic "+id, err, "InvalidArgument")
	}
	_, err = r.subs.GetSubscription(ctx, &pb.GetSubscriptionRequest{Subscription: "projects/p/subscriptions/none"})
	code("no subscription", err, "NotFound")
	_, err = r.topics.GetTopic(ctx, &pb.GetTopicRequest{Topic: "projects/p/topics/none"})
	code("no topic", err, "NotFound")
	publish := func(ms ...*pb.PubsubMessage) error {
		_, err := r.topics.Publish(ctx, &pb.PublishRequest{Topic: topic, Messages: ms})
		return err
	}
	code("nothing", publish(), "InvalidArgument")
	code("an empty message", publish(&pb.PubsubMessage{}), "InvalidArgument")
	code("a key alone", publish(&pb.PubsubMessage{OrderingKey: "k"}), "InvalidArgument")
	code("an attribute alone", publish(&pb.PubsubMessage{Attributes: map[string]string{"a": ""}}), "OK")
	code("one bad of two", publish(&pb.PubsubMessage{Data: []byte("x")}, &pb.PubsubMessage{}), "InvalidArgument")
	many := make([]*pb.PubsubMessage, 1001)
	for i := range many {
		many[i] = &pb.PubsubMessage{Data: []byte("x")}
	}
	code("1001 messages", publish(many...), "InvalidArgument")
	code("1000 messages", publish(many[:1000]...), "OK")
	same(t, "a foreign ack ID", r.ack(sub, &pb.ReceivedMessage{AckId: "bogus"}), "InvalidArgument")
	same(t, "no ack ID", r.ack(sub), "InvalidArgument")
	same(t, "a negative deadline", r.modify(sub, -1, &pb.ReceivedMessage{AckId: "bogus"}), "InvalidArgument")
	same(t, "a deadline over 600 s", r.modify(sub, 601, &pb.ReceivedMessage{AckId: "bogus"}), "InvalidArgument")
	_, err = r.subs.Pull(ctx, &pb.PullRequest{Subscription: sub})
	code("pull of none", err, "InvalidArgument")
}
