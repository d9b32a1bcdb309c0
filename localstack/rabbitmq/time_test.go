package rabbitmq_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/localstack/rabbitmq"
	amqp "github.com/rabbitmq/amqp091-go"
)

// A connection without traffic lives by its heartbeats; one whose peer has gone
// silent ends.
func TestHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T, b *inside) {
		ch := b.channel(t)
		time.Sleep(10 * time.Minute)
		queue(t, ch, "q", nil)

		mute := b.pipe()
		_, err := mute.Write([]byte("AMQP\x00\x00\x09\x01"))
		must(t, err)
		ended := make(chan time.Duration)
		begin := time.Now()
		go func() { // reads the greeting, answers it and the tuning by hand, then nothing
			ended <- silentClient(mute, begin)
		}()
		if d := <-ended; d < 15*time.Second || d > 30*time.Second {
			t.Errorf("a peer that is silent was hung up on after %v, by a heartbeat of 10 s", d)
		}
	})
}

// In V4 a quorum queue takes a late delivery back at the instant, tells the
// consumer, counts no failure, and gives the consumer nothing until it has settled
// what it held (RMQ-F-13, RMQ-F-15).
func TestConsumerTimeoutOfQuorumQueue(t *testing.T) {
	for _, tc := range []struct {
		name           string
		server         []rabbitmq.Option
		queue, consume amqp.Table
		want           time.Duration
	}{
		{"default", nil, nil, nil, 30 * time.Minute},
		{"of the server", []rabbitmq.Option{rabbitmq.WithConsumerTimeout(time.Minute)}, nil, nil, time.Minute},
		{"of the queue", nil, amqp.Table{"x-consumer-timeout": 5000}, nil, 5 * time.Second},
		{"of the consumer", nil, amqp.Table{"x-consumer-timeout": 5000}, amqp.Table{"x-consumer-timeout": 7000}, 7 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *inside) {
				args := amqp.Table{"x-queue-type": "quorum"}
				for k, v := range tc.queue {
					args[k] = v
				}
				ch := b.channel(t)
				queue(t, ch, "q", args)
				put(t, ch, "q", "1")
				slow := b.channel(t)
				cancelled := slow.NotifyCancel(make(chan string, 1))
				ds := subscribe(t, slow, "q", "slow", 1, tc.consume)
				held := expect(t, ds, "1")
				time.Sleep(tc.want - time.Millisecond)
				if n := messages(t, ch, "q"); n != 0 {
					t.Fatal("the lease ended early")
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
				d := fetch(t, ch, "q", "1")
				if !d.Redelivered || d.Headers["x-acquired-count"] != int64(1) || d.Headers["x-delivery-count"] != nil {
					t.Errorf("taken back as redelivered=%v %v", d.Redelivered, d.Headers)
				}
				if tag := <-cancelled; tag != "slow" {
					t.Errorf("consumer %q was cancelled", tag)
				}
				put(t, ch, "q", "2")
				if n := messages(t, ch, "q"); n != 1 {
					t.Error("a late consumer got another message")
				}
				must(t, held.Ack(false)) // takes nothing: another holds the message
				time.Sleep(time.Second)
				if slow.IsClosed() {
					t.Error("a late ack closed the channel")
				}
				if n := messages(t, ch, "q"); n != 0 {
					t.Error("the consumer that has settled gets no more messages")
				}
				must(t, d.Nack(false, true))
			}, tc.server...)
		})
	}
}

// A client that doesn't understand basic.cancel from the server has its channel
// closed; a V4 classic queue has no consumer timeout at all.
func TestConsumerTimeoutOfClassicQueue(t *testing.T) {
	bubble(t, func(t *testing.T, b *inside) {
		ch := b.channel(t)
		queue(t, ch, "q", nil)
		put(t, ch, "q", "1")
		d := expect(t, subscribe(t, ch, "q", "", 1, nil), "1")
		time.Sleep(24 * time.Hour)
		must(t, d.Ack(false))
		if n := messages(t, ch, "q"); n != 0 {
			t.Error("the message came back")
		}
	})
}

