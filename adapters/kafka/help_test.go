package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

// mustCome is how long what must come is waited for: long, for a busy machine is slow,
// not wrong.
const mustCome = 30 * time.Second

// quick are the broker's settings that keep tests short.
var quick = map[string]string{
	"group.consumer.heartbeat.interval.ms": "50",
	"group.share.heartbeat.interval.ms":    "50",
	"group.initial.rebalance.delay.ms":     "0",
	"share.record.lock.sweep.interval.ms":  "20",
}

// cluster runs a broker with topic "t" of so many partitions. Its answers can
// be lost with the returned wire.
func cluster(t testing.TB, partitions int32, opts ...kfake.Opt) (*kfake.Cluster, *wire) {
	t.Helper()
	w := &wire{}
	base := []kfake.Opt{kfake.NumBrokers(1), kfake.BrokerConfigs(quick), kfake.ListenFn(w.listen)}
	if partitions > 0 {
		base = append(base, kfake.SeedTopics(partitions, "t"))
	}
	c, err := kfake.NewCluster(append(base, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.heal(); c.Close() })
	return c, w
}

// dial opens a connection that is closed at the end of the test.
func dial(t testing.TB, c *kfake.Cluster, change ...func(*Options)) broker.Conn {
	t.Helper()
	o := Options{
		Client: []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...), kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(50 * time.Millisecond),
			kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond })},
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&o)
	}
	if o.Mode == Group && o.Session == 0 {
		o.Session = 6 * time.Second
	}
	conn, err := New(ctxOf(t, mustCome), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(ctxOf(t, mustCome)); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return conn
}

