package sqs

import (
	"errors"
	"strings"
	"testing"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/onceline/onceline/broker"
)

func TestEnsure(t *testing.T) {
	t.Parallel()
	c := dialShared(t)
	e := entity(t, func(e *broker.Entity) {
		e.Topic += fifoSuffix
		e.Subscription = e.Topic
		e.Window, e.Lease, e.MaxDeliveries, e.Ordered, e.MaxBody = 5*time.Minute, 45*time.Second, 7, true, 10000
		e.DeadLetter = strings.Replace(e.Topic, fifoSuffix, "-dead.fifo", 1)
	})
	ensure(t, c, e)
	ensure(t, c, e) // again
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	var q Queue
	if !p.As(&q) || !q.FIFO || q.Lease != 45*time.Second || q.MaxDeliveries != 7 || !strings.HasSuffix(q.DeadLetter, "-dead.fifo") ||
		q.MaxMessage != 10002/3*4+attributeRoom || p.Limits().Window != 5*time.Minute {
		t.Errorf("%+v", q)
	}
	m := message("x")
	m.Body = make([]byte, e.MaxBody)
	publish(t, p, m)
	if d := receiveOne(t, r); len(d.Body) != e.MaxBody {
		t.Errorf("%d bytes", len(d.Body))
	}
	for what, change := range map[string]func(*broker.Entity){
		"lease":       func(e *broker.Entity) { e.Lease = time.Second },
		"deliveries":  func(e *broker.Entity) { e.MaxDeliveries = 8 },
		"dead-letter": func(e *broker.Entity) { e.DeadLetter = strings.Replace(e.Topic, fifoSuffix, "-grave.fifo", 1) },
		"limit":       func(e *broker.Entity) { e.MaxBody = 20000 },
	} {
		other := e
		change(&other)
		if err := c.Ensure(t.Context(), other); !errors.Is(err, broker.ErrConflict) || !strings.Contains(err.Error(), what) {
			t.Errorf("another %s: %v", what, err)
		}
	}
	if err := c.Delete(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), e); err != nil {
		t.Errorf("again: %v", err)
	}
	if _, err := c.OpenReceiver(t.Context(), e.DeadLetter); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("the dead-letter queue: %v", err)
	}
	if _, err := c.OpenPublisher(t.Context(), e.Topic); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("the queue: %v", err)
	}
	// What the queue was is told while it is in use.
	if _, err := p.Publish(t.Context(), message("y")); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("publish: %v", err)
	}
	if _, err := r.Receive(t.Context(), 1); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("receive: %v", err)
	}
}

func TestEnsureRefuses(t *testing.T) {
	t.Parallel()
	plain, fifo, std := dialShared(t), dialShared(t, FIFO(true)), dialShared(t, FIFO(false))
	for what, x := range map[string]struct {
		c    broker.Conn
		e    broker.Entity
		kind error
	}{
		"order on a standard queue":             {plain, broker.Entity{Topic: "a", Ordered: true}, broker.ErrUnsupported},
		"order with fifo=false":                 {std, broker.Entity{Topic: "a", Ordered: true}, broker.ErrUnsupported},
		"window on a standard queue":            {plain, broker.Entity{Topic: "a", Window: 5 * time.Minute}, broker.ErrUnsupported},
		"another window":                        {plain, broker.Entity{Topic: "a.fifo", Window: time.Minute}, broker.ErrUnsupported},
		"another window with fifo=true":         {fifo, broker.Entity{Topic: "a", Window: 10 * time.Minute}, broker.ErrUnsupported},
		"a FIFO name with fifo=false":           {std, broker.Entity{Topic: "a.fifo"}, broker.ErrInvalid},
		"half a second":                         {plain, broker.Entity{Topic: "a", Lease: 1500 * time.Millisecond}, broker.ErrUnsupported},
		"13 hours":                              {plain, broker.Entity{Topic: "a", Lease: 13 * time.Hour}, broker.ErrUnsupported},
		"partitions":                            {fifo, broker.Entity{Topic: "a", Partitions: 2}, broker.ErrUnsupported},
		"a limit and nowhere to go":             {plain, broker.Entity{Topic: "a", MaxDeliveries: 3}, broker.ErrUnsupported},
		"1001 deliveries":                       {plain, broker.Entity{Topic: "a", MaxDeliveries: 1001, DeadLetter: "b"}, broker.ErrUnsupported},
		"a body of 1 MiB":                       {plain, broker.Entity{Topic: "a", MaxBody: 1 << 20}, broker.ErrUnsupported},
		"another subscription":                  {plain, broker.Entity{Topic: "a", Subscription: "b"}, broker.ErrInvalid},
		"itself":                                {fifo, broker.Entity{Topic: "a", DeadLetter: "a.fifo"}, broker.ErrInvalid},
		"a dead-letter queue of the other kind": {plain, broker.Entity{Topic: "a.fifo", DeadLetter: "b"}, broker.ErrInvalid},
		"a bad name":                            {plain, broker.Entity{Topic: "a b"}, broker.ErrInvalid},
		"a long name":                           {plain, broker.Entity{Topic: strings.Repeat("a", 81)}, broker.ErrInvalid},
		"another account":                       {plain, broker.Entity{Topic: "123456789012/a"}, broker.ErrUnsupported},
		"a short account":                       {plain, broker.Entity{Topic: "12345/a"}, broker.ErrInvalid},
	} {
		if err := x.c.Ensure(t.Context(), x.e); !errors.Is(err, x.kind) {
			t.Errorf("%s: %v, want %v", what, err, x.kind)
		}
	}
	if n := len(queues(t, plain, "a")); n != 0 {
		t.Errorf("%d queues were made", n)
	}
	if _, err := plain.OpenReceiver(t.Context(), "none", broker.StartFrom(func(string) (broker.Position, bool) { return broker.Position{}, false })); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("StartFrom: %v", err)
	}
}

