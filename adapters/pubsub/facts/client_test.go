package facts_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "cloud.google.com/go/pubsub/v2"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/onceline/onceline/localstack"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The client repeats a publish by itself: one success, two messages.
func factRetriedPublish(t *testing.T, e localstack.Emulator) {
	f := newPubSubFact(t, e.Address(), nil)
	lost := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: f.topic, Times: 1, Cut: true})
	p := f.client.Publisher(f.topic)
	defer p.Stop()
	if _, err := p.Publish(t.Context(), &sdk.Message{Data: []byte("m")}).Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	struck(t, lost)
	ms := f.pull(2)
	if len(ms) != 2 || ms[0].Message.MessageId == ms[1].Message.MessageId {
		t.Errorf("%d messages: %v", len(ms), ms)
	}
}

// A hedged publish that is slow is stored twice.
func factHedgedPublish(t *testing.T, e localstack.Emulator) {
	f := newPubSubFact(t, e.Address(), nil)
	p := f.client.Publisher(f.topic)
	defer p.Stop()
	p.PublishSettings.HedgingSettings = &sdk.HedgingSettings{Delay: 200 * time.Millisecond}
	publish := func() {
		if _, err := p.Publish(t.Context(), &sdk.Message{Data: []byte("m")}).Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const fills = 10 // the client's allowance is empty at first, and grows by a tenth with each success
	for range fills {
		publish()
	}
	slow := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: f.topic, Times: 1})
	publish()
	struck(t, slow)
	if ms := f.pull(fills + 2); len(ms) != fills+2 {
		t.Errorf("%d messages of %d publishes", len(ms), fills+1)
	}
	ordered := f.client.Publisher(f.topic)
	defer ordered.Stop()
	ordered.EnableMessageOrdering = true
	ordered.PublishSettings.HedgingSettings = &sdk.HedgingSettings{}
	if _, err := ordered.Publish(t.Context(), &sdk.Message{Data: []byte("m"), OrderingKey: "k"}).Get(t.Context()); err == nil {
		t.Error("hedged with an ordering key")
	}
}

// Without exactly-once delivery an ack is a success before anything was sent. The
// stream stays open until the message comes again (PS-F-480).
func factAckWithoutAnswer(t *testing.T, e localstack.Emulator) {
	f := newPubSubFact(t, e.Address(), nil)
	f.tap.answer = func(req any) (error, bool) {
		_, ack := req.(*pb.AcknowledgeRequest)
		return status.Error(codes.PermissionDenied, "no ack passes"), ack
	}
	f.publish("", "m")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := f.client.Subscriber(f.sub)
	s.ReceiveSettings.MaxDurationPerAckExtension = 10 * time.Second // a stream's lease, a minute by default
	var calls atomic.Int32
	began := time.Now()
	if err := s.Receive(ctx, func(_ context.Context, m *sdk.Message) {
		if calls.Add(1) == 2 {
			cancel()
		}
		if got, err := f.result(m.AckWithResult(), 5*time.Second); err != nil || got != sdk.AcknowledgeStatusSuccess {
			t.Errorf("%v, %v", got, err)
		}
	}); err != nil {
		t.Error(err)
	}
	t.Logf("came %d times within %v", calls.Load(), time.Since(began).Round(time.Millisecond))
	switch calls.Load() {
	case 0:
		t.Error("the message never came")
	case 1:
		t.Error("the message never came again, so an ack did pass")
	}
	f.tap.mu.Lock()
	defer f.tap.mu.Unlock()
	if len(f.tap.acks) == 0 {
		t.Error("no ack was sent, so none was refused")
	}
}

// A failed publish pauses its key in the client.
func factPausedKey(t *testing.T, e localstack.Emulator) {
	f := newPubSubFact(t, e.Address(), nil)
	inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.Error, Code: int(codes.InvalidArgument), Match: f.topic, Times: 1})
	p := f.client.Publisher(f.topic)
	defer p.Stop()
	p.EnableMessageOrdering = true
	publish := func() error {
		_, err := p.Publish(t.Context(), &sdk.Message{Data: []byte("m"), OrderingKey: "k"}).Get(t.Context())
		return err
	}
	if err := publish(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("the first: %v", err)
	}
	if err := publish(); !errors.As(err, &sdk.ErrPublishingPaused{}) {
		t.Errorf("the second: %v", err)
	}
	p.ResumePublish("k")
	if err := publish(); err != nil {
		t.Errorf("after ResumePublish: %v", err)
	}
}

// What the client extends a lease to as a message arrives.
func factExtensionFloor(t *testing.T, addr string) {
	for _, x := range []struct {
		change func(*pb.Subscription)
		min    time.Duration
		want   int32
	}{{nil, 0, 10}, {exactlyOnce, 0, 60}, {exactlyOnce, 15 * time.Second, 15}} {
		f := newPubSubFact(t, addr, x.change)
		f.publish("", "m")
		f.receive(20*time.Second, sdk.ReceiveSettings{MinDurationPerAckExtension: x.min}, func(m *sdk.Message) {
			until(t, "a receipt", func() bool {
				f.tap.mu.Lock()
				defer f.tap.mu.Unlock()
				return len(f.tap.modify) > 0
			})
			m.Ack()
		})
		f.tap.mu.Lock()
		got := int32(0)
		if len(f.tap.modify) > 0 {
			got = f.tap.modify[0].AckDeadlineSeconds
		}
		f.tap.mu.Unlock()
		t.Logf("minimum %v: extended by %d s", x.min, got)
		if got != x.want {
			t.Errorf("minimum %v: extended by %d s, want %d", x.min, got, x.want)
		}
	}
}

