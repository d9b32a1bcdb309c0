package servicebus_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/onceline/onceline/internal/bubbletest"
	"github.com/onceline/onceline/localstack/servicebus"
)

// TestTimeToLive: a message lives as long as it or its entity says, whichever is
// less; then it is gone, or a dead letter. One that is locked lives on while it is
// (SB-F-19, SB-F-20, SB-F-41).
func TestTimeToLive(t *testing.T) {
	ctx := t.Context()
	s, connection := start(t)
	create(t, s, "gone", servicebus.QueueProperties{})
	create(t, s, "dead", servicebus.QueueProperties{TimeToLive: 30 * time.Second, DeadLetterExpired: true})
	c := dial(t, connection)
	short, long := message("short", "x"), message("long", "x")
	short.TimeToLive, long.TimeToLive = to.Ptr(10*time.Second), to.Ptr(time.Hour)
	send(t, must(c.NewSender("gone", nil))(t), short, long)
	send(t, must(c.NewSender("dead", nil))(t), short, long)
	counts := func(q string, active, dead int) {
		t.Helper()
		if n := must(s.Count(q))(t); n.Active != active || n.DeadLettered != dead {
			t.Errorf("%s: %+v, want %d and %d", q, n, active, dead)
		}
	}
	s.Clock().Advance(9 * time.Second)
	counts("gone", 2, 0)
	counts("dead", 2, 0)
	s.Clock().Advance(2 * time.Second)
	counts("gone", 1, 0)
	counts("dead", 1, 1)
	r := must(c.NewReceiverForQueue("dead", nil))(t)
	held := receive(t, r, 1)[0]
	if held.MessageID != "long" {
		t.Fatalf("got %s", held.MessageID)
	}
	s.Clock().Advance(25 * time.Second) // past the queue's 30 s, within the lock
	counts("dead", 1, 1)
	if err := r.AbandonMessage(ctx, held, nil); err != nil {
		t.Fatal(err)
	}
	counts("dead", 0, 2)
	dead := receive(t, must(c.NewReceiverForQueue("dead", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}))(t), 2)
	for _, m := range dead {
		if *m.DeadLetterReason != "TTLExpiredException" {
			t.Errorf("reason %s", *m.DeadLetterReason)
		}
	}
	s.Clock().Advance(365 * 24 * time.Hour)
	counts("dead", 0, 2)
	counts("gone", 0, 0)
}

// TestForward: messages go on to where their entity forwards, with the number of
// where they were sent; so do dead letters, and after four hops they stop
// (SB-F-19).
func TestForward(t *testing.T) {
	ctx := t.Context()
	s, connection := start(t)
	create(t, s, "end", servicebus.QueueProperties{})
	create(t, s, "letters", servicebus.QueueProperties{})
	create(t, s, "first", servicebus.QueueProperties{ForwardTo: "end"})
	create(t, s, "strict", servicebus.QueueProperties{ForwardDeadLettersTo: "letters"})
	c := dial(t, connection)
	send(t, must(c.NewSender("first", nil))(t), message("a", "x"))
	if m := receive(t, must(c.NewReceiverForQueue("end", nil))(t), 1)[0]; m.MessageID != "a" || *m.EnqueuedSequenceNumber != 1 {
		t.Errorf("forwarded: %s, number %v", m.MessageID, m.EnqueuedSequenceNumber)
	}
	send(t, must(c.NewSender("strict", nil))(t), message("b", "x"))
	r := must(c.NewReceiverForQueue("strict", nil))(t)
	if err := r.DeadLetterMessage(ctx, receive(t, r, 1)[0], &azservicebus.DeadLetterOptions{Reason: to.Ptr("why")}); err != nil {
		t.Fatal(err)
	}
	if m := receive(t, must(c.NewReceiverForQueue("letters", nil))(t), 1)[0]; *m.DeadLetterReason != "why" || *m.DeadLetterSource != "strict" {
		t.Errorf("dead letter: %+v", m)
	}
	for i := range 6 {
		p := servicebus.QueueProperties{}
		if i > 0 {
			p.ForwardTo = fmt.Sprint("hop", i-1)
		}
		create(t, s, fmt.Sprint("hop", i), p)
	}
	send(t, must(c.NewSender("hop4", nil))(t), message("four", "x"))
	send(t, must(c.NewSender("hop5", nil))(t), message("five", "x"))
	if n := must(s.Count("hop0"))(t); n.Active != 1 {
		t.Errorf("%d came through", n.Active)
	}
	if n := must(s.Count("hop1"))(t); n.Transfer != 1 {
		t.Errorf("the fifth hop: %+v", n)
	}
}

