package servicebus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/onceline/onceline/internal/bubbletest"
	"github.com/onceline/onceline/localstack/servicebus"
)

func message(id, body string) *azservicebus.Message {
	return &azservicebus.Message{MessageID: to.Ptr(id), Body: []byte(body)}
}

func create(t testing.TB, s *servicebus.Server, name string, p servicebus.QueueProperties) {
	t.Helper()
	if err := s.CreateQueue(name, p); err != nil {
		t.Fatal(err)
	}
}

func send(t testing.TB, s *azservicebus.Sender, ms ...*azservicebus.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	b, err := s.NewMessageBatch(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		if err := b.AddMessage(m, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SendMessageBatch(ctx, b, nil); err != nil {
		t.Fatal(err)
	}
}

type receiver interface {
	ReceiveMessages(ctx context.Context, max int, o *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// receive receives n messages, and fails if they don't come.
func receive(t testing.TB, r receiver, n int) []*azservicebus.ReceivedMessage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var all []*azservicebus.ReceivedMessage
	for len(all) < n {
		ms, err := r.ReceiveMessages(ctx, n-len(all), nil)
		if err != nil {
			t.Fatalf("%d of %d messages: %v", len(all), n, err)
		}
		all = append(all, ms...)
	}
	return all
}

// none fails if a message comes within wait.
func none(t testing.TB, r receiver, wait time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	if ms, err := r.ReceiveMessages(ctx, 1, nil); len(ms) > 0 || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %d messages, error %v", len(ms), err)
	}
}

func isLockLost(err error) bool {
	var e *azservicebus.Error
	return errors.As(err, &e) && e.Code == azservicebus.CodeLockLost
}

// TestQueue sends in batches and singly, and settles in every way, over loopback:
// what was accepted is done (Azure/azure-sdk-for-go#21912).
func TestQueue(t *testing.T) {
	ctx := t.Context()
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{MaxDeliveries: 2})
	c := dial(t, connection)
	sender := must(c.NewSender("q", nil))(t)
	var batch []*azservicebus.Message
	for i := range 4 {
		batch = append(batch, message(fmt.Sprint(i), fmt.Sprint("body ", i)))
	}
	batch[0].ApplicationProperties = map[string]any{"n": int64(7), "s": "text"}
	batch[0].Subject, batch[0].ContentType = to.Ptr("subject"), to.Ptr("text/plain")
	send(t, sender, batch...)
	if err := sender.SendMessage(ctx, message("single", "x"), nil); err != nil {
		t.Fatal(err)
	}

	r := must(c.NewReceiverForQueue("q", nil))(t)
	ms := receive(t, r, 5)
	for i, m := range ms[:4] {
		if m.MessageID != fmt.Sprint(i) || string(m.Body) != fmt.Sprint("body ", i) || m.DeliveryCount != 1 || *m.SequenceNumber != int64(i+1) {
			t.Errorf("message %d is %s %q, delivery %d, number %d", i, m.MessageID, m.Body, m.DeliveryCount, *m.SequenceNumber)
		}
	}
	if ms[0].ApplicationProperties["n"] != int64(7) || ms[0].ApplicationProperties["s"] != "text" || *ms[0].Subject != "subject" || *ms[0].ContentType != "text/plain" {
		t.Errorf("properties are %v, %v", ms[0].ApplicationProperties, ms[0].Subject)
	}
	if until := time.Until(*ms[0].LockedUntil); until < 55*time.Second || until > time.Minute {
		t.Errorf("locked for %v", until)
	}
	for _, err := range []error{
		r.CompleteMessage(ctx, ms[0], nil),
		r.AbandonMessage(ctx, ms[1], &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"why": "later"}}),
		r.DeadLetterMessage(ctx, ms[2], &azservicebus.DeadLetterOptions{Reason: to.Ptr("bad"), ErrorDescription: to.Ptr("very")}),
		r.RenewMessageLock(ctx, ms[3], nil),
		r.CompleteMessage(ctx, ms[3], nil),
		r.DeferMessage(ctx, ms[4], nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	again := receive(t, r, 1)[0]
	if again.MessageID != "1" || again.DeliveryCount != 2 || again.ApplicationProperties["why"] != "later" {
		t.Errorf("abandoned: %s, delivery %d, %v", again.MessageID, again.DeliveryCount, again.ApplicationProperties)
	}
	if err := r.AbandonMessage(ctx, again, nil); err != nil { // the second failure is the last
		t.Fatal(err)
	}
	deferred := must(r.ReceiveDeferredMessages(ctx, []int64{*ms[4].SequenceNumber}, nil))(t)
	if len(deferred) != 1 || deferred[0].MessageID != "single" || deferred[0].State != azservicebus.MessageStateDeferred {
		t.Fatalf("deferred: %v", deferred)
	}
	if err := r.CompleteMessage(ctx, deferred[0], nil); err != nil {
		t.Fatal(err)
	}

	dlq := must(c.NewReceiverForQueue("q", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}))(t)
	dead := receive(t, dlq, 2)
	if *dead[0].DeadLetterReason != "bad" || *dead[0].DeadLetterErrorDescription != "very" || *dead[0].DeadLetterSource != "q" {
		t.Errorf("dead letter: %v %v %v", *dead[0].DeadLetterReason, *dead[0].DeadLetterErrorDescription, *dead[0].DeadLetterSource)
	}
	if *dead[1].DeadLetterReason != "MaxDeliveryCountExceeded" || dead[1].MessageID != "1" {
		t.Errorf("dead letter: %s %s", *dead[1].DeadLetterReason, dead[1].MessageID)
	}
	for _, m := range dead {
		if err := dlq.CompleteMessage(ctx, m, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := must(s.Count("q"))(t); n != (servicebus.Counts{}) {
		t.Errorf("left: %+v", n)
	}
}

// TestLockExpires: a late settlement is refused, and the message comes again,
// counted (SB-F-14, SB-F-18; gkinsman/AlmostServiceBus#20,
// Azure/azure-sdk-for-go#17382).
func TestLockExpires(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		s := servicebus.New()
		defer s.Close(t.Context())
		create(t, s, "q", servicebus.QueueProperties{})
		c := pipe(t, s)
		defer c.Close(t.Context())
		sender := must(c.NewSender("q", nil))(t)
		r := must(c.NewReceiverForQueue("q", nil))(t)
		began := time.Now()
		send(t, sender, message("a", "x"))
		first := receive(t, r, 1)[0]
		second := must(r.ReceiveMessages(t.Context(), 1, nil))(t)[0]
		if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("came again after %v", took)
		}
		if second.DeliveryCount != 2 {
			t.Errorf("delivery %d", second.DeliveryCount)
		}
		if err := r.CompleteMessage(t.Context(), first, nil); !isLockLost(err) {
			t.Errorf("late complete: %v", err)
		}
		if err := r.RenewMessageLock(t.Context(), first, nil); !isLockLost(err) {
			t.Errorf("late renewal: %v", err)
		}
		time.Sleep(40 * time.Second)
		if err := r.RenewMessageLock(t.Context(), second, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		if err := r.CompleteMessage(t.Context(), second, nil); err != nil {
			t.Errorf("complete within the renewed lock: %v", err)
		}
	})
}

