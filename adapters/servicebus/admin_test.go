package servicebus

import (
	"errors"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func TestEnsure(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := n.dial(t)
	e := entity(func(e *broker.Entity) {
		e.Window, e.Lease, e.MaxDeliveries, e.Ordered, e.DeadLetter = time.Minute, 30*time.Second, 3, true, "dead"
	})
	ensure(t, c, e)
	ensure(t, c, e) // what is there as wished is no error
	q, err := connOf(t, c).queueFacts(t.Context(), e.Topic)
	if err != nil || !q.sessions || !q.duplicates || q.window != e.Window || q.lease != e.Lease || q.deliveries != 3 || q.forward != "dead" || q.metadata != metadata {
		t.Fatalf("%+v, %v", q, err)
	}
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	if p.Limits().Window != e.Window {
		t.Errorf("limits %+v", p.Limits())
	}
	publish(t, p, keyed("x", "k"), message("keyless"))
	ds := receiveAll(t, r, 2)
	if left := ds[0].Lease.Sub(n.Clock().Now()); left > 30*time.Second || left < 20*time.Second {
		t.Errorf("lease left: %v", left)
	}
	ack(t, ds...)
	for name, wish := range map[string]broker.Entity{
		"window":      {Topic: e.Topic, Window: 2 * time.Minute},
		"lease":       {Topic: e.Topic, Lease: time.Minute},
		"deliveries":  {Topic: e.Topic, MaxDeliveries: 4},
		"dead letter": {Topic: e.Topic, DeadLetter: "other"},
		"a topic":     {Topic: e.Topic, Subscription: e.Topic + "/sub"},
	} {
		if err := c.Ensure(t.Context(), wish); !errors.Is(err, broker.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, wish := range map[string]broker.Entity{
		"short window":    {Topic: "u", Window: time.Second},
		"long window":     {Topic: "u", Window: 8 * 24 * time.Hour},
		"short lease":     {Topic: "u", Lease: time.Second},
		"long lease":      {Topic: "u", Lease: 6 * time.Minute},
		"many deliveries": {Topic: "u", MaxDeliveries: 2001},
		"partitions":      {Topic: "u", Partitions: 2},
		"small bodies":    {Topic: "u", MaxBody: 4096},
	} {
		if err := c.Ensure(t.Context(), wish); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, wish := range map[string]broker.Entity{
		"name":                   {Topic: "a b"},
		"another's subscription": {Topic: "u", Subscription: "v/w"},
		"its own dead letters":   {Topic: "u", DeadLetter: "u"},
		"a dead-letter source":   {Topic: "u", Subscription: "u/$deadletterqueue"},
	} {
		if err := c.Ensure(t.Context(), wish); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f, err := connOf(t, c).topicFacts(t.Context(), "u"); f != nil || err != nil {
		t.Errorf("a refused wish made %+v, %v", f, err)
	}
}

// Dead letters of both kinds are forwarded to the entity that was wished.
func TestEnsureDeadLetter(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := n.dial(t)
	e := entity(func(e *broker.Entity) { e.MaxDeliveries, e.DeadLetter = 2, "morgue" })
	ensure(t, c, e)
	p, r, dead := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription), receiverOf(t, c, "morgue")
	publish(t, p, message("poison"))
	for range 2 {
		if _, err := receiveOne(t, r).Nack(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	d := receiveOne(t, dead)
	if d.ID != "poison" || d.Headers.Get(driver.HeaderReason) == "" {
		t.Errorf("%q %v", d.ID, d.Headers)
	}
	ack(t, *d)
	publish(t, p, message("bad"))
	if _, err := receiveOne(t, r).DeadLetter(t.Context(), "why"); err != nil {
		t.Fatal(err)
	}
	d = receiveOne(t, dead)
	if d.ID != "bad" || d.Headers.Get(driver.HeaderReason) != "why" {
		t.Errorf("%q %v", d.ID, d.Headers)
	}
	ack(t, *d)
}

func TestTopicAndSubscriptions(t *testing.T) {
	t.Parallel() // it waits, as a rule
	n := start(t)
	c := n.dial(t, RequireSessions())
	plain := broker.Entity{Topic: "prices", Subscription: "prices/audit"}
	sessions := broker.Entity{Topic: "prices", Subscription: "prices/billing", MaxDeliveries: 2}
	ensure(t, n.dial(t), plain)
	ensure(t, c, sessions)
	if err := c.Ensure(t.Context(), plain); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("sessions for what has none: %v", err)
	}
	p, a, b := publisherOf(t, c, "prices"), receiverOf(t, c, plain.Subscription), receiverOf(t, c, sessions.Subscription)
	ms := []broker.Message{keyed("x", "k"), message("keyless")}
	publish(t, p, ms...)
	publish(t, p, ms...) // duplicates
	for _, r := range []broker.Receiver{a, b} {
		ds := receiveAll(t, r, 2)
		if got := ds[0].ID + ds[1].ID; got != "xkeyless" && got != "keylessx" {
			t.Errorf("%s came", got)
		}
		ack(t, ds...)
		if ds := receive(t, r, 1, 100*time.Millisecond); len(ds) != 0 {
			t.Errorf("%q came again", ds[0].ID)
		}
	}
	publish(t, p, keyed("y", "k"))
	for range 2 {
		if _, err := receiveOne(t, b).Nack(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if d := receiveOne(t, receiverOf(t, c, "prices/Subscriptions/billing/$DeadLetterQueue")); d.ID != "y" {
		t.Errorf("%q", d.ID)
	}
}

// Delete removes what Ensure made, and nothing else.
func TestDelete(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := n.dial(t)
	e := entity(func(e *broker.Entity) { e.DeadLetter = "morgue" })
	ensure(t, c, e)
	sub := broker.Entity{Topic: "prices", Subscription: "prices/audit"}
	ensure(t, c, sub)
	other := entity()
	n.makes(t, other)
	for _, e := range []broker.Entity{e, sub, other, other} {
		if err := c.Delete(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{e.Topic, "morgue", "prices"} {
		if f, err := connOf(t, c).topicFacts(t.Context(), name); f != nil || err != nil {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
	if f, err := connOf(t, c).topicFacts(t.Context(), other.Topic); f == nil || err != nil {
		t.Errorf("somebody else's queue: %+v, %v", f, err)
	}
}

func TestWithoutDuplicateDetection(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := n.dial(t, WithoutDuplicateDetection())
	e := entity()
	ensure(t, c, e)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, message("x"), message("x"))
	ack(t, receiveAll(t, r, 2)...)
}

// A service that takes no admin requests is sent to and received from all the same.
func TestWithoutAdmin(t *testing.T) {
	t.Parallel()
	n := start(t)
	e := entity(ordered)
	n.makes(t, e)
	c := n.dial(t, AdminEndpoint("127.0.0.1:1"))
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, message("keyless"), keyed("x", "k"))
	ds := receiveAll(t, r, 2)
	if left := ds[0].Lease.Sub(n.Clock().Now()); left > time.Minute || left < 4*time.Second {
		t.Errorf("lease left: %v", left)
	}
	ack(t, ds...)
	if err := c.Ensure(t.Context(), e); !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{"PT1M": time.Minute, "PT30S": 30 * time.Second, "P1DT2H3M4.5S": 26*time.Hour + 3*time.Minute + 4500*time.Millisecond,
		"PT0.05S": 50 * time.Millisecond, "P10675199DT2H48M5.4775807S": 1<<63 - 1} {
		if d, err := parseDuration(s); err != nil || d != want {
			t.Errorf("%s: %v, %v", s, d, err)
		}
	}
	for _, s := range []string{"", "P", "PT", "1M", "PT1", "PTM", "PT1X", "P1M", "PT1.2.3S", "PT-1S"} {
		if d, err := parseDuration(s); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%q: %v, %v", s, d, err)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	f.Add("P1DT2H3M4.5S")
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseDuration(s)
		if err == nil && d < 0 {
			t.Errorf("%q: %v", s, d)
		}
		if err == nil && d < time.Duration(1<<53) {
			if again, err := parseDuration(formatDuration(d)); err != nil || (again-d).Abs() > time.Microsecond {
				t.Errorf("%v: %v, %v", d, again, err)
			}
		}
	})
}
