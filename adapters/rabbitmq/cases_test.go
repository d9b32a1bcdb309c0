package rabbitmq

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/fault"
	emulator "github.com/onceline/onceline/localstack/rabbitmq"
)

// The cases are public bug reports of this and other libraries; docs/cases.md
// says what each of them asks for.

// rabbitmq/amqp091-go#160: concurrent big messages were sent as corrupt frames.
func TestCaseBigBodies(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t, Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			err = tcp.SetWriteBuffer(4096)
		}
		return conn, err
	}))
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	sizes := []int{0, 1, 131064, 131065, 500_000}
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i, size := range sizes {
				body := make([]byte, size)
				for k := range body {
					body[k] = byte(k * (g + 3))
				}
				sum := sha256.Sum256(body)
				_, err := p.Publish(t.Context(), broker.Message{ID: fmt.Sprintf("%d-%d", g, i), Body: body,
					Headers: broker.Headers{{Key: "sum", Value: hex.EncodeToString(sum[:])}}})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	for got := 0; got < 8*len(sizes); {
		ds := receive(t, r, 1)
		ds = append(ds, try(t, r, 20, 100*time.Millisecond)...)
		for _, d := range ds {
			if sum := sha256.Sum256(d.Body); hex.EncodeToString(sum[:]) != d.Headers.Get("sum") {
				t.Fatalf("%s: %d bytes that were not sent", d.ID, len(d.Body))
			}
		}
		wantStates(t, settle(t, r, broker.Ack, ds...), broker.Sent)
		got += len(ds)
	}
}

// rabbitmq/amqp091-go#305: a password with special characters broke the URL.
func TestCaseSpecialCharacters(t *testing.T) {
	t.Parallel()
	const secret = "p#%/+@: ü"
	h := emulate(t, emulator.WithUsers(emulator.User{Name: "us/er", Password: secret}), emulator.WithVHosts("v/h%"))
	raw := "rabbitmq://us%2Fer:p%23%25%2F%2B%40%3A%20%C3%BC@" + h.addr + "/v%2Fh%25"
	c := dialURL(t, raw)
	e := entity(t, c, func(e *broker.Entity) { e.Topic, e.Subscription = "t#%+@: ü", "q#%/+@: ü" })
	publish(t, publisherOf(t, c, e.Topic), messages(1, 0)...)
	receive(t, receiverOf(t, c, e.Subscription), 1)
	for _, bad := range []string{"rabbitmq://us%2Fer:p#%/+@" + h.addr, "rabbitmq://u:s3cret%zz@" + h.addr + "/",
		"rabbitmq://us%2Fer:s3cret@" + h.addr + "/v%2Fh%25"} {
		if _, err := Dial(t.Context(), bad, quiet()); err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "p#") {
			t.Errorf("%v", err)
		}
	}
}

