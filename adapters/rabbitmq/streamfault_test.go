package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/localstack/fault"
	emulator "github.com/onceline/onceline/localstack/rabbitmq/stream"
)

// An ack whose answer is lost is Unknown, and Confirmed when it is asked for
// again: on the same connection or the next one.
func TestStreamAckWithALostAnswer(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut=%v", cut), func(t *testing.T) {
			s, url := streamServer(t)
			c := dialStreams(t, url)
			e := streamEntity(t, c)
			publishAll(t, streamPub(t, c, e), streamMessages(0, 2)...)
			r := streamRcv(t, c, e)
			ds := receiveN(t, r, 2)
			i := s.Faults().Inject(fault.Fault{Op: fault.Settle, Kind: fault.LoseResponse, Match: e.Topic, Times: 1, Cut: cut}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			outcomes := make(chan broker.Outcome, 1)
			go func() {
				o, _ := ds[0].Ack(ctx)
				outcomes <- o
			}()
			if err := i.WaitApplied(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !cut {
				cancel()
			}
			first := <-outcomes
			cancel()
			if !cut && first.State != broker.Unknown {
				t.Errorf("without an answer: %s", first.State)
			}
			if o, err := ds[0].Ack(t.Context()); err != nil || o.State != broker.Confirmed {
				t.Errorf("asked again: %s, %v", o.State, err)
			}
			if cut {
				if o, err := ds[1].Ack(t.Context()); o.State != broker.LeaseLost || !errors.Is(err, broker.ErrLeaseLost) {
					t.Errorf("a handle of the lost connection: %s, %v", o.State, err)
				}
				ds = receiveN(t, r, 1)
				if ds[0].ID != "m1" {
					t.Errorf("%q came again", ds[0].ID)
				}
				ackAll(t, r, ds)
			}
		})
	}
}

