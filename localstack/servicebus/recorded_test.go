package servicebus_test

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/onceline/onceline/localstack/servicebus"
)

// TestRecorded holds what the tests of the vendor's SDK demand of the service
// (SB-F-45).
func TestRecorded(t *testing.T) {
	ctx := t.Context()
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{MaxDeliveries: 2})
	c := dial(t, connection)
	sender := must(c.NewSender("q", nil))(t)
	r := must(c.NewReceiverForQueue("q", nil))(t)
	dlq := must(c.NewReceiverForQueue("q", &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}))(t)

	t.Run("a message without ID gets one, and keeps the rest", func(t *testing.T) {
		for range 2 {
			err := sender.SendAMQPAnnotatedMessage(ctx, &azservicebus.AMQPAnnotatedMessage{
				DeliveryAnnotations: map[any]any{"x-opt-mine": "kept"},
				Properties:          &azservicebus.AMQPAnnotatedMessageProperties{Subject: to.Ptr("subject"), GroupID: to.Ptr("group")},
				Body:                azservicebus.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("x")}},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
		}
		ms := receive(t, r, 2)
		for _, m := range ms {
			if m.MessageID == "" || *m.Subject != "subject" || *m.SessionID != "group" || m.RawAMQPMessage.DeliveryAnnotations["x-opt-mine"] != "kept" {
				t.Errorf("got %+v, %v", m, m.RawAMQPMessage.DeliveryAnnotations)
			}
			if err := r.CompleteMessage(ctx, m, nil); err != nil {
				t.Error(err)
			}
		}
		if ms[0].MessageID == ms[1].MessageID {
			t.Error("both got the same")
		}
	})
	t.Run("dead letters count no further, and never move again", func(t *testing.T) {
		send(t, sender, message("a", "x"))
		if err := r.DeadLetterMessage(ctx, receive(t, r, 1)[0], nil); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			m := receive(t, dlq, 1)[0]
			if m.DeliveryCount != 1 {
				t.Errorf("delivery %d", m.DeliveryCount)
			}
			if err := dlq.AbandonMessage(ctx, m, &azservicebus.AbandonMessageOptions{PropertiesToModify: map[string]any{"k": "v"}}); err != nil {
				t.Fatal(err)
			}
		}
		m := receive(t, dlq, 1)[0]
		s.Clock().Advance(time.Minute)
		if again := receive(t, dlq, 1)[0]; again.DeliveryCount != 1 || again.ApplicationProperties["k"] != "v" || again.MessageID != m.MessageID {
			t.Errorf("after expiry: delivery %d, %v", again.DeliveryCount, again.ApplicationProperties)
		}
	})
	t.Run("a change of the entity detaches its links, which clients attach anew", func(t *testing.T) {
		c := must(azservicebus.NewClientFromConnectionString(connection, nil))(t)
		defer c.Close(ctx)
		sender := must(c.NewSender("q", nil))(t)
		send(t, sender, message("before", "x"))
		if err := s.UpdateQueue("q", servicebus.QueueProperties{MaxDeliveries: 3}); err != nil {
			t.Fatal(err)
		}
		send(t, sender, message("after", "x"))
		if n := must(s.Count("q"))(t); n.Active != 2 {
			t.Errorf("%+v", n)
		}
	})
}
