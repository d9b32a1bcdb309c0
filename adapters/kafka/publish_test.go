package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

func TestPublishCarriesEveryField(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	ms := []broker.Message{
		{ID: "a", Body: []byte("x"), Time: time.UnixMilli(1234567890123)},
		{ID: "b\u00e9", Copy: "again", Key: "k\xff", Body: bytes.Repeat([]byte{0, 1}, 2000), Headers: broker.Headers{
			{Key: "one", Value: "1"}, {Key: "two", Value: "\x00\xff"}, {Key: "one", Value: "2"}, {Key: "Once", Value: ""}}},
	}
	rs := publish(t, openPublisher(t, conn, "t"), ms...)
	for i, r := range rs {
		if r.Verdict != broker.Stored || r.Position != (broker.Position{Partition: "0", Offset: uint64(i)}) {
			t.Fatalf("receipt %d: %+v", i, r)
		}
	}
	ds := receive(t, openReceiver(t, conn, "t/g"), 2)
	for i, d := range ds {
		m := ms[i]
		if d.ID != m.ID || d.Copy != m.Copy || d.Key != m.Key || !bytes.Equal(d.Body, m.Body) ||
			d.Time.UnixMilli() != m.Time.UnixMilli() || !slices.Equal(d.Headers, m.Headers) || d.Position != rs[i].Position {
			t.Errorf("message %d came as %+v", i, d.Message)
		}
		var rec *kgo.Record
		if !d.As(&rec) || rec.Offset != int64(i) || rec.Timestamp.UnixMilli() != m.Time.UnixMilli() {
			t.Errorf("raw record %+v", rec)
		}
		if (m.Key == "") != (rec.Key == nil) {
			t.Errorf("key %q became %v", m.Key, rec.Key)
		}
	}
}

// What other producers write is delivered as it is.
func TestReceiveForeignRecords(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	var cl *kgo.Client
	conn.As(&cl)
	recs := []*kgo.Record{
		{Topic: "t", Value: []byte("plain")},
		{Topic: "t", Headers: []kgo.RecordHeader{{Key: "onceline-id", Value: []byte("first")}, {Key: "onceline-id", Value: []byte("second")},
			{Key: "onceline-time", Value: []byte("no number")}, {Key: "ONCELINE-ID", Value: []byte("look-alike")}}},
	}
	if err := cl.ProduceSync(ctxOf(t, 5*time.Second), recs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ds := receive(t, openReceiver(t, conn, "t/g"), 2)
	if d := ds[0]; d.ID != "" || d.Headers != nil || d.Time.IsZero() || string(d.Body) != "plain" {
		t.Errorf("plain record: %+v", d.Message)
	}
	want := broker.Headers{{Key: "onceline-id", Value: "second"}, {Key: "ONCELINE-ID", Value: "look-alike"}}
	if d := ds[1]; d.ID != "first" || !slices.Equal(d.Headers, want) || d.Time.IsZero() {
		t.Errorf("odd record: %+v", d.Message)
	}
}

// twmb/franz-go#930: Publish ends with its context although the record stays in
// flight, and a retry of the same ID joins it.
func TestCasePublishReturnsWithItsContext(t *testing.T) {
	t.Parallel()
	c, w := cluster(t, 1)
	conn := dial(t, c)
	p := openPublisher(t, conn, "t")
	publish(t, p, messages(1, 0)...)
	w.lose(kmsg.Produce, 100, true) // the messages may go in several requests
	m := messages(3, 1)
	begun := time.Now()
	rs, err := p.Publish(ctxOf(t, 300*time.Millisecond), m...)
	if took := time.Since(begun); took < 250*time.Millisecond || took > 2*time.Second {
		t.Fatalf("returned after %v", took)
	}
	if !errors.Is(err, broker.ErrUnknownOutcome) || rs[0].Verdict != broker.Unknown {
		t.Fatalf("lost answer: %+v (%v)", rs[0], err)
	}
	eventually(t, "the broker has the records", func() bool { return stored(c) == 4 })
	// The caller may use its memory again: the record in flight has its own.
	for i := range m {
		copy(m[i].Body, "XXXXXX")
	}
	// A retry while it is in flight, with a context that ends too.
	if _, err := p.Publish(ctxOf(t, 50*time.Millisecond), m[0]); !errors.Is(err, broker.ErrUnknownOutcome) {
		t.Fatalf("joined and lost: %v", err)
	}
	w.heal()
	rs = publish(t, p, m...)
	for i, r := range rs {
		if r.Verdict != broker.Stored || r.Position.Offset != uint64(i+1) {
			t.Fatalf("joined receipt %d: %+v", i, r)
		}
	}
	if n := stored(c); n != 4 {
		t.Fatalf("%d records, want 4: a retry added a copy", n)
	}
	// Sequences are in order: later records are stored and come in order.
	publish(t, p, messages(2, 4)...)
	ds := receive(t, openReceiver(t, conn, "t/g"), 6)
	if want := []string{"m-0", "m-1", "m-2", "m-3", "m-4", "m-5"}; !slices.Equal(ids(ds), want) {
		t.Fatalf("log holds %v", ids(ds))
	}
	if string(ds[1].Body) != "body 1" {
		t.Fatalf("body in flight became %q", ds[1].Body)
	}
}

// A record that is sent again after its Publish returned has the body of then,
// whatever the caller did with its memory.
func TestPublishOwnsItsMemory(t *testing.T) {
	t.Parallel()
	c, w := cluster(t, 1)
	conn := dial(t, c)
	p := openPublisher(t, conn, "t")
	publish(t, p, messages(1, 0)...)
	dropped := make(chan struct{}, 1)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		dropped <- struct{}{}
		return nil, nil, true // never seen by the broker, and never answered
	})
	m := messages(1, 1)
	if _, err := p.Publish(ctxOf(t, 100*time.Millisecond), m...); !errors.Is(err, broker.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	<-dropped
	copy(m[0].Body, "XXXXXX")
	w.cut()
	ds := receive(t, openReceiver(t, conn, "t/g"), 2)
	if string(ds[1].Body) != "body 1" {
		t.Fatalf("stored %q", ds[1].Body)
	}
}