// rabbitmq/amqp091-go#10: publishing blocked for good where nobody read the
// confirmations.
func TestCaseManyPublishers(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	p := publisherOf(t, c, e.Topic)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wait sync.WaitGroup
	for g := range 200 {
		wait.Go(func() {
			for i := range 20 {
				if _, err := p.Publish(ctx, broker.Message{ID: fmt.Sprintf("%d-%d", g, i)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	if n := ready(t, h.raw(t), e.Subscription); n != 4000 {
		t.Fatalf("%d messages", n)
	}
}

// rabbitmq/amqp091-go#182: a confirm that came at once was lost.
func TestCaseFastConfirms(t *testing.T) {
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	p := publisherOf(t, c, e.Topic)
	for _, procs := range []int{1, 8} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for i := range 2000 {
				if _, err := p.Publish(ctx, broker.Message{ID: fmt.Sprint(i)}); err != nil {
					t.Fatalf("publish %d with %d processors: %v", i, procs, err)
				}
			}
		}()
	}
}

// rabbitmq/amqp091-go#46: the wait for a confirm didn't end with the connection.
func TestCaseConnectionEndsBeforeConfirm(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	i := h.inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Match: e.Topic, Times: 1, Cut: true})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	begin := time.Now()
	m := messages(1, 0)
	rs, err := p.Publish(ctx, m...)
	if !errors.Is(err, broker.ErrUnknownOutcome) || rs[0].Verdict != broker.Unknown || time.Since(begin) > 2*time.Second {
		t.Fatalf("%v %v after %s", rs, err, time.Since(begin))
	}
	if i.Applied() != 1 {
		t.Fatal("not applied")
	}
	publish(t, p, m...) // the retry, on a new connection: a second copy
	if ds := receive(t, r, 2); ds[0].ID != "m-0" || ds[1].ID != "m-0" {
		t.Fatal(ds)
	}
}

// rabbitmq/amqp091-go#92: a confirm that never came could not be given up.
func TestCaseConfirmsNeverCome(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	var mute atomic.Bool
	proxy := newTap(t, h.addr, func(frame []byte) []byte {
		if class, m := method(frame); mute.Load() && class == 60 && m == 80 {
			return nil
		}
		return frame
	})
	c := dialURL(t, "rabbitmq://"+proxy.addr+"/", MaxInFlight(64))
	e := entity(t, c)
	p := publisherOf(t, c, e.Topic)
	mute.Store(true)
	unknown := 0 // on a busy machine a context may end before its message is sent
	for i := range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		begin := time.Now()
		rs, err := p.Publish(ctx, broker.Message{ID: fmt.Sprint(i)})
		cancel()
		if err == nil || rs[0].Verdict.OK() || time.Since(begin) > time.Second {
			t.Fatalf("publish %d: %v %v after %s", i, rs, err, time.Since(begin))
		}
		if rs[0].Verdict == broker.Unknown {
			unknown++
		}
	}
	if unknown == 0 || unknown > 64 {
		t.Errorf("%d publishes were in flight, with 64 that may be", unknown)
	}
	mute.Store(false)
	proxy.cut()
	publish(t, p, messages(200, 1000)...)
}

// rabbitmq/amqp091-go#125: a header's value of some types was refused.
func TestCaseHeaderValues(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	hs := broker.Headers{{Key: "empty", Value: ""}, {Key: "Case", Value: "1"}, {Key: "case", Value: "2"}, {Key: "bytes", Value: "\x00\xff\xfe"},
		{Key: "long", Value: strings.Repeat("ä", 8<<10)}, {Key: strings.Repeat("n", 200), Value: "name"}}
	publish(t, p, broker.Message{ID: "a", Headers: hs})
	d := receive(t, r, 1)[0]
	if fmt.Sprintf("%q", d.Headers) != fmt.Sprintf("%q", hs) {
		t.Fatalf("%q", d.Headers)
	}
	rs, err := p.Publish(t.Context(), broker.Message{ID: "b", Headers: broker.Headers{{Key: "k", Value: strings.Repeat("x", 32<<10)}}}, broker.Message{ID: "c"})
	if !errors.Is(err, broker.ErrTooLarge) || rs[0].Verdict != broker.Refused || rs[1].Verdict != broker.Stored {
		t.Fatal(rs, err)
	}
}

// rabbitmq/amqp091-go#14: after a publish to a missing exchange good ones vanished.
func TestCaseMissingExchange(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	if _, err := c.OpenPublisher(t.Context(), "missing"); !errors.Is(err, broker.ErrNotFound) {
		t.Fatal(err)
	}
	other := h.dial(t) // which has ensured nothing
	gone, good := publisherOf(t, other, e.Topic), publisherOf(t, other, "/"+e.Subscription)
	if err := h.raw(t).ExchangeDelete(e.Topic, false, false); err != nil {
		t.Fatal(err)
	}
	// The first meets the missing exchange, and ends the channel.
	rs, err := gone.Publish(t.Context(), messages(10, 0)...)
	for i, r := range rs {
		if r.Verdict != broker.Unknown || !errors.Is(r.Err, broker.ErrNotFound) {
			t.Fatalf("%d: %+v (%v)", i, r, err)
		}
	}
	publish(t, good, messages(9, 1)...)
	rs, err = gone.Publish(t.Context(), messages(1, 0)...)
	if !errors.Is(err, broker.ErrNotFound) || rs[0].Verdict != broker.Refused {
		t.Fatal(rs, err)
	}
	if n := ready(t, h.raw(t), e.Subscription); n != 9 {
		t.Fatalf("%d messages", n)
	}
}

// rabbitmq/rabbitmq-server#1877: a confirm though the message reached no queue.
func TestCaseUnroutable(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	if err := c.Ensure(t.Context(), broker.Entity{Topic: "lonely"}); err != nil {
		t.Fatal(err)
	}
	p := publisherOf(t, c, "lonely")
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 50 {
				rs, err := p.Publish(t.Context(), broker.Message{ID: fmt.Sprintf("%d-%d", g, i)}, broker.Message{ID: fmt.Sprintf("%d-%d-b", g, i), Copy: "c"})
				if !errors.Is(err, broker.ErrUnroutable) || rs[0].Verdict != broker.Refused || rs[1].Verdict != broker.Refused {
					t.Errorf("%+v %v", rs, err)
				}
			}
		})
	}
	wait.Wait()
}

