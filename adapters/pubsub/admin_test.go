package pubsub

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	sdk "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/fault"
)

func TestEnsure(t *testing.T) {
	s := start(t)
	c := s.dial(t, ExactlyOnce(true))
	e := entity(func(e *broker.Entity) { e.Ordered, e.DeadLetter, e.MaxDeliveries = true, e.Topic+"-dead", 3 })
	ensure(t, c, e)
	ensure(t, c, e)
	for name, change := range map[string]func(*broker.Entity){
		"lease":       func(e *broker.Entity) { e.Lease = 20 * time.Second },
		"deliveries":  func(e *broker.Entity) { e.MaxDeliveries = 4 },
		"more":        func(e *broker.Entity) { e.MaxDeliveries = 7 },
		"dead letter": func(e *broker.Entity) { e.DeadLetter = e.Topic + "-other" },
		"topic":       func(e *broker.Entity) { e.Topic += "-other" },
	} {
		other := e
		change(&other)
		if err := c.Ensure(t.Context(), other); !errors.Is(err, broker.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.dial(t, ExactlyOnce(false)).Ensure(t.Context(), e); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("exactly-once delivery: %v", err)
	}
	if err := s.dial(t).Ensure(t.Context(), e); err != nil {
		t.Errorf("without a wish for it: %v", err)
	}
	plain := entity(func(e *broker.Entity) { e.Lease = 0 })
	ensure(t, c, plain)
	plain.Ordered = true
	if err := c.Ensure(t.Context(), plain); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("order: %v", err)
	}
	for name, change := range map[string]func(*broker.Entity){
		"window":       func(e *broker.Entity) { e.Window = time.Minute },
		"partitions":   func(e *broker.Entity) { e.Partitions = 2 },
		"body":         func(e *broker.Entity) { e.MaxBody = 1 },
		"short lease":  func(e *broker.Entity) { e.Lease = 9 * time.Second },
		"long lease":   func(e *broker.Entity) { e.Lease = 601 * time.Second },
		"broken lease": func(e *broker.Entity) { e.Lease = 10500 * time.Millisecond },
		"101":          func(e *broker.Entity) { e.DeadLetter, e.MaxDeliveries = "dead", 101 },
		"no topic":     func(e *broker.Entity) { e.MaxDeliveries = 5 },
	} {
		other := entity()
		change(&other)
		if err := c.Ensure(t.Context(), other); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []broker.Entity{{Topic: "1x"}, {Topic: "ab"}, {Topic: "google"}, {Topic: "projects/p/subscriptions/abc"}, {Topic: "abc", Lease: 10 * time.Second},
		{Topic: "abc", Subscription: "a b c"}, {Topic: "abc", Subscription: "abc", DeadLetter: "abc"}} {
		if err := c.Ensure(t.Context(), bad); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func TestDelete(t *testing.T) {
	g := ends(t, false, func(e *broker.Entity) { e.DeadLetter = e.Topic + "-dead" })
	conn := connOf(t, g.conn)
	foreign := entity()
	topic, _ := conn.topicName(foreign.Topic)
	if _, err := conn.topics.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	ensure(t, g.conn, foreign)
	for range 2 {
		if err := g.conn.Delete(t.Context(), g.e); err != nil {
			t.Fatal(err)
		}
		if err := g.conn.Delete(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{g.e.Topic, g.e.DeadLetter} {
		if _, err := g.conn.OpenPublisher(t.Context(), name); !errors.Is(err, broker.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := g.conn.OpenReceiver(t.Context(), g.e.Subscription); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("subscription: %v", err)
	}
	if _, err := g.conn.OpenReceiver(t.Context(), foreign.Subscription); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("subscription: %v", err)
	}
	if _, err := g.conn.OpenPublisher(t.Context(), foreign.Topic); err != nil {
		t.Errorf("a topic of somebody else's is gone: %v", err)
	}
	// What was open learns of it.
	if rs, err := g.pub.Publish(t.Context(), message("x")); rs[0].Verdict != broker.Refused || !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("%+v %v", rs, err)
	}
	if _, err := g.rcv.Receive(t.Context(), 1); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("receive: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	g := ends(t, false)
	if _, err := g.conn.OpenReceiver(t.Context(), g.e.Subscription, broker.StartFrom(func(string) (broker.Position, bool) { return broker.Position{}, false })); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("StartFrom: %v", err)
	}
	// A publisher that may not look may still publish.
	g.inject(t, fault.Fault{API: "GetTopic", Kind: fault.Error, Code: 7, Times: 1})
	publish(t, publisherOf(t, g.conn, "projects/p/topics/"+g.e.Topic), message("x"))
	g.inject(t, fault.Fault{API: "GetSubscription", Kind: fault.Error, Code: 7, Times: 1})
	if _, err := g.conn.OpenReceiver(t.Context(), g.e.Subscription); !errors.Is(err, broker.ErrUnauthorized) {
		t.Errorf("a receiver that may not look: %v", err)
	}
}

func TestURL(t *testing.T) {
	s := start(t)
	c, err := broker.Open(t.Context(), "pubsub://"+s.addr+"/my-project?exactly-once=true&pull-wait=100ms&plaintext=true")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	e := entity()
	ensure(t, c, e)
	d := connOf(t, c)
	sub, err := d.subs.GetSubscription(t.Context(), &pubsubpb.GetSubscriptionRequest{Subscription: "projects/my-project/subscriptions/" + e.Subscription})
	if err != nil || !sub.EnableExactlyOnceDelivery || d.opts.pullWait != 100*time.Millisecond {
		t.Errorf("%v, %v, pull wait %v", sub, err, d.opts.pullWait)
	}
	for _, bad := range []string{"pubsub://h:1", "pubsub:///", "pubsub:///p/q", "pubsub://user:secret@127.0.0.1/p", "pubsub:///p?x=1", "pubsub:///p?pull-wait=1ms",
		"pubsub:///p?exactly-once=secret", "pubsub:///p?exactly-once=true&exactly-once=false", "pubsub://a,b/p", "pubsub://127.0.0.1:0/p", "pubsub:///p#secret", "pubsub:///p?%zz=secret"} {
		_, err := broker.Open(t.Context(), bad)
		if !errors.Is(err, broker.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	// An emulator's variable must not take TLS from a host that is none.
	t.Setenv(emulatorVariable, s.addr)
	if _, err := broker.Open(t.Context(), "pubsub://europe-west1-pubsub.googleapis.com/p"); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("a host beside the variable: %v", err)
	}
	byEnvironment, err := broker.Open(t.Context(), "pubsub:///my-project")
	if err != nil {
		t.Fatal(err)
	}
	defer byEnvironment.Close(t.Context())
	publish(t, publisherOf(t, byEnvironment, e.Topic), message("x"))
}

func FuzzURL(f *testing.F) {
	f.Add("pubsub://127.0.0.1:8085/p?exactly-once=true")
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil {
			return
		}
		if project, _, err := parseURL(u); err == nil && project == "" {
			t.Error("no project")
		}
	})
}

// New leaves the caller's client open.
func TestNew(t *testing.T) {
	s := start(t)
	link, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	client, err := sdk.NewClient(t.Context(), "p", option.WithGRPCConn(link))
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(client, Clock(s.Clock()))
	if err != nil {
		t.Fatal(err)
	}
	e := entity()
	ensure(t, c, e)
	if err := c.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.TopicAdminClient.GetTopic(t.Context(), &pubsubpb.GetTopicRequest{Topic: "projects/p/topics/" + e.Topic}); err != nil {
		t.Errorf("the caller's client: %v", err)
	}
	if _, err := New(nil); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
	if _, err := New(client, Plaintext()); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("an option of Dial's: %v", err)
	}
	for _, o := range []Option{Clock(nil), Endpoint(""), PullWait(0)} {
		if _, err := Dial(t.Context(), "p", o); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("a bad option: %v", err)
		}
	}
}
