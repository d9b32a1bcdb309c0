package pubsub

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	sdk "cloud.google.com/go/pubsub/v2"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceline/onceline/internal/bubbletest"
)

// The official client, by StreamingPull: exactly-once acks, order, flow control.
func TestOfficialClient(t *testing.T) {
	s, r := startRig(t)
	client, err := sdk.NewClient(t.Context(), "p", option.WithGRPCConn(r.conn))
	if err != nil {
		t.Fatal(err)
	}
	topic, sub := r.subscription(&pb.Subscription{EnableExactlyOnceDelivery: true, EnableMessageOrdering: true})
	p := client.Publisher(topic)
	p.EnableMessageOrdering = true
	var results []*sdk.PublishResult
	for i := range 60 {
		results = append(results, p.Publish(t.Context(), &sdk.Message{Data: []byte(fmt.Sprintf("%02d", i)), OrderingKey: fmt.Sprintf("k%d", i%2)}))
	}
	for _, res := range results {
		if _, err := res.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	rcv := client.Subscriber(sub)
	rcv.ReceiveSettings.MaxOutstandingMessages = 7
	var mu sync.Mutex
	last := map[string]string{}
	acked, nacked, open, most := 0, false, 0, 0
	err = rcv.Receive(ctx, func(ctx context.Context, m *sdk.Message) {
		mu.Lock()
		open++
		most = max(most, open)
		defer func() { open--; mu.Unlock() }()
		if string(m.Data) == "10" && !nacked {
			nacked = true
			if st, err := m.NackWithResult().Get(ctx); st != sdk.AcknowledgeStatusSuccess {
				t.Errorf("nack: %v %v", st, err)
			}
			return
		}
		mu.Unlock()
		st, err := m.AckWithResult().Get(ctx)
		mu.Lock()
		if st != sdk.AcknowledgeStatusSuccess {
			t.Errorf("ack of %s: %v %v", m.Data, st, err)
		}
		if string(m.Data) != "10" { // which comes again behind those that the client had by then
			if string(m.Data) <= last[m.OrderingKey] {
				t.Errorf("%s after %s", m.Data, last[m.OrderingKey])
			}
			last[m.OrderingKey] = string(m.Data)
		}
		if acked++; acked == 60 {
			cancel()
		}
	})
	if err != nil || acked != 60 || most > 7 {
		t.Errorf("acked %d, at most %d at a time, %v", acked, most, err)
	}
	r.none(sub, "all is acked")
	until(t, "the stream to end", func() bool { return s.waiting(sub) == 0 })
}

// Ten minutes of leases over a pipe, in no time.
func TestInsideSynctest(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		s := New()
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		conn, err := grpc.NewClient("passthrough:pipe", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(l.dial))
		if err != nil {
			t.Fatal(err)
		}
		topics, subs := pb.NewPublisherClient(conn), pb.NewSubscriberClient(conn)
		ctx := t.Context()
		if _, err := topics.CreateTopic(ctx, &pb.Topic{Name: "projects/p/topics/ttt"}); err != nil {
			t.Fatal(err)
		}
		if _, err := subs.CreateSubscription(ctx, &pb.Subscription{Name: "projects/p/subscriptions/sss", Topic: "projects/p/topics/ttt", AckDeadlineSeconds: 600}); err != nil {
			t.Fatal(err)
		}
		if _, err := topics.Publish(ctx, &pb.PublishRequest{Topic: "projects/p/topics/ttt", Messages: []*pb.PubsubMessage{{Data: []byte("x")}}}); err != nil {
			t.Fatal(err)
		}
		pull := func() *pb.PullResponse {
			res, err := subs.Pull(ctx, &pb.PullRequest{Subscription: "projects/p/subscriptions/sss", MaxMessages: 1})
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		begin := time.Now()
		if got := pull(); len(got.ReceivedMessages) != 1 {
			t.Fatal("no message")
		}
		for len(pull().ReceivedMessages) == 0 {
		}
		if took := time.Since(begin); took != 600*time.Second {
			t.Errorf("redelivered after %v", took)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// pipes is a listener of connections in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) dial(ctx context.Context, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
