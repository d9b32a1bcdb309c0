package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func TestRoundTrip(t *testing.T) {
	x := newBench(t, broker.Entity{})
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.UTC)
	m := broker.Message{ID: "a", Copy: "c", Key: "k", Body: []byte("hello"), Time: at,
		Headers: broker.Headers{{Key: "n", Value: "1"}, {Key: "n", Value: "\x00\xff"}}}
	r := x.send(m)
	x.want("verdict", r[0].Verdict, broker.Stored)
	x.want("offset", r[0].Position.Offset, 1)
	m.Body[0], m.Headers[0].Value = 'X', "changed"

	for attempt := 1; attempt <= 2; attempt++ {
		d := x.one(x.rcv)
		x.want("message", d.Message, broker.Message{ID: "a", Copy: "c", Key: "k", Body: []byte("hello"),
			Time:    at.Truncate(time.Millisecond).Local(),
			Headers: broker.Headers{{Key: "n", Value: "1"}, {Key: "n", Value: "\x00\xff"}}})
		x.want("attempt", d.Attempt, broker.Attempt{Number: attempt, Trust: broker.Exact})
		x.want("position", d.Position, r[0].Position)
		x.want("lease", d.Lease.Sub(x.clock.Now()), 30*time.Second)
		// What a consumer does to its delivery must not reach the next one.
		d.Body[0], d.Headers[0].Value = 'Y', "changed"
		if attempt == 1 {
			x.settled(d.Nack(t.Context(), 0))
		} else {
			x.settled(d.Ack(t.Context()))
		}
	}
	x.want("stats", x.stats(), Stats{})
}

func TestDedupIsPerTopicOnIDAndCopy(t *testing.T) {
	x := newBench(t, broker.Entity{})
	r := x.send(broker.Message{ID: "a"}, broker.Message{ID: "b"}, broker.Message{ID: "a", Key: "other", Body: []byte("other")},
		broker.Message{ID: "a", Copy: "1"}, broker.Message{ID: "a", Copy: "1"})
	x.want("verdicts", []broker.Verdict{r[0].Verdict, r[1].Verdict, r[2].Verdict, r[3].Verdict, r[4].Verdict},
		[]broker.Verdict{broker.Stored, broker.Stored, broker.Duplicate, broker.Stored, broker.Duplicate})
	x.want("positions", []uint64{r[2].Position.Offset, r[4].Position.Offset}, []uint64{1, 3})
	ds := x.available(x.rcv, 10)
	x.want("delivered", ids(ds), "a b a ")
	x.want("first body", string(ds[0].Body), "")

	// The IDs of another topic are its own.
	if err := x.conn.Ensure(t.Context(), broker.Entity{Topic: "other"}); err != nil {
		t.Fatal(err)
	}
	x.pub = x.publisher("other")
	x.want("on another topic", x.publish("a")[0].Verdict, broker.Stored)
}

func TestWindowRunsFromTheFirstSighting(t *testing.T) {
	x := newBench(t, broker.Entity{Window: time.Minute})
	x.want("window", x.pub.Limits().Window, time.Minute)
	x.publish("a")
	x.clock.Advance(30 * time.Second)
	x.want("inside", x.publish("a")[0].Verdict, broker.Duplicate)
	x.clock.Advance(30*time.Second - 1)
	x.want("at the end, and a duplicate did not prolong it", x.publish("a")[0].Verdict, broker.Duplicate)
	x.clock.Advance(1)
	r := x.publish("a")[0]
	x.want("after", r.Verdict, broker.Stored)
	x.want("after", r.Position.Offset, 2)
	x.clock.Advance(time.Minute - 1)
	x.want("a new window", x.publish("a")[0].Verdict, broker.Duplicate)
}

