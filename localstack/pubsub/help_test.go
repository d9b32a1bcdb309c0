package pubsub

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"go.uber.org/goleak"
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) {
	// The SDK's imports start one for good, and its Receive leaves one for a while.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
		goleak.IgnoreTopFunction("cloud.google.com/go/pubsub/v2.(*messageIterator).streamKeepAliveHandler"))
}

// start returns a server on a loopback port.
func start(t testing.TB, opts ...Option) (*Server, string) {
	t.Helper()
	s := New(opts...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s, l.Addr().String()
}

// rig is the vendor's generated clients on a server.
type rig struct {
	t       testing.TB
	conn    *grpc.ClientConn
	topics  *vkit.TopicAdminClient
	subs    *vkit.SubscriptionAdminClient
	advance func(time.Duration)
}

var serial atomic.Uint64

func dial(t testing.TB, addr string) *rig {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r := &rig{t: t, conn: conn, advance: func(d time.Duration) { <-time.After(d) }}
	if r.topics, err = vkit.NewTopicAdminClient(t.Context(), option.WithGRPCConn(conn)); err != nil {
		t.Fatal(err)
	}
	if r.subs, err = vkit.NewSubscriptionAdminClient(t.Context(), option.WithGRPCConn(conn)); err != nil {
		t.Fatal(err)
	}
	return r
}

func startRig(t testing.TB, opts ...Option) (*Server, *rig) {
	s, addr := start(t, opts...)
	r := dial(t, addr)
	r.advance = s.Clock().Advance
	return s, r
}

func (r *rig) topic() string {
	name := fmt.Sprintf("projects/p/topics/t%d-%d", serial.Add(1), time.Now().UnixNano())
	if _, err := r.topics.CreateTopic(r.t.Context(), &pb.Topic{Name: name}); err != nil {
		r.t.Fatal(err)
	}
	return name
}

// subscription makes a topic and a subscription of the same ID.
func (r *rig) subscription(s *pb.Subscription) (topic, sub string) {
	r.t.Helper()
	s.Topic = r.topic()
	s.Name = strings.Replace(s.Topic, "topics", "subscriptions", 1)
	if _, err := r.subs.CreateSubscription(r.t.Context(), s); err != nil {
		r.t.Fatal(err)
	}
	return s.Topic, s.Name
}

func (r *rig) publish(topic, key string, data ...string) {
	r.t.Helper()
	req := &pb.PublishRequest{Topic: topic}
	for _, d := range data {
		req.Messages = append(req.Messages, &pb.PubsubMessage{Data: []byte(d), OrderingKey: key})
	}
	if _, err := r.topics.Publish(r.t.Context(), req); err != nil {
		r.t.Fatal(err)
	}
}

// pull returns what there is, waiting for at most about half a second.
func (r *rig) pull(sub string, most int32) []*pb.ReceivedMessage {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 500*time.Millisecond)
	defer cancel()
	res, err := r.subs.Pull(ctx, &pb.PullRequest{Subscription: sub, MaxMessages: most})
	if err != nil {
		r.t.Fatal(err)
	}
	return res.ReceivedMessages
}

// none checks that there is nothing to pull now.
func (r *rig) none(sub, why string) {
	r.t.Helper()
	//lint:ignore SA1019 it is what one wants here
	res, err := r.subs.Pull(r.t.Context(), &pb.PullRequest{Subscription: sub, MaxMessages: 10, ReturnImmediately: true})
	if err != nil {
		r.t.Fatal(err)
	}
	if len(res.ReceivedMessages) > 0 {
		r.t.Fatalf("%s: came %s", why, data(res.ReceivedMessages))
	}
}

// expect pulls until the messages have come, in this order.
func (r *rig) expect(sub string, want ...string) []*pb.ReceivedMessage {
	r.t.Helper()
	ms := r.pull(sub, int32(len(want)))
	for end := time.Now().Add(2 * time.Second); len(ms) == 0 && time.Now().Before(end); {
		ms = r.pull(sub, int32(len(want))) // the vendor's emulator needs a moment, and doesn't wait for a deadline so near
	}
	if got := data(ms); got != strings.Join(want, " ") {
		r.t.Fatalf("pulled %q, want %q", got, strings.Join(want, " "))
	}
	return ms
}

func data(ms []*pb.ReceivedMessage) string {
	var b []string
	for _, m := range ms {
		b = append(b, string(m.Message.Data))
	}
	return strings.Join(b, " ")
}

func ackIDs(ms []*pb.ReceivedMessage) []string {
	ids := make([]string, len(ms))
	for i := range ms {
		ids[i] = ms[i].AckId
	}
	return ids
}

// ack and modify return the answer: OK, or the reasons of the ack IDs in order.
func (r *rig) ack(sub string, ms ...*pb.ReceivedMessage) string {
	ids := ackIDs(ms)
	return answer(ids, r.subs.Acknowledge(r.t.Context(), &pb.AcknowledgeRequest{Subscription: sub, AckIds: ids}))
}

func (r *rig) modify(sub string, seconds int32, ms ...*pb.ReceivedMessage) string {
	ids := ackIDs(ms)
	return answer(ids, r.subs.ModifyAckDeadline(r.t.Context(), &pb.ModifyAckDeadlineRequest{Subscription: sub, AckIds: ids, AckDeadlineSeconds: seconds}))
}

func answer(ids []string, err error) string {
	if err == nil {
		return "OK"
	}
	st := status.Convert(err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Reason == reasonFailure && info.Domain == domain {
			var why []string
			for _, id := range ids {
				switch info.Metadata[id] {
				case "":
					why = append(why, "ok")
				case invalidAckID:
					why = append(why, "invalid")
				case unorderedAckID:
					why = append(why, "unordered")
				default:
					why = append(why, info.Metadata[id])
				}
			}
			return strings.Join(why, " ")
		}
	}
	return st.Code().String()
}

func same(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
