package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/localstack"
)

// asCommand in the environment makes the test binary the program, for tests that kill it.
const asCommand = "ONCELINE_TEST_COMMAND"

func runIfCommand() {
	runIfConsumer()
	if os.Getenv(asCommand) != "" {
		_ = os.Unsetenv(asCommand)
		main()
	}
}

// process is the program in a process of its own.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr *watched
	ended          chan error
}

func spawn(t testing.TB, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, exec.Command(exe, args...), asCommand+"=1")
}

func start(t testing.TB, cmd *exec.Cmd, env string) *process {
	t.Helper()
	p := &process{cmd: cmd, stdout: newWatched(), stderr: newWatched(), ended: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), env)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	return p
}

// kill ends it as a power cut would.
func (p *process) kill(t testing.TB) {
	t.Helper()
	_ = p.cmd.Process.Kill() // it may have ended by itself, which its exit code says
	if err := <-p.ended; err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() > 0 {
			t.Errorf("ended by itself: %v: %s", err, p.stderr)
		}
	}
}

// crossing is a pair of brokers with a bridge between them.
type crossing struct {
	name               string
	from, to           string // emulators; to "" stays in the database
	fromQuery, toQuery string
	source, far        broker.Entity
	args               []string
	inbox, postgres    bool
	database           string
	noSettleAnswer     bool // the source's protocol has no answer to an ack
	source0, source1   localstack.Emulator
	t                  testing.TB
	fromConn, toConn   broker.Conn
	in                 broker.Publisher
	dir                string
	published          int
	keys               int
	killed             int
}

func crossings() []*crossing {
	return []*crossing{
		{name: "nats to kafka", from: localstack.NATSName, to: localstack.KafkaName, inbox: true,
			source: broker.Entity{Topic: "orders", Subscription: "ORDERS/bridge", Lease: time.Second, Ordered: true},
			far:    broker.Entity{Topic: "orders", Subscription: "orders/far"}, toQuery: "?session=6s"},
		{name: "rabbitmq to nats", from: localstack.RabbitMQName, to: localstack.NATSName, noSettleAnswer: true,
			source: broker.Entity{Topic: "orders", Subscription: "orders/bridge"},
			far:    broker.Entity{Topic: "orders", Subscription: "FAR/far"}},
		{name: "sqs fifo to service bus", from: localstack.SQSName, to: localstack.ServiceBusName,
			source: broker.Entity{Topic: "orders.fifo", Subscription: "orders.fifo", Lease: time.Second},
			far:    broker.Entity{Topic: "far", Subscription: "far"}},
		{name: "kafka to a database", from: localstack.KafkaName, fromQuery: "?session=1s", inbox: true,
			source: broker.Entity{Topic: "orders", Subscription: "orders/bridge"}},
		{name: "kafka to postgres", from: localstack.KafkaName, fromQuery: "?session=1s", inbox: true, postgres: true,
			source: broker.Entity{Topic: "orders", Subscription: "orders/bridge"}},
	}
}

// needs skips what isn't installed here and wasn't asked for.
func (c *crossing) needs(t *testing.T) {
	if c.postgres && !slices.Contains(strings.Split(os.Getenv("ONCELINE_REQUIRE"), ","), "postgres") {
		t.Skip("needs a PostgreSQL server: set ONCELINE_REQUIRE=postgres")
	}
}