// The answer comes after the caller gave up and before it tries again.
func TestPublishRetryFindsTheLateAnswer(t *testing.T) {
	t.Parallel()
	c, w := cluster(t, 1)
	conn := dial(t, c)
	p := openPublisher(t, conn, "t")
	publish(t, p, messages(1, 0)...)
	w.lose(kmsg.Produce, 1, true)
	m := messages(1, 1)
	if _, err := p.Publish(ctxOf(t, 100*time.Millisecond), m...); !errors.Is(err, broker.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	w.heal()
	var cl *kgo.Client
	p.As(&cl)
	if err := cl.Flush(ctxOf(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	// Another Copy is another message and joins nothing.
	other := m[0]
	other.Copy = "c"
	if r := publish(t, p, other)[0]; r.Position.Offset != 2 {
		t.Fatalf("copy: %+v", r)
	}
	if r := publish(t, p, m...)[0]; r.Verdict != broker.Stored || r.Position.Offset != 1 {
		t.Fatalf("retry: %+v", r)
	}
	// The answer was claimed: from now on it is a new message to the publisher.
	if r := publish(t, p, m...)[0]; r.Position.Offset != 3 {
		t.Fatalf("third: %+v", r)
	}
}

// twmb/franz-go#1217: a record that was stored, answered with an error and
// given up must not make a later one vanish as its copy.
func TestCaseAbandonedRecordHidesNoLaterOne(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	p := openPublisher(t, conn, "t")
	publish(t, p, messages(1, 0)...)
	// Stored, then answered with an error: what a leader does that waits for
	// its replicas in vain.
	f := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, Count: -1})
	_, err := p.Publish(ctxOf(t, 150*time.Millisecond), messages(1, 1)...)
	if !errors.Is(err, broker.ErrUnknownOutcome) {
		t.Fatalf("A: %v", err)
	}
	f.Remove()
	rs := publish(t, p, messages(1, 2)...)
	if rs[0].Verdict != broker.Stored {
		t.Fatalf("B: %+v", rs[0])
	}
	n := int(stored(c))
	ds := receive(t, openReceiver(t, conn, "t/g"), n)
	if got := ids(ds); !slices.Contains(got, "m-2") || ds[rs[0].Position.Offset].ID != "m-2" {
		t.Fatalf("B was answered with offset %d; the log holds %v", rs[0].Position.Offset, got)
	}
}

func TestPublishRefusals(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	ctx := ctxOf(t, 10*time.Second)
	if _, err := conn.OpenPublisher(ctx, "nosuch"); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("unknown topic: %v", err)
	}
	if _, err := conn.OpenPublisher(ctx, "a/b"); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("bad name: %v", err)
	}
	// One message of a batch is too large; the others are stored.
	if err := conn.Ensure(ctx, broker.Entity{Topic: "small", MaxBody: 2000}); err != nil {
		t.Fatal(err)
	}
	p := openPublisher(t, conn, "small")
	if l := p.Limits().Body; l != 2000 {
		t.Fatalf("limit %d", l)
	}
	ms := messages(5, 0)
	ms[2].Body = make([]byte, 2001)
	ms[3].Headers = broker.Headers{{Key: "fat", Value: strings.Repeat("v", 9000)}} // over the topic's limit, which only the SDK can tell
	rs, err := p.Publish(ctx, ms...)
	if !errors.Is(err, broker.ErrTooLarge) {
		t.Fatal(err)
	}
	for i, r := range rs {
		want := broker.Stored
		if i == 2 || i == 3 {
			want = broker.Refused
		}
		if r.Verdict != want || want == broker.Refused && !errors.Is(r.Err, broker.ErrTooLarge) {
			t.Errorf("receipt %d: %+v", i, r)
		}
	}
	// Many that fit one by one and not together.
	many := messages(50, 10)
	for i := range many {
		many[i].Body = bytes.Repeat([]byte(fmt.Sprint(i%10)), 1900)
	}
	publish(t, p, many...)
	// The topic goes away under the publisher.
	if err := conn.Delete(ctx, broker.Entity{Topic: "small"}); err != nil {
		t.Fatal(err)
	}
	rs, err = p.Publish(ctx, messages(1, 99)...)
	if !errors.Is(err, broker.ErrNotFound) || rs[0].Verdict != broker.Refused {
		t.Errorf("deleted topic: %+v", rs[0])
	}
}

