package servicebus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/localstack/fault"
	emulator "github.com/onceline/onceline/localstack/servicebus"
)

// mustCome is how long what must come is waited for: long, for a busy machine is slow,
// not wrong.
const mustCome = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// namespace is a server of a test's own, on the loopback.
type namespace struct {
	*emulator.Server
	host string
}

func start(t testing.TB, opts ...emulator.Option) *namespace {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := emulator.New(opts...)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		closing(t, s)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return &namespace{s, l.Addr().String()}
}

func (n *namespace) url() string { return "servicebus://" + n.host }

// dial opens a connection; the test closes it.
func (n *namespace) dial(t testing.TB, opts ...Option) broker.Conn {
	t.Helper()
	c, err := Dial(t.Context(), n.url(), append([]Option{Clock(n.Clock())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, c) })
	return c
}

func closing(t testing.TB, c interface{ Close(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), mustCome)
	defer cancel()
	if err := c.Close(ctx); err != nil && !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("close: %v", err)
	}
}

var names atomic.Int64

// entity is a new queue.
func entity(change ...func(*broker.Entity)) broker.Entity {
	n := fmt.Sprintf("q%d", names.Add(1))
	e := broker.Entity{Topic: n, Subscription: n, Lease: time.Minute}
	for _, c := range change {
		c(&e)
	}
	return e
}

func ordered(e *broker.Entity) { e.Ordered = true }

func ensure(t testing.TB, c broker.Conn, e broker.Entity) {
	t.Helper()
	if err := c.Ensure(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// makes makes the queue in the server, as Ensure would.
func (n *namespace) makes(t testing.TB, e broker.Entity) {
	t.Helper()
	err := n.CreateQueue(e.Topic, emulator.QueueProperties{LockDuration: e.Lease, MaxDeliveries: uint32(e.MaxDeliveries),
		RequiresSession: e.Ordered, DuplicateDetection: true, Window: e.Window, ForwardDeadLettersTo: e.DeadLetter})
	if err != nil {
		t.Fatal(err)
	}
}

func publisherOf(t testing.TB, c broker.Conn, topic string) broker.Publisher {
	t.Helper()
	p, err := c.OpenPublisher(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func receiverOf(t testing.TB, c broker.Conn, subscription string) broker.Receiver {
	t.Helper()
	r, err := c.OpenReceiver(t.Context(), subscription)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ends is the usual: a server, an entity, and both ends of it.
func ends(t testing.TB, change ...func(*broker.Entity)) (*namespace, broker.Conn, broker.Entity, broker.Publisher, broker.Receiver) {
	t.Helper()
	n := start(t)
	c := n.dial(t)
	e := entity(change...)
	n.makes(t, e)
	return n, c, e, publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
}

func message(id string) broker.Message { return broker.Message{ID: id, Body: []byte("body of " + id)} }

func keyed(id, key string) broker.Message {
	m := message(id)
	m.Key = key
	return m
}

func messages(n int, prefix string) []broker.Message {
	ms := make([]broker.Message, n)
	for i := range ms {
		ms[i] = message(fmt.Sprintf("%s%d", prefix, i))
	}
	return ms
}

func publish(t testing.TB, p broker.Publisher, ms ...broker.Message) []broker.Receipt {
	t.Helper()
	rs, err := p.Publish(t.Context(), ms...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rs {
		if rs[i].Verdict != broker.Accepted {
			t.Fatalf("receipt %d: %+v", i, rs[i])
		}
	}
	return rs
}

// receive returns at least one delivery within the time, or none.
func receive(t testing.TB, r broker.Receiver, most int, within time.Duration) []broker.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	ds, err := r.Receive(ctx, most)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return ds
}

func receiveOne(t testing.TB, r broker.Receiver) *broker.Delivery {
	t.Helper()
	ds := receive(t, r, 1, mustCome)
	if len(ds) != 1 {
		t.Fatalf("%d deliveries, want 1", len(ds))
	}
	return &ds[0]
}

// receiveAll returns n deliveries.
func receiveAll(t testing.TB, r broker.Receiver, n int) []broker.Delivery {
	t.Helper()
	var all []broker.Delivery
	for len(all) < n {
		ds := receive(t, r, n-len(all), mustCome)
		if len(ds) == 0 {
			t.Fatalf("%d deliveries, want %d", len(all), n)
		}
		all = append(all, ds...)
	}
	return all
}

func ack(t testing.TB, ds ...broker.Delivery) {
	t.Helper()
	for i := range ds {
		if o, err := ds[i].Ack(t.Context()); err != nil || o.State != broker.Confirmed {
			t.Fatalf("ack %q: %v %v", ds[i].ID, o.State, err)
		}
	}
}

func wantErr(t testing.TB, err error, kinds ...error) {
	t.Helper()
	for _, kind := range kinds {
		if !errors.Is(err, kind) {
			t.Fatalf("error is %v, want %v", err, kind)
		}
	}
}

// until polls until ok is true.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(mustCome)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (n *namespace) inject(t testing.TB, f fault.Fault) *fault.Injection {
	t.Helper()
	i := n.Faults().Inject(f, nil)
	if err := i.Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Remove)
	return i
}

func applied(t testing.TB, i *fault.Injection) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), mustCome)
	defer cancel()
	if err := i.WaitApplied(ctx); err != nil {
		t.Fatal(err)
	}
}

// ready is how many messages of an entity nobody holds.
func (n *namespace) counts(t testing.TB, address string) emulator.Counts {
	t.Helper()
	c, err := n.Count(address)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func connOf(t testing.TB, c broker.Conn) *conn {
	t.Helper()
	d, ok := driver.Unwrap(c)
	if !ok {
		t.Fatal("not a connection of package driver")
	}
	return d.(*conn)
}