// In V3 the channel finds its late deliveries once a minute, on any queue, and is
// closed.
func TestConsumerTimeoutOfOldReleases(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *inside) {
				ch := b.channel(t)
				queue(t, ch, "q", amqp.Table{"x-queue-type": kind})
				put(t, ch, "q", "1")
				slow := b.channel(t)
				closed := slow.NotifyClose(make(chan *amqp.Error, 1))
				begin := time.Now()
				expect(t, subscribe(t, slow, "q", "", 1, nil), "1")
				e := <-closed
				want := "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 90000 ms. This timeout value can be configured, see consumers doc guide to learn more"
				if e == nil || e.Code != 406 || e.Reason != want {
					t.Errorf("closed with %v", e)
				}
				if d := time.Since(begin); d != 2*time.Minute {
					t.Errorf("closed after %v, want the tick after 90 s", d)
				}
				if d := fetch(t, ch, "q", "1"); !d.Redelivered {
					t.Error("not redelivered")
				}
			}, rabbitmq.WithRelease(rabbitmq.V3), rabbitmq.WithConsumerTimeout(90*time.Second))
		})
	}
}

// The movable clock moves TTLs, queue expiry and leases, and no heartbeat.
func TestMovableClock(t *testing.T) {
	b := start(t)
	ch := b.channel(t)
	queue(t, ch, "dead", nil)
	queue(t, ch, "ttl", amqp.Table{"x-message-ttl": 60_000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
	queue(t, ch, "idle", amqp.Table{"x-expires": 3_600_000})
	queue(t, ch, "lease", amqp.Table{"x-queue-type": "quorum"})
	put(t, ch, "ttl", "1")
	put(t, ch, "lease", "held")
	fetch(t, ch, "lease", "held")
	b.Clock().Advance(59 * time.Second)
	if n := messages(t, ch, "ttl"); n != 1 {
		t.Fatal("expired early")
	}
	b.Clock().Advance(time.Second)
	if n := messages(t, ch, "dead"); n != 1 {
		t.Fatal("not dead-lettered when its time was over")
	}
	b.Clock().Advance(28 * time.Minute)
	if n := messages(t, ch, "lease"); n != 0 {
		t.Fatal("the lease ended early")
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	b.Clock().Advance(time.Minute)
	// The message was fetched, not consumed: there is no consumer to cancel, and
	// the channel is closed.
	if e := <-closed; e == nil || e.Code != 406 {
		t.Fatalf("closed with %v", e)
	}
	ch = b.channel(t)
	fetch(t, ch, "lease", "held")
	if _, err := b.channel(t).QueueDeclarePassive("idle", true, false, false, false, nil); err != nil {
		t.Fatalf("expired early: %v", err)
	}
	b.Clock().Advance(time.Hour)
	if _, err := b.channel(t).QueueDeclarePassive("idle", true, false, false, false, nil); err == nil {
		t.Fatal("a queue that nobody used is still there")
	}
}

// A queue in use doesn't expire: a consumer, a get and a declaration keep it.
func TestQueueExpiry(t *testing.T) {
	bubble(t, func(t *testing.T, b *inside) {
		ch := b.channel(t)
		args := amqp.Table{"x-expires": 10_000}
		queue(t, ch, "q", args)
		for range 5 {
			time.Sleep(8 * time.Second)
			fetch(t, ch, "q", "")
			time.Sleep(8 * time.Second)
			queue(t, ch, "q", args)
		}
		_ = subscribe(t, ch, "q", "c", 1, nil)
		time.Sleep(time.Hour)
		must(t, ch.Cancel("c", false))
		time.Sleep(9 * time.Second)
		if n := messages(t, ch, "q"); n != 0 { // a passive declaration is no use
			t.Fatal(n)
		}
		time.Sleep(2 * time.Second)
		if _, err := ch.QueueDeclarePassive("q", true, false, false, false, nil); err == nil {
			t.Error("still there 11 s after its last use")
		}
	})
}

// Each message expires by the sooner of its own TTL and its queue's, also one that
// was given back meanwhile, at the time that it had from its start.
func TestMessageTTL(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *inside) {
				ch := b.channel(t)
				queue(t, ch, "q", amqp.Table{"x-queue-type": kind, "x-message-ttl": 10_000})
				must(t, ch.Confirm(false))
				for i, ttl := range []string{"1000", "60000", ""} {
					c, err := ch.PublishWithDeferredConfirm("", "q", true, false, amqp.Publishing{Body: fmt.Append(nil, i), Expiration: ttl})
					must(t, err)
					c.Wait()
				}
				time.Sleep(time.Second)
				if n := messages(t, ch, "q"); n != 2 {
					t.Fatalf("%d messages after 1 s", n)
				}
				d := fetch(t, ch, "q", "1")
				time.Sleep(8 * time.Second)
				must(t, d.Nack(false, true))
				if n := messages(t, ch, "q"); n != 2 {
					t.Fatalf("%d messages after 9 s", n)
				}
				time.Sleep(time.Second)
				if n := messages(t, ch, "q"); n != 0 {
					t.Fatalf("%d messages after 10 s", n)
				}
			})
		})
	}
}