func TestPublishAtMostOnce(t *testing.T) {
	t.Parallel()
	c, w := cluster(t, 1)
	conn := dial(t, c)
	p := openPublisher(t, conn, "t", broker.PublishAtMostOnce())
	publish(t, p, messages(1, 0)...)
	w.lose(kmsg.Produce, 1, false) // the answer, and the connection with it
	rs, err := p.Publish(ctxOf(t, 3*time.Second), messages(1, 1)...)
	if !errors.Is(err, broker.ErrUnknownOutcome) || rs[0].Verdict != broker.Unknown {
		t.Fatalf("%+v (%v)", rs[0], err)
	}
	publish(t, p, messages(1, 2)...)
	if n := stored(c); n != 3 {
		t.Fatalf("%d records, want 3: something was sent twice or not at all", n)
	}
}

// With the default, the same fault costs nothing: the SDK sends again and the
// broker knows the batch (KAF-F-03).
func TestPublishSurvivesLostAnswer(t *testing.T) {
	t.Parallel()
	c, w := cluster(t, 1)
	conn := dial(t, c)
	p := openPublisher(t, conn, "t")
	publish(t, p, messages(1, 0)...)
	w.lose(kmsg.Produce, 1, false)
	if r := publish(t, p, messages(1, 1)...)[0]; r.Verdict != broker.Stored || r.Position.Offset != 1 {
		t.Fatalf("%+v", r)
	}
	if w.losses() != 1 || stored(c) != 2 {
		t.Fatalf("%d lost, %d records", w.losses(), stored(c))
	}
}