// ctxOf is a context that ends by itself, also in a cleanup.
func ctxOf(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func openPublisher(t testing.TB, c broker.Conn, topic string, opts ...broker.PublisherOption) broker.Publisher {
	t.Helper()
	p, err := c.OpenPublisher(ctxOf(t, mustCome), topic, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func openReceiver(t testing.TB, c broker.Conn, sub string, opts ...broker.ReceiverOption) broker.Receiver {
	t.Helper()
	r, err := c.OpenReceiver(ctxOf(t, mustCome), sub, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// messages makes n messages, IDs "m-from" and on, with keys in turn.
func messages(n, from int, keys ...string) []broker.Message {
	ms := make([]broker.Message, n)
	for i := range ms {
		ms[i] = broker.Message{ID: fmt.Sprintf("m-%d", from+i), Body: []byte(fmt.Sprintf("body %d", from+i))}
		if len(keys) > 0 {
			ms[i].Key = keys[i%len(keys)]
		}
	}
	return ms
}

func publish(t testing.TB, p broker.Publisher, ms ...broker.Message) []broker.Receipt {
	t.Helper()
	rs, err := p.Publish(ctxOf(t, mustCome), ms...)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// receive takes n deliveries or fails.
func receive(t testing.TB, r broker.Receiver, n int) []broker.Delivery {
	t.Helper()
	ds := tryReceive(t, r, n, mustCome)
	if len(ds) != n {
		t.Fatalf("received %d deliveries, want %d", len(ds), n)
	}
	return ds
}

// tryReceive takes up to n deliveries within d.
func tryReceive(t testing.TB, r broker.Receiver, n int, d time.Duration) []broker.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var all []broker.Delivery
	for len(all) < n {
		ds, err := r.Receive(ctx, n-len(all))
		if err != nil {
			if ctx.Err() == nil {
				t.Fatal(err)
			}
			break
		}
		all = append(all, ds...)
	}
	return all
}

// settle settles with one action and returns the outcomes.
func settle(t testing.TB, r broker.Receiver, a broker.Action, ds ...broker.Delivery) []broker.Outcome {
	t.Helper()
	return settleIn(ctxOf(t, mustCome), r, a, ds...)
}

func settleIn(ctx context.Context, r broker.Receiver, a broker.Action, ds ...broker.Delivery) []broker.Outcome {
	ss := make([]broker.Settlement, len(ds))
	for i := range ds {
		ss[i] = broker.Settlement{Delivery: &ds[i], Action: a, Reason: "test"}
	}
	_ = r.Settle(ctx, ss)
	os := make([]broker.Outcome, len(ds))
	for i := range ss {
		os[i] = ss[i].Outcome
	}
	return os
}

// wantStates fails unless each outcome has the state.
func wantStates(t testing.TB, os []broker.Outcome, want broker.State) {
	t.Helper()
	for i, o := range os {
		if o.State != want {
			t.Fatalf("outcome %d is %v (%v), want %v", i, o.State, o.Err, want)
		}
	}
}

func ids(ds []broker.Delivery) []string {
	out := make([]string, len(ds))
	for i := range ds {
		out[i] = ds[i].ID
	}
	return out
}

// eventually polls until ok or fails after 10 s.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(mustCome); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// stored is how many records partition 0 of t holds.
func stored(c *kfake.Cluster) int64 { return c.PartitionInfo("t", 0).HighWatermark }

// committedAt asks the broker for a group's offset; -1 if there is none.
func committedAt(t testing.TB, conn broker.Conn, group string, partition int32) int64 {
	t.Helper()
	var cl *kgo.Client
	conn.As(&cl)
	var os kadm.OffsetResponses
	eventually(t, "the group's offsets", func() (ok bool) {
		var err error
		os, err = kadm.NewClient(cl).FetchOffsets(ctxOf(t, mustCome), group) // a cut connection shows here
		return err == nil
	})
	if o, ok := os.Lookup("t", partition); ok {
		return o.At
	}
	return -1
}

// evict removes a member from a classic group, as a session timeout would.
func evict(t testing.TB, conn broker.Conn, r broker.Receiver, group string) {
	t.Helper()
	var admin, member *kgo.Client
	conn.As(&admin)
	r.As(&member)
	id, _ := member.GroupMetadata()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = group
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = id
	req.Members = append(req.Members, m)
	if _, err := req.RequestWith(ctxOf(t, mustCome), admin); err != nil {
		t.Fatal(err)
	}
}

// wire is a network that can lose a broker's answers, by API key.
type wire struct {
	mu    sync.Mutex
	key   int16
	times int
	mute  bool // swallow only; otherwise the connection is cut as well
	lost  int
	conns map[*wireConn]struct{}
}

// lose loses the next n answers to requests of the API. mute keeps the
// connection open: a black hole.
func (w *wire) lose(key kmsg.Key, n int, mute bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.key, w.times, w.mute, w.lost = int16(key), n, mute, 0
}

func (w *wire) losses() int { w.mu.Lock(); defer w.mu.Unlock(); return w.lost }

// heal loses nothing more and cuts what is stuck behind a lost answer.
func (w *wire) heal() { w.mu.Lock(); w.times = 0; w.mu.Unlock(); w.cut() }

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Conn.Close()
	}
}

func (w *wire) listen(network, addr string) (net.Listener, error) {
	l, err := net.Listen(network, addr)
	return &wireListener{l, w}, err
}

type wireListener struct {
	net.Listener
	w *wire
}

func (l *wireListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	wc := &wireConn{Conn: c, w: l.w, keys: map[int32]int16{}}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.w.conns == nil {
		l.w.conns = map[*wireConn]struct{}{}
	}
	l.w.conns[wc] = struct{}{}
	return wc, nil
}

// wireConn knows which API each request is of. The broker reads a request's
// size and then its body, and writes each answer at once.
type wireConn struct {
	net.Conn
	w    *wire
	mu   sync.Mutex
	keys map[int32]int16 // by correlation ID
	head []byte
	need int
}

func (c *wireConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	for b := p[:n]; len(b) > 0; {
		if c.need == 0 || len(c.head) < 12 {
			take := min(len(b), 12-len(c.head))
			c.head = append(c.head, b[:take]...)
			b = b[take:]
			if len(c.head) < 12 {
				break
			}
			c.need = int(binary.BigEndian.Uint32(c.head)) - 8
			c.keys[int32(binary.BigEndian.Uint32(c.head[8:]))] = int16(binary.BigEndian.Uint16(c.head[4:]))
		}
		take := min(len(b), c.need)
		b, c.need = b[take:], c.need-take
		if c.need == 0 {
			c.head = c.head[:0]
		}
	}
	return n, err
}

func (c *wireConn) Write(p []byte) (int, error) {
	if len(p) >= 8 {
		c.mu.Lock()
		id := int32(binary.BigEndian.Uint32(p[4:]))
		key, ok := c.keys[id]
		delete(c.keys, id)
		c.mu.Unlock()
		c.w.mu.Lock()
		hit := ok && c.w.times > 0 && key == c.w.key
		mute := c.w.mute
		if hit {
			c.w.times--
			c.w.lost++
		}
		c.w.mu.Unlock()
		if hit {
			if !mute {
				c.Conn.Close()
			}
			return len(p), nil
		}
	}
	return c.Conn.Write(p)
}

func (c *wireConn) Close() error {
	c.w.mu.Lock()
	delete(c.w.conns, c)
	c.w.mu.Unlock()
	return c.Conn.Close()
}