// Receivers of one name take turns: the second one gets nothing until the first
// is gone, and then all that isn't settled.
func TestStreamReceiversTakeTurns(t *testing.T) {
	t.Parallel()
	s, url := streamServer(t)
	c := dialStreams(t, url)
	e := streamEntity(t, c)
	p := streamPub(t, c, e)
	publishAll(t, p, streamMessages(0, 10)...)
	first := streamRcv(t, c, e)
	held := receiveN(t, first, 10)
	ackAll(t, first, held[:4])
	other := dialStreams(t, url)
	second := streamRcv(t, other, e)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if ds, err := second.Receive(ctx, 10); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("out of its turn the second got %v, %v", idsOf(ds), err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := idsOf(receiveN(t, second, 6)); !slices.Equal(got, []string{"m4", "m5", "m6", "m7", "m8", "m9"}) {
		t.Errorf("the second got %v", got)
	}
	if o, err := held[5].Ack(t.Context()); o.State != broker.LeaseLost {
		t.Errorf("an ack after the turn: %s, %v", o.State, err)
	}
	// Whoever is cut off loses its turn, if another one waits.
	third := streamRcv(t, c, e)
	s.Restart(true)
	receivers := []broker.Receiver{second, third}
	got := make(chan string, 100)
	var receiving sync.WaitGroup
	rctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	for _, r := range receivers {
		receiving.Go(func() {
			for {
				ds, err := r.Receive(rctx, 10)
				if err != nil {
					return
				}
				for i := range ds {
					got <- ds[i].ID
				}
			}
		})
	}
	for i := range 6 {
		select {
		case id := <-got:
			if want := fmt.Sprintf("m%d", 4+i); id != want {
				t.Errorf("after the restart %q came, want %q", id, want)
			}
		case <-rctx.Done():
			t.Fatal("after the restart nothing came")
		}
	}
	stop()
	receiving.Wait()
}

func TestStreamDeadLetters(t *testing.T) {
	t.Parallel()
	_, url := streamServer(t)
	c := dialStreams(t, url)
	e := streamEntity(t, c, func(e *broker.Entity) { e.DeadLetter, e.MaxDeliveries = e.Topic+"-dead", 2 })
	m := streamMessages(0, 2)
	m[0].Headers = broker.Headers{{Key: "a", Value: "1"}}
	publishAll(t, streamPub(t, c, e), m...)
	r := streamRcv(t, c, e)
	ds := receiveN(t, r, 2)
	if o, err := ds[0].DeadLetter(t.Context(), "no good"); err != nil || o.State != broker.Confirmed {
		t.Fatal(o, err)
	}
	if _, err := ds[1].Nack(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	again := receiveN(t, r, 1)
	if o, err := again[0].Nack(t.Context(), 0); err != nil || o.State != broker.Confirmed {
		t.Fatal(o, err)
	}
	dead, err := c.OpenReceiver(t.Context(), e.DeadLetter+"/reader")
	if err != nil {
		t.Fatal(err)
	}
	got := receiveN(t, dead, 2)
	want := broker.Headers{{Key: "a", Value: "1"}, {Key: driver.HeaderReason, Value: "no good"},
		{Key: driver.HeaderSource, Value: e.Subscription}, {Key: driver.HeaderAttempts, Value: "1"}}
	if !slices.Equal(got[0].Headers, want) || got[0].ID != "m0" {
		t.Errorf("%q %v", got[0].ID, got[0].Headers)
	}
	if got[1].ID != "m1" || got[1].Headers.Get(driver.HeaderAttempts) != "2" {
		t.Errorf("%q %v", got[1].ID, got[1].Headers)
	}
	// All is settled: nothing comes to the next receiver.
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	publishAll(t, streamPub(t, c, e), streamMessages(9, 1)...)
	if next := receiveN(t, streamRcv(t, c, e), 1); next[0].ID != "m9" {
		t.Errorf("%q came again", next[0].ID)
	}
	// A subscription without one says so and keeps the message.
	plain := streamEntity(t, c)
	publishAll(t, streamPub(t, c, plain), streamMessages(0, 1)...)
	d := receiveN(t, streamRcv(t, c, plain), 1)
	if _, err := d[0].DeadLetter(t.Context(), "x"); !errors.Is(err, broker.ErrUnsupported) {
		t.Errorf("without a dead-letter stream: %v", err)
	}
	if o, err := d[0].Ack(t.Context()); err != nil || o.State != broker.Confirmed {
		t.Errorf("then acked: %s, %v", o.State, err)
	}
}

func TestStreamOrderedKeyWaitsForItsNack(t *testing.T) {
	t.Parallel()
	_, url := streamServer(t)
	c := dialStreams(t, url)
	e := streamEntity(t, c, func(e *broker.Entity) { e.Ordered = true })
	ms := streamMessages(0, 6)
	for i := range ms {
		ms[i].Key = []string{"a", "b"}[i%2]
	}
	publishAll(t, streamPub(t, c, e), ms...)
	r := streamRcv(t, c, e)
	var order []string
	nacked := false
	for len(order) < 6 {
		d := receiveN(t, r, 1)
		if d[0].ID == "m2" && !nacked {
			nacked = true
			if _, err := d[0].Nack(t.Context(), 30*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			continue
		}
		order = append(order, d[0].ID)
		if _, err := d[0].Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"m0", "m1", "m3", "m5", "m2", "m4"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

// 100 opens and closes and 50 cancelled receives leave nothing behind.
func TestStreamLeavesNothingBehind(t *testing.T) {
	_, url := streamServer(t)
	keep := dialStreams(t, url)
	e := streamEntity(t, keep)
	p := streamPub(t, keep, e)
	publishAll(t, p, streamMessages(0, 1)...)
	before := goleak.IgnoreCurrent()
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		c, err := Dial(ctx, url, quiet())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.OpenPublisher(ctx, e.Topic); err != nil {
			t.Fatal(err)
		}
		if _, err := c.OpenReceiver(ctx, e.Subscription); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	c, err := Dial(t.Context(), url, quiet())
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.OpenReceiver(t.Context(), e.Topic+"/another")
	if err != nil {
		t.Fatal(err)
	}
	ackAll(t, r, receiveN(t, r, 1))
	for i := range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		if ds, err := r.Receive(ctx, 1); err == nil {
			t.Errorf("%v came", idsOf(ds))
		}
		cancel()
	}
	publishAll(t, p, streamMessages(1, 1)...)
	if ds := receiveN(t, r, 1); ds[0].ID != "m1" {
		t.Errorf("%q came", ds[0].ID)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

func TestStreamErrorsAreNamed(t *testing.T) {
	t.Parallel()
	_, url := streamServer(t, emulator.Authenticate(func(user, password string) bool { return password != "wrong" }))
	c := dialStreams(t, url)
	for name, f := range map[string]func() (error, error){
		"no such stream to publish": func() (error, error) {
			_, err := c.OpenPublisher(t.Context(), "none")
			return err, broker.ErrNotFound
		},
		"no such stream to receive": func() (error, error) {
			_, err := c.OpenReceiver(t.Context(), "none/x")
			return err, broker.ErrNotFound
		},
		"no name": func() (error, error) {
			_, err := c.OpenReceiver(t.Context(), "none")
			return err, broker.ErrInvalid
		},
		"window": func() (error, error) {
			return c.Ensure(t.Context(), broker.Entity{Topic: "s", Window: time.Minute}), broker.ErrUnsupported
		},
		"lease": func() (error, error) {
			return c.Ensure(t.Context(), broker.Entity{Topic: "s", Lease: time.Minute}), broker.ErrUnsupported
		},
		"max deliveries alone": func() (error, error) {
			return c.Ensure(t.Context(), broker.Entity{Topic: "s", MaxDeliveries: 3}), broker.ErrUnsupported
		},
		"another stream's subscription": func() (error, error) {
			return c.Ensure(t.Context(), broker.Entity{Topic: "s", Subscription: "t/x"}), broker.ErrInvalid
		},
		"wrong password": func() (error, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := Dial(ctx, "rabbitmq://me:wrong@"+url[len("rabbitmq://"):], quiet())
			return err, broker.ErrUnauthorized
		},
		"nobody listens": func() (error, error) {
			_, err := Dial(t.Context(), "rabbitmq://127.0.0.1/?queue=stream&stream-port=1", quiet())
			return err, broker.ErrUnavailable
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := f(); !errors.Is(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	e := streamEntity(t, c)
	p := streamPub(t, c, e)
	big := streamMessages(0, 3)
	big[1].Body = make([]byte, p.Limits().Body+1)
	rs, err := p.Publish(t.Context(), big...)
	if !errors.Is(err, broker.ErrTooLarge) || rs[0].Verdict != broker.Stored || rs[1].Verdict != broker.Refused || rs[2].Verdict != broker.Stored {
		t.Errorf("one body too large: %v, %v", rs, err)
	}
	big[1].Body = big[1].Body[:p.Limits().Body]
	publishAll(t, p, big[1])
	r := streamRcv(t, c, e)
	if ds := receiveN(t, r, 3); len(ds[2].Body) != p.Limits().Body {
		t.Errorf("the largest body has %d bytes", len(ds[2].Body))
	}
	if err := c.Delete(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(t.Context(), streamMessages(7, 1)...); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("publish to a deleted stream: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := r.Receive(ctx, 1); !errors.Is(err, broker.ErrNotFound) {
		t.Errorf("receive from a deleted stream: %v", err)
	}
}
