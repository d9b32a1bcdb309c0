package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	emulator "github.com/onceline/onceline/localstack/rabbitmq"
)

// contract is what the adapter promises on any broker and kind of queue. The
// emulator and a real server run it.
func contract(t *testing.T, kind Kind, dial func(t testing.TB, opts ...Option) broker.Conn) {
	open := func(t *testing.T, opts ...Option) broker.Conn { return dial(t, append(opts, Queues(kind))...) }
	t.Run("round trip", func(t *testing.T) {
		c := open(t)
		e := entity(t, c)
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		m := broker.Message{ID: "id ü 1", Copy: "c", Key: "k/ä", Body: []byte{0, 1, 255}, Time: time.UnixMilli(1700000000123),
			Headers: broker.Headers{{Key: "b", Value: "2"}, {Key: "a", Value: "\x00\xff"}, {Key: "b", Value: ""}, {Key: "CC", Value: "x"}, {Key: "x-y", Value: "z"}}}
		plain := broker.Message{ID: "plain", Headers: broker.Headers{{Key: "a", Value: "1"}, {Key: "b", Value: "\xff"}}}
		publish(t, p, m, plain)
		ds := receive(t, r, 2)
		got := ds[0]
		if got.ID != m.ID || got.Copy != m.Copy || got.Key != m.Key || string(got.Body) != string(m.Body) || !got.Time.Equal(m.Time) {
			t.Fatalf("%+v", got.Message)
		}
		if fmt.Sprintf("%q", got.Headers) != fmt.Sprintf("%q", m.Headers) {
			t.Fatalf("headers %q", got.Headers)
		}
		if ds[1].ID != "plain" || fmt.Sprintf("%q", ds[1].Headers) != fmt.Sprintf("%q", plain.Headers) || len(ds[1].Body) != 0 {
			t.Fatalf("%+v", ds[1].Message)
		}
		wantStates(t, settle(t, r, broker.Ack, ds...), broker.Sent)
		wantStates(t, settle(t, r, broker.Ack, ds...), broker.Sent) // without a frame
		if os := settle(t, r, broker.Nack, ds...); !errors.Is(os[0].Err, broker.ErrConflict) {
			t.Fatal(os)
		}
		publish(t, p, messages(1, 0)...)
		if ds := receive(t, r, 1); ds[0].ID != "m-0" {
			t.Fatalf("%q came", ds[0].ID)
		} else if o, err := ds[0].Extend(t.Context(), 0); !errors.Is(err, broker.ErrUnsupported) || o.State != broker.Unknown {
			t.Fatal(o, err)
		} else {
			wantStates(t, settle(t, r, broker.Ack, ds...), broker.Sent)
		}
	})
	t.Run("exact", func(t *testing.T) {
		c := open(t)
		e := entity(t, c)
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		publish(t, p, messages(30, 0)...)
		ds := receive(t, r, 10)
		// All else is there for somebody else, also after the acks.
		r2 := receiverOf(t, c, e.Subscription)
		wantStates(t, settle(t, r, broker.Ack, ds[3:]...), broker.Sent)
		ds2 := receive(t, r2, 20)
		seen := map[string]bool{}
		for _, d := range append(ds[:10:10], ds2...) {
			if seen[d.ID] {
				t.Fatalf("%s came twice", d.ID)
			}
			seen[d.ID] = true
		}
		wantStates(t, settle(t, r, broker.Ack, ds[:3]...), broker.Sent)
		wantStates(t, settle(t, r2, broker.Ack, ds2...), broker.Sent)
		closing(t, r)
		closing(t, r2)
		if ds := try(t, receiverOf(t, c, e.Subscription), 10, 300*time.Millisecond); len(ds) > 0 {
			t.Fatalf("%d came again, %s first", len(ds), ds[0].ID)
		}
	})
	t.Run("nack and attempts", func(t *testing.T) {
		c := open(t)
		e := entity(t, c)
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		publish(t, p, messages(1, 0)...)
		for want := 1; want <= 3; want++ {
			d := receive(t, r, 1)[0]
			if kind == Quorum && (d.Attempt.Number != want || d.Attempt.Trust != broker.Exact) {
				t.Fatalf("attempt %+v, want %d", d.Attempt, want)
			}
			if want < 3 {
				wantStates(t, settle(t, r, broker.Nack, d), broker.Sent)
			}
		}
		closing(t, r) // gives the third back
		r = receiverOf(t, c, e.Subscription)
		d := receive(t, r, 1)[0]
		if kind == Quorum && d.Attempt.Number != 4 {
			t.Fatalf("attempt %+v", d.Attempt)
		}
		wantStates(t, settle(t, r, broker.Ack, d), broker.Sent)
	})
	t.Run("nack with delay", func(t *testing.T) {
		c := open(t)
		e := entity(t, c)
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		publish(t, p, messages(2, 0)...)
		ds := receive(t, r, 2)
		begin := time.Now()
		o, err := ds[0].Nack(t.Context(), 300*time.Millisecond)
		if err != nil || o.State != broker.Sent {
			t.Fatal(o, err)
		}
		wantStates(t, settle(t, r, broker.Ack, ds[1]), broker.Sent)
		d := receive(t, r, 1)[0]
		if after := time.Since(begin); d.ID != ds[0].ID || after < 300*time.Millisecond || d.Attempt.Number != 2 || string(d.Body) != string(ds[0].Body) || len(d.Headers) > 0 {
			t.Fatalf("%+v after %s, attempt %+v", d.Message, after, d.Attempt)
		}
		wantStates(t, settle(t, r, broker.Ack, d), broker.Sent)
	})
	t.Run("unroutable", func(t *testing.T) {
		c := open(t)
		e := entity(t, c)
		p := publisherOf(t, c, e.Topic)
		publish(t, p, messages(2, 0)...)
		only := broker.Entity{Topic: e.Topic + "-nobody"}
		if err := c.Ensure(t.Context(), only); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Delete(t.Context(), only) }()
		nobody := publisherOf(t, c, only.Topic)
		rs, err := nobody.Publish(t.Context(), messages(300, 0)...)
		if !errors.Is(err, broker.ErrUnroutable) {
			t.Fatal(err)
		}
		for _, r := range rs {
			if r.Verdict != broker.Refused || !errors.Is(r.Err, broker.ErrUnroutable) {
				t.Fatalf("%+v", r)
			}
		}
		if _, err := c.OpenPublisher(t.Context(), e.Topic+"-missing"); !errors.Is(err, broker.ErrNotFound) {
			t.Fatal(err)
		}
		if _, err := c.OpenReceiver(t.Context(), e.Topic+"/missing"); !errors.Is(err, broker.ErrNotFound) {
			t.Fatal(err)
		}
	})
	t.Run("dead letter", func(t *testing.T) {
		c := open(t)
		e := entity(t, c, func(e *broker.Entity) {
			e.DeadLetter = e.Topic + "-dead"
			if kind == Quorum {
				e.MaxDeliveries = 2
			}
		})
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		publish(t, p, broker.Message{ID: "poison", Key: "k", Headers: broker.Headers{{Key: "h", Value: "v"}}})
		d := receive(t, r, 1)[0]
		// Nobody reads the dead letters yet: the message stays.
		if o, err := d.DeadLetter(t.Context(), "no"); !errors.Is(err, broker.ErrUnroutable) || o.State != broker.Unknown {
			t.Fatal(o, err)
		}
		dead := entity(t, c, func(x *broker.Entity) { x.Topic, x.Subscription = e.DeadLetter, e.DeadLetter+"/all" })
		letters := receiverOf(t, c, dead.Subscription)
		if o, err := d.DeadLetter(t.Context(), "a reason ü"); err != nil || o.State != broker.Sent {
			t.Fatal(o, err)
		}
		l := receive(t, letters, 1)[0]
		if l.ID != "poison" || l.Key != "k" || l.Headers.Get("h") != "v" || l.Headers.Get(driver.HeaderReason) != "a reason ü" ||
			l.Headers.Get(driver.HeaderSource) != e.Subscription || l.Headers.Get(driver.HeaderAttempts) != "1" {
			t.Fatalf("%+v", l.Message)
		}
		wantStates(t, settle(t, letters, broker.Ack, l), broker.Sent)
		if kind != Quorum {
			return
		}
		publish(t, p, messages(1, 7)...)
		wantStates(t, settle(t, r, broker.Nack, receive(t, r, 1)...), broker.Sent)
		wantStates(t, settle(t, r, broker.Nack, receive(t, r, 1)...), broker.Sent)
		l = receive(t, letters, 1)[0]
		if l.ID != "m-7" || l.Headers.Get(driver.HeaderAttempts) != "2" || l.Headers.Get(driver.HeaderReason) == "" {
			t.Fatalf("%+v", l.Message)
		}
		wantStates(t, settle(t, letters, broker.Ack, l), broker.Sent)
		if ds := try(t, r, 1, 200*time.Millisecond); len(ds) > 0 {
			t.Fatalf("%s came a third time", ds[0].ID)
		}
		// By consumers that die, the queue counts by itself.
		publish(t, p, messages(1, 8)...)
		for range 2 {
			dying := receiverOf(t, c, e.Subscription)
			receive(t, dying, 1)
			closing(t, dying)
		}
		l = receive(t, letters, 1)[0]
		if l.ID != "m-8" || l.Headers.Get(driver.HeaderReason) != "delivery_limit" || l.Headers.Get(driver.HeaderSource) != e.Subscription {
			t.Fatalf("%+v", l.Message)
		}
		wantStates(t, settle(t, letters, broker.Ack, l), broker.Sent)
	})
	t.Run("order", func(t *testing.T) {
		c := open(t)
		e := entity(t, c, func(e *broker.Entity) { e.Ordered = true })
		p := publisherOf(t, c, e.Topic)
		r, r2 := receiverOf(t, c, e.Subscription), receiverOf(t, c, e.Subscription)
		publish(t, p, messages(6, 0)...)
		given := false
		for want := 0; want < 6; {
			ds := try(t, r, 10, mustCome)
			if len(ds) != 1 || ds[0].ID != fmt.Sprintf("m-%d", want) {
				t.Fatalf("%d deliveries, %+v, want m-%d", len(ds), ds, want)
			}
			if want == 2 && !given {
				given = true
				if o, err := ds[0].Nack(t.Context(), 100*time.Millisecond); err != nil || o.State != broker.Pending {
					t.Fatal(o, err)
				}
				continue
			}
			wantStates(t, settle(t, r, broker.Ack, ds...), broker.Sent)
			want++
		}
		if ds := try(t, r2, 1, 50*time.Millisecond); len(ds) > 0 {
			t.Fatal("two receivers are active")
		}
	})
	t.Run("window", func(t *testing.T) {
		c := open(t, Window(20))
		e := entity(t, c)
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		publish(t, p, messages(100, 0)...)
		got := 0
		for got < 100 {
			ds := receive(t, r, 1)
			ds = append(ds, try(t, r, 7, time.Second)...)
			got += len(ds)
			wantStates(t, settle(t, r, broker.Ack, ds...), broker.Sent)
			if got == 100 {
				break
			}
		}
		publish(t, p, messages(5, 200)...)
		receive(t, r, 1)
		closing(t, r)
		if ds := receive(t, receiverOf(t, c, e.Subscription), 5); len(ds) != 5 {
			t.Fatal(len(ds))
		}
	})
	t.Run("cancel", func(t *testing.T) {
		c := open(t)
		e := entity(t, c)
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		for i := range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				time.Sleep(time.Duration(i*40) * time.Microsecond)
				cancel()
			}()
			done := make(chan []broker.Delivery, 1)
			go func() {
				ds, err := r.Receive(ctx, 2)
				if len(ds) == 0 && !errors.Is(err, context.Canceled) {
					t.Errorf("%v", err)
				}
				done <- ds
			}()
			publish(t, p, messages(1, i)...)
			ds := <-done
			cancel()
			if len(ds) == 0 {
				ds = try(t, r, 1, time.Second)
			}
			if len(ds) != 1 || ds[0].ID != fmt.Sprintf("m-%d", i) {
				t.Fatalf("round %d: %d deliveries", i, len(ds))
			}
			wantStates(t, settle(t, r, broker.Ack, ds...), broker.Sent)
		}
	})
	t.Run("ensure", func(t *testing.T) {
		c := open(t)
		e := entity(t, c)
		if err := c.Ensure(t.Context(), e); err != nil {
			t.Fatal("again:", err)
		}
		for name, bad := range map[string]struct {
			e    broker.Entity
			want error
		}{
			"window":     {broker.Entity{Topic: "x", Window: time.Minute}, broker.ErrUnsupported},
			"partitions": {broker.Entity{Topic: "x", Partitions: 2}, broker.ErrUnsupported},
			"body":       {broker.Entity{Topic: "x", MaxBody: 2}, broker.ErrUnsupported},
			"limit":      {broker.Entity{Topic: "x", Subscription: "x/y", MaxDeliveries: 2}, broker.ErrUnsupported},
			"reserved":   {broker.Entity{Topic: "amq.x"}, broker.ErrInvalid},
			"nothing":    {broker.Entity{Topic: "x/"}, broker.ErrInvalid},
			"lease":      {broker.Entity{Topic: "x", Lease: time.Second}, broker.ErrInvalid},
			"itself":     {broker.Entity{Topic: "x", Subscription: "x/y", DeadLetter: "x"}, broker.ErrInvalid},
			"other args": {broker.Entity{Topic: e.Topic, Subscription: e.Subscription, DeadLetter: e.Topic + "-d"}, broker.ErrConflict},
			"other kind": {broker.Entity{Topic: "/" + e.Subscription, Subscription: e.Subscription + "x"}, broker.ErrInvalid},
		} {
			if err := c.Ensure(t.Context(), bad.e); !errors.Is(err, bad.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("queue and key", func(t *testing.T) {
		c := open(t)
		q := entity(t, c, func(e *broker.Entity) { e.Topic, e.Subscription = "/"+e.Topic, e.Topic })
		publish(t, publisherOf(t, c, q.Topic), messages(1, 0)...)
		receive(t, receiverOf(t, c, q.Subscription), 1)
		k := entity(t, c, func(e *broker.Entity) { e.Topic += "/eu" })
		publish(t, publisherOf(t, c, k.Topic), messages(1, 1)...)
		if d := receive(t, receiverOf(t, c, k.Subscription), 1)[0]; d.ID != "m-1" {
			t.Fatal(d.ID)
		}
	})
}

func TestContract(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]emulator.Release{"v3": emulator.V3, "v4": emulator.V4} {
		h := emulate(t, emulator.WithRelease(release))
		for _, kind := range []Kind{Quorum, Classic} {
			t.Run(name+"/"+kind.String(), func(t *testing.T) { contract(t, kind, h.dial) })
		}
	}
}
