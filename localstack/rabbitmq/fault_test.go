package rabbitmq_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/localstack/fault"
	amqp "github.com/rabbitmq/amqp091-go"
)

// confirmation publishes one message and says how it was answered within a minute.
func confirmation(t *testing.T, ch *amqp.Channel, body string) string {
	t.Helper()
	must(t, ch.Confirm(false))
	c, err := ch.PublishWithDeferredConfirm("", "q", true, false, amqp.Publishing{Body: []byte(body)})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ok, err := c.WaitContext(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "nothing"
	case err != nil:
		return err.Error()
	case ok:
		return "ack"
	case ch.IsClosed():
		return "closed"
	}
	return "nack"
}

// Each kind of fault on a publish: what the publisher hears, and what is stored.
func TestFaultsOfPublish(t *testing.T) {
	for _, tc := range []struct {
		name   string
		fault  fault.Fault
		answer string
		stored int
		after  time.Duration
	}{
		{"lose request", fault.Fault{Kind: fault.LoseRequest}, "nothing", 0, time.Minute},
		{"lose response", fault.Fault{Kind: fault.LoseResponse}, "nothing", 1, time.Minute},
		{"lose response and cut", fault.Fault{Kind: fault.LoseResponse, Cut: true}, "closed", 1, 0},
		{"delay", fault.Fault{Kind: fault.Delay, Delay: 5 * time.Second}, "ack", 1, 5 * time.Second},
		{"delay and cut", fault.Fault{Kind: fault.Delay, Delay: 5 * time.Second, Cut: true}, "ack", 1, 5 * time.Second},
		{"cut", fault.Fault{Kind: fault.Cut}, "closed", 0, 0},
		{"error", fault.Fault{Kind: fault.Error}, "nack", 0, 0},
		{"error with a code", fault.Fault{Kind: fault.Error, Code: 404}, "closed", 0, 0},
		{"error of the connection", fault.Fault{Kind: fault.Error, Code: 541, Cut: true}, "closed", 0, 0},
		{"of another queue", fault.Fault{Kind: fault.Cut, Match: "other"}, "ack", 1, 0},
		{"of this queue", fault.Fault{Kind: fault.Error, Match: "q"}, "nack", 0, 0},
		{"by its name", fault.Fault{Op: fault.Any, Kind: fault.Error, API: "basic.publish"}, "nack", 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *inside) {
				setup := b.channel(t)
				queue(t, setup, "q", nil)
				ch := b.channel(t)
				put(t, ch, "q", "before")
				if tc.fault.Op == fault.Any && tc.fault.API == "" {
					tc.fault.Op = fault.Publish
				}
				tc.fault.Times = 1
				i := b.Faults().Inject(tc.fault, nil)
				must(t, i.Err())
				begin := time.Now()
				if got := confirmation(t, ch, "x"); got != tc.answer {
					t.Errorf("answered by %s, want %s", got, tc.answer)
				}
				if d := time.Since(begin); d != tc.after {
					t.Errorf("answered after %v, want %v", d, tc.after)
				}
				synctest.Wait()
				if n := messages(t, setup, "q") - 1; n != tc.stored {
					t.Errorf("%d are stored, want %d", n, tc.stored)
				}
				hit := 1
				if tc.fault.Match == "other" {
					hit = 0
				}
				applied := 0
				if tc.fault.Kind == fault.LoseResponse || tc.fault.Kind == fault.Delay {
					applied = 1
				}
				if i.Hits() != hit || i.Applied() != applied {
					t.Errorf("%d hits, %d applied; want %d, %d", i.Hits(), i.Applied(), hit, applied)
				}
				if !ch.IsClosed() { // a confirm that was lost is not made up for by a later one
					put(t, ch, "q", "y", "z")
				}
			})
		})
	}
}

// A confirm that is lost stays lost, whatever is confirmed behind it.
func TestLostConfirmIsNotCovered(t *testing.T) {
	bubble(t, func(t *testing.T, b *inside) {
		ch := b.channel(t)
		queue(t, ch, "q", nil)
		must(t, ch.Confirm(false))
		b.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Times: 1}, nil)
		var confirms []*amqp.DeferredConfirmation
		for range 10 {
			c, err := ch.PublishWithDeferredConfirm("", "q", true, false, amqp.Publishing{})
			must(t, err)
			confirms = append(confirms, c)
		}
		for i, c := range confirms[1:] {
			if !c.Wait() {
				t.Errorf("publish %d was not confirmed", i+2)
			}
		}
		synctest.Wait()
		select {
		case <-confirms[0].Done():
			t.Error("the lost confirm came")
		default:
		}
		must(t, ch.Close())
	})
}

// A mandatory message that reaches no queue has its return and its confirm lost
// together.
func TestLostReturn(t *testing.T) {
	bubble(t, func(t *testing.T, b *inside) {
		ch := b.channel(t)
		must(t, ch.Confirm(false))
		returns := ch.NotifyReturn(make(chan amqp.Return, 1))
		b.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Times: 1}, nil)
		must(t, ch.Publish("", "nowhere", true, false, amqp.Publishing{}))
		time.Sleep(time.Second)
		synctest.Wait()
		if len(returns) > 0 {
			t.Error("the return was not lost")
		}
	})
}

