package sqs

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/onceline/onceline/broker"
	localsqs "github.com/onceline/onceline/localstack/sqs"
)

// mustCome is how long what must come is waited for: long, for a busy machine is slow,
// not wrong.
const mustCome = 30 * time.Second

// endpoint is the URL of the emulator that all tests use but those about faults,
// each with queues of its own.
var endpoint string

// emulator is what answers at endpoint.
var emulator *localsqs.Server

func startShared() (stop func()) {
	var url string
	emulator, url, stop = serve()
	endpoint = url
	return stop
}

// serve runs an emulator on a loopback port.
func serve() (s *localsqs.Server, url string, stop func()) {
	s = localsqs.New()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return s, "sqs://" + l.Addr().String(), func() {
		ctx, cancel := context.WithTimeout(context.Background(), mustCome)
		defer cancel()
		if err := errors.Join(s.Close(ctx), <-served); err != nil {
			panic(err)
		}
	}
}

var names atomic.Int64

// entity names a queue of the test's own.
func entity(t testing.TB, change ...func(*broker.Entity)) broker.Entity {
	t.Helper()
	n := fmt.Sprintf("q%d-%d", os.Getpid(), names.Add(1))
	e := broker.Entity{Topic: n, Subscription: n}
	for _, c := range change {
		c(&e)
	}
	return e
}

// dialTo opens a connection; the test closes it.
func dialTo(t testing.TB, url string, opts ...Option) broker.Conn {
	t.Helper()
	c, err := Dial(t.Context(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, c) })
	return c
}

func dialShared(t testing.TB, opts ...Option) broker.Conn {
	return dialTo(t, endpoint+"?anonymous=true", opts...)
}

func closing(t testing.TB, c interface{ Close(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), mustCome)
	defer cancel()
	if err := c.Close(ctx); err != nil && !errors.Is(err, broker.ErrUnavailable) {
		t.Errorf("close: %v", err)
	}
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

// kinds runs a test for both kinds of queue.
func kinds(t *testing.T, test func(t *testing.T, fifo bool)) {
	t.Parallel()
	for name, fifo := range map[string]bool{"standard": false, "fifo": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, fifo)
		})
	}
}

// ends is the usual: a queue, and both ends of it.
func ends(t testing.TB, fifo bool, change ...func(*broker.Entity)) (broker.Conn, broker.Entity, broker.Publisher, broker.Receiver) {
	t.Helper()
	c, _, e, p, r := tappedEnds(t, fifo, change...)
	return c, e, p, r
}

// tappedEnds is ends with a tap. Its polls don't wait, so that Close doesn't.
func tappedEnds(t testing.TB, fifo bool, change ...func(*broker.Entity)) (broker.Conn, *tap, broker.Entity, broker.Publisher, broker.Receiver) {
	t.Helper()
	w := newTap()
	c := dialShared(t, FIFO(fifo), PollWait(0), w.option())
	e := entity(t, change...)
	ensure(t, c, e)
	return c, w, e, publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
}

// movable is a connection to an emulator of its own whose clock the test moves,
// and a queue.
func movable(t testing.TB, fifo bool, change ...func(*broker.Entity)) (*localsqs.Server, broker.Conn, *tap, broker.Entity) {
	t.Helper()
	s, url, stop := serve()
	t.Cleanup(stop)
	w := newTap()
	c := dialTo(t, url+"?anonymous=true", FIFO(fifo), PollWait(0), Clock(s.Clock()), w.option())
	e := entity(t, change...)
	ensure(t, c, e)
	return s, c, w, e
}

func message(id string) broker.Message { return broker.Message{ID: id, Body: []byte("body of " + id)} }

func messages(n int, prefix string) []broker.Message {
	ms := make([]broker.Message, n)
	for i := range ms {
		ms[i] = message(fmt.Sprintf("%s%d", prefix, i))
	}
	return ms
}

func keyed(key string, ids ...string) []broker.Message {
	ms := make([]broker.Message, len(ids))
	for i, id := range ids {
		ms[i] = message(id)
		ms[i].Key = key
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

func ids(ds []broker.Delivery) string {
	var b strings.Builder
	for i := range ds {
		fmt.Fprintf(&b, "%s ", ds[i].ID)
	}
	return strings.TrimSpace(b.String())
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

func ptr[T any](v T) *T { return &v }

// anonymous are credentials for emulators.
type anonymous struct{}

func (anonymous) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
}

// innards is the adapter's receiver behind one of package driver.
func innards(t testing.TB, r broker.Receiver) *receiver {
	t.Helper()
	var d *receiver
	if !r.As(&d) {
		t.Fatal("no receiver of this package")
	}
	return d
}

// pemOf is the certificate of a TLS server.
func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}
