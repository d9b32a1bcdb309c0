package memory

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/internal/bubbletest"
)

// In real time nothing but timers moves the broker: a bubble shows that they
// fire at the right moment, and that nothing polls.
func TestRealTime(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		b := New(WithLease(10 * time.Second))
		defer b.Close()
		conn := b.Conn()
		e := broker.Entity{Topic: "t", Subscription: "t/s", MaxDeliveries: 3, DeadLetter: "dead"}
		must(t, conn.Ensure(t.Context(), e))
		must(t, conn.Ensure(t.Context(), broker.Entity{Topic: "dead", Subscription: "dead/s"}))
		pub, err := conn.OpenPublisher(t.Context(), "t")
		must(t, err)
		rcv, err := conn.OpenReceiver(t.Context(), "t/s")
		must(t, err)
		dead, err := conn.OpenReceiver(t.Context(), "dead/s")
		must(t, err)
		start := time.Now()
		await := func(r broker.Receiver, after time.Duration) *broker.Delivery {
			t.Helper()
			ds, err := r.Receive(t.Context(), 5)
			if err != nil || len(ds) != 1 {
				t.Fatalf("%d deliveries, %v", len(ds), err)
			}
			if got := time.Since(start); got != after {
				t.Fatalf("after %s, want %s", got, after)
			}
			return &ds[0]
		}
		time.AfterFunc(3*time.Second, func() {
			if _, err := pub.Publish(t.Context(), message("a")); err != nil {
				t.Error(err)
			}
		})
		await(rcv, 3*time.Second)
		d := await(rcv, 13*time.Second) // the lease has ended
		if o, err := d.Nack(t.Context(), 7*time.Second); o.State != broker.Confirmed {
			t.Fatal(o, err)
		}
		d = await(rcv, 20*time.Second)
		if o, err := d.Extend(t.Context(), 25*time.Second); o.State != broker.Confirmed || !o.Lease.Equal(time.Now().Add(25*time.Second)) {
			t.Fatal(o, err)
		}
		// Nobody receives from t/s when the last lease ends, and the dead letter
		// arrives at that moment all the same.
		await(dead, 45*time.Second)
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestReceiveEndsWithItsContext(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		b := New()
		defer b.Close()
		conn := b.Conn()
		must(t, conn.Ensure(t.Context(), broker.Entity{Topic: "t", Subscription: "t/s"}))
		pub, err := conn.OpenPublisher(t.Context(), "t")
		must(t, err)
		first, err := conn.OpenReceiver(t.Context(), "t/s")
		must(t, err)
		second, err := conn.OpenReceiver(t.Context(), "t/s")
		must(t, err)

		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		if ds, err := first.Receive(ctx, 3); !errors.Is(err, gone) || ds != nil {
			t.Fatal(ds, err)
		}
		// Cancelled in the same instant as a message comes, over and over: the
		// other receiver, which waits behind it, has the message or the first
		// one returns it. It is never nobody's.
		for range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			got := make(chan int)
			go func() {
				ds, _ := first.Receive(ctx, 1)
				ack(t, ds)
				got <- len(ds)
			}()
			synctest.Wait()
			ctx2, cancel2 := context.WithTimeout(t.Context(), time.Second)
			go func() {
				ds, _ := second.Receive(ctx2, 1)
				ack(t, ds)
				got <- len(ds)
			}()
			synctest.Wait()
			go cancel()
			if _, err := pub.Publish(t.Context(), broker.Message{ID: time.Now().String()}); err != nil {
				t.Fatal(err)
			}
			if n := <-got + <-got; n != 1 {
				st, _ := b.Stats("t/s")
				t.Fatalf("%d deliveries of one message, left: %+v", n, st)
			}
			cancel2()
			time.Sleep(time.Millisecond) // a new ID
		}
	})
}

// A receiver that leaves just as it is woken wakes the next one, or takes the
// message: otherwise it would lie there with somebody waiting for it.
func TestWokenReceiverThatLeavesPassesItOn(t *testing.T) {
	store := func(x *bench, id string) {
		var receipt [1]broker.Receipt
		x.b.topics["orders"].append([]broker.Message{message(id)}, receipt[:], "", x.b.nano(), true)
	}
	// Under the lock the receiver can't leave the line in between.
	for name, leave := range map[string]func(x *bench, cancel func(), id string){
		"cancelled before": func(x *bench, cancel func(), id string) { cancel(); store(x, id) },
		"cancelled after":  func(x *bench, cancel func(), id string) { store(x, id); cancel() },
		"closed after": func(x *bench, _ func(), id string) {
			store(x, id)
			d, _ := driver.Unwrap(x.conn)
			for r := range d.(*conn).receivers {
				r.shut(x.b.nano())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				x := newBench(t, broker.Entity{})
				second, err := x.b.Conn().OpenReceiver(t.Context(), "orders/billing")
				must(t, err)
				for n := range 50 {
					x.conn = x.b.Conn()
					x.rcv = x.receiver("orders/billing")
					ctx, cancel := context.WithCancel(t.Context())
					got := make(chan int)
					receive := func(r broker.Receiver, ctx context.Context) {
						ds, _ := r.Receive(ctx, 1)
						ack(t, ds)
						got <- len(ds)
					}
					go receive(x.rcv, ctx)
					synctest.Wait()
					ctx2, cancel2 := context.WithTimeout(t.Context(), time.Second)
					go receive(second, ctx2)
					synctest.Wait()
					x.b.mu.Lock()
					leave(x, cancel, strconv.Itoa(n))
					x.b.mu.Unlock()
					if n := <-got + <-got; n != 1 {
						t.Fatalf("%d deliveries, left: %+v", n, x.stats())
					}
					cancel()
					cancel2()
					must(t, x.conn.Close(t.Context()))
				}
			})
		})
	}
}

