package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/localstack"
)

// asConsumer in the environment makes the test binary a consumer of an application: its
// value is the broker's URL, the arguments are subscription and database.
const asConsumer = "ONCELINE_TEST_CONSUMER"

func runIfConsumer() {
	url := os.Getenv(asConsumer)
	if url == "" {
		return
	}
	if err := consume(context.Background(), url, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// consume writes a row for each message, once by its ID.
func consume(ctx context.Context, url, subscription, path string) error {
	store, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		return err
	}
	c, err := broker.Open(ctx, url)
	if err != nil {
		return err
	}
	r, err := c.OpenReceiver(ctx, subscription)
	if err != nil {
		return err
	}
	in := dedup.New(store, "app", dedup.Options{})
	effect := func(ctx context.Context, tx *sql.Tx, d *broker.Delivery) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effect (id, key, via) VALUES (?, ?, ?)", d.ID, d.Key, subscription)
		return err
	}
	return broker.Consume(ctx, r, dedup.Handler(in, effect), broker.ConsumeOptions{})
}

// swapped is an application that goes from one broker to another.
type swapped struct {
	t         *testing.T
	a, b      localstack.Emulator
	toA, toB  broker.Publisher
	path      string
	db        *sql.DB
	published int
}

func (s *swapped) consumer(e localstack.Emulator, subscription string) *process {
	s.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	return start(s.t, exec.Command(exe, subscription, s.path), asConsumer+"="+e.URL())
}

func (s *swapped) publish(n int, to ...broker.Publisher) {
	s.t.Helper()
	msgs := make([]broker.Message, n)
	for i := range msgs {
		msgs[i] = broker.Message{ID: fmt.Sprintf("%04d", s.published+i), Key: fmt.Sprint("k", i%7), Body: []byte("body")}
	}
	s.published += n
	for _, p := range to {
		if _, err := p.Publish(s.t.Context(), msgs...); err != nil {
			s.t.Fatal(err)
		}
	}
}

// rows waits until there are n effects, and returns how many.
func (s *swapped) rows(n int, where string) int {
	s.t.Helper()
	var got int
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err := s.db.QueryRowContext(s.t.Context(), "SELECT count(*) FROM effect WHERE "+where).Scan(&got); err != nil {
			s.t.Fatal(err)
		}
		if got >= n || time.Now().After(end) {
			return got
		}
	}
}

// TestSwap plays docs/swap.md, from RabbitMQ to NATS: whatever is killed at which step,
// each message has one effect.
func TestSwap(t *testing.T) {
	t.Parallel()
	stack, err := localstack.Start(t.Context(), localstack.RabbitMQName, localstack.NATSName)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stack.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	s := &swapped{t: t, a: stack.Emulator(localstack.RabbitMQName), b: stack.Emulator(localstack.NATSName), path: filepath.Join(t.TempDir(), "app.db")}
	store, err := sqlite.Open(t.Context(), s.path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s.db = store.DB()
	if _, err := s.db.ExecContext(t.Context(), "CREATE TABLE effect (seq INTEGER PRIMARY KEY, id TEXT, key TEXT, via TEXT)"); err != nil {
		t.Fatal(err)
	}
	open := func(url, topic string, es ...broker.Entity) broker.Publisher {
		c, err := broker.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		for _, e := range es {
			if err := c.Ensure(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		p, err := c.OpenPublisher(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	s.toA = open(s.a.URL(), "orders", broker.Entity{Topic: "orders", Subscription: "orders/app"})

	// Before: all on A.
	onA := s.consumer(s.a, "orders/app")
	s.publish(50, s.toA)
	if n := s.rows(50, "true"); n != 50 {
		t.Fatalf("%d effects before: %s", n, onA.stderr)
	}

	// 1. The far side, and consumers on both: dual-read. One is killed on the way.
	s.toB = open(s.b.URL(), "orders", broker.Entity{Topic: "orders", Subscription: "ORDERS/app", Lease: time.Second, Ordered: true})
	onB := s.consumer(s.b, "ORDERS/app")
	onA.kill(t)
	onA = s.consumer(s.a, "orders/app")

	// 2. The bridge, from a subscription of its own. It is killed when the far side has a
	// message and the source doesn't know; and once more when the source may know.
	args := []string{"bridge", "--from", s.a.URL(), "--from-topic", "orders", "--subscription", "orders/bridge", "--ensure", "--to", s.b.URL(), "--topic", "orders", "--every", "0"}
	stdout, stderr, code := onceline(t.Context(), append(args, "--check")...)
	if code != 3 { // the subscription isn't there yet, and --check makes none
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	bridge := spawn(t, args...)
	for !seen(bridge.stderr, "exactly once, within the window") {
		time.Sleep(5 * time.Millisecond)
	}
	for _, f := range []struct {
		on localstack.Emulator
		f  localstack.Fault
	}{
		{s.b, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 1}},
		{s.a, localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseRequest, Match: "orders/bridge", Times: 1}},
	} {
		i := f.on.Inject(f.f)
		s.publish(50, s.toA)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if err := i.WaitHit(ctx); err != nil {
			t.Errorf("%v: %s", err, bridge.stderr)
		}
		cancel()
		i.Remove()
		bridge.kill(t)
		bridge = spawn(t, args...)
	}
	if n := s.rows(150, "true"); n != 150 {
		t.Errorf("%d effects with two readers", n)
	}

	// 3. Producers write to both, one after the other (dual-write), under one ID.
	s.publish(50, s.toA, s.toB)
	bridge.kill(t)

	// 4. The consumers leave A, and the bridge drains it.
	onA.kill(t)
	s.publish(50, s.toA) // by a producer that was late
	stdout, stderr, code = onceline(t.Context(), append(args, "--drain", "--wait", "500ms")...)
	if code != 0 {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if left := rabbitLeft(t, s.a.URL(), "orders/bridge"); left != 0 {
		t.Errorf("%d messages left on A", left)
	}

	// 5. Cut over: producers on B alone.
	s.publish(50, s.toB)
	onB.kill(t)
	onB = s.consumer(s.b, "ORDERS/app")
	defer func() { onB.kill(t) }()
	if n := s.rows(s.published, "true"); n != s.published {
		t.Errorf("%d effects of %d messages: %s", n, s.published, onB.stderr)
	}
	if n := s.rows(0, "id IN (SELECT id FROM effect GROUP BY id HAVING count(*) > 1)"); n != 0 {
		t.Errorf("%d effects are of messages that have several", n)
	}
	if n := s.rows(100, "via = 'ORDERS/app'"); n < 100 {
		t.Errorf("only %d effects came by B", n)
	}
	if n := s.rows(0, "id >= '0250' AND EXISTS (SELECT 1 FROM effect e WHERE e.key = effect.key AND e.id >= '0250' AND e.id < effect.id AND e.seq > effect.seq)"); n != 0 {
		t.Errorf("%d effects after the cut-over came before an earlier one of their key", n)
	}
}

func seen(w *watched, text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Contains(w.buf.Bytes(), []byte(text))
}

// rabbitLeft is how many messages a subscription of RabbitMQ has.
func rabbitLeft(t *testing.T, url, subscription string) int {
	t.Helper()
	c, err := broker.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	r, err := c.OpenReceiver(t.Context(), subscription)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	ds, _ := r.Receive(ctx, 1000)
	return len(ds)
}
