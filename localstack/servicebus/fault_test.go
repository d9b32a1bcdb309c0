package servicebus_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/onceline/onceline/internal/bubbletest"
	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/servicebus"
)

// TestPublishFaults: what the server has and what the client hears, by kind.
func TestPublishFaults(t *testing.T) {
	for _, c := range []struct {
		name            string
		f               fault.Fault
		stored, applied int
		fails           bool
	}{
		{"lose request", fault.Fault{Kind: fault.LoseRequest}, 0, 0, true},
		{"lose response", fault.Fault{Kind: fault.LoseResponse}, 1, 1, true},
		{"lose response and cut", fault.Fault{Kind: fault.LoseResponse, Cut: true}, 1, 1, true},
		{"delay", fault.Fault{Kind: fault.Delay, Delay: 10 * time.Second}, 1, 1, false},
		{"long delay", fault.Fault{Kind: fault.Delay, Delay: 2 * time.Minute}, 0, 0, true},
		{"cut", fault.Fault{Kind: fault.Cut}, 0, 0, true},
		{"error", fault.Fault{Kind: fault.Error, Code: 413}, 0, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				s := servicebus.New()
				defer s.Close(t.Context())
				create(t, s, "q", servicebus.QueueProperties{})
				create(t, s, "other", servicebus.QueueProperties{})
				client := pipe(t, s)
				defer client.Close(t.Context())
				sender := must(client.NewSender("q", nil))(t)
				other := must(client.NewSender("other", nil))(t)
				send(t, sender, message("before", "x"))
				c.f.Op, c.f.Match, c.f.Times = fault.Publish, "Q", 1
				inj := s.Faults().Inject(c.f, nil)
				if err := inj.Err(); err != nil {
					t.Fatal(err)
				}
				send(t, other, message("other", "x"))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := sender.SendMessage(ctx, message("a", "x"), nil)
				if (err != nil) != c.fails {
					t.Errorf("send: %v", err)
				}
				if c.f.Kind == fault.Error && !errors.Is(err, azservicebus.ErrMessageTooLarge) {
					t.Errorf("error 413: %v", err)
				}
				if n := must(s.Count("q"))(t); n.Active != 1+c.stored || inj.Hits() != 1 || inj.Applied() != c.applied {
					t.Errorf("stored %d, hits %d, applied %d", n.Active-1, inj.Hits(), inj.Applied())
				}
				if n := must(s.Count("other"))(t); n.Active != 1 {
					t.Errorf("the other queue was struck")
				}
				again := pipe(t, s) // the SDK that retries nothing tells of a cut once more
				defer again.Close(t.Context())
				send(t, must(again.NewSender("q", nil))(t), message("after", "x"))
			})
		})
	}
}

// TestSettleFaults: a lost answer leaves the message settled, a lost request leaves
// it locked, and renewals by $management are struck by their name.
func TestSettleFaults(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		s := servicebus.New()
		defer s.Close(t.Context())
		create(t, s, "q", servicebus.QueueProperties{})
		client := pipe(t, s)
		defer client.Close(t.Context())
		sender := must(client.NewSender("q", nil))(t)
		r := must(client.NewReceiverForQueue("q", nil))(t)
		send(t, sender, message("a", "x"), message("b", "x"), message("c", "x"))
		ms := receive(t, r, 3)
		settle := func(f fault.Fault, m *azservicebus.ReceivedMessage) (*fault.Injection, error) {
			t.Helper()
			f.Op, f.Times = fault.Settle, 1
			inj := s.Faults().Inject(f, nil)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := r.CompleteMessage(ctx, m, nil)
			inj.Remove()
			return inj, err
		}
		if inj, err := settle(fault.Fault{Kind: fault.LoseResponse}, ms[0]); err == nil || inj.Applied() != 1 {
			t.Errorf("lost response: %v, applied %d", err, inj.Applied())
		}
		if n := must(s.Count("q"))(t); n.Active != 2 {
			t.Errorf("%d left after a lost response", n.Active)
		}
		if _, err := settle(fault.Fault{Kind: fault.LoseRequest}, ms[1]); err == nil {
			t.Error("a lost request succeeded")
		}
		_, err := settle(fault.Fault{Kind: fault.Error, Code: 410}, ms[2])
		if !isLockLost(err) {
			t.Errorf("error 410: %v", err)
		}
		if n := must(s.Count("q"))(t); n.Active != 2 {
			t.Errorf("%d left after lost requests", n.Active)
		}
		inj := s.Faults().Inject(fault.Fault{Op: fault.Settle, Kind: fault.Error, API: "com.microsoft:renew-lock", Code: 500, Times: 1}, nil)
		if err := r.RenewMessageLock(t.Context(), ms[1], nil); err == nil || inj.Hits() != 1 {
			t.Errorf("renewal: %v, hits %d", err, inj.Hits())
		}
		if err := r.RenewMessageLock(t.Context(), ms[1], nil); err != nil {
			t.Errorf("second renewal: %v", err)
		}
	})
}

// TestHandoutFault: what is lost on its way to the receiver stays locked for its
// time, and then comes again.
func TestHandoutFault(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		s := servicebus.New()
		defer s.Close(t.Context())
		create(t, s, "q", servicebus.QueueProperties{})
		client := pipe(t, s)
		defer client.Close(t.Context())
		sender := must(client.NewSender("q", nil))(t)
		r := must(client.NewReceiverForQueue("q", nil))(t)
		inj := s.Faults().Inject(fault.Fault{Op: fault.Receive, Kind: fault.LoseResponse, Times: 1}, nil)
		send(t, sender, message("a", "x"), message("b", "x"))
		if m := receive(t, r, 1)[0]; m.MessageID != "b" || inj.Hits() != 1 {
			t.Errorf("got %s, hits %d", m.MessageID, inj.Hits())
		}
		none(t, r, 50*time.Second)
		if m := must(r.ReceiveMessages(t.Context(), 1, nil))(t)[0]; m.MessageID != "a" || m.DeliveryCount != 2 {
			t.Errorf("got %s, delivery %d", m.MessageID, m.DeliveryCount)
		}
	})
}

