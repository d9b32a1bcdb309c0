package nats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/internal/sidebyside"
)

// mustCome is how long what must come is waited for: long, for a busy machine is slow,
// not wrong.
const mustCome = 30 * time.Second

// shared is the server of all tests that don't break it.
var shared *server.Server

func TestMain(m *testing.M) {
	sidebyside.Tests(4)
	dir, err := os.MkdirTemp("", "onceline-nats")
	if err != nil {
		panic(err)
	}
	if shared, err = start(filepath.Join(dir, "js"), 0); err != nil {
		panic(err)
	}
	code := m.Run()
	shared.Shutdown()
	shared.WaitForShutdown()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func start(dir string, port int, change ...func(*server.Options)) (*server.Server, error) {
	if port == 0 {
		port = server.RANDOM_PORT
	}
	o := &server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true, DisableShortFirstPing: true}
	for _, c := range change {
		c(o)
	}
	s, err := server.NewServer(o)
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		return nil, errors.New("the server isn't ready")
	}
	return s, nil
}

var names atomic.Int64

// entity returns a new one, to be deleted after the test.
func entity(t testing.TB, change ...func(*broker.Entity)) broker.Entity {
	n := fmt.Sprintf("t%d", names.Add(1))
	e := broker.Entity{Topic: n + ".orders", Subscription: n + "/billing", Lease: 2 * time.Second}
	for _, c := range change {
		c(&e)
	}
	return e
}

// dialTo opens a connection to a server; the test closes it.
func dialTo(t testing.TB, url string, opts ...Option) broker.Conn {
	t.Helper()
	c, err := Dial(t.Context(), url, opts...)
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

func dialShared(t testing.TB, opts ...Option) broker.Conn {
	return dialTo(t, shared.ClientURL(), opts...)
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

// ends is the usual: an entity, and both ends of it.
func ends(t testing.TB, change ...func(*broker.Entity)) (broker.Conn, broker.Entity, broker.Publisher, broker.Receiver) {
	t.Helper()
	c := dialShared(t)
	e := entity(t, change...)
	ensure(t, c, e)
	return c, e, publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
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

func connOf(t testing.TB, c broker.Conn) *conn {
	t.Helper()
	d, ok := driver.Unwrap(c)
	if !ok {
		t.Fatal("not a connection of package driver")
	}
	return d.(*conn)
}

func client(t testing.TB, c broker.Conn) *natsgo.Conn {
	t.Helper()
	var nc *natsgo.Conn
	if !c.As(&nc) {
		t.Fatal("no client")
	}
	return nc
}