// TestDuplicates: within the window an ID is taken once, whatever became of its
// message and whatever the body (SB-F-03, SB-F-04; floci-io/floci-az#164).
func TestDuplicates(t *testing.T) {
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{DuplicateDetection: true, Window: 20 * time.Second})
	c := dial(t, connection)
	sender := must(c.NewSender("q", nil))(t)
	r := must(c.NewReceiverForQueue("q", nil))(t)
	send(t, sender, message("a", "first"), message("a", "second"), message("b", "other"))
	send(t, sender, message("a", "third"))
	for i, m := range receive(t, r, 2) {
		if want := []string{"first", "other"}[i]; string(m.Body) != want {
			t.Errorf("got %q, want %q", m.Body, want)
		}
		if err := r.CompleteMessage(t.Context(), m, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.Clock().Advance(19 * time.Second)
	send(t, sender, message("a", "after completion"))
	s.Restart(true)
	c = dial(t, connection)
	sender = must(c.NewSender("q", nil))(t)
	send(t, sender, message("a", "after restart"))
	if n := must(s.Count("q"))(t); n.Active != 0 {
		t.Errorf("%d messages within the window", n.Active)
	}
	// Dropped duplicates have not prolonged it.
	s.Clock().Advance(time.Second)
	send(t, sender, message("a", "after the window"))
	if n := must(s.Count("q"))(t); n.Active != 1 {
		t.Errorf("%d messages after the window", n.Active)
	}
}

// TestSession: one holder, in order, state, renewal, and what ends it (SB-F-23,
// SB-F-24, SB-F-25).
func TestSession(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		ctx := t.Context()
		s := servicebus.New()
		defer s.Close(ctx)
		create(t, s, "q", servicebus.QueueProperties{RequiresSession: true})
		c := pipe(t, s)
		defer c.Close(ctx)
		sender := must(c.NewSender("q", nil))(t)
		if err := sender.SendMessage(ctx, message("no session", "x"), nil); err == nil {
			t.Error("a message without session was taken")
		}
		for _, id := range []string{"1", "2", "3"} {
			m := message(id, "x")
			m.SessionID = to.Ptr("a")
			send(t, sender, m)
		}
		ss := must(c.AcceptNextSessionForQueue(ctx, "q", nil))(t)
		if ss.SessionID() != "a" || time.Until(ss.LockedUntil()) != time.Minute {
			t.Errorf("session %q until %v", ss.SessionID(), ss.LockedUntil())
		}
		other := pipe(t, s)
		defer other.Close(ctx)
		if _, err := other.AcceptSessionForQueue(ctx, "q", "a", nil); err == nil {
			t.Error("the session was given to two")
		}
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		var e *azservicebus.Error
		if _, err := other.AcceptNextSessionForQueue(short, "q", nil); !errors.As(err, &e) || e.Code != azservicebus.CodeTimeout {
			t.Errorf("accept next of nothing: %v", err)
		}
		ms := receive(t, ss, 2)
		if err := ss.AbandonMessage(ctx, ms[0], nil); err != nil {
			t.Fatal(err)
		}
		if again := receive(t, ss, 1)[0]; again.MessageID != "1" || again.DeliveryCount != 2 {
			t.Errorf("after abandon: %s, delivery %d", again.MessageID, again.DeliveryCount)
		}
		if err := ss.SetSessionState(ctx, []byte("state"), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		if err := ss.RenewSessionLock(ctx, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second)
		if err := ss.CompleteMessage(ctx, ms[1], nil); err != nil {
			t.Errorf("complete under the renewed session: %v", err)
		}
		if err := ss.Close(ctx); err != nil { // closing counts nothing
			t.Fatal(err)
		}
		ss = must(other.AcceptSessionForQueue(ctx, "q", "a", nil))(t)
		if state := must(ss.GetSessionState(ctx, nil))(t); string(state) != "state" {
			t.Errorf("state %q", state)
		}
		if m := receive(t, ss, 1)[0]; m.MessageID != "1" || m.DeliveryCount != 2 {
			t.Errorf("after close: %s, delivery %d", m.MessageID, m.DeliveryCount)
		}
		time.Sleep(time.Minute + time.Second) // expiry counts
		ss = must(c.AcceptSessionForQueue(ctx, "q", "a", nil))(t)
		if m := receive(t, ss, 1)[0]; m.MessageID != "1" || m.DeliveryCount != 3 {
			t.Errorf("after expiry: %s, delivery %d", m.MessageID, m.DeliveryCount)
		}
		if ids := must(c.NewListSessionsForQueuePager("q", nil).NextPage(ctx))(t); fmt.Sprint(ids.Sessions) != "[a]" {
			t.Errorf("sessions %v", ids.Sessions)
		}
	})
}