// TestReceiveAndDelete: what is handed out is gone (SB-F-30).
func TestReceiveAndDelete(t *testing.T) {
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{})
	c := dial(t, connection)
	send(t, must(c.NewSender("q", nil))(t), message("a", "x"), message("b", "x"))
	r := must(c.NewReceiverForQueue("q", &azservicebus.ReceiverOptions{ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete}))(t)
	if ms := receive(t, r, 1); ms[0].MessageID != "a" {
		t.Errorf("got %s", ms[0].MessageID)
	}
	if n := must(s.Count("q"))(t); n.Active != 1 {
		t.Errorf("%d left", n.Active)
	}
}

// TestSettleElsewhere: a lock outlives its connection and can be settled by its
// token alone from another one (SB-F-15), but once (Azure/azure-sdk-for-go#17382).
func TestSettleElsewhere(t *testing.T) {
	ctx := t.Context()
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{})
	first := dial(t, connection)
	send(t, must(first.NewSender("q", nil))(t), message("a", "x"), message("b", "x"), message("c", "x"))
	ms := receive(t, must(first.NewReceiverForQueue("q", nil))(t), 3)
	first.Close(ctx)
	r := must(dial(t, connection).NewReceiverForQueue("q", nil))(t)
	none(t, r, 50*time.Millisecond)
	bare := func(i int) *azservicebus.ReceivedMessage {
		return &azservicebus.ReceivedMessage{LockToken: ms[i].LockToken}
	}
	if err := r.RenewMessageLock(ctx, bare(0), nil); err != nil {
		t.Error(err)
	}
	if err := r.CompleteMessage(ctx, bare(0), nil); err != nil {
		t.Error(err)
	}
	if err := r.CompleteMessage(ctx, bare(0), nil); !isLockLost(err) {
		t.Errorf("completed twice: %v", err)
	}
	if err := r.DeadLetterMessage(ctx, bare(1), &azservicebus.DeadLetterOptions{Reason: to.Ptr("why"), PropertiesToModify: map[string]any{"k": int64(1)}}); err != nil {
		t.Error(err)
	}
	if err := r.AbandonMessage(ctx, bare(2), nil); err != nil {
		t.Error(err)
	}
	if m := receive(t, r, 1)[0]; m.MessageID != "c" || m.DeliveryCount != 2 {
		t.Errorf("got %s, delivery %d", m.MessageID, m.DeliveryCount)
	}
	dead := receive(t, must(dial(t, connection).NewReceiverForQueue("q", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}))(t), 1)[0]
	if *dead.DeadLetterReason != "why" || dead.ApplicationProperties["k"] != int64(1) {
		t.Errorf("dead letter %v", dead.ApplicationProperties)
	}
}

// TestUpdateLosesLocks: changing an entity takes the locks on its messages
// (SB-F-43).
func TestUpdateLosesLocks(t *testing.T) {
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{})
	c := dial(t, connection)
	send(t, must(c.NewSender("q", nil))(t), message("a", "x"))
	r := must(c.NewReceiverForQueue("q", nil))(t)
	m := receive(t, r, 1)[0]
	if err := s.UpdateQueue("q", servicebus.QueueProperties{LockDuration: 5 * time.Second}); err != nil {
		t.Fatal(err)
	}
	if err := r.CompleteMessage(t.Context(), m, nil); !isLockLost(err) {
		t.Errorf("completed after the change: %v", err)
	}
}

