package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
)

// apart is an entity on three servers, and a connection to one of them that
// doesn't lead its consumer.
func apart(t *testing.T, opts ...Option) (broker.Conn, broker.Entity) {
	t.Helper()
	servers := cluster(t)
	opts = append(opts, Replicas(3))
	c := dialTo(t, servers[0].ClientURL(), opts...)
	e := entity(t, func(e *broker.Entity) { e.Lease = 30 * time.Second })
	until(t, "the stream", func() bool { return c.Ensure(t.Context(), e) == nil })
	stream, consumer, _ := splitSubscription(e.Subscription)
	k, err := connOf(t, c).lookAtConsumer(t.Context(), stream, consumer)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		if s.Name() != k.Cluster.Leader {
			until(t, "the stream to be known there", func() bool { return s.GlobalAccount().Interest(e.Topic) > 0 })
			return dialTo(t, s.ClientURL(), opts...), e
		}
	}
	t.Fatal("all lead")
	return nil, e
}

// NATS-F-48: what a consumer on another server sends before it learns that nobody
// listens any more would be lost until its lease ends.
func TestCancelStrandsNothingApart(t *testing.T) {
	t.Parallel()
	c, e := apart(t)
	p, r1, r2 := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription), receiverOf(t, c, e.Subscription)
	cancelMany(t, p, r1, r2, 1)
	cancelMany(t, p, r1, r2, 5)
}

