package localstack_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/onceline/onceline/localstack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	pubsubTopic = "projects/p/topics/topic"
	pubsubSub   = "projects/p/subscriptions/subscription"
)

// pubsubClient is the generated client, without what the vendor's does beside.
type pubsubClient struct {
	*testing.T
	pb.PublisherClient
	subs pb.SubscriberClient
}

func pubsubConnect(t *testing.T, url string) *pubsubClient {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+strings.TrimPrefix(url, "pubsub://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	c := &pubsubClient{T: t, PublisherClient: pb.NewPublisherClient(cc), subs: pb.NewSubscriberClient(cc)}
	if _, err := c.CreateTopic(t.Context(), &pb.Topic{Name: pubsubTopic}); err != nil && status.Code(err) != codes.AlreadyExists {
		t.Fatal(err)
	}
	if _, err := c.subs.CreateSubscription(t.Context(), &pb.Subscription{Name: pubsubSub, Topic: pubsubTopic, AckDeadlineSeconds: 10}); err != nil && status.Code(err) != codes.AlreadyExists {
		t.Fatal(err)
	}
	return c
}

func (c *pubsubClient) publish(ctx context.Context, body string) error {
	_, err := c.Publish(ctx, &pb.PublishRequest{Topic: pubsubTopic, Messages: []*pb.PubsubMessage{{Data: []byte(body)}}})
	return err
}

// drain pulls and acks until nothing comes.
func (c *pubsubClient) drain() string {
	c.Helper()
	var bodies []string
	for {
		ctx, cancel := context.WithTimeout(c.Context(), 300*time.Millisecond)
		resp, err := c.subs.Pull(ctx, &pb.PullRequest{Subscription: pubsubSub, MaxMessages: 10})
		cancel()
		if err != nil && status.Code(err) != codes.DeadlineExceeded {
			c.Fatal(err)
		}
		if len(resp.GetReceivedMessages()) == 0 {
			return strings.Join(bodies, " ")
		}
		var acks []string
		for _, m := range resp.ReceivedMessages {
			bodies, acks = append(bodies, string(m.Message.Data)), append(acks, m.AckId)
		}
		if _, err := c.subs.Acknowledge(c.Context(), &pb.AcknowledgeRequest{Subscription: pubsubSub, AckIds: acks}); err != nil {
			c.Fatal(err)
		}
	}
}

// pubsubFaults asks the Pub/Sub behind a proxy for faults.
func pubsubFaults(t *testing.T, e localstack.Emulator) {
	c := pubsubConnect(t, e.Address())
	for _, f := range []localstack.Fault{
		{Kind: localstack.LoseResponse}, {Kind: localstack.LoseRequest}, {Kind: localstack.LoseResponse, Cut: true},
		{Kind: localstack.Cut}, {Kind: localstack.Error, Code: int(codes.Aborted)}, {Kind: localstack.Delay, Delay: short},
	} {
		f.Op, f.Match, f.Times = localstack.Publish, "topic", 1
		i := inject(t, e, f)
		began := time.Now()
		err := c.publish(untilLost(t, i), "m")
		want := ""
		switch f.Kind {
		case localstack.LoseResponse:
			want = "m"
			if err := i.WaitApplied(t.Context()); err != nil {
				t.Fatal(err)
			}
			counts(t, i, 1, 1, 0)
		case localstack.Delay:
			want = "m"
			if time.Since(began) < short {
				t.Errorf("a delayed publish took %v", time.Since(began))
			}
			counts(t, i, 1, 1, 0)
		default:
			counts(t, i, 1, 0, 0)
		}
		if (err == nil) != (f.Kind == localstack.Delay) || f.Kind == localstack.Error && status.Code(err) != codes.Aborted {
			t.Errorf("%+v: %v", f, err)
		}
		if got := c.drain(); got != want {
			t.Errorf("%+v: stored %q, want %q", f, got, want)
		}
	}
	// A fault on the topic concerns its subscription too.
	ack := inject(t, e, localstack.Fault{Op: localstack.Settle, Kind: localstack.Error, Code: int(codes.Aborted), Match: "topic", Times: 1})
	if _, err := c.subs.Acknowledge(t.Context(), &pb.AcknowledgeRequest{Subscription: pubsubSub, AckIds: []string{"x"}}); status.Code(err) != codes.Aborted {
		t.Errorf("an injected refusal: %v", err)
	}
	counts(t, ack, 1, 0, 0)
	taken := inject(t, e, localstack.Fault{Op: localstack.Receive, Kind: localstack.LoseResponse, Match: "subscription", Times: 1})
	stream, err := c.subs.StreamingPull(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.StreamingPullRequest{Subscription: pubsubSub, StreamAckDeadlineSeconds: 10}); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"lost", "seen"} {
		if err := c.publish(t.Context(), body); err != nil {
			t.Fatal(err)
		}
		if body == "lost" {
			if err := taken.WaitApplied(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	counts(t, taken, 1, 1, 0)
	resp, err := stream.Recv()
	if err != nil || len(resp.ReceivedMessages) != 1 || string(resp.ReceivedMessages[0].Message.Data) != "seen" {
		t.Errorf("received %v, %v", resp, err)
	}
}

func TestPubSubEmulator(t *testing.T) {
	e := startReal(t, func(ctx context.Context) (*localstack.Server, error) { return localstack.StartPubSubEmulator(ctx) })
	t.Logf("memory %s", resident(e.Pid()))
	if e.Real() {
		t.Error("the emulator says that it is the service")
	}
	pubsubFaults(t, e)
	pid := e.Pid()
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
	pubsubConnect(t, e.Address()) // it is there again, and empty
}

// The front of the emulator shows the same on the model.
func TestPubSubProxyOnTheModel(t *testing.T) {
	m, err := localstack.StartPubSub(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, m)
	e := localstack.ProxyOfPubSub(t, m.Address())
	closeAtEnd(t, e)
	// As of the model: what broker.Open takes, where a server of others stands there.
	if want := "pubsub://" + e.Address() + "/" + localstack.Project; e.URL() != want || m.URL() != strings.Replace(want, e.Address(), m.Address(), 1) {
		t.Errorf("URLs %s and of the model %s, want %s", e.URL(), m.URL(), want)
	}
	pubsubFaults(t, e)
}

func TestPubSubEmulatorIsNamed(t *testing.T) {
	t.Setenv("ONCELINE_PUBSUB_JAR", t.TempDir()+"/none.jar")
	if _, err := localstack.StartPubSubEmulator(t.Context()); !errors.Is(err, localstack.ErrNotInstalled) {
		t.Errorf("without the archive: %v", err)
	}
}
