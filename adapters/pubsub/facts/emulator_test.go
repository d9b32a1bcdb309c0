package facts_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "cloud.google.com/go/pubsub/v2"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// wiretap is between a client and its connection: it sees each unary call, and can
// answer in the server's place.
type wiretap struct {
	mu     sync.Mutex
	modify []*pb.ModifyAckDeadlineRequest
	acks   []*pb.AcknowledgeRequest
	sent   int
	answer func(req any) (err error, instead bool)
}

func (w *wiretap) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	w.mu.Lock()
	switch m := req.(type) {
	case *pb.ModifyAckDeadlineRequest:
		w.modify = append(w.modify, m)
	case *pb.AcknowledgeRequest:
		w.acks = append(w.acks, m)
	case *pb.PublishRequest:
		w.sent++
	}
	answer := w.answer
	w.mu.Unlock()
	if answer != nil {
		if err, instead := answer(req); instead {
			return err
		}
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// pubsubFact is a client with a topic and a subscription of its own.
type pubsubFact struct {
	*testing.T
	tap    *wiretap
	client *sdk.Client
	topic  string
	sub    string
}

var pubsubNames atomic.Int32

func newPubSubFact(t *testing.T, addr string, change func(*pb.Subscription)) *pubsubFact {
	t.Helper()
	f := &pubsubFact{T: t, tap: new(wiretap)}
	var err error
	f.client, err = sdk.NewClient(t.Context(), "p", option.WithEndpoint(addr), option.WithoutAuthentication(), option.WithTelemetryDisabled(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		option.WithGRPCDialOption(grpc.WithChainUnaryInterceptor(f.tap.intercept)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.client.Close() })
	n := pubsubNames.Add(1)
	f.topic, f.sub = fmt.Sprintf("projects/p/topics/fact-%d", n), fmt.Sprintf("projects/p/subscriptions/fact-%d", n)
	if _, err := f.client.TopicAdminClient.CreateTopic(t.Context(), &pb.Topic{Name: f.topic}); err != nil {
		t.Fatal(err)
	}
	s := &pb.Subscription{Name: f.sub, Topic: f.topic, AckDeadlineSeconds: 10}
	if change != nil {
		change(s)
	}
	if _, err := f.client.SubscriptionAdminClient.CreateSubscription(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return f
}

func exactlyOnce(s *pb.Subscription) { s.EnableExactlyOnceDelivery = true }

func (f *pubsubFact) publish(key string, bodies ...string) {
	f.Helper()
	r := &pb.PublishRequest{Topic: f.topic}
	for _, b := range bodies {
		r.Messages = append(r.Messages, &pb.PubsubMessage{Data: []byte(b), OrderingKey: key})
	}
	if _, err := f.client.TopicAdminClient.Publish(f.Context(), r); err != nil {
		f.Fatal(err)
	}
}

// pull returns what comes, n at most. It waits for them for longer than some leases: a
// Pull that was given up may take a message along for one (PS-F-480).
func (f *pubsubFact) pull(n int) (ms []*pb.ReceivedMessage) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	for len(ms) < n && ctx.Err() == nil {
		r, err := f.client.SubscriptionAdminClient.Pull(ctx, &pb.PullRequest{Subscription: f.sub, MaxMessages: int32(n - len(ms))})
		if err != nil && status.Code(err) != codes.DeadlineExceeded {
			f.Fatal(err)
		}
		ms = append(ms, r.GetReceivedMessages()...)
	}
	return ms
}

func (f *pubsubFact) ack(ms ...*pb.ReceivedMessage) error {
	r := &pb.AcknowledgeRequest{Subscription: f.sub}
	for _, m := range ms {
		r.AckIds = append(r.AckIds, m.AckId)
	}
	return f.client.SubscriptionAdminClient.Acknowledge(f.Context(), r)
}

// receive hands the SDK's first message to handle, whose return ends Receive.
func (f *pubsubFact) receive(within time.Duration, settings sdk.ReceiveSettings, handle func(*sdk.Message)) (came bool) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), within)
	defer cancel()
	s := f.client.Subscriber(f.sub)
	s.ReceiveSettings = settings
	var once sync.Once
	err := s.Receive(ctx, func(_ context.Context, m *sdk.Message) {
		once.Do(func() {
			came = true
			handle(m)
			cancel()
		})
	})
	if err != nil {
		f.Errorf("receive: %v", err)
	}
	return came
}

