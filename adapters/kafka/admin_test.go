package kafka

import (
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

func TestEnsureAndDelete(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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

// A broker that hasn't heard of a new topic yet denies it. Ensure waits for all, so
// that whoever opens the topic next finds it; that another made it meanwhile is no
// error either.
func TestEnsureWaitsForAllBrokers(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 0, kfake.NumBrokers(3))
	one, two := dial(t, c), dial(t, c)
	var mu sync.Mutex
	deaf := map[int32]int{} // so often a broker denies each topic that it is asked for by name
	c.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.MetadataRequest)
		mu.Lock()
		defer mu.Unlock()
		node := c.CurrentNode()
		if len(req.Topics) == 0 || req.Topics[0].Topic == nil || deaf[node] == 0 {
			return nil, nil, false
		}
		deaf[node]--
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		for node := range int32(3) {
			host, port, _ := net.SplitHostPort(c.ListenAddrs()[node])
			b := kmsg.NewMetadataResponseBroker()
			b.NodeID, b.Host = node, host
			p, _ := strconv.Atoi(port)
			b.Port = int32(p)
			resp.Brokers = append(resp.Brokers, b)
		}
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.ErrorCode = req.Topics[0].Topic, kerr.UnknownTopicOrPartition.Code
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	for _, conn := range []broker.Conn{one, two} {
		mu.Lock()
		deaf = map[int32]int{0: 3, 1: 1, 2: 5}
		mu.Unlock()
		if err := conn.Ensure(ctxOf(t, 10*time.Second), broker.Entity{Topic: "late"}); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		left := deaf[0] + deaf[1] + deaf[2]
		mu.Unlock()
		if conn == one && left > 0 {
			t.Errorf("Ensure of a new topic is done, and the brokers would deny it %d times more", left)
		}
	}
}