// TestOrder: messages that come back keep their place, however they come back.
func TestOrder(t *testing.T) {
	ctx := t.Context()
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{MaxDeliveries: 100})
	c := dial(t, connection)
	var batch []*azservicebus.Message
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprintf("%02d", i))
		batch = append(batch, message(want[i], "x"))
	}
	send(t, must(c.NewSender("q", nil))(t), batch...)
	r := must(c.NewReceiverForQueue("q", nil))(t)
	ms := receive(t, r, 20)
	for _, i := range []int{7, 3, 19, 0, 11, 12, 1} {
		if err := r.AbandonMessage(ctx, ms[i], nil); err != nil {
			t.Fatal(err)
		}
	}
	s.Clock().Advance(time.Minute)
	var got []string
	for _, m := range receive(t, r, 30) {
		got = append(got, m.MessageID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// TestLimits: what is too large or too long is refused as a whole, and nothing of
// it is stored (SB-F-01, SB-F-10, SB-F-11).
func TestLimits(t *testing.T) {
	ctx := t.Context()
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{})
	sender := must(dial(t, connection).NewSender("q", nil))(t)
	b := must(sender.NewMessageBatch(ctx, nil))(t)
	if err := b.AddMessage(message("a", strings.Repeat("x", servicebus.StandardSize)), nil); err == nil {
		t.Error("a message over the limit went into a batch")
	}
	if err := sender.SendMessage(ctx, message("a", strings.Repeat("x", servicebus.StandardSize)), nil); err == nil {
		t.Error("a message over the limit was sent")
	}
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	b = must(sender.NewMessageBatch(ctx, nil))(t)
	for _, id := range []string{"fine", strings.Repeat("i", 129)} {
		if err := b.AddMessage(message(id, "x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := sender.SendMessageBatch(short, b, nil); err == nil {
		t.Error("an ID of 129 characters was taken")
	}
	if n := must(s.Count("q"))(t); n.Active != 0 {
		t.Errorf("%d stored", n.Active)
	}
}

// TestPartitioned: on a partitioned queue the key is part of what is unique
// (SB-F-05).
func TestPartitioned(t *testing.T) {
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{DuplicateDetection: true, Partitioned: true})
	sender := must(dial(t, connection).NewSender("q", nil))(t)
	for _, key := range []*string{nil, nil, to.Ptr("a"), to.Ptr("b"), to.Ptr("a")} {
		m := message("id", "x")
		m.PartitionKey = key
		send(t, sender, m)
	}
	if n := must(s.Count("q"))(t); n.Active != 3 {
		t.Errorf("%d stored, want 3", n.Active)
	}
}

// TestAcceptNext: who waits for any session gets the first that has messages; a
// cut connection gives its sessions back at once and uncounted.
func TestAcceptNext(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		ctx := t.Context()
		s := servicebus.New()
		defer s.Close(ctx)
		create(t, s, "q", servicebus.QueueProperties{RequiresSession: true})
		first, second := pipe(t, s), pipe(t, s)
		defer second.Close(ctx)
		sender := must(second.NewSender("q", nil))(t)
		accepted := make(chan *azservicebus.SessionReceiver)
		go func() {
			ss, err := first.AcceptNextSessionForQueue(ctx, "q", nil)
			if err != nil {
				t.Error(err)
			}
			accepted <- ss
		}()
		synctest.Wait()
		m := message("1", "x")
		m.SessionID = to.Ptr("a")
		send(t, sender, m)
		ss := <-accepted
		if got := receive(t, ss, 1)[0]; ss.SessionID() != "a" || got.DeliveryCount != 1 {
			t.Errorf("session %s, delivery %d", ss.SessionID(), got.DeliveryCount)
		}
		send(t, sender, m) // comes to who holds the session
		receive(t, ss, 1)
		first.Close(ctx)
		began := time.Now()
		ss = must(second.AcceptNextSessionForQueue(ctx, "q", nil))(t)
		if ms := receive(t, ss, 2); ms[0].DeliveryCount != 1 || time.Since(began) > time.Second {
			t.Errorf("delivery %d after %v", ms[0].DeliveryCount, time.Since(began))
		}
	})
}