func queues(t *testing.T, c broker.Conn, prefix string) []string {
	t.Helper()
	var client *awssqs.Client
	c.As(&client)
	out, err := client.ListQueues(t.Context(), &awssqs.ListQueuesInput{QueueNamePrefix: &prefix})
	if err != nil {
		t.Fatal(err)
	}
	return out.QueueUrls
}

// Delete leaves alone what Ensure didn't make.
func TestDeleteLeavesOthers(t *testing.T) {
	t.Parallel()
	c := dialShared(t)
	e := entity(t)
	var client *awssqs.Client
	c.As(&client)
	if _, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &e.Topic}); err != nil {
		t.Fatal(err)
	}
	ensure(t, c, e)
	if err := c.Delete(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	publisherOf(t, c, e.Topic)
}

// A FIFO queue with high throughput compares IDs within a key, and its boundary
// says so.
func TestHighThroughput(t *testing.T) {
	t.Parallel()
	c := dialShared(t, FIFO(true), HighThroughput(), PollWait(0))
	e := entity(t)
	ensure(t, c, e)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	m := keyed("a", "x")[0]
	n := m
	n.Key = "b"
	bare := message("y")
	publish(t, p, m, n, bare)
	publish(t, p, m, n, bare)
	if ds := receiveAll(t, r, 3); len(ds) != 3 {
		t.Errorf("%s", ids(ds))
	}
	if ds := receive(t, r, 1, 100*time.Millisecond); len(ds) > 0 {
		t.Errorf("and %s", ids(ds))
	}
	var q Queue
	if !p.As(&q) || !q.GroupScope || !strings.Contains(q.Boundary().Of, "messageGroup") {
		t.Errorf("%+v, %s", q, q.Boundary().Of)
	}
	// Another connection without the option takes the queue as it is.
	other := dialShared(t, FIFO(true))
	ensure(t, other, e)
	e.Topic += "-plain"
	e.Subscription = ""
	ensure(t, other, e)
	if err := c.Ensure(t.Context(), e); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("a plain queue, with high throughput wished: %v", err)
	}
}

// Credentials that may send and receive, and read no attributes, suffice.
func TestWithoutAttributes(t *testing.T) {
	t.Parallel()
	c, w, e, _, _ := tappedEnds(t, true)
	w.on("GetQueueAttributes", refuse(99, 403, "AccessDenied", "x"))
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, message("x"))
	ack(t, *receiveOne(t, r))
	if err := c.Ensure(t.Context(), e); !errors.Is(err, broker.ErrUnauthorized) {
		t.Errorf("Ensure can't know: %v", err)
	}
}

func TestRedrivePolicy(t *testing.T) {
	for policy, want := range map[string]int{
		writeRedrive("arn:aws:sqs:r:1:q", 5):                                5,
		`{"deadLetterTargetArn":"arn:aws:sqs:r:1:q","maxReceiveCount":"6"}`: 6,
		`{"deadLetterTargetArn":"arn:aws:sqs:r:1:q","maxReceiveCount":[]}`:  0,
	} {
		arn, n := readRedrive(policy)
		owner, name, ok := splitARN(arn)
		if n != want || !ok || owner != "1" || name != "q" {
			t.Errorf("%s: %q %d", policy, arn, n)
		}
	}
	for _, bad := range []string{"", "{", `{"maxReceiveCount":3}`} {
		if arn, _ := readRedrive(bad); arn != "" {
			t.Errorf("%s: %q", bad, arn)
		}
	}
	if _, _, ok := splitARN("arn:aws:sns:r:1:q"); ok {
		t.Error("an ARN of SNS")
	}
}

// TestAServiceThatIgnoresAWish: what is made just now and differs all the same can't
// be had; once it is there, it clashes.
func TestAServiceThatIgnoresAWish(t *testing.T) {
	t.Parallel()
	w := newTap()
	c := dialShared(t, w.option())
	w.on("GetQueueAttributes", edit(99, func(m map[string]any) {
		m["Attributes"].(map[string]any)["MaximumMessageSize"] = "1048576"
	}))
	e := entity(t, func(e *broker.Entity) { e.MaxBody = 4096 })
	for _, want := range []error{broker.ErrUnsupported, broker.ErrConflict} {
		if err := c.Ensure(t.Context(), e); !errors.Is(err, want) || !strings.Contains(err.Error(), "1048576") {
			t.Errorf("%v, want %v", err, want)
		}
	}
}
