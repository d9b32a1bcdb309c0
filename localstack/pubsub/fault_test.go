package pubsub

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/onceline/onceline/localstack/fault"
)

func TestFaults(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	s, r := startRig(t, Trace(func(l string) { mu.Lock(); lines = append(lines, l); mu.Unlock() }))
	topic, sub := r.subscription(&pb.Subscription{EnableExactlyOnceDelivery: true})
	short := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 100*time.Millisecond)
	}
	publish := func(ctx context.Context, body string) error {
		_, err := pb.NewPublisherClient(r.conn).Publish(ctx, &pb.PublishRequest{Topic: topic, Messages: []*pb.PubsubMessage{{Data: []byte(body)}}})
		return err
	}
	for _, f := range []struct {
		fault   fault.Fault
		code    codes.Code
		applied bool
	}{
		{fault.Fault{Op: fault.Publish, Kind: fault.LoseRequest}, codes.DeadlineExceeded, false},
		{fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Match: idOf(topic)}, codes.DeadlineExceeded, true},
		{fault.Fault{API: "Publish", Kind: fault.LoseResponse, Cut: true}, codes.Unavailable, true},
		{fault.Fault{Op: fault.Publish, Kind: fault.Cut, Match: topic}, codes.Unavailable, false},
		{fault.Fault{Op: fault.Publish, Kind: fault.Error}, codes.Unavailable, false},
		{fault.Fault{Op: fault.Publish, Kind: fault.Error, Code: int(codes.ResourceExhausted)}, codes.ResourceExhausted, false},
	} {
		f.fault.Times = 1
		i := s.Inject(f.fault)
		ctx, cancel := short()
		err := publish(ctx, "lost")
		cancel()
		if status.Code(err) != f.code {
			t.Errorf("%+v: %v", f.fault, err)
		}
		until(t, "the hit", func() bool { return i.Hits() == 1 && i.Applied() == map[bool]int{true: 1}[f.applied] })
		if f.applied {
			same(t, "ack", r.ack(sub, r.expect(sub, "lost")...), "OK")
		} else {
			r.none(sub, "not applied")
		}
	}
	// Delay goes by the clock.
	i := s.Inject(fault.Fault{Op: fault.Publish, Kind: fault.Delay, Delay: time.Hour, Times: 1})
	errs := make(chan error, 1)
	go func() { errs <- publish(t.Context(), "late") }()
	if err := i.WaitHit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.none(sub, "held back")
	r.advance(time.Hour)
	if err := <-errs; err != nil {
		t.Error(err)
	}
	// A hand-out that is lost stays leased.
	i = s.Inject(fault.Fault{Op: fault.Receive, Kind: fault.LoseResponse, Match: idOf(sub), Times: 1})
	ctx, cancel := short()
	if _, err := pb.NewSubscriberClient(r.conn).Pull(ctx, &pb.PullRequest{Subscription: sub, MaxMessages: 1}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a lost hand-out: %v", err)
	}
	cancel()
	if i.Applied() != 1 {
		t.Errorf("applied %d", i.Applied())
	}
	r.none(sub, "leased")
	r.advance(11 * time.Second)
	ms := r.expect(sub, "late")
	// A settle is struck by the topic's name too.
	s.Inject(fault.Fault{Op: fault.Settle, Kind: fault.LoseResponse, Match: idOf(topic), Times: 1})
	ctx, cancel = short()
	defer cancel()
	if _, err := pb.NewSubscriberClient(r.conn).Acknowledge(ctx, &pb.AcknowledgeRequest{Subscription: sub, AckIds: ackIDs(ms)}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a lost answer: %v", err)
	}
	same(t, "it was applied", r.ack(sub, ms...), "invalid")
	if i := s.Inject(fault.Fault{Kind: fault.Error, Code: 99}); i.Err() == nil {
		t.Error("a code that is none was taken")
	}
	mu.Lock()
	defer mu.Unlock()
	all := strings.Join(lines, "\n")
	for _, want := range []string{"Publish " + topic + " messages=1 OK", "Publish " + topic + " messages=1 lost", "Acknowledge " + sub + " acks=1 InvalidArgument", "Pull " + sub + " messages=1/1 OK"} {
		if !strings.Contains(all, want) {
			t.Errorf("no line %q in\n%s", want, all)
		}
	}
	if strings.Contains(all, "late") {
		t.Error("a message's content is traced")
	}
}

// A restart ends connections, not state.
func TestRestart(t *testing.T) {
	s, r := startRig(t)
	topic, sub := r.subscription(&pb.Subscription{EnableExactlyOnceDelivery: true})
	r.publish(topic, "", "held", "ready")
	held := r.expect(sub, "held")
	waiting := make(chan error, 1)
	other, _ := r.subscription(&pb.Subscription{})
	go func() {
		_, err := pb.NewSubscriberClient(r.conn).Pull(t.Context(), &pb.PullRequest{Subscription: strings.Replace(other, "topics", "subscriptions", 1), MaxMessages: 1})
		waiting <- err
	}()
	until(t, "the pull to wait", func() bool { return s.waiting(strings.Replace(other, "topics", "subscriptions", 1)) == 1 })
	s.Restart(true)
	if err := <-waiting; status.Code(err) != codes.Unavailable {
		t.Errorf("a pull under way: %v", err)
	}
	var answer string
	until(t, "the client to come back", func() bool { answer = r.ack(sub, held...); return answer != "Unavailable" })
	same(t, "ack of an older connection's delivery", answer, "OK")
	r.expect(sub, "ready")
}