// TestAdminFaults: tokens, attaches and requests by HTTP are struck by their names.
func TestAdminFaults(t *testing.T) {
	s, connection := start(t)
	create(t, s, "q", servicebus.QueueProperties{})
	client := dial(t, connection)
	sender := must(client.NewSender("q", nil))(t)
	inj := s.Faults().Inject(fault.Fault{Op: fault.Admin, Kind: fault.Error, API: "put-token", Match: "q", Code: 401, Times: 1}, nil)
	var e *azservicebus.Error
	if err := sender.SendMessage(t.Context(), message("a", "x"), nil); !errors.As(err, &e) || e.Code != azservicebus.CodeUnauthorizedAccess || inj.Hits() != 1 {
		t.Errorf("put-token: %v, hits %d", err, inj.Hits())
	}
	inj = s.Faults().Inject(fault.Fault{Op: fault.Admin, Kind: fault.Error, API: "attach", Match: "q", Code: 404, Times: 1}, nil)
	var ae *amqp.Error
	if err := sender.SendMessage(t.Context(), message("a", "x"), nil); !errors.As(err, &ae) || ae.Condition != amqp.ErrCondNotFound || inj.Hits() != 1 {
		t.Errorf("attach: %v, hits %d", err, inj.Hits())
	}
	send(t, sender, message("a", "x"))

	a := adminClient(t, connection)
	inj = s.Faults().Inject(fault.Fault{Op: fault.Admin, Kind: fault.LoseResponse, API: "PUT", Times: 1, Cut: true}, nil)
	if _, err := a.CreateQueue(t.Context(), "made", nil); err == nil || inj.Applied() != 1 {
		t.Errorf("create: %v, applied %d", err, inj.Applied())
	}
	if _, err := s.Count("made"); err != nil {
		t.Errorf("the queue wasn't made: %v", err)
	}
	inj = s.Faults().Inject(fault.Fault{Op: fault.Admin, Kind: fault.LoseRequest, API: "DELETE", Match: "made", Times: 1}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.DeleteQueue(ctx, "made", nil); err == nil || inj.Hits() != 1 {
		t.Errorf("delete: %v", err)
	}
	s.Faults().Inject(fault.Fault{Op: fault.Admin, Kind: fault.Error, API: "DELETE", Code: 429, Times: 1}, nil)
	if _, err := a.DeleteQueue(t.Context(), "made", nil); status(err) != 429 {
		t.Errorf("delete: %v", err)
	}
	must(a.DeleteQueue(t.Context(), "made", nil))(t)
}

// TestRestart: what is durable stays, locks go and count, connections end.
func TestRestart(t *testing.T) {
	for _, kill := range []bool{false, true} {
		bubbletest.Run(t, func(t *testing.T) {
			ctx := t.Context()
			s := servicebus.New()
			defer s.Close(ctx)
			create(t, s, "q", servicebus.QueueProperties{})
			create(t, s, "ss", servicebus.QueueProperties{RequiresSession: true})
			client := pipe(t, s)
			defer client.Close(ctx)
			sender := must(client.NewSender("q", nil))(t)
			send(t, sender, message("a", "x"), message("b", "x"))
			must(sender.ScheduleMessages(ctx, []*azservicebus.Message{message("later", "x")}, time.Now().Add(time.Hour), nil))(t)
			r := must(client.NewReceiverForQueue("q", nil))(t)
			held := receive(t, r, 1)[0]
			m := message("c", "x")
			id := "id"
			m.SessionID = &id
			send(t, must(client.NewSender("ss", nil))(t), m)
			ss := must(client.AcceptSessionForQueue(ctx, "ss", "id", nil))(t)
			receive(t, ss, 1)
			if err := ss.SetSessionState(ctx, []byte("state"), nil); err != nil {
				t.Fatal(err)
			}
			s.Restart(kill)

			again := pipe(t, s)
			defer again.Close(ctx)
			r2 := must(again.NewReceiverForQueue("q", nil))(t)
			ms := receive(t, r2, 2)
			if ms[0].MessageID != "a" || ms[0].DeliveryCount != 2 || ms[1].MessageID != "b" || ms[1].DeliveryCount != 1 {
				t.Errorf("kill %v: %s %d, %s %d", kill, ms[0].MessageID, ms[0].DeliveryCount, ms[1].MessageID, ms[1].DeliveryCount)
			}
			short, cancel := context.WithTimeout(ctx, 2*time.Minute)
			// The SDK tells of the lost lock, or only of the lost connection.
			if err := r.CompleteMessage(short, held, nil); err == nil {
				t.Errorf("kill %v: complete of what was held: %v", kill, err)
			}
			cancel()
			ss2 := must(again.AcceptSessionForQueue(ctx, "ss", "id", nil))(t)
			if state := must(ss2.GetSessionState(ctx, nil))(t); string(state) != "state" {
				t.Errorf("state %q", state)
			}
			if m := receive(t, ss2, 1)[0]; m.DeliveryCount != 2 {
				t.Errorf("kill %v: session's message, delivery %d", kill, m.DeliveryCount)
			}
			if n := must(s.Count("q"))(t); n.Scheduled != 1 {
				t.Errorf("%+v", n)
			}
		})
	}
}
