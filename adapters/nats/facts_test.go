package nats

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// These tests ask the server and its SDK, without the adapter, for what the facts
// in docs/facts.md say and no documentation does.

func TestFactWindow(t *testing.T) {
	t.Parallel()
	// NATS-F-02, 03: what a stream's window is.
	for _, x := range []struct {
		window, age, want time.Duration
		code              int
	}{
		{0, 0, 2 * time.Minute, 0}, {0, time.Minute, time.Minute, 0}, {400 * 24 * time.Hour, 0, 400 * 24 * time.Hour, 0},
		{100 * time.Millisecond, 0, 100 * time.Millisecond, 0}, {99 * time.Millisecond, 0, 0, 10052}, {time.Hour, time.Minute, 0, 10052},
	} {
		c := rawTo(t, shared.ClientURL())
		s, err := c.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: c.name, Subjects: []string{c.name}, Duplicates: x.window, MaxAge: x.age})
		if code(err) != x.code || err == nil && s.CachedInfo().Config.Duplicates != x.want {
			t.Errorf("%+v: %v", x, err)
		}
	}
	// NATS-F-10: a new window holds for IDs that are remembered too, mostly at once: the
	// sweep that the change starts may run before it and go by the old window.
	c := rawStream(t, jetstream.StreamConfig{Duplicates: time.Hour}, nil)
	c.publish("a")
	<-time.After(120 * time.Millisecond) // older than the new window
	cfg := c.stream.CachedInfo().Config
	for change := time.Duration(0); ; change++ {
		cfg.Duplicates = 100*time.Millisecond + change
		if _, err := c.js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if a := c.publish("a"); !a.Duplicate {
			break
		}
		if change == 100 {
			t.Fatal("an ID that is older than the new window is still known")
		}
	}
}

func TestFactSourcedStreamHasNoWindow(t *testing.T) {
	t.Parallel()
	from := rawStream(t, jetstream.StreamConfig{}, nil)
	c := rawStream(t, jetstream.StreamConfig{Sources: []*jetstream.StreamSource{{Name: from.name}}}, nil)
	if w := c.stream.CachedInfo().Config.Duplicates; w != 0 {
		t.Errorf("window %s", w)
	}
	c.publish("a")
	if a := c.publish("a"); a.Duplicate { // NATS-F-04
		t.Error("a duplicate was caught")
	}
}

// NATS-F-42: with interest retention a message without a subscription is answered,
// remembered and dropped.
func TestFactInterest(t *testing.T) {
	t.Parallel()
	c := rawStream(t, jetstream.StreamConfig{Retention: jetstream.InterestPolicy}, nil)
	first, again := c.publish("a"), c.publish("a")
	if first.Sequence != 1 || first.Duplicate || !again.Duplicate || again.Sequence != 1 {
		t.Errorf("%+v, %+v", first, again)
	}
	if info, err := c.stream.Info(t.Context()); err != nil || info.State.Msgs != 0 {
		t.Errorf("%+v, %v", info.State, err)
	}
	k, err := c.stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	c.consumer = k
	c.publish("b")
	if m := c.next(mustCome); string(m.Data()) != "b" {
		t.Errorf("%q came first", m.Data())
	}
}

