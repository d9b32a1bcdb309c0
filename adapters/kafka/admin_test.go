package kafka

import (
	"errors"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
)

func TestEnsureAndDelete(t *testing.T) {
	c, _ := cluster(t, 0)
	conn := dial(t, c)
	ctx := ctxOf(t, 20*time.Second)
	e := broker.Entity{Topic: "orders", Subscription: "orders/billing", Partitions: 3, MaxBody: 5000, MaxDeliveries: 5, DeadLetter: "orders.dead", Ordered: true}
	for range 2 { // the second time finds everything in place
		if err := conn.Ensure(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(c.PartitionInfos("orders")); n != 3 {
		t.Fatalf("%d partitions", n)
	}
	clash := e
	clash.Partitions = 4
	if err := conn.Ensure(ctx, clash); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("other partitions: %v", err)
	}
	clash = e
	clash.MaxBody = 6000
	if err := conn.Ensure(ctx, clash); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("other body: %v", err)
	}
	if p := openPublisher(t, conn, "orders.dead"); p == nil {
		t.Fatal("no dead-letter topic")
	}
	r := openReceiver(t, conn, "orders/billing")
	publish(t, openPublisher(t, conn, "orders"), messages(1, 0)...)
	settle(t, r, broker.Ack, receive(t, r, 1)...)
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := conn.Delete(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.OpenReceiver(ctx, "orders/billing"); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("after delete: %v", err)
	}
}

func TestEnsureRefusesWhatKafkaCant(t *testing.T) {
	c, _ := cluster(t, 0)
	for name, x := range map[string]struct {
		mode Mode
		e    broker.Entity
		want error
	}{
		"window":            {Group, broker.Entity{Topic: "t", Window: time.Minute}, broker.ErrUnsupported},
		"group lease":       {Group, broker.Entity{Topic: "t", Subscription: "t/g", Lease: time.Minute}, broker.ErrUnsupported},
		"no dead letter":    {Group, broker.Entity{Topic: "t", Subscription: "t/g", MaxDeliveries: 3}, broker.ErrUnsupported},
		"share order":       {Share, broker.Entity{Topic: "t", Subscription: "t/g", Ordered: true}, broker.ErrUnsupported},
		"share deliveries":  {Share, broker.Entity{Topic: "t", Subscription: "t/g", MaxDeliveries: 11, DeadLetter: "d"}, broker.ErrUnsupported},
		"share fine lease":  {Share, broker.Entity{Topic: "t", Subscription: "t/g", Lease: time.Second + 1}, broker.ErrUnsupported},
		"topic name":        {Group, broker.Entity{Topic: "a b"}, broker.ErrInvalid},
		"subscription":      {Group, broker.Entity{Topic: "t", Subscription: "g"}, broker.ErrInvalid},
		"other topic":       {Group, broker.Entity{Topic: "t", Subscription: "u/g"}, broker.ErrInvalid},
		"own dead letter":   {Group, broker.Entity{Topic: "t", Subscription: "t/g", MaxDeliveries: 3, DeadLetter: "t"}, broker.ErrInvalid},
		"negative":          {Group, broker.Entity{Topic: "t", Partitions: -1}, broker.ErrInvalid},
		"dead letter name":  {Group, broker.Entity{Topic: "t", DeadLetter: "*"}, broker.ErrInvalid},
		"enormous body":     {Group, broker.Entity{Topic: "t", MaxBody: 1 << 30}, broker.ErrUnsupported},
		"share window":      {Share, broker.Entity{Topic: "t", Window: 1}, broker.ErrUnsupported},
		"empty topic":       {Group, broker.Entity{}, broker.ErrInvalid},
		"dots are no topic": {Group, broker.Entity{Topic: ".."}, broker.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, c, func(o *Options) { o.Mode = x.mode })
			if err := conn.Ensure(ctxOf(t, 5*time.Second), x.e); !errors.Is(err, x.want) {
				t.Errorf("got %v, want %v", err, x.want)
			}
			if x.e.Topic == "t" && c.TopicInfo("t") != nil && x.want == broker.ErrUnsupported {
				t.Error("a topic was made for a wish that was refused")
			}
		})
	}
}

func TestEnsureShareGroup(t *testing.T) {
	c, _ := cluster(t, 1)
	conn := dial(t, c, shares)
	ctx := ctxOf(t, 10*time.Second)
	e := broker.Entity{Topic: "t", Subscription: "t/g", Lease: 20 * time.Second, MaxDeliveries: 4, DeadLetter: "d"}
	if err := conn.Ensure(ctx, e); err != nil {
		t.Fatal(err)
	}
	// From the beginning, which isn't Kafka's default (KAF-F-44).
	publish(t, openPublisher(t, conn, "t"), messages(1, 0)...)
	receive(t, openReceiver(t, conn, "t/g"), 1)
}

func TestOpenUnknown(t *testing.T) {
	c, _ := cluster(t, 1)
	for _, mode := range []func(*Options){func(*Options) {}, shares} {
		conn := dial(t, c, mode)
		ctx := ctxOf(t, 5*time.Second)
		for sub, want := range map[string]error{"nosuch/g": broker.ErrNotFound, "t": broker.ErrInvalid, "/g": broker.ErrInvalid, "t/": broker.ErrInvalid} {
			if _, err := conn.OpenReceiver(ctx, sub); !errors.Is(err, want) {
				t.Errorf("open %q: %v, want %v", sub, err, want)
			}
		}
	}
	share := dial(t, c, shares)
	from := broker.StartFrom(func(string) (broker.Position, bool) { return broker.Position{}, false })
	if _, err := share.OpenReceiver(ctxOf(t, time.Second), "t/g", from); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("share with StartFrom: %v", err)
	}
}
