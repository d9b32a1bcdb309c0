package memory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
)

// Publishers that repeat themselves and consumers that fail in every way, at
// once, while the clock runs and the broker goes down: in the end each message
// was acked once, none is left, and in order no message of a key came before the
// ack of the one ahead of it had begun.
func TestTotalQueue(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprintf("ordered=%v", ordered), func(t *testing.T) { totalQueue(t, ordered) })
	}
}

func totalQueue(t *testing.T, ordered bool) {
	const publishers, perPublisher, consumers, keys = 4, 1500, 4, 50
	x := newBench(t, broker.Entity{Ordered: ordered, Window: time.Hour, Lease: time.Second})
	const all = publishers * perPublisher
	var (
		publishing, consuming sync.WaitGroup
		acked                 [all]atomic.Int32
		done                  atomic.Int32
		steps                 atomic.Int64      // orders the events below
		came                  [all]atomic.Int64 // first delivery
		acking                [all]atomic.Int64 // begin of the ack that was confirmed
		ctx, cancel           = context.WithTimeout(t.Context(), time.Minute)
	)
	defer cancel()
	for p := range publishers {
		publishing.Go(func() {
			conn := x.b.Conn()
			pub, err := conn.OpenPublisher(ctx, "orders")
			if err != nil {
				t.Error(err)
				return
			}
			for n := 0; n < perPublisher; {
				size := min(1+rand.IntN(20), perPublisher-n)
				batch := make([]broker.Message, size)
				for i := range batch {
					id := p*perPublisher + n + i
					batch[i] = broker.Message{ID: fmt.Sprint(id), Key: fmt.Sprint(p*keys + id%keys), Body: []byte(fmt.Sprint(id))}
				}
				for repeat := 1 + rand.IntN(2); repeat > 0; repeat-- {
					if _, err := pub.Publish(ctx, batch...); err != nil {
						t.Error(err)
						return
					}
				}
				n += size
			}
			if err := conn.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	arrive := func(ds []broker.Delivery) {
		now := steps.Add(1)
		for i := range ds {
			first := &came[number(t, &ds[i])]
			for was := first.Load(); (was == 0 || was > now) && !first.CompareAndSwap(was, now); was = first.Load() {
			}
		}
	}
	handle := func(d *broker.Delivery) {
		id := number(t, d)
		begin := steps.Add(1)
		o := broker.Outcome{}
		switch rand.IntN(8) {
		case 0:
			_, _ = d.Nack(ctx, time.Duration(rand.IntN(2))*time.Second)
		case 1: // left to its lease
		case 2:
			_, _ = d.Extend(ctx, 2*time.Second)
			o, _ = d.Ack(ctx)
		default:
			o, _ = d.Ack(ctx)
		}
		if o.State == broker.Confirmed {
			acked[id].Add(1)
			acking[id].Store(begin)
			if done.Add(1) == all {
				cancel()
			}
		}
	}
	for range consumers {
		consuming.Go(func() {
			for ctx.Err() == nil {
				conn := x.b.Conn()
				r, err := conn.OpenReceiver(ctx, "orders/billing")
				if err != nil {
					t.Error(err)
					return
				}
				for range 20 {
					ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
					ds, _ := r.Receive(ctx, 1+rand.IntN(30))
					cancel()
					arrive(ds)
					for i := range ds {
						handle(&ds[i])
					}
				}
				if err := conn.Close(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := 0; ctx.Err() == nil; n++ {
		x.clock.Advance(200 * time.Millisecond)
		if n%50 == 49 {
			x.b.Kill()
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
	publishing.Wait()
	consuming.Wait()
	for id := range acked {
		if n := acked[id].Load(); n != 1 {
			t.Fatalf("message %d acked %d times (%d acks of %d messages)", id, n, done.Load(), all)
		}
	}
	x.want("left", x.stats(), Stats{})
	for id := range all {
		if before := id - keys; ordered && id%perPublisher >= keys && came[id].Load() < acking[before].Load() {
			t.Errorf("%d was delivered before %d of the same key was acked", id, before)
		}
	}
}

func number(t *testing.T, d *broker.Delivery) int {
	id, err := strconv.Atoi(d.ID)
	if err != nil || d.ID != string(d.Body) {
		t.Errorf("%q holds %q", d.ID, d.Body)
	}
	return id
}
