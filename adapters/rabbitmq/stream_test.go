package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/fault"
	emulator "github.com/onceline/onceline/localstack/rabbitmq/stream"
)

// streamServer starts an emulator on a free port of the loopback.
func streamServer(t testing.TB, opts ...emulator.Option) (*emulator.Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := emulator.New(opts...)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close the emulator: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s, fmt.Sprintf("rabbitmq://127.0.0.1/?queue=stream&stream-port=%d", l.Addr().(*net.TCPAddr).Port)
}

func dialStreams(t testing.TB, url string, opts ...Option) broker.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := Dial(ctx, url, append([]Option{quiet()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

var streamNames atomic.Int64

// streamEntity ensures a stream with one subscription.
func streamEntity(t testing.TB, c broker.Conn, change ...func(*broker.Entity)) broker.Entity {
	t.Helper()
	n := fmt.Sprintf("s%d-%d", time.Now().UnixNano(), streamNames.Add(1))
	e := broker.Entity{Topic: n, Subscription: n + "/billing"}
	for _, f := range change {
		f(&e)
	}
	if err := c.Ensure(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := c.Delete(ctx, e); err != nil {
			t.Errorf("delete: %v", err)
		}
	})
	return e
}

func streamPub(t testing.TB, c broker.Conn, e broker.Entity, opts ...broker.PublisherOption) broker.Publisher {
	t.Helper()
	p, err := c.OpenPublisher(t.Context(), e.Topic, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func streamRcv(t testing.TB, c broker.Conn, e broker.Entity, opts ...broker.ReceiverOption) broker.Receiver {
	t.Helper()
	r, err := c.OpenReceiver(t.Context(), e.Subscription, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// streamMessages makes n messages, numbered from first.
func streamMessages(first, n int) []broker.Message {
	ms := make([]broker.Message, n)
	for i := range ms {
		ms[i] = broker.Message{ID: fmt.Sprintf("m%d", first+i), Body: fmt.Appendf(nil, "body %d", first+i)}
	}
	return ms
}

func publishAll(t testing.TB, p broker.Publisher, ms ...broker.Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	rs, err := p.Publish(ctx, ms...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rs {
		if rs[i].Verdict != broker.Stored {
			t.Fatalf("%q: %s", ms[i].ID, rs[i].Verdict)
		}
	}
}

// receiveN receives n messages.
func receiveN(t testing.TB, r broker.Receiver, n int) []broker.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var all []broker.Delivery
	for len(all) < n {
		ds, err := r.Receive(ctx, n-len(all))
		if err != nil {
			t.Fatalf("%d of %d: %v", len(all), n, err)
		}
		all = append(all, ds...)
	}
	return all
}

func idsOf(ds []broker.Delivery) []string {
	ids := make([]string, len(ds))
	for i := range ds {
		ids[i] = ds[i].ID
	}
	return ids
}

func ackAll(t testing.TB, r broker.Receiver, ds []broker.Delivery) {
	t.Helper()
	s := make([]broker.Settlement, len(ds))
	for i := range ds {
		s[i] = broker.Settlement{Delivery: &ds[i]}
	}
	if err := r.Settle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for i := range s {
		if s[i].Outcome.State != broker.Confirmed {
			t.Fatalf("ack %q: %s", ds[i].ID, s[i].Outcome.State)
		}
	}
}

// storedIDs reads all that a stream holds, under a name of its own.
func storedIDs(t testing.TB, c broker.Conn, e broker.Entity) []string {
	t.Helper()
	p := streamPub(t, c, e)
	end := broker.Message{ID: fmt.Sprintf("end-%d", streamNames.Add(1))}
	publishAll(t, p, end)
	r, err := c.OpenReceiver(t.Context(), fmt.Sprintf("%s/reader-%d", e.Topic, streamNames.Add(1)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(t.Context())
	var ids []string
	for {
		for _, d := range receiveN(t, r, 1) {
			if d.ID == end.ID {
				return ids
			}
			ids = append(ids, d.ID)
		}
	}
}

func TestStreamPublishesReceivesAndSettles(t *testing.T) {
	t.Parallel()
	_, url := streamServer(t)
	streamRoundTrip(t, url)
}

func streamRoundTrip(t *testing.T, url string) {
	c := dialStreams(t, url)
	e := streamEntity(t, c)
	p := streamPub(t, c, e)
	sent := streamMessages(0, 1000)
	sent[7].Key, sent[7].Copy = "k\xff", "copy\xfe"
	sent[8].ID = "\xff binary"
	sent[9].Headers = broker.Headers{{Key: "a", Value: "1"}, {Key: "b", Value: "\x00\xff"}}
	sent[10].Headers = broker.Headers{{Key: "z", Value: "1"}, {Key: "a", Value: ""}, {Key: "z", Value: "2"}, {Key: "\xff", Value: "x"}}
	sent[11].Body = make([]byte, 300_000)
	publishAll(t, p, sent...)
	r := streamRcv(t, c, e)
	got := receiveN(t, r, len(sent))
	last := int64(-1)
	for i := range got {
		want, d := &sent[i], &got[i]
		if d.ID != want.ID || d.Key != want.Key || d.Copy != want.Copy || string(d.Body) != string(want.Body) ||
			!slices.Equal(d.Headers, want.Headers) || d.Time.UnixMilli() != want.Time.UnixMilli() {
			t.Fatalf("%d: sent %+v, got %+v", i, *want, d.Message)
		}
		if d.Position.Partition != e.Topic || int64(d.Position.Offset) <= last || !d.Lease.IsZero() || d.Attempt.Number != 1 {
			t.Fatalf("%d: position %v, lease %v, attempt %v", i, d.Position, d.Lease, d.Attempt)
		}
		last = int64(d.Position.Offset)
	}
	ackAll(t, r, got)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	publishAll(t, p, streamMessages(2000, 1)...)
	if again := receiveN(t, streamRcv(t, c, e), 1); again[0].ID != "m2000" {
		t.Errorf("after all were acked %q came", again[0].ID)
	}
}

func TestStreamAcksAheadArePending(t *testing.T) {
	t.Parallel()
	_, url := streamServer(t)
	streamAcksAhead(t, url)
}

func streamAcksAhead(t *testing.T, url string) {
	c := dialStreams(t, url)
	e := streamEntity(t, c)
	publishAll(t, streamPub(t, c, e), streamMessages(0, 3)...)
	r := streamRcv(t, c, e)
	ds := receiveN(t, r, 3)
	state := func(d *broker.Delivery) broker.State {
		t.Helper()
		o, err := d.Ack(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return o.State
	}
	if s := state(&ds[2]); s != broker.Pending {
		t.Errorf("the third: %s", s)
	}
	if s := state(&ds[0]); s != broker.Confirmed {
		t.Errorf("the first: %s", s)
	}
	if s := state(&ds[2]); s != broker.Pending {
		t.Errorf("the third again: %s", s)
	}
	if s := state(&ds[1]); s != broker.Confirmed {
		t.Errorf("the second: %s", s)
	}
	if s := state(&ds[2]); s != broker.Confirmed {
		t.Errorf("the third at last: %s", s)
	}
	if o, err := ds[0].Nack(t.Context(), 0); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("nack after ack: %v, %v", o, err)
	}
}

func TestStreamNackComesBackAfterItsDelay(t *testing.T) {
	t.Parallel()
	_, url := streamServer(t)
	streamNack(t, url)
}

func streamNack(t *testing.T, url string) {
	c := dialStreams(t, url)
	e := streamEntity(t, c)
	publishAll(t, streamPub(t, c, e), streamMessages(0, 2)...)
	r := streamRcv(t, c, e)
	ds := receiveN(t, r, 2)
	begun := time.Now()
	if o, err := ds[0].Nack(t.Context(), 80*time.Millisecond); err != nil || o.State != broker.Confirmed {
		t.Fatal(o, err)
	}
	again := receiveN(t, r, 1)
	if took := time.Since(begun); again[0].ID != "m0" || again[0].Attempt.Number != 2 || took < 80*time.Millisecond {
		t.Errorf("%q came after %s as attempt %d", again[0].ID, took, again[0].Attempt.Number)
	}
	if o, err := ds[0].Ack(t.Context()); !errors.Is(err, broker.ErrConflict) {
		t.Errorf("the old handle: %v, %v", o, err)
	}
	ackAll(t, r, []broker.Delivery{again[0], ds[1]})
}

func TestStreamStartsWhereTheCallerSays(t *testing.T) {
	t.Parallel()
	_, url := streamServer(t)
	streamStartFrom(t, url)
}

func streamStartFrom(t *testing.T, url string) {
	c := dialStreams(t, url)
	e := streamEntity(t, c)
	publishAll(t, streamPub(t, c, e), streamMessages(0, 10)...)
	r := streamRcv(t, c, e)
	all := receiveN(t, r, 10)
	ackAll(t, r, all)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked := ""
	r = streamRcv(t, c, e, broker.StartFrom(func(partition string) (broker.Position, bool) {
		asked = partition
		return all[6].Position, true
	}))
	// Within the chunk: what comes before in it isn't delivered.
	if got := idsOf(receiveN(t, r, 4)); !slices.Equal(got, []string{"m6", "m7", "m8", "m9"}) || asked != e.Topic {
		t.Errorf("from %v of %q came %v", all[6].Position, asked, got)
	}
}

// The answer is lost and the caller gives up; its retry makes no second copy, nor
// does it fall into the trap: though a higher ID was stored since, it is not
// lost either.
func TestStreamRetryAfterALostConfirm(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		for _, kind := range []fault.Kind{fault.LoseResponse, fault.LoseRequest} {
			for _, between := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/cut=%v/another between=%v", kind, cut, between), func(t *testing.T) {
					s, url := streamServer(t)
					c := dialStreams(t, url)
					e := streamEntity(t, c)
					p := streamPub(t, c, e)
					publishAll(t, p, streamMessages(0, 1)...)
					i := s.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: kind, Match: e.Topic, Times: 1, Cut: cut}, nil)
					ctx, cancel := context.WithCancel(t.Context())
					rs := make(chan broker.Receipt, 1)
					m := streamMessages(1, 1)
					go func() {
						r, _ := p.Publish(ctx, m...)
						rs <- r[0]
					}()
					if err := i.WaitHit(t.Context()); err != nil {
						t.Fatal(err)
					}
					if kind == fault.LoseResponse {
						if err := i.WaitApplied(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					cancel()
					first := <-rs
					if first.Verdict == broker.Refused {
						t.Fatalf("it was sent, and the receipt says %s: %v", first.Verdict, first.Err)
					}
					if between {
						publishAll(t, p, streamMessages(2, 2)...)
					}
					// It may have found its way over a new connection before the
					// caller gave up.
					if first.Verdict == broker.Unknown {
						again, err := p.Publish(t.Context(), m...)
						if err != nil {
							t.Fatal(err)
						}
						want := broker.Duplicate
						if kind == fault.LoseRequest {
							want = broker.Stored
						}
						if again[0].Verdict != want {
							t.Errorf("the retry: %s, want %s", again[0].Verdict, want)
						}
					}
					want := []string{"m0", "m1"}
					if between {
						want = []string{"m0", "m1", "m2", "m3"}
					}
					got := storedIDs(t, c, e)
					slices.Sort(got)
					if !slices.Equal(got, want) {
						t.Errorf("stored %v, want %v (first receipt %s)", got, want, first.Verdict)
					}
				})
			}
		}
	}
}