// Keys keep their order under concurrent batches, and every receipt names the
// place where its message is.
func TestPublishConcurrent(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 3)
	conn := dial(t, c)
	p := openPublisher(t, conn, "t")
	var mu sync.Mutex
	at := map[broker.Position]string{}
	var wait sync.WaitGroup
	for w := range 4 {
		wait.Go(func() {
			for b := range 25 {
				ms := messages(20, w*1000+b*20, fmt.Sprint("key", w))
				rs, err := p.Publish(context.Background(), ms...)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i, r := range rs {
					at[r.Position] = ms[i].ID
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	last := map[string]int{}
	for _, d := range receive(t, openReceiver(t, conn, "t/g"), 2000) {
		if at[d.Position] != d.ID {
			t.Fatalf("%s is at %+v, a receipt said %s", d.ID, d.Position, at[d.Position])
		}
		var n int
		fmt.Sscanf(d.ID, "m-%d", &n)
		if n < last[d.Key] {
			t.Fatalf("key %s: %d after %d", d.Key, n, last[d.Key])
		}
		last[d.Key] = n
	}
}

// twmb/franz-go#556: Close ends in time though the broker is down.
func TestCaseCloseWithBrokerDown(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]func(*Options){"group": func(*Options) {}, "consumer": nextGen, "share": shares} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := cluster(t, 1)
			o := Options{Client: []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}}
			mode(&o)
			conn, err := New(ctxOf(t, 5*time.Second), o)
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.Ensure(ctxOf(t, 5*time.Second), broker.Entity{Topic: "t", Subscription: "t/g"}); err != nil {
				t.Fatal(err)
			}
			p := openPublisher(t, conn, "t")
			publish(t, p, messages(3, 0)...)
			r := openReceiver(t, conn, "t/g")
			ds := receive(t, r, 3)
			c.Close()
			lost := make(chan error, 1)
			go func() {
				_, err := p.Publish(context.Background(), messages(1, 3)...)
				lost <- err
			}()
			settleIn(ctxOf(t, 100*time.Millisecond), r, broker.Ack, ds...)
			begun := time.Now()
			_ = conn.Close(ctxOf(t, time.Second)) // an error here is the truth
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("closed after %v", took)
			}
			if err := <-lost; !errors.Is(err, broker.ErrUnknownOutcome) && !errors.Is(err, broker.ErrClosed) { // the latter if it came too late to begin
				t.Errorf("publish in flight: %v", err)
			}
		})
	}
}

// What is given away is sent as it is, an empty body is no tombstone, and nothing is
// held when the answer is there.
func TestPublishGiven(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	p := openPublisher(t, conn, "t").(broker.GivenPublisher)
	body := func() []byte { return bytes.Repeat([]byte("x"), 1000) }
	given := body()
	held := weak.Make(&given[0])
	if _, err := p.PublishGiven(t.Context(), broker.Message{ID: "a", Body: given}, broker.Message{ID: "b"}); err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(given)
	runtime.GC()
	if held.Value() != nil {
		t.Error("the body is held")
	}
	for i, d := range receive(t, openReceiver(t, conn, "t/g"), 2) {
		var rec *kgo.Record
		if want := [][]byte{body(), {}}[i]; !d.As(&rec) || rec.Value == nil || !bytes.Equal(rec.Value, want) {
			t.Errorf("%d came as %q", i, d.Body)
		}
	}
}

// A record that was given away and is sent again after its Publish returned has the
// body that lies where it lay: it wasn't copied.
func TestPublishGivenIsNotCopied(t *testing.T) {
	t.Parallel()
	c, w := cluster(t, 1)
	conn := dial(t, c)
	p := openPublisher(t, conn, "t").(broker.GivenPublisher)
	publish(t, p, messages(1, 0)...)
	dropped := make(chan struct{}, 1)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		dropped <- struct{}{}
		return nil, nil, true
	})
	m := messages(1, 1)
	if _, err := p.PublishGiven(ctxOf(t, 100*time.Millisecond), m...); !errors.Is(err, broker.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	<-dropped
	copy(m[0].Body, "body 2") // which nobody may but this test
	w.cut()
	if ds := receive(t, openReceiver(t, conn, "t/g"), 2); string(ds[1].Body) != "body 2" {
		t.Fatalf("stored %q", ds[1].Body)
	}
}