// start brings up both brokers and publishes n messages.
func (c *crossing) start(t testing.TB, n, keys int) {
	c.t, c.dir, c.keys = t, t.TempDir(), keys
	names := []string{c.from}
	if c.to != "" {
		names = append(names, c.to)
	}
	stack, err := localstack.Start(t.Context(), names...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stack.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	open := func(name, query string, e broker.Entity) broker.Conn {
		c, err := broker.Open(t.Context(), stack.URL(name)+query)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		if err := c.Ensure(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c.source0 = stack.Emulator(c.from)
	c.fromConn = open(c.from, c.fromQuery, c.source)
	c.args = append(c.args, "--from", stack.URL(c.from)+c.fromQuery, "--subscription", c.source.Subscription, "--from-topic", c.source.Topic, "--topic", "orders",
		"--every", "0", "--publish-timeout", "2s")
	if c.in, err = c.fromConn.OpenPublisher(t.Context(), c.source.Topic); err != nil {
		t.Fatal(err)
	}
	if c.to != "" {
		c.source1 = stack.Emulator(c.to)
		c.toConn = open(c.to, c.toQuery, c.far)
		c.args = append(c.args, "--to", stack.URL(c.to)+c.toQuery)
		if c.far.Topic != "orders" {
			c.args = append(c.args, "--topic", c.far.Topic)
		}
	}
	c.database = filepath.Join(c.dir, "bridge.db")
	if c.postgres {
		db, err := localstack.StartPostgres(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		c.database = db.URL()
	}
	if c.inbox {
		c.args = append(c.args, "--inbox", c.database, "--migrate")
	}
	c.publish(n)
}

func (c *crossing) publish(n int) {
	c.t.Helper()
	for from := c.published; c.published < from+n; {
		msgs := make([]broker.Message, 0, 500)
		for len(msgs) < cap(msgs) && c.published < from+n {
			msgs = append(msgs, broker.Message{ID: fmt.Sprintf("%07d", c.published), Key: "k" + strconv.Itoa(c.published%c.keys), Body: []byte("body"),
				Headers: broker.Headers{{Key: "n", Value: strconv.Itoa(c.published)}}})
			c.published++
		}
		if _, err := c.in.Publish(c.t.Context(), msgs...); err != nil {
			c.t.Fatal(err)
		}
	}
}

// bridge is the program that moves them.
func (c *crossing) bridge(more ...string) *process {
	return spawn(c.t, append(append([]string{"bridge"}, c.args...), more...)...)
}

// killAt runs the bridge until a fault has struck, and kills it there. It reports
// whether it struck: what is left may be too little for it.
func (c *crossing) killAt(e localstack.Emulator, f localstack.Fault) {
	c.t.Helper()
	f.Times = 1
	i := e.Inject(f)
	defer i.Remove()
	p := c.bridge()
	defer p.kill(c.t)
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	defer cancel()
	wait := i.WaitHit
	if f.Kind == localstack.LoseResponse {
		wait = i.WaitApplied
	}
	if err := wait(ctx); err != nil {
		c.t.Errorf("%s: %v: %s", c.name, err, p.stderr)
	}
	c.killed++
}

// finish moves what is left, in a process that isn't killed, and checks what has arrived.
func (c *crossing) finish() {
	c.t.Helper()
	if c.to == "" {
		c.drain()
		c.check()
		return
	}
	p := c.bridge()
	c.check() // waits for it
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		c.t.Error(err)
	}
	select {
	case err := <-p.ended:
		if err != nil {
			c.t.Errorf("%s: %v: %s", c.name, err, p.stderr)
		}
	case <-time.After(time.Minute):
		p.kill(c.t)
		c.t.Errorf("%s: it doesn't end: %s", c.name, p.stderr)
	}
	if c.t.Failed() {
		c.t.Logf("%s%s", p.stdout, p.stderr)
	}
}

// drain ends what is left, in a process that isn't killed.
func (c *crossing) drain() {
	c.t.Helper()
	p := c.bridge("--drain", "--wait", "1500ms")
	select {
	case err := <-p.ended:
		if err != nil {
			c.t.Errorf("%s: drain: %v: %s", c.name, err, p.stderr)
		}
	case <-time.After(5 * time.Minute):
		p.kill(c.t)
		c.t.Errorf("%s: the drain doesn't end: %s", c.name, p.stderr)
	}
}

// arrived returns the IDs that are at the far side, in their order, by key.
func (c *crossing) arrived() map[string][]string {
	c.t.Helper()
	type place struct {
		id string
		at uint64
	}
	places := map[string][]place{}
	add := func(id, key string, hs broker.Headers, at uint64) {
		if n, err := strconv.Atoi(id); err != nil || key != "k"+strconv.Itoa(n%c.keys) || hs.Get("n") != strconv.Itoa(n) || hs.Get("bridge-path") == "" {
			c.t.Errorf("%s: %q arrived with key %q and %v", c.name, id, key, hs)
		}
		places[key] = append(places[key], place{id, at})
	}
	// By where the far side keeps them: a Service Bus queue without sessions has an order
	// and doesn't hand out in it.
	sorted := func() map[string][]string {
		got := map[string][]string{}
		for key, ps := range places {
			slices.SortStableFunc(ps, func(a, b place) int { return cmp.Compare(a.at, b.at) })
			for _, p := range ps {
				got[key] = append(got[key], p.id)
			}
		}
		return got
	}
	if c.to == "" {
		store, err := openOutbox(c.t.Context(), c.database, "", false, 2)
		if err != nil {
			c.t.Fatal(err)
		}
		defer store.close()
		to := &collector{add: add}
		if _, err := dedup.NewRelay(store, "orders", to, dedup.RelayOptions{Batch: 1000}).Drain(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
		return sorted()
	}
	rcv, err := c.toConn.OpenReceiver(c.t.Context(), c.far.Subscription)
	for began := time.Now(); err != nil; rcv, err = c.toConn.OpenReceiver(c.t.Context(), c.far.Subscription) {
		if !c.restarting(began, err) {
			c.t.Fatal(err)
		}
	}
	distinct := map[string]bool{}
	for came := time.Now(); ; {
		// The last ones are waited for; then a little, for copies.
		patience := 20 * time.Second
		if len(distinct) >= c.published {
			patience = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		ds, err := rcv.Receive(ctx, 1000)
		cancel()
		if len(ds) == 0 && c.restarting(came, err) {
			continue
		}
		if len(ds) == 0 {
			if err != nil && ctx.Err() == nil {
				c.t.Fatal(err)
			}
			break
		}
		came = time.Now()
		s := make([]broker.Settlement, len(ds))
		for i := range ds {
			s[i] = broker.Settlement{Delivery: &ds[i], Action: broker.Ack}
			distinct[ds[i].ID] = true
			add(ds[i].ID, ds[i].Key, ds[i].Headers, ds[i].Position.Offset)
		}
		if err := rcv.Settle(c.t.Context(), s); err != nil {
			c.t.Error(err)
		}
	}
	return sorted()
}

// restarting reports whether err may be of a broker that was just restarted, and worth
// another attempt, which it waits a moment for.
func (c *crossing) restarting(since time.Time, err error) bool {
	if !errors.Is(err, broker.ErrUnavailable) || time.Since(since) > 20*time.Second {
		return false
	}
	select {
	case <-time.After(20 * time.Millisecond):
		return true
	case <-c.t.Context().Done():
		return false
	}
}

// check: each message once, in the order of its key.
func (c *crossing) check() {
	c.t.Helper()
	total, copies, inverted := 0, 0, 0
	for key, ids := range c.arrived() {
		seen := map[string]bool{}
		for i, id := range ids {
			if seen[id] {
				copies++
				continue
			}
			seen[id] = true
			if i > 0 && id < ids[i-1] {
				if inverted++; inverted <= 10 {
					c.t.Errorf("%s: key %s: %s came behind %s", c.name, key, id, ids[i-1])
				}
			}
		}
		total += len(seen)
	}
	if total != c.published || copies > 0 || inverted > 0 {
		c.t.Errorf("%s: %d of %d messages, %d copies, %d inversions", c.name, total, c.published, copies, inverted)
	}
}

// collector is a publisher that keeps what it gets.
type collector struct {
	mu  sync.Mutex
	add func(id, key string, hs broker.Headers, at uint64)
}

func (c *collector) Publish(_ context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]broker.Receipt, len(msgs))
	for i := range msgs {
		c.add(msgs[i].ID, msgs[i].Key, msgs[i].Headers, 0)
		out[i].Verdict = broker.Stored
	}
	return out, nil
}
func (c *collector) Limits() broker.Limits       { return broker.Limits{} }
func (c *collector) As(any) bool                 { return false }
func (c *collector) Close(context.Context) error { return nil }