// A handler that takes longer than MaxExtension loses its message.
func factMaxExtension(t *testing.T, addr string) {
	if d := sdk.DefaultReceiveSettings.MaxExtension; d != time.Hour {
		t.Errorf("default %v", d)
	}
	f := newPubSubFact(t, addr, nil)
	f.publish("", "m")
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	s := f.client.Subscriber(f.sub)
	s.ReceiveSettings.MaxExtension, s.ReceiveSettings.MaxDurationPerAckExtension = time.Second, 10*time.Second
	var calls atomic.Int32
	again := make(chan struct{})
	began := time.Now()
	if err := s.Receive(ctx, func(ctx context.Context, m *sdk.Message) {
		if calls.Add(1) == 2 {
			close(again)
		}
		select {
		case <-again:
			m.Ack()
			cancel()
		case <-ctx.Done():
		}
	}); err != nil {
		t.Error(err)
	}
	t.Logf("%d calls of the handler within %v", calls.Load(), time.Since(began).Round(time.Millisecond))
	if calls.Load() < 2 {
		t.Error("the message stayed with its handler")
	}
}

// With exactly-once delivery the client asks again after what may heal, and says
// what doesn't.
func factAckRetries(t *testing.T, addr string) {
	for _, x := range []struct {
		why  string
		want sdk.AcknowledgeStatus
		asks int
	}{
		{"TRANSIENT_FAILURE_INVALID_ACK_ID", sdk.AcknowledgeStatusSuccess, 2},
		{"PERMANENT_FAILURE_INVALID_ACK_ID", sdk.AcknowledgeStatusInvalidAckID, 1},
	} {
		f := newPubSubFact(t, addr, exactlyOnce)
		f.publish("", "m")
		failures := 1
		f.tap.answer = func(req any) (error, bool) {
			f.tap.mu.Lock()
			defer f.tap.mu.Unlock()
			if a, ack := req.(*pb.AcknowledgeRequest); ack && failures > 0 {
				failures--
				return ackFailure(x.why, a.AckIds...), true
			}
			return nil, false
		}
		var got sdk.AcknowledgeStatus
		var err error
		f.receive(30*time.Second, sdk.ReceiveSettings{}, func(m *sdk.Message) { got, err = f.result(m.AckWithResult(), 15*time.Second) })
		f.tap.mu.Lock()
		asks := len(f.tap.acks)
		f.tap.mu.Unlock()
		t.Logf("%s: %v after %d requests, %v", x.why, got, asks, err)
		if got != x.want || asks != x.asks {
			t.Errorf("%s: %v after %d requests, %v", x.why, got, asks, err)
		}
	}
}

// With exactly-once delivery no handler gets a message whose lease couldn't be
// extended on arrival.
func factReceiptModack(t *testing.T, addr string) {
	f := newPubSubFact(t, addr, exactlyOnce)
	f.publish("", "m")
	f.tap.answer = func(req any) (error, bool) {
		m, modify := req.(*pb.ModifyAckDeadlineRequest)
		if !modify {
			return nil, false
		}
		return ackFailure("PERMANENT_FAILURE_INVALID_ACK_ID", m.AckIds...), true
	}
	if f.receive(3*time.Second, sdk.ReceiveSettings{}, func(*sdk.Message) {}) {
		t.Error("the handler was called")
	}
	f.tap.mu.Lock()
	defer f.tap.mu.Unlock()
	if len(f.tap.modify) == 0 {
		t.Error("no receipt was sent")
	}
}

// How many ack IDs the client sends in a request.
func factAckBatches(t *testing.T, addr string) {
	f := newPubSubFact(t, addr, nil)
	const n = 2500
	for range n / 500 {
		f.publish("", slices.Repeat([]string{"m"}, 500)...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	var mu sync.Mutex
	var held []*sdk.Message
	s := f.client.Subscriber(f.sub)
	s.ReceiveSettings.MaxOutstandingMessages = n
	if err := s.Receive(ctx, func(_ context.Context, m *sdk.Message) {
		mu.Lock()
		defer mu.Unlock()
		if held = append(held, m); len(held) == n {
			for _, m := range held {
				m.Ack()
			}
			cancel()
		}
	}); err != nil {
		t.Error(err)
	}
	most, all := 0, 0
	f.tap.mu.Lock()
	defer f.tap.mu.Unlock()
	for _, a := range f.tap.acks {
		most, all = max(most, len(a.AckIds)), all+len(a.AckIds)
	}
	t.Logf("%d acks in %d requests, at most %d in one", all, len(f.tap.acks), most)
	if all != n || most != 1000 {
		t.Errorf("%d acks in %d requests, at most %d in one", all, len(f.tap.acks), most)
	}
}

// ackFailure is how a service answers of ack IDs that it can't settle.
func ackFailure(why string, ids ...string) error {
	info := &errdetails.ErrorInfo{Reason: "EXACTLY_ONCE_ACKID_FAILURE", Domain: "pubsub.googleapis.com", Metadata: map[string]string{}}
	for _, id := range ids {
		info.Metadata[id] = why
	}
	s, err := status.New(codes.InvalidArgument, "some ack IDs failed").WithDetails(info)
	if err != nil {
		panic(err)
	}
	return s.Err()
}