// dapr/components-contrib#1371: a reconnect ended in a loop of errors.
func TestCaseChannelsAndConnections(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	for round := range 15 {
		how := rand.IntN(3)
		if how != 1 {
			for _, x := range []interface{ As(any) bool }{p, r} {
				var ch *amqp.Channel
				if x.As(&ch) && !ch.IsClosed() {
					_ = ch.Close() // what a node may do at any time
				}
			}
		}
		if how != 0 {
			h.cut()
		}
		eventually(t, "a publish", func() bool {
			_, err := p.Publish(t.Context(), messages(1, round)...)
			return err == nil
		})
		for done := false; !done; {
			ds := receive(t, r, 1)
			done = ds[0].ID == fmt.Sprintf("m-%d", round)
			settle(t, r, broker.Ack, ds...)
		}
	}
}

// dapr/components-contrib#3621: the publisher never went to another node.
func TestCaseAnotherNode(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	first, second := newTap(t, h.addr, nil), newTap(t, h.addr, nil)
	c := dialURL(t, "rabbitmq://"+first.addr+","+second.addr+"/")
	e := entity(t, c)
	p := publisherOf(t, c, e.Topic)
	publish(t, p, messages(1, 0)...)
	first.mu.Lock()
	first.shut = true // it takes connections, and drops them
	first.mu.Unlock()
	first.cut()
	eventually(t, "a publish by the second node", func() bool {
		_, err := p.Publish(t.Context(), messages(1, 1)...)
		return err == nil
	})
	if second.cut() == 0 {
		t.Fatal("the second node was never asked")
	}
}

// wagslane/go-rabbitmq#220: after a reconnect publishes went out before confirms
// were on.
func TestCaseConfirmsAfterReconnect(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	c := h.dial(t)
	e := entity(t, c)
	p := publisherOf(t, c, e.Topic)
	stop := make(chan struct{})
	var stored atomic.Int64
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				rs, _ := p.Publish(t.Context(), broker.Message{ID: fmt.Sprintf("%d-%d", g, i)})
				if rs[0].Verdict == broker.Stored {
					stored.Add(1)
				}
			}
		})
	}
	for range 15 {
		before := stored.Load()
		eventually(t, "a publish", func() bool { return stored.Load() > before })
		h.cut()
	}
	close(stop)
	wait.Wait()
	if n := ready(t, h.raw(t), e.Subscription); int64(n) < stored.Load() {
		t.Fatalf("%d messages said to be stored, %d are", stored.Load(), n)
	}
}

// rabbitmq/amqp091-go#122: Close hung after confirms were given up on a blocked
// connection.
func TestCaseBlocked(t *testing.T) {
	t.Parallel()
	h := emulate(t)
	proxy := newTap(t, h.addr, nil)
	c, err := Dial(t.Context(), "rabbitmq://"+proxy.addr+"/", quiet())
	if err != nil {
		t.Fatal(err)
	}
	e := entity(t, h.dial(t))
	p := publisherOf(t, c, e.Topic)
	publish(t, p, messages(1, 0)...)
	proxy.say(10, 60, append([]byte{10}, "low on mem"...)...)
	eventually(t, "blocked", func() bool { return connOf(t, c).publish.cur.blocked() != nil })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	rs, err := p.Publish(ctx, messages(2, 1)...)
	if !errors.Is(err, broker.ErrBusy) || rs[0].Verdict != broker.Refused {
		t.Fatal(rs, err) // known before anything was sent: better than Unknown
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.OpenPublisher(short, e.Topic); !errors.Is(err, broker.ErrBusy) {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := p.Publish(t.Context(), messages(1, 3)...)
		done <- err
	}()
	proxy.say(10, 61)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	end, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := c.Close(end); err != nil {
		t.Fatal(err)
	}
	if n := ready(t, h.raw(t), e.Subscription); n != 2 {
		t.Fatalf("%d messages", n)
	}
}