func (f *pubsubFact) result(r *sdk.AckResult, within time.Duration) (sdk.AcknowledgeStatus, error) {
	ctx, cancel := context.WithTimeout(f.Context(), within)
	defer cancel()
	return r.Get(ctx)
}

func TestFactsPubSub(t *testing.T) {
	e := startEmulator(t)
	t.Run("one at a time", func(t *testing.T) { // faults cut connections
		t.Run("PS-F-03", func(t *testing.T) { factRetriedPublish(t, e) })
		t.Run("PS-F-04", func(t *testing.T) { factHedgedPublish(t, e) })
		t.Run("PS-F-12", func(t *testing.T) { factAckWithoutAnswer(t, e) })
		t.Run("PS-F-23", func(t *testing.T) { factPausedKey(t, e) })
	})
	for name, fact := range map[string]func(*testing.T, string){
		"PS-F-07": factExactlyOncePush, "PS-F-10": factExtensionFloor, "PS-F-13": factAckRetries, "PS-F-14": factReceiptModack,
		"PS-F-15": factAckBatches, "PS-F-17": factAckTwice, "PS-F-21": factRedeliveryOfAKey, "PS-F-22": factAcksInOrder,
		"PS-F-29": factSeek, "PS-F-34": factProperties, "PS-F-11": factMaxExtension,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fact(t, e.Address())
		})
	}
}

// The emulator takes exactly-once delivery with a push endpoint, which the service's
// documentation excludes.
func factExactlyOncePush(t *testing.T, addr string) {
	f := newPubSubFact(t, addr, nil)
	_, err := f.client.SubscriptionAdminClient.CreateSubscription(t.Context(), &pb.Subscription{Name: f.sub + "-push", Topic: f.topic,
		EnableExactlyOnceDelivery: true, PushConfig: &pb.PushConfig{PushEndpoint: "http://127.0.0.1:1/"}})
	if err != nil {
		t.Errorf("push with exactly-once delivery: %v", err)
	}
}

// A second ack is no error without exactly-once delivery, and is one with it.
func factAckTwice(t *testing.T, addr string) {
	for _, x := range []struct {
		change func(*pb.Subscription)
		want   codes.Code
	}{{nil, codes.OK}, {exactlyOnce, codes.InvalidArgument}} {
		f := newPubSubFact(t, addr, x.change)
		f.publish("", "m")
		ms := f.pull(1)
		if len(ms) != 1 {
			t.Fatal("nothing came")
		}
		if err := f.ack(ms...); err != nil {
			t.Error(err)
		}
		if err := f.ack(ms...); status.Code(err) != x.want {
			t.Errorf("the second ack: %v, want %v", err, x.want)
		}
	}
}

// A message of a key that is given back takes those behind it along, without
// exactly-once delivery acked ones too, as is documented. That the emulator puts it
// behind them is not.
func factRedeliveryOfAKey(t *testing.T, addr string) {
	f := newPubSubFact(t, addr, func(s *pb.Subscription) { s.EnableMessageOrdering = true })
	f.publish("k", "1", "2", "3")
	ms := f.pull(3)
	if len(ms) != 3 {
		t.Fatalf("%d came", len(ms))
	}
	if err := f.ack(ms[1:]...); err != nil {
		t.Fatal(err)
	}
	if err := f.client.SubscriptionAdminClient.ModifyAckDeadline(t.Context(), &pb.ModifyAckDeadlineRequest{Subscription: f.sub, AckIds: []string{ms[0].AckId}}); err != nil {
		t.Fatal(err)
	}
	bodies := ""
	for _, m := range f.pull(3) { // the emulator waits for the leases of what was acked
		bodies += string(m.Message.Data)
	}
	if bodies != "231" {
		t.Errorf("after acks of 2 and 3 and a nack of 1 came %q", bodies)
	}
}

