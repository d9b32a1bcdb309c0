package pubsub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/internal/sidebyside"
	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/pubsub"
)

// mustCome is how long what must come is waited for: long, for a busy machine is slow,
// not wrong.
const mustCome = 30 * time.Second

func TestMain(m *testing.M) {
	os.Unsetenv(emulatorVariable)
	sidebyside.Tests(4)
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")) // which the SDK's imports start once
}

// stack is an emulator for one test.
type stack struct {
	*pubsub.Server
	addr string
}

func start(t testing.TB, opts ...pubsub.Option) *stack {
	t.Helper()
	s := pubsub.New(opts...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), mustCome)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close the emulator: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return &stack{s, l.Addr().String()}
}

// dial opens a connection that the test closes. Pulls wait shortly, for Close
// waits for them.
func (s *stack) dial(t testing.TB, opts ...Option) broker.Conn {
	t.Helper()
	all := append([]Option{Endpoint(s.addr), Clock(s.Clock()), PullWait(500 * time.Millisecond)}, opts...)
	c, err := Dial(t.Context(), "p", all...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), mustCome)
		defer cancel()
		if err := c.Close(ctx); err != nil && !errors.Is(err, broker.ErrUnavailable) {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func (s *stack) inject(t testing.TB, f fault.Fault) *fault.Injection {
	t.Helper()
	i := s.Inject(f)
	if err := i.Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Remove)
	return i
}

// hit and applied wait for a fault, not for ever.
func hit(t testing.TB, i *fault.Injection) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := i.WaitHit(ctx); err != nil {
		t.Fatal(err)
	}
}

func applied(t testing.TB, i *fault.Injection) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := i.WaitApplied(ctx); err != nil {
		t.Fatal(err)
	}
}

var serial atomic.Int64

func entity(change ...func(*broker.Entity)) broker.Entity {
	n := serial.Add(1)
	e := broker.Entity{Topic: fmt.Sprintf("orders-%d", n), Subscription: fmt.Sprintf("billing-%d", n), Lease: 10 * time.Second}
	for _, c := range change {
		c(&e)
	}
	return e
}

func ensure(t testing.TB, c broker.Conn, e broker.Entity) {
	t.Helper()
	if err := c.Ensure(t.Context(), e); err != nil {
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

// rig is an emulator with a connection, a topic and a subscription.
type rig struct {
	*stack
	conn broker.Conn
	e    broker.Entity
	pub  broker.Publisher
	rcv  broker.Receiver
}

func ends(t testing.TB, once bool, change ...func(*broker.Entity)) *rig {
	t.Helper()
	return endsWith(t, []Option{ExactlyOnce(once)}, change...)
}

var parallel sync.Map // of the tests that run so

// patient is ends with a lease of a minute and pulls that wait for long, for
// tests that hold one back: on a busy machine the deadline that the emulator was
// told could end it otherwise.
func patient(t testing.TB, once bool) *rig {
	t.Helper()
	return endsWith(t, []Option{ExactlyOnce(once), PullWait(15 * time.Second)}, func(e *broker.Entity) { e.Lease = time.Minute })
}

func endsWith(t testing.TB, opts []Option, change ...func(*broker.Entity)) *rig {
	t.Helper()
	if alone, is := t.(*testing.T); is {
		// Each has an emulator of its own, and most of a test is waiting.
		if _, already := parallel.LoadOrStore(t, true); !already {
			alone.Parallel()
		}
	}
	s := start(t)
	c := s.dial(t, opts...)
	e := entity(change...)
	ensure(t, c, e)
	return &rig{s, c, e, publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)}
}

func message(id string) broker.Message { return broker.Message{ID: id, Body: []byte("body of " + id)} }

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
	return rs
}

func receive(t testing.TB, r broker.Receiver, max int, wait time.Duration) []broker.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	ds, err := r.Receive(ctx, max)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return ds
}

func receiveAll(t testing.TB, r broker.Receiver, n int) []broker.Delivery {
	t.Helper()
	var all []broker.Delivery
	for len(all) < n {
		ds := receive(t, r, n-len(all), mustCome)
		if len(ds) == 0 {
			t.Fatalf("%d of %d messages came", len(all), n)
		}
		all = append(all, ds...)
	}
	return all
}

func receiveOne(t testing.TB, r broker.Receiver) *broker.Delivery {
	t.Helper()
	return &receiveAll(t, r, 1)[0]
}

func settle(t testing.TB, r broker.Receiver, a broker.Action, ds ...broker.Delivery) []broker.Settlement {
	t.Helper()
	s := make([]broker.Settlement, len(ds))
	for i := range ds {
		s[i] = broker.Settlement{Delivery: &ds[i], Action: a}
	}
	if err := r.Settle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func ack(t testing.TB, r broker.Receiver, ds ...broker.Delivery) {
	t.Helper()
	for _, s := range settle(t, r, broker.Ack, ds...) {
		if !s.Outcome.State.OK() {
			t.Fatalf("ack %q: %+v", s.Delivery.ID, s.Outcome)
		}
	}
}

// nothing checks that no message is there to be had.
func nothing(t testing.TB, r broker.Receiver) {
	t.Helper()
	if ds := receive(t, r, 10, 60*time.Millisecond); len(ds) != 0 {
		t.Fatalf("came %d: %q, attempt %+v", len(ds), ds[0].ID, ds[0].Attempt)
	}
}

func connOf(t testing.TB, c broker.Conn) *conn {
	t.Helper()
	d, ok := driver.Unwrap(c)
	if !ok {
		t.Fatal("no driver connection")
	}
	return d.(*conn)
}

func both(t *testing.T, f func(t *testing.T, once bool, state broker.State)) {
	t.Run("plain", func(t *testing.T) { f(t, false, broker.Sent) })
	t.Run("exactly-once", func(t *testing.T) { f(t, true, broker.Confirmed) })
}