// The same with the raw protocol. A pull is given up as a message is published: a
// PING after the UNSUB is answered, so that nothing is under way to us, and still
// the message is neither here nor there for another pull.
func TestFactPullApart(t *testing.T) {
	t.Parallel()
	c, e := apart(t)
	nc := client(t, c)
	stream, consumer, _ := splitSubscription(e.Subscription)
	next := "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer
	var other jetstream.Consumer
	until(t, "the consumer", func() bool { // a request to a cluster can be lost
		var err error
		other, err = connOf(t, c).js.Consumer(t.Context(), stream, consumer)
		return err == nil
	})
	const rounds = 2000
	for round := range rounds {
		came := make(chan *natsgo.Msg, 4)
		sub, err := nc.ChanSubscribe(nc.NewInbox(), came)
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.PublishRequest(next, sub.Subject, []byte(`{"batch":1,"expires":60000000000}`)); err != nil {
			t.Fatal(err)
		}
		gone := make(chan error, 1)
		time.AfterFunc(time.Duration(round%100)*20*time.Microsecond, func() { gone <- errors.Join(sub.Unsubscribe(), nc.Flush()) })
		_, err = connOf(t, c).js.Publish(t.Context(), e.Topic, nil)
		for errors.Is(err, jetstream.ErrNoStreamResponse) && t.Context().Err() == nil { // nobody took the request
			_, err = connOf(t, c).js.Publish(t.Context(), e.Topic, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := <-gone; err != nil {
			t.Fatal(err)
		}
		if len(came) > 0 {
			if err := (<-came).AckSync(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if heldByNobody(t, other) {
			t.Logf("in round %d", round)
			return
		}
	}
	t.Errorf("no message was lost for its lease in %d rounds", rounds)
}

// heldByNobody acks the one message that there is, unless it was sent to somebody,
// who isn't here to settle it.
func heldByNobody(t *testing.T, consumer jetstream.Consumer) (held bool) {
	t.Helper()
	// On a busy machine a pull can end before the message is there, or at once where its
	// server doesn't know the consumer's leader.
	until(t, "the message to come, or to be held", func() bool {
		batch, err := consumer.Fetch(1, jetstream.FetchMaxWait(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := <-batch.Messages(); ok {
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Fatal(err)
			}
			return true
		}
		k, err := consumer.Info(t.Context())
		if err != nil {
			return false // a request to a cluster can be lost
		}
		held = k.NumAckPending == 1 && k.NumPending == 0
		return held
	})
	return held
}

// Receivers are closed in the midst of their Receives as messages come.
func TestCloseStrandsNothingApart(t *testing.T) {
	t.Parallel()
	c, e := apart(t)
	p, last := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	const rounds, receivers = 5, 20
	for round := range rounds {
		var closed sync.WaitGroup
		var receives sync.WaitGroup
		var mu sync.Mutex
		acked := map[string]bool{}
		for i := range receivers {
			r := receiverOf(t, c, e.Subscription)
			receives.Go(func() {
				ds, err := r.Receive(t.Context(), 1)
				if err != nil && !errors.Is(err, broker.ErrClosed) {
					t.Errorf("receive: %v", err)
				}
				for _, d := range ds {
					// Close gives it back where it comes first.
					if o, _ := d.Ack(t.Context()); o.State == broker.Confirmed {
						mu.Lock()
						acked[d.ID] = true
						mu.Unlock()
					}
				}
			})
			closed.Go(func() {
				timer := time.NewTimer(time.Duration(i*100) * time.Microsecond)
				defer timer.Stop()
				<-timer.C
				closing(t, r)
			})
		}
		publish(t, p, messages(receivers, fmt.Sprintf("r%d-", round))...)
		begin := time.Now()
		closed.Wait()
		receives.Wait()
		if took := time.Since(begin); took > maxExpiryAway+time.Second {
			t.Errorf("to close took %v", took)
		}
		for begin = time.Now(); len(acked) < receivers; {
			ds := receive(t, last, receivers, 5*time.Second)
			if took := time.Since(begin); len(ds) == 0 || took > 10*time.Second {
				t.Fatalf("round %d: %d of %d after %v", round, len(acked), receivers, took)
			}
			ack(t, ds...)
			for _, d := range ds {
				acked[d.ID] = true
			}
		}
	}
}

// Close doesn't wait for a pull longer than it may.
func TestCloseInTimeApart(t *testing.T) {
	t.Parallel()
	c, e := apart(t)
	r := receiverOf(t, c, e.Subscription)
	receives := make(chan error, 1)
	go func() {
		_, err := r.Receive(t.Context(), 1)
		receives <- err
	}()
	until(t, "the pull to wait", func() bool { return waitingPulls(t, c, e) == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	begin := time.Now()
	if err := r.Close(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > maxExpiryAway/2 {
		t.Errorf("took %v", took)
	}
	wantErr(t, <-receives, broker.ErrClosed)
}

// A pull that was left is taken over by the next Receive, and gives back what
// comes while there is none.
func TestPullTakenOver(t *testing.T) {
	t.Parallel()
	c, e := apart(t)
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	leave := func() {
		ctx, cancel := context.WithCancel(t.Context())
		out := make(chan error, 1)
		go func() {
			_, err := r.Receive(ctx, 1)
			out <- err
		}()
		until(t, "the pull to wait", func() bool { return waitingPulls(t, c, e) == 1 })
		cancel()
		wantErr(t, <-out, context.Canceled)
	}
	leave()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Receive(gone, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("receive: %v", err)
	}
	for range 20 {
		ds := receive(t, r, 1, 5*time.Millisecond)
		if len(ds) != 0 {
			t.Fatalf("%d deliveries", len(ds))
		}
		if n := waitingPulls(t, c, e); n > 1 {
			t.Fatalf("%d pulls wait", n)
		}
	}
	go func() { publish(t, p, message("taken over")) }()
	if d := receiveOne(t, r); d.Attempt.Number != 1 {
		t.Errorf("attempt %d", d.Attempt.Number)
	} else {
		ack(t, *d)
	}
	leave()
	publish(t, p, message("given back"))
	other := receiverOf(t, c, e.Subscription)
	begin := time.Now()
	d := receiveOne(t, other)
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	ack(t, *d)
}

// The server stops in the middle of a pull at the limit of unsettled deliveries,
// and goes on with it as they are settled: what comes before the caller is back
// costs no attempt.
func TestPullInTheMiddle(t *testing.T) {
	t.Parallel()
	const limit = 10
	c, e := apart(t, MaxAckPending(limit))
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
	publish(t, p, messages(2*limit, "m")...)
	first := receiveAll(t, r, 6)
	second := receive(t, r, limit, 5*time.Second)
	if len(second) != limit-len(first) {
		t.Fatalf("%d and %d deliveries", len(first), len(second))
	}
	ack(t, first...)
	// The rest of the pull is under way or here, unless it was given up before the acks.
	stream, consumer, _ := splitSubscription(e.Subscription)
	until(t, "the rest to be sent", func() bool {
		k, err := connOf(t, c).lookAtConsumer(t.Context(), stream, consumer)
		return err == nil && (k.NumAckPending == limit || k.NumWaiting == 0)
	})
	third := receive(t, r, limit, 5*time.Second)
	ack(t, second...)
	ack(t, third...)
	for _, d := range append(third, receiveAll(t, r, 2*limit-len(first)-len(second)-len(third))...) {
		if d.Attempt.Number != 1 {
			t.Errorf("%q came at attempt %d", d.ID, d.Attempt.Number)
		}
	}
}