// NATS-F-13: the SDK repeats a publish only where nobody listens.
func TestFactPublishRetries(t *testing.T) {
	t.Parallel()
	c := rawTo(t, shared.ClientURL())
	sent := c.nc.Stats().OutMsgs
	start := time.Now()
	_, err := c.js.Publish(t.Context(), c.name, nil)
	took := time.Since(start)
	if n := c.nc.Stats().OutMsgs - sent; n != 3 || !errors.Is(err, jetstream.ErrNoStreamResponse) || took < 500*time.Millisecond {
		t.Errorf("%d sends in %s: %v", n, took, err)
	}
	// Somebody listens and doesn't answer.
	var got atomic.Int32
	sub, err := c.nc.Subscribe(c.name, func(*natsgo.Msg) { got.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	if _, err := c.js.Publish(ctx, c.name, nil); !errors.Is(err, context.DeadlineExceeded) || got.Load() != 1 {
		t.Errorf("%d came: %v", got.Load(), err)
	}
}

// NATS-F-15, 20: Ack says nothing of what became of it, DoubleAck does.
func TestFactAckIsNoAnswer(t *testing.T) {
	t.Parallel()
	c := rawStream(t, jetstream.StreamConfig{}, plain)
	c.publish("a")
	c.publish("b")
	a, b := c.next(mustCome), c.next(mustCome)
	if err := c.stream.DeleteConsumer(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if err := a.Ack(); err != nil {
		t.Errorf("Ack: %v", err)
	}
	if err := a.Ack(); !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		t.Errorf("Ack again: %v", err)
	}
	if err := b.DoubleAck(t.Context()); !errors.Is(err, natsgo.ErrNoResponders) {
		t.Errorf("DoubleAck: %v", err)
	}
}

// NATS-F-16 to 19: the server takes a settle from any delivery of a message.
func TestFactNoFence(t *testing.T) {
	t.Parallel()
	c := rawStream(t, jetstream.StreamConfig{}, func(k *jetstream.ConsumerConfig) { k.AckWait = time.Second })
	twice := func(id string) (old, newer jetstream.Msg) {
		c.publish(id)
		old = c.next(mustCome)
		newer = c.next(mustCome)
		if c.delivered(old) != 1 || c.delivered(newer) != 2 {
			t.Errorf("attempts %d and %d", c.delivered(old), c.delivered(newer))
		}
		return old, newer
	}
	old, newer := twice("ack")
	c.confirm(old)
	c.nothing(1200 * time.Millisecond)
	c.confirm(newer) // NATS-F-17

	old, newer = twice("nak")
	start := time.Now()
	if err := old.Nak(); err != nil {
		t.Fatal(err)
	}
	third := c.next(mustCome)
	if took := time.Since(start); c.delivered(third) != 3 || took > 900*time.Millisecond { // before the second's lease
		t.Errorf("attempt %d after %s", c.delivered(third), took)
	}
	c.confirm(newer)

	old, newer = twice("progress")
	start = time.Now()
	for range 4 {
		<-time.After(500 * time.Millisecond)
		if err := old.InProgress(); err != nil {
			t.Fatal(err)
		}
	}
	m := c.next(mustCome)
	if took := time.Since(start); took < 2900*time.Millisecond { // 2 s of signs, and a lease
		t.Errorf("attempt %d after %s", c.delivered(m), took)
	}
	c.confirm(newer)
}

// NATS-F-21, 23, 26: what a consumer has where nothing is asked for.
func TestFactConsumerDefaults(t *testing.T) {
	t.Parallel()
	c := rawStream(t, jetstream.StreamConfig{}, func(k *jetstream.ConsumerConfig) { k.AckWait = 0 })
	cfg := c.consumer.CachedInfo().Config
	if cfg.AckWait != 30*time.Second || cfg.MaxDeliver != -1 || cfg.MaxAckPending != 1000 {
		t.Errorf("%+v", cfg)
	}
	_, err := c.stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "negative", AckPolicy: jetstream.AckExplicitPolicy, AckWait: -time.Second})
	if err == nil {
		t.Error("a negative AckWait was taken")
	}
	for i := range 1001 {
		if _, err := c.js.PublishAsync(c.name, []byte(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	<-c.js.PublishAsyncComplete()
	got := 0
	take := func(most int, within time.Duration) {
		b, err := c.consumer.Fetch(most, jetstream.FetchMaxWait(within))
		if err != nil {
			t.Fatal(err)
		}
		for range b.Messages() {
			got++
		}
	}
	take(1000, mustCome) // the consumer may learn of the last ones late
	take(1, 200*time.Millisecond)
	if got != 1000 {
		t.Errorf("%d deliveries are out", got)
	}
	short := rawStream(t, jetstream.StreamConfig{}, func(k *jetstream.ConsumerConfig) { k.AckWait = 1 })
	short.publish("a")
	first := short.delivered(short.next(mustCome))
	if n := short.delivered(short.next(mustCome)); n <= first {
		t.Errorf("attempt %d after %d", n, first)
	}
}

// NATS-F-22: a BackOff list delays the end of leases, not a nak.
func TestFactBackOff(t *testing.T) {
	t.Parallel()
	c := rawStream(t, jetstream.StreamConfig{}, func(k *jetstream.ConsumerConfig) {
		k.BackOff, k.MaxDeliver = []time.Duration{500 * time.Millisecond, time.Minute}, 5
	})
	if w := c.consumer.CachedInfo().Config.AckWait; w != 500*time.Millisecond {
		t.Errorf("AckWait %s", w)
	}
	c.publish("a")
	start := time.Now()
	if err := c.next(mustCome).Nak(); err != nil {
		t.Fatal(err)
	}
	m := c.next(mustCome)
	if took := time.Since(start); took > 400*time.Millisecond || c.delivered(m) != 2 {
		t.Errorf("attempt %d came after %s", c.delivered(m), took)
	}
}

// NATS-F-25, 27, 28: what a client fetched and its application never saw counts as
// delivered, stays its own until the lease ends, and the lease runs meanwhile.
func TestFactPrefetch(t *testing.T) {
	t.Parallel()
	const lease = 400 * time.Millisecond
	c := rawStream(t, jetstream.StreamConfig{}, func(k *jetstream.ConsumerConfig) { k.AckWait = lease })
	dead := rawTo(t, shared.ClientURL())
	k, err := dead.js.Consumer(t.Context(), c.name, "c")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c.publish(strconv.Itoa(i))
	}
	it, err := k.Messages(jetstream.PullMaxMessages(3))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := it.Next(); err != nil || string(m.Data()) != "0" {
		t.Fatal(err)
	}
	until(t, "all to be fetched", func() bool {
		info, err := c.consumer.Info(t.Context())
		return err == nil && info.NumAckPending == 3
	})
	defer it.Stop()
	start := time.Now()
	dead.nc.Close()
	for i := range 3 {
		m := c.next(mustCome)
		if took := time.Since(start); c.delivered(m) != 2 || i == 0 && took < lease/2 {
			t.Errorf("%q at attempt %d, %s after its client went", m.Data(), c.delivered(m), took)
		}
		c.confirm(m)
	}
}

// NATS-F-28: the lease of what waits in a live client's buffer ends too.
func TestFactLeaseInBuffer(t *testing.T) {
	t.Parallel()
	c := rawStream(t, jetstream.StreamConfig{}, func(k *jetstream.ConsumerConfig) { k.AckWait = 300 * time.Millisecond })
	c.publish("0")
	c.publish("1")
	it, err := c.consumer.Messages(jetstream.PullMaxMessages(2))
	if err != nil {
		t.Fatal(err)
	}
	defer it.Stop()
	working, err := it.Next()
	if err != nil {
		t.Fatal(err)
	}
	until(t, "both to be fetched", func() bool {
		info, err := c.consumer.Info(t.Context())
		return err == nil && info.NumAckPending == 2
	})
	c.confirm(working)
	// The handler is slow: somebody else has the message that waits here.
	if m := c.next(mustCome); string(m.Data()) != "1" || c.delivered(m) != 2 {
		t.Errorf("%q at attempt %d", m.Data(), c.delivered(m))
	}
	m, err := it.Next()
	if err != nil || string(m.Data()) != "1" || c.delivered(m) != 1 {
		t.Errorf("from the buffer: %q, %v", m.Data(), err)
	}
}

// NATS-F-33, 34: a batch with a known ID is refused whole, and so is a batch that
// was committed, sent once more.
func TestFactBatch(t *testing.T) {
	t.Parallel()
	c := rawStream(t, jetstream.StreamConfig{AllowAtomicPublish: true}, nil)
	batch := func(id string, ids ...string) string {
		t.Helper()
		for i, msg := range ids {
			m := natsgo.NewMsg(c.name)
			m.Header.Set("Nats-Batch-Id", id)
			m.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
			m.Header.Set(natsgo.MsgIdHdr, msg)
			if i == len(ids)-1 {
				m.Header.Set("Nats-Batch-Commit", "1")
				r, err := c.nc.RequestMsg(m, 5*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				return string(r.Data)
			}
			if err := c.nc.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		return ""
	}
	c.publish("known")
	if r := batch("one", "a", "known", "b"); !strings.Contains(r, "10201") {
		t.Errorf("a batch with a known ID: %s", r)
	}
	if r := batch("two", "c", "d"); strings.Contains(r, "error") {
		t.Errorf("a batch: %s", r)
	}
	if r := batch("two", "c", "d"); !strings.Contains(r, "10201") || strings.Contains(r, `"seq":3`) {
		t.Errorf("the same batch: %s", r)
	}
	if info, err := c.stream.Info(t.Context()); err != nil || info.State.Msgs != 3 {
		t.Errorf("%+v, %v", info.State, err)
	}
}

// NATS-F-40: a publish that demands the last sequence is refused once it is stored.
func TestFactExpectedSequence(t *testing.T) {
	t.Parallel()
	c := rawStream(t, jetstream.StreamConfig{}, nil)
	for i, want := range []int{0, 10071} {
		_, err := c.js.Publish(t.Context(), c.name, nil, jetstream.WithExpectLastSequencePerSubject(0))
		if code(err) != want {
			t.Errorf("publish %d: %v", i, err)
		}
	}
}

// NATS-F-29: the limit of a message has a limit of its own.
func TestFactPayloadCeiling(t *testing.T) {
	t.Parallel()
	const ceiling = 64 << 20
	for _, limit := range []int32{ceiling, ceiling + 1} {
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, MaxPayload: limit})
		if (err == nil) != (limit <= ceiling) {
			t.Errorf("%d bytes: %v", limit, err)
		}
		if err == nil {
			s.Shutdown()
		}
	}
}

// NATS-F-36: what a schedule publishes has no ID of its own.
func TestFactSchedule(t *testing.T) {
	t.Parallel()
	c := rawStream(t, jetstream.StreamConfig{AllowMsgSchedules: true}, func(k *jetstream.ConsumerConfig) { k.FilterSubjects = nil })
	schedule := func() *jetstream.PubAck {
		m := natsgo.NewMsg(c.name + ".plan")
		m.Header.Set("Nats-Schedule", "@at "+time.Now().Add(-time.Hour).Format(time.RFC3339))
		m.Header.Set("Nats-Schedule-Target", c.name+".out")
		a, err := c.js.PublishMsg(t.Context(), m, jetstream.WithMsgID("a"))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	schedule()
	if a := schedule(); !a.Duplicate {
		t.Error("the schedule itself isn't deduplicated")
	}
	for {
		m := c.next(mustCome)
		c.confirm(m)
		if m.Subject() != c.name+".out" {
			continue
		}
		if id := m.Headers().Get(natsgo.MsgIdHdr); id != "" {
			t.Errorf("ID %q", id)
		}
		return
	}
}

// NATS-F-37: a counter counts what is sent twice.
func TestFactCounter(t *testing.T) {
	t.Parallel()
	c := rawStream(t, jetstream.StreamConfig{AllowMsgCounter: true}, nil)
	add := func(opts ...jetstream.PublishOpt) string {
		m := natsgo.NewMsg(c.name)
		m.Header.Set("Nats-Incr", "1")
		if _, err := c.js.PublishMsg(t.Context(), m, opts...); err != nil {
			t.Fatal(err)
		}
		last, err := c.stream.GetLastMsgForSubject(t.Context(), c.name)
		if err != nil {
			t.Fatal(err)
		}
		return string(last.Data)
	}
	for i, got := range []string{add(), add(), add(jetstream.WithMsgID("a")), add(jetstream.WithMsgID("a"))} {
		if want := fmt.Sprintf(`{"val":"%d"}`, min(i+1, 3)); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}

// byHand is a client without an SDK.
type byHand struct {
	*testing.T
	net.Conn
	r *bufio.Reader
}

func handTo(t *testing.T, url string) *byHand {
	t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(mustCome)); err != nil {
		t.Fatal(err)
	}
	h := &byHand{t, nc, bufio.NewReader(nc)}
	h.line() // INFO
	h.say("CONNECT {\"headers\":true,\"verbose\":false,\"no_responders\":true}\r\nSUB answer 1\r\n")
	return h
}

func (h *byHand) say(format string, args ...any) {
	h.Helper()
	if _, err := fmt.Fprintf(h, format, args...); err != nil {
		h.Fatal(err)
	}
}

func (h *byHand) line() string {
	h.Helper()
	s, err := h.r.ReadString('\n')
	if err != nil {
		h.Fatal(err)
	}
	return strings.TrimSuffix(s, "\r\n")
}

// NATS-F-101: a header is found by its name as it is spelled; its value begins behind
// the spaces after the colon and ends with the line.
func TestFactHeadersByName(t *testing.T) {
	t.Parallel()
	c := rawStream(t, jetstream.StreamConfig{}, nil)
	h := handTo(t, shared.ClientURL())
	for _, x := range []struct {
		header    string
		duplicate bool
	}{
		{"Nats-Msg-Id:a", false}, {"Nats-Msg-Id:a", true}, {"Nats-Msg-Id:    a", true}, {"Nats-Msg-Id:a ", false}, {"Nats-Msg-Id: a ", true},
		{"nats-msg-id:a", false}, {"nats-msg-id:a", false}, {"X-Nats-Msg-Id:a", false}, {"X:Nats-Msg-Id:a", false}, {"Nats-Expected-Last-Sequence:  99", false},
	} {
		head := "NATS/1.0\r\n" + x.header + "\r\n\r\n"
		h.say("HPUB %s answer %d %d\r\n%s\r\n", c.name, len(head), len(head), head)
		if l := h.line(); !strings.HasPrefix(l, "MSG answer") {
			t.Fatalf("%q: %s", x.header, l)
		}
		got := h.line()
		if strings.HasPrefix(x.header, "Nats-Expected") {
			if !strings.Contains(got, "10071") && !strings.Contains(got, "10070") {
				t.Errorf("%q: %s", x.header, got)
			}
		} else if strings.Contains(got, "error") || strings.Contains(got, `"duplicate": true`) != x.duplicate {
			t.Errorf("%q: %s", x.header, got)
		}
	}
}

// NATS-F-123: what is over the server's limit costs the connection, what is over the
// stream's is refused alone, and the client sends neither that it knows of.
func TestFactOversize(t *testing.T) {
	t.Parallel()
	c := rawStream(t, jetstream.StreamConfig{MaxMsgSize: 100}, nil)
	if _, err := c.js.Publish(t.Context(), c.name, make([]byte, 101)); code(err) != 10054 {
		t.Errorf("over the stream's limit: %v", err)
	}
	if _, err := c.js.Publish(t.Context(), c.name, make([]byte, 100)); err != nil {
		t.Errorf("at the stream's limit, on the same connection: %v", err)
	}
	limit := c.nc.MaxPayload()
	sent := c.nc.Stats().OutMsgs
	if err := c.nc.Publish(c.name, make([]byte, limit+1)); !errors.Is(err, natsgo.ErrMaxPayload) || c.nc.Stats().OutMsgs != sent {
		t.Errorf("over the server's limit, by the client: %v", err)
	}
	h := handTo(t, shared.ClientURL())
	h.say("PUB %s %d\r\n", c.name, limit+1)
	if l := h.line(); l != "-ERR 'Maximum Payload Violation'" {
		t.Errorf("over the server's limit: %s", l)
	}
	if _, err := h.r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection: %v", err)
	}
}

// NATS-F-125: a stream that discards new messages refuses those over its limits, and so
// do an account and a server without room.
func TestFactFull(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		full jetstream.StreamConfig
		text string
	}{
		{jetstream.StreamConfig{MaxMsgs: 1}, "maximum messages exceeded"},
		{jetstream.StreamConfig{MaxBytes: 100}, "maximum bytes exceeded"},
		{jetstream.StreamConfig{MaxMsgsPerSubject: 1, DiscardNewPerSubject: true}, "maximum messages per subject exceeded"},
	} {
		x.full.Discard = jetstream.DiscardNew
		c := rawStream(t, x.full, nil)
		c.publish("a")
		if _, err := c.js.Publish(t.Context(), c.name, make([]byte, 60)); code(err) != 10077 || !strings.Contains(err.Error(), x.text) {
			t.Errorf("%s: %v", x.text, err)
		}
		if info, err := c.stream.Info(t.Context()); err != nil || info.State.Msgs != 1 {
			t.Errorf("%s: %+v, %v", x.text, info.State, err)
		}
	}
	const room = 1 << 12
	for _, x := range []struct {
		name    string
		storage jetstream.StorageType
		server  int64
		code    int
	}{
		{"a server's memory", jetstream.MemoryStorage, room, 10023}, {"a server's disk", jetstream.FileStorage, room, 10023},
		{"an account's memory", jetstream.MemoryStorage, 1 << 20, 10002}, {"an account's disk", jetstream.FileStorage, 1 << 20, 10002},
	} {
		s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
			JetStream: true, StoreDir: t.TempDir(), JetStreamMaxMemory: x.server, JetStreamMaxStore: x.server})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		defer s.Shutdown()
		if !s.ReadyForConnections(mustCome) {
			t.Fatal("not ready")
		}
		if x.server > room {
			if err := s.GlobalAccount().UpdateJetStreamLimits(map[string]server.JetStreamAccountLimits{"": {MaxMemory: room, MaxStore: room, MaxStreams: -1, MaxConsumers: -1}}); err != nil {
				t.Fatal(err)
			}
		}
		c := rawTo(t, s.ClientURL())
		c.create(jetstream.StreamConfig{Storage: x.storage}, nil)
		for n := 0; err == nil && n < 100; n++ {
			_, err = c.js.Publish(t.Context(), c.name, make([]byte, room/4))
		}
		if code(err) != x.code {
			t.Errorf("%s, full: %v", x.name, err)
		}
	}
}

// NATS-F-500: a consumer at its limit of unacked messages is sent no more, and the
// stream takes messages as before; what is over a stream's limit is dropped from its
// other end.
func TestFactLimitsAreTheStreams(t *testing.T) {
	t.Parallel()
	c := rawStream(t, jetstream.StreamConfig{MaxMsgs: 3}, func(k *jetstream.ConsumerConfig) { k.MaxAckPending = 1 })
	for i := range 5 {
		c.publish(strconv.Itoa(i))
	}
	m := c.next(mustCome)
	if string(m.Data()) != "2" {
		t.Errorf("%q is the oldest of a stream of three", m.Data())
	}
	c.nothing(200 * time.Millisecond)
	if a := c.publish("5"); a.Duplicate || a.Sequence != 6 {
		t.Errorf("%+v", a)
	}
	c.confirm(m)
	c.confirm(c.next(mustCome))
}
