package rabbitmq_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/onceline/onceline/localstack/rabbitmq"
	amqp "github.com/rabbitmq/amqp091-go"
)

// What is durable is there again after a restart and after a crash; the rest isn't
// (RMQ-F-03).
func TestRestart(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("kill=%v", kill), func(t *testing.T) {
			b := start(t, rabbitmq.PermitTransientQueues(true))
			ch := b.channel(t)
			closed := ch.NotifyClose(make(chan *amqp.Error, 1))
			must(t, ch.ExchangeDeclare("durable-x", "direct", true, false, false, false, nil))
			must(t, ch.ExchangeDeclare("transient-x", "direct", false, false, false, false, nil))
			for _, kind := range []string{"classic", "quorum"} {
				queue(t, ch, kind, amqp.Table{"x-queue-type": kind})
				must(t, ch.QueueBind(kind, kind, "durable-x", false, nil))
				must(t, ch.QueueBind(kind, kind, "transient-x", false, nil))
			}
			_, err := ch.QueueDeclare("transient", false, false, false, false, nil)
			must(t, err)
			_, err = ch.QueueDeclare("exclusive", true, false, true, false, nil)
			must(t, err)
			unconfirmed := b.channel(t)
			confirmed := b.channel(t)
			must(t, confirmed.Confirm(false))
			for _, kind := range []string{"classic", "quorum"} {
				for _, mode := range []uint8{2, 1, 2} {
					c, err := confirmed.PublishWithDeferredConfirm("durable-x", kind, true, false, amqp.Publishing{Body: fmt.Appendf(nil, "confirmed-%d", mode), DeliveryMode: mode})
					must(t, err)
					c.Wait()
				}
				must(t, unconfirmed.Publish("durable-x", kind, false, false, amqp.Publishing{Body: []byte("unconfirmed"), DeliveryMode: 2}))
				_, err := unconfirmed.QueueDeclarePassive(kind, true, false, false, false, nil)
				must(t, err)
			}
			put(t, confirmed, "transient", "x")
			held := b.channel(t)
			fetch(t, held, "classic", "confirmed-2")
			fetch(t, held, "quorum", "confirmed-2")

			b.Restart(kill)
			e := <-closed
			if forced := e != nil && e.Code == amqp.ConnectionForced; forced == kill {
				t.Errorf("connections ended with %v", e)
			}

			ch = b.channel(t)
			for _, name := range []string{"transient", "exclusive"} {
				if _, err := b.channel(t).QueueDeclarePassive(name, false, false, false, false, nil); err == nil {
					t.Errorf("queue %s is still there", name)
				}
			}
			if err := b.channel(t).ExchangeDeclarePassive("transient-x", "direct", false, false, false, false, nil); err == nil {
				t.Error("the transient exchange is still there")
			}
			want := map[string][]string{
				"classic": {"confirmed-2 true", "confirmed-2 false", "unconfirmed false"},
				"quorum":  {"confirmed-2 true", "confirmed-1 false", "confirmed-2 false", "unconfirmed false"},
			}
			if kill {
				want["classic"] = []string{"confirmed-2 true", "confirmed-2 true"}
			}
			for kind, want := range want {
				var got []string
				for {
					d, ok, err := ch.Get(kind, true)
					must(t, err)
					if !ok {
						break
					}
					got = append(got, fmt.Sprintf("%s %v", d.Body, d.Redelivered))
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s has %v, want %v", kind, got, want)
				}
				put(t, ch, kind, "new")
				must(t, ch.Publish("durable-x", kind, true, false, amqp.Publishing{Body: []byte("bound")}))
				if n := messages(t, ch, kind); n != 2 {
					t.Errorf("%s: %d new messages, want 2: the binding is lost", kind, n)
				}
			}
		})
	}
}

// A restart ends connections that are in the middle of something, and those that
// don't listen, and leaves none behind.
func TestRestartUnderLoad(t *testing.T) {
	b := start(t)
	setup := b.channel(t)
	queue(t, setup, "q", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": -1})
	stop := make(chan struct{})
	stored := make(chan map[string]bool)
	for p := range 4 {
		go func() {
			known := map[string]bool{}
			defer func() { stored <- known }()
			var ch *amqp.Channel
			var c *amqp.Connection
			for i := 0; ; i++ {
				select {
				case <-stop:
					if c != nil {
						_ = c.Close()
					}
					return
				default:
				}
				var err error
				if ch == nil || ch.IsClosed() {
					if c, err = amqp.Dial(b.url); err != nil {
						continue
					}
					if ch, err = c.Channel(); err != nil {
						continue
					}
					_ = ch.Confirm(false)
				}
				id := fmt.Sprintf("%d-%d", p, i)
				if d, err := ch.PublishWithDeferredConfirm("", "q", true, false, amqp.Publishing{Body: []byte(id), DeliveryMode: 2}); err == nil && d.Wait() {
					known[id] = true
				}
			}
		}()
	}
	for i := range 10 {
		_ = b.dial(t)
		b.Restart(i%2 == 0)
	}
	close(stop)
	want := map[string]bool{}
	for range 4 {
		for id := range <-stored {
			want[id] = true
		}
	}
	ch := b.channel(t)
	for {
		d, ok, err := ch.Get("q", true)
		must(t, err)
		if !ok {
			break
		}
		delete(want, string(d.Body))
	}
	if len(want) > 0 {
		t.Errorf("%d confirmed messages are lost", len(want))
	}
}