// Deliveries that are lost on their way are unsettled, and come back with the
// channel that they were for.
func TestLostHandout(t *testing.T) {
	bubble(t, func(t *testing.T, b *inside) {
		ch := b.channel(t)
		queue(t, ch, "q", nil)
		put(t, ch, "q", "1", "2")
		i := b.Faults().Inject(fault.Fault{Op: fault.Receive, Kind: fault.LoseResponse, Match: "q", Times: 1}, nil)
		consumer := b.channel(t)
		d := expect(t, subscribe(t, consumer, "q", "", 10, nil), "2")
		if i.Applied() != 1 || d.DeliveryTag != 2 {
			t.Errorf("%d applied; the next one has tag %d", i.Applied(), d.DeliveryTag)
		}
		must(t, d.Ack(false))
		must(t, consumer.Close())
		if d := fetch(t, ch, "q", "1"); !d.Redelivered {
			t.Error("what was lost on its way comes back as new")
		}
	})
}

// Settlements have no answer: a lost request leaves the delivery unsettled, and
// the loss of a response strikes none.
func TestFaultsOfSettle(t *testing.T) {
	bubble(t, func(t *testing.T, b *inside) {
		ch := b.channel(t)
		queue(t, ch, "q", nil)
		queue(t, ch, "other", nil)
		put(t, ch, "q", "1", "2")
		put(t, ch, "other", "o")
		unanswered := b.Faults().Inject(fault.Fault{Op: fault.Settle, Kind: fault.LoseResponse}, nil)
		lost := b.Faults().Inject(fault.Fault{Op: fault.Settle, Kind: fault.LoseRequest, Match: "q", Times: 1}, nil)
		consumer := b.channel(t)
		must(t, fetch(t, consumer, "other", "o").Ack(false))
		must(t, fetch(t, consumer, "q", "1").Ack(false))
		must(t, fetch(t, consumer, "q", "2").Ack(false))
		must(t, consumer.Close())
		fetch(t, ch, "q", "1")
		fetch(t, ch, "q", "")
		fetch(t, ch, "other", "")
		if unanswered.Hits() != 0 || lost.Hits() != 1 {
			t.Errorf("hits: %d, %d", unanswered.Hits(), lost.Hits())
		}
		cut := b.Faults().Inject(fault.Fault{Op: fault.Settle, Kind: fault.Cut, Times: 1}, nil)
		must(t, ch.Close())
		must(t, fetch(t, b.channel(t), "q", "1").Ack(false))
		must(t, cut.WaitHit(t.Context()))
		synctest.Wait()
		fetch(t, b.channel(t), "q", "1")
	})
}

// A settlement names no entity, and concerns the queue of its delivery and the
// exchange that the message came through.
func TestFaultsOfSettleByExchange(t *testing.T) {
	bubble(t, func(t *testing.T, b *inside) {
		ch := b.channel(t)
		queue(t, ch, "q", nil)
		must(t, ch.ExchangeDeclare("x", "fanout", true, false, false, false, nil))
		must(t, ch.QueueBind("q", "", "x", false, nil))
		must(t, ch.Publish("x", "", false, false, amqp.Publishing{Body: []byte("1")}))
		other := b.Faults().Inject(fault.Fault{Op: fault.Settle, Kind: fault.LoseRequest, Match: "y", Times: 1}, nil)
		lost := b.Faults().Inject(fault.Fault{Op: fault.Settle, Kind: fault.LoseRequest, Match: "x", Times: 1}, nil)
		consumer := b.channel(t)
		synctest.Wait()
		must(t, fetch(t, consumer, "q", "1").Ack(false))
		must(t, consumer.Close())
		fetch(t, ch, "q", "1")
		if lost.Hits() != 1 || other.Hits() != 0 {
			t.Errorf("hits: %d by its exchange, %d by another", lost.Hits(), other.Hits())
		}
	})
}

// Declarations, and what keeps a connection up, which is struck by name alone.
func TestFaultsOfAdmin(t *testing.T) {
	bubble(t, func(t *testing.T, b *inside) {
		ch := b.channel(t)
		i := b.Faults().Inject(fault.Fault{Op: fault.Admin, Kind: fault.Error, Code: 406, Match: "q", Times: 1}, nil)
		queue(t, ch, "other", nil)
		_, err := ch.QueueDeclare("q", true, false, false, false, nil)
		var e *amqp.Error
		if !errors.As(err, &e) || e.Code != 406 || i.Hits() != 1 {
			t.Fatalf("%v after %d hits", err, i.Hits())
		}
		lost := b.Faults().Inject(fault.Fault{Op: fault.Admin, Kind: fault.LoseResponse, Cut: true, Times: 1}, nil)
		if _, err := b.channel(t).QueueDeclare("q", true, false, false, false, nil); err == nil {
			t.Fatal("an answer that was lost came")
		}
		if lost.Applied() != 1 {
			t.Error("not applied")
		}
		if n := messages(t, b.channel(t), "q"); n != 0 {
			t.Error(n)
		}
		qos := b.Faults().Inject(fault.Fault{Op: fault.Any, Kind: fault.Error, Code: 406, API: "basic.qos", Times: 1}, nil)
		if err := b.channel(t).Qos(1, 0, false); err == nil || qos.Hits() != 1 {
			t.Errorf("qos: %v after %d hits", err, qos.Hits())
		}
		held := b.Faults().Inject(fault.Fault{Op: fault.Admin, Kind: fault.Delay, Delay: time.Minute, Times: 1}, nil)
		begin := time.Now()
		queue(t, b.channel(t), "late", nil)
		if d := time.Since(begin); d != time.Minute || held.Applied() != 1 {
			t.Errorf("after %v, %d applied", d, held.Applied())
		}
		login := b.Faults().Inject(fault.Fault{Op: fault.Any, Kind: fault.Error, Code: 530, API: "connection.open", Times: 1}, nil)
		_, err = amqp.DialConfig("amqp://guest:guest@inside/", amqp.Config{Dial: dialer(b)})
		if !errors.As(err, &e) || e.Code != 530 || login.Hits() != 1 {
			t.Errorf("open: %v after %d hits", err, login.Hits())
		}
	})
}