func factAcksInOrder(t *testing.T, addr string) {
	f := newPubSubFact(t, addr, func(s *pb.Subscription) { s.EnableMessageOrdering, s.EnableExactlyOnceDelivery = true, true })
	f.publish("k", "1", "2")
	ms := f.pull(2)
	if len(ms) != 2 {
		t.Fatalf("%d came", len(ms))
	}
	err := f.ack(ms[1])
	t.Logf("the second alone: %v, %v", err, status.Convert(err).Details())
	if err == nil {
		t.Error("the second of a key was acked before the first")
	}
	for i, m := range ms {
		if err := f.ack(m); err != nil {
			t.Errorf("%d in order: %v", i, err)
		}
	}
}

// Exactly-once delivery doesn't keep Seek from bringing acked messages back.
func factSeek(t *testing.T, addr string) {
	f := newPubSubFact(t, addr, func(s *pb.Subscription) { s.EnableExactlyOnceDelivery, s.RetainAckedMessages = true, true })
	snap, err := f.client.SubscriptionAdminClient.CreateSnapshot(t.Context(), &pb.CreateSnapshotRequest{Name: "projects/p/snapshots/" + f.sub[len("projects/p/subscriptions/"):], Subscription: f.sub})
	if err != nil {
		t.Fatal(err)
	}
	f.publish("", "m")
	ms := f.pull(1)
	if len(ms) != 1 {
		t.Fatal("nothing came")
	}
	if err := f.ack(ms...); err != nil {
		t.Fatal(err)
	}
	if _, err := f.client.SubscriptionAdminClient.Seek(t.Context(), &pb.SeekRequest{Subscription: f.sub, Target: &pb.SeekRequest_Snapshot{Snapshot: snap.Name}}); err != nil {
		t.Fatal(err)
	}
	if again := f.pull(1); len(again) != 1 || again[0].Message.MessageId != ms[0].Message.MessageId {
		t.Errorf("%d came after the seek", len(again))
	}
}

// The emulator tells streaming clients whether delivery is exactly once.
func factProperties(t *testing.T, addr string) {
	for _, once := range []bool{false, true} {
		f := newPubSubFact(t, addr, func(s *pb.Subscription) { s.EnableExactlyOnceDelivery = once })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		stream, err := f.client.SubscriptionAdminClient.StreamingPull(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&pb.StreamingPullRequest{Subscription: f.sub, StreamAckDeadlineSeconds: 10}); err != nil {
			t.Fatal(err)
		}
		f.publish("", "m")
		r, err := stream.Recv()
		cancel()
		if err != nil || r.SubscriptionProperties.GetExactlyOnceDeliveryEnabled() != once {
			t.Errorf("exactly once %v: %v, %v", once, r.GetSubscriptionProperties(), err)
		}
	}
}

// PS-F-33: the client's own fake keeps the setting and takes stale ack IDs.
func TestFactsPubSubFake(t *testing.T) {
	fake := pstest.NewServer()
	defer func() { _ = fake.Close() }()
	f := newPubSubFact(t, fake.Addr, exactlyOnce)
	s, err := f.client.SubscriptionAdminClient.GetSubscription(t.Context(), &pb.GetSubscriptionRequest{Subscription: f.sub})
	if err != nil || !s.EnableExactlyOnceDelivery {
		t.Errorf("%v, %v", s, err)
	}
	f.publish("", "m")
	ms := f.pull(1)
	if len(ms) != 1 {
		t.Fatal("nothing came")
	}
	if err := f.ack(ms...); err != nil {
		t.Error(err)
	}
	if err := f.ack(ms...); err != nil {
		t.Errorf("a stale ack ID: %v", err)
	}
}