// The handle of a delivery may be kept for long. The body it came with is the
// consumer's; the broker's own must not stay with it.
func TestWhatIsDoneHoldsNoBody(t *testing.T) {
	x := newBench(t, broker.Entity{})
	must(t, x.conn.Ensure(t.Context(), broker.Entity{Topic: "orders", Subscription: "orders/audit"}))
	x.publish("a")
	x.b.mu.Lock()
	c := x.b.subs["orders/billing"].ready.head.of.cell
	x.b.mu.Unlock()
	x.settled(x.one(x.rcv).Ack(t.Context()))
	x.want("for the other one", string(c.msg.Body), "body of a")
	x.settled(x.one(x.receiver("orders/audit")).Ack(t.Context()))
	x.want("body", c.msg.Body == nil, true)
}

func ack(t testing.TB, ds []broker.Delivery) {
	t.Helper()
	for i := range ds {
		if o, err := ds[i].Ack(context.Background()); o.State != broker.Confirmed {
			t.Errorf("ack %q: %s, %v", ds[i].ID, o.State, err)
		}
	}
}

func TestReceiveTakesNoMoreThanMax(t *testing.T) {
	x := newBench(t, broker.Entity{})
	x.publish("a", "b", "c")
	x.want("first", ids(x.available(x.rcv, 2)), "a b ")
	x.want("in flight", x.stats(), Stats{Ready: 1, InFlight: 2})
	x.want("rest", ids(x.available(x.rcv, 1<<40)), "c ")
}

func TestCloseGivesBack(t *testing.T) {
	for name, end := range map[string]func(*bench) error{
		"receiver": func(x *bench) error { return x.rcv.Close(x.t.Context()) },
		"conn":     func(x *bench) error { return x.conn.Close(x.t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				x := newBench(t, broker.Entity{})
				other, err := x.b.Conn().OpenReceiver(t.Context(), "orders/billing")
				must(t, err)
				x.publish("a", "b")
				x.want("held", ids(x.available(x.rcv, 2)), "a b ")
				got := make(chan string)
				go func() {
					ds, err := other.Receive(t.Context(), 2)
					if err != nil {
						t.Error(err)
					}
					got <- ids(ds)
				}()
				synctest.Wait()
				must(t, end(x))
				must(t, end(x))
				// The clock stands still: no lease has ended.
				x.want("by another one, at once", <-got, "a b ")
			})
		})
	}
}

func TestCloseEndsReceive(t *testing.T) {
	for name, end := range map[string]func(*bench){
		"receiver": func(x *bench) { _ = x.rcv.Close(x.t.Context()) },
		"conn":     func(x *bench) { _ = x.conn.Close(x.t.Context()) },
		"broker":   func(x *bench) { x.b.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				x := newBench(t, broker.Entity{})
				x.publish("held")
				held := x.one(x.rcv)
				ended := make(chan error)
				go func() {
					_, err := x.rcv.Receive(context.Background(), 1)
					ended <- err
				}()
				synctest.Wait()
				end(x)
				if err := <-ended; !errors.Is(err, broker.ErrClosed) {
					t.Fatal(err)
				}
				if o, _ := held.Ack(t.Context()); o.State != broker.LeaseLost {
					t.Fatalf("ack after the end: %s", o.State)
				}
			})
		})
	}
}

func TestClosedBroker(t *testing.T) {
	x := newBench(t, broker.Entity{})
	x.publish("a", "b")
	x.one(x.rcv)
	x.b.Close()
	x.b.Close()
	x.clock.Advance(time.Hour)
	_, err := x.pub.Publish(t.Context(), message("c"))
	_, err2 := x.rcv.Receive(t.Context(), 1)
	_, err3 := x.b.Conn().OpenPublisher(t.Context(), "orders")
	for _, err := range []error{err, err2, err3, x.conn.Ensure(t.Context(), broker.Entity{Topic: "t"})} {
		if !errors.Is(err, broker.ErrClosed) {
			t.Fatal(err)
		}
	}
	must(t, x.conn.Close(t.Context()))
}