// The memory of IDs must not grow beyond the window.
func TestWindowForgets(t *testing.T) {
	x := newBench(t, broker.Entity{Window: time.Minute})
	for round := range 20 {
		for i := range 500 {
			x.publish(fmt.Sprint(round, ".", i))
		}
		x.clock.Advance(time.Minute)
	}
	x.publish("last")
	x.b.mu.Lock()
	defer x.b.mu.Unlock()
	topic := x.b.topics["orders"]
	x.want("IDs remembered", len(topic.seen), 1)
	if n := len(topic.oldest); n > 2048 {
		t.Fatalf("%d places for one ID", n)
	}
}

func TestBatchIsPartial(t *testing.T) {
	x := newBench(t, broker.Entity{MaxBody: 8})
	x.want("limit", x.pub.Limits().Body, 8)
	view, err := driver.Unfenced(x.conn)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := view.OpenPublisher(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	for name, pub := range map[string]broker.Publisher{"checked": x.pub, "raw": raw} {
		batch := []broker.Message{{ID: name + "1"}, {ID: name + "2", Body: make([]byte, 9)}, {}, {ID: "\x00"}, {ID: name + "3", Body: make([]byte, 8)}}
		r, err := pub.Publish(t.Context(), batch...)
		if !errors.Is(err, broker.ErrTooLarge) || !errors.Is(r[1].Err, broker.ErrTooLarge) {
			t.Fatalf("%s: %v, %v", name, err, r[1].Err)
		}
		if !errors.Is(r[2].Err, broker.ErrInvalid) || !errors.Is(r[3].Err, broker.ErrInvalid) {
			t.Fatalf("%s: %v, %v", name, r[2].Err, r[3].Err)
		}
		x.want(name, []broker.Verdict{r[0].Verdict, r[1].Verdict, r[2].Verdict, r[3].Verdict, r[4].Verdict},
			[]broker.Verdict{broker.Stored, broker.Refused, broker.Refused, broker.Refused, broker.Stored})
		x.want(name, ids(x.available(x.rcv, 10)), name+"1 "+name+"3 ")
	}
	// A refused message's ID is free.
	x.want("corrected", x.send(broker.Message{ID: "raw2"})[0].Verdict, broker.Stored)
}

func TestConcurrentPublishersStoreAnIDOnce(t *testing.T) {
	x := newBench(t, broker.Entity{})
	const publishers, n = 4, 500
	stored := make([]int, publishers)
	var wait sync.WaitGroup
	for p := range publishers {
		pub := x.publisher("orders")
		wait.Go(func() {
			for i := range n {
				r, err := pub.Publish(context.Background(), message(fmt.Sprint(i)))
				if err != nil {
					t.Error(err)
				} else if r[0].Verdict == broker.Stored {
					stored[p]++
				}
			}
		})
	}
	wait.Wait()
	x.want("stored", stored[0]+stored[1]+stored[2]+stored[3], n)
	x.want("held", x.stats().Ready, n)
}

func TestCopiesOfBodiesDontTouchEachOther(t *testing.T) {
	x := newBench(t, broker.Entity{})
	sizes := []int{0, 1, 100, 5000, 16 << 10, 70_000, 3, 3}
	var msgs []broker.Message
	for round := range 40 {
		for i, n := range sizes {
			m := broker.Message{ID: fmt.Sprint(round, ".", i), Body: make([]byte, n)}
			for j := range m.Body {
				m.Body[j] = byte(round + i)
			}
			for h := range i {
				m.Headers = append(m.Headers, broker.Header{Key: "h", Value: fmt.Sprint(h, round)})
			}
			msgs = append(msgs, m)
		}
	}
	x.send(msgs...)
	ds := x.available(x.rcv, len(msgs))
	x.want("delivered", len(ds), len(msgs))
	for i := range ds {
		d := &ds[i]
		_ = append(d.Body, "overflow"...)
		_ = append(d.Headers, broker.Header{Key: "overflow"})
	}
	for i := range ds {
		d := &ds[i]
		x.want("headers of "+d.ID, d.Headers, msgs[i].Headers)
		if string(d.Body) != string(msgs[i].Body) {
			t.Fatalf("body of %s differs", d.ID)
		}
	}
}
