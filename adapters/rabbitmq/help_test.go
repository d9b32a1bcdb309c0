package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/localstack/fault"
	emulator "github.com/onceline/onceline/localstack/rabbitmq"
)

// mustCome is how long what must come is waited for: long, for a busy machine is slow,
// not wrong.
const mustCome = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

// suite ends, behind the tests, what they share.
type suite struct{ *testing.M }

func (s suite) Run() int {
	code := s.M.Run()
	if err := sharedNode.end(); err != nil {
		fmt.Fprintln(os.Stderr, "the shared RabbitMQ:", err)
		return max(code, 1)
	}
	return code
}

// quiet is the logger of tests in which connections are broken on purpose.
func quiet() Option { return Logger(slog.New(slog.DiscardHandler)) }

// host is a broker to test against.
type host struct {
	*emulator.Server // nil for a real one
	addr             string
	listener         *gate
}

// gate is a listener whose connections can be cut.
type gate struct {
	net.Listener
	conns chan net.Conn
}

func (g *gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err == nil {
		g.conns <- c
	}
	return c, err
}

// cut closes all connections that were accepted so far.
func (h *host) cut() {
	for {
		select {
		case c := <-h.listener.conns:
			_ = c.Close()
		default:
			return
		}
	}
}

// emulate starts an emulator for one test.
func emulate(t testing.TB, options ...emulator.Option) *host {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := emulator.New(options...)
	g := &gate{l, make(chan net.Conn, 10000)}
	served := make(chan error, 1)
	go func() { served <- s.Serve(g) }()
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
	return &host{s, l.Addr().String(), g}
}

func (h *host) url(parameters ...string) string {
	return "rabbitmq://" + h.addr + "/?" + strings.Join(parameters, "&")
}

// dial opens a connection; the test closes it.
func (h *host) dial(t testing.TB, opts ...Option) broker.Conn {
	t.Helper()
	return dialURL(t, h.url(), opts...)
}

func dialURL(t testing.TB, url string, opts ...Option) broker.Conn {
	t.Helper()
	c, err := Dial(t.Context(), url, append([]Option{quiet()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, c) })
	return c
}

// raw is a connection of the SDK's own, to look from outside.
func (h *host) raw(t testing.TB) *amqp.Channel {
	t.Helper()
	c, err := amqp.Dial("amqp://guest:guest@" + h.addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// ready is how many messages of a queue wait for a consumer.
func ready(t testing.TB, ch *amqp.Channel, queue string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return q.Messages
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

// entity returns a new one; the test deletes it.
func entity(t testing.TB, c broker.Conn, change ...func(*broker.Entity)) broker.Entity {
	t.Helper()
	n := fmt.Sprintf("t%d-%d", time.Now().UnixMilli(), names.Add(1))
	e := broker.Entity{Topic: n, Subscription: n + "/billing"}
	for _, f := range change {
		f(&e)
	}
	if err := c.Ensure(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), mustCome)
		defer cancel()
		if err := c.Delete(ctx, e); err != nil && !errors.Is(err, broker.ErrUnavailable) && !errors.Is(err, broker.ErrClosed) {
			t.Errorf("delete: %v", err)
		}
	})
	return e
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

func messages(n, from int) []broker.Message {
	ms := make([]broker.Message, n)
	for i := range ms {
		ms[i] = broker.Message{ID: fmt.Sprintf("m-%d", from+i), Body: fmt.Appendf(nil, "body %d", from+i)}
	}
	return ms
}

func publish(t testing.TB, p broker.Publisher, ms ...broker.Message) {
	t.Helper()
	rs, err := p.Publish(t.Context(), ms...)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rs {
		if r.Verdict != broker.Stored {
			t.Fatalf("%s: %v", ms[i].ID, r.Verdict)
		}
	}
}

// try receives for up to d.
func try(t testing.TB, r broker.Receiver, max int, d time.Duration) []broker.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	ds, err := r.Receive(ctx, max)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("receive: %v", err)
	}
	return ds
}

// receive receives n messages.
func receive(t testing.TB, r broker.Receiver, n int) []broker.Delivery {
	t.Helper()
	var ds []broker.Delivery
	for begin := time.Now(); len(ds) < n; {
		if time.Since(begin) > mustCome {
			t.Fatalf("only %d of %d messages came", len(ds), n)
		}
		ds = append(ds, try(t, r, n-len(ds), mustCome)...)
	}
	return ds
}

func settle(t testing.TB, r broker.Receiver, a broker.Action, ds ...broker.Delivery) []broker.Outcome {
	t.Helper()
	ss := make([]broker.Settlement, len(ds))
	for i := range ds {
		ss[i] = broker.Settlement{Delivery: &ds[i], Action: a}
	}
	_ = r.Settle(t.Context(), ss) // the outcomes say it
	os := make([]broker.Outcome, len(ss))
	for i := range ss {
		os[i] = ss[i].Outcome
	}
	return os
}

func wantStates(t testing.TB, os []broker.Outcome, want broker.State) {
	t.Helper()
	for i, o := range os {
		if o.State != want {
			t.Fatalf("outcome %d is %v (%v), want %v", i, o.State, o.Err, want)
		}
	}
}

// connOf is the adapter's own connection.
func connOf(t testing.TB, c broker.Conn) *conn {
	t.Helper()
	d, ok := driver.Unwrap(c)
	if !ok {
		t.Fatalf("%T", c)
	}
	return d.(*conn)
}

// inject arms a fault of the emulator.
func (h *host) inject(f fault.Fault) *fault.Injection { return h.Faults().Inject(f, nil) }

// eventually polls until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for begin := time.Now(); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > mustCome {
			t.Fatalf("not in %s: %s", mustCome, what)
		}
	}
}
