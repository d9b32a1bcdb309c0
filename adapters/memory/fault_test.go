package memory

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/internal/bubbletest"
)

// inBubble runs f with a broker in real time, which a bubble makes cheap.
func inBubble(t *testing.T, f func(x *bench)) {
	bubbletest.Run(t, func(t *testing.T) {
		b := New()
		defer b.Close()
		conn := b.Conn()
		must(t, conn.Ensure(t.Context(), broker.Entity{Topic: "orders", Subscription: "orders/billing", DeadLetter: "dead"}))
		x := &bench{t: t, b: b, conn: conn}
		x.pub, x.rcv = x.publisher("orders"), x.receiver("orders/billing")
		f(x)
	})
}

// within is a call's context and a check of how long the call took.
func (x *bench) within(limit time.Duration, took time.Duration, call func(context.Context)) {
	x.t.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(x.t.Context(), limit)
	defer cancel()
	call(ctx)
	if got := time.Since(start); got != took {
		x.t.Fatalf("took %s, want %s", got, took)
	}
}

func TestPublishFaults(t *testing.T) {
	const limit = 10 * time.Second
	for _, c := range []struct {
		name             string
		fault            Fault
		verdict          broker.Verdict
		err              error
		took             time.Duration
		stored           int // after the call
		later            int // after another minute
		applied, rejects int
	}{
		{"lose request", Fault{Kind: LoseRequest}, broker.Unknown, broker.ErrUnknownOutcome, limit, 0, 0, 0, 0},
		{"lose response", Fault{Kind: LoseResponse}, broker.Unknown, context.DeadlineExceeded, limit, 1, 1, 1, 0},
		{"delay", Fault{Kind: Delay, Delay: time.Second}, broker.Stored, nil, time.Second, 1, 1, 1, 0},
		{"delay past the caller", Fault{Kind: Delay, Delay: time.Minute}, broker.Unknown, broker.ErrUnknownOutcome, limit, 0, 1, 1, 0},
		{"cut", Fault{Kind: Cut}, broker.Unknown, broker.ErrUnknownOutcome, 0, 0, 0, 0, 0},
		{"error", Fault{Kind: Error}, broker.Refused, broker.ErrUnavailable, 0, 0, 0, 0, 0},
		{"busy", Fault{Kind: Error, Err: broker.ErrBusy}, broker.Refused, broker.ErrBusy, 0, 0, 0, 0, 0},
		{"error unknown", Fault{Kind: Error, Err: broker.ErrUnknownOutcome}, broker.Unknown, broker.ErrUnknownOutcome, 0, 0, 0, 0, 0},
		{"foreign error", Fault{Kind: Error, Err: io.ErrUnexpectedEOF}, broker.Refused, io.ErrUnexpectedEOF, 0, 0, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(x *bench) {
				c.fault.Op, c.fault.Match, c.fault.Times = Publish, "orders", 1
				i := x.b.Inject(c.fault)
				must(x.t, i.Err())
				body := []byte("body")
				x.within(limit, c.took, func(ctx context.Context) {
					r, err := x.pub.Publish(ctx, broker.Message{ID: "a", Body: body})
					if r[0].Verdict != c.verdict || !errors.Is(err, c.err) || !errors.Is(r[0].Err, c.err) {
						x.t.Fatalf("%s, %v", r[0].Verdict, err)
					}
				})
				body[0] = 'X'
				x.want("stored", x.stats().Ready, c.stored)
				time.Sleep(time.Minute)
				x.want("stored later", x.stats().Ready, c.later)
				x.want("counts", []int{i.Hits(), i.Applied(), i.Rejected()}, []int{1, c.applied, c.rejects})
				want := broker.Stored
				if c.later == 1 {
					want = broker.Duplicate
				}
				x.want("retry", x.publish("a")[0].Verdict, want)
				if d := x.one(x.rcv); c.later == 1 && string(d.Body) != "body" {
					x.t.Fatalf("body %q", d.Body)
				}
			})
		})
	}
}

func TestSettleFaults(t *testing.T) {
	const limit = 10 * time.Second
	for _, c := range []struct {
		name   string
		fault  Fault
		state  broker.State
		err    error
		took   time.Duration
		left   Stats // after the call
		action broker.Action
		again  broker.State // the action, asked again
	}{
		{"lose request", Fault{Kind: LoseRequest}, broker.Unknown, broker.ErrUnknownOutcome, limit, Stats{InFlight: 1}, broker.Ack, broker.Confirmed},
		{"lose response", Fault{Kind: LoseResponse}, broker.Unknown, context.DeadlineExceeded, limit, Stats{}, broker.Ack, broker.Confirmed},
		{"delay", Fault{Kind: Delay, Delay: time.Second}, broker.Confirmed, nil, time.Second, Stats{}, broker.Ack, broker.Confirmed},
		{"delay past the caller", Fault{Kind: Delay, Delay: 11 * time.Second}, broker.Unknown, broker.ErrUnknownOutcome, limit, Stats{InFlight: 1}, broker.Ack, broker.Confirmed},
		{"cut", Fault{Kind: Cut}, broker.Unknown, broker.ErrUnknownOutcome, 0, Stats{InFlight: 1}, broker.Ack, broker.Unknown},
		{"error leaves it held", Fault{Kind: Error, Err: broker.ErrBusy}, broker.Unknown, broker.ErrBusy, 0, Stats{InFlight: 1}, broker.Nack, broker.Confirmed},
		{"error lease lost", Fault{Kind: Error, Err: broker.ErrLeaseLost}, broker.LeaseLost, broker.ErrLeaseLost, 0, Stats{InFlight: 1}, broker.Ack, broker.LeaseLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(x *bench) {
				x.publish("a")
				d := x.one(x.rcv)
				c.fault.Op, c.fault.Match, c.fault.Times = Settle, "orders/billing", 1
				i := x.b.Inject(c.fault)
				must(x.t, i.Err())
				x.within(limit, c.took, func(ctx context.Context) {
					o, err := d.Ack(ctx)
					if o.State != c.state || !errors.Is(err, c.err) {
						x.t.Fatalf("%s, %v", o.State, err)
					}
				})
				x.want("left", x.stats(), c.left)
				if c.fault.Kind == Delay { // let it arrive
					time.Sleep(2 * time.Second)
					x.want("left later", x.stats(), Stats{})
					x.want("applied", i.Applied(), 1)
				}
				s := []broker.Settlement{{Delivery: d, Action: c.action}}
				_ = x.rcv.Settle(x.t.Context(), s)
				x.want("again", s[0].Outcome.State, c.again)
			})
		})
	}
}

func TestReceiveFaults(t *testing.T) {
	const lease = 30 * time.Second // the default
	for _, c := range []struct {
		name    string
		fault   Fault
		err     error
		took    time.Duration
		attempt int
	}{
		{"lose request", Fault{Kind: LoseRequest}, nil, lease / 4, 1},
		{"lose response", Fault{Kind: LoseResponse}, nil, lease, 2},
		{"delay", Fault{Kind: Delay, Delay: time.Second}, nil, time.Second, 1},
		{"delay past the caller", Fault{Kind: Delay, Delay: 2 * time.Minute}, context.DeadlineExceeded, time.Minute, 0},
		{"cut", Fault{Kind: Cut}, nil, reconnectTime, 1},
		{"cut each time", Fault{Kind: Cut, Times: -1}, context.DeadlineExceeded, time.Minute, 0},
		{"error", Fault{Kind: Error, Err: broker.ErrUnauthorized}, broker.ErrUnauthorized, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(x *bench) {
				x.publish("a")
				c.fault.Op, c.fault.Match = Receive, "orders"
				c.fault.Times = max(c.fault.Times+1, 0)
				i := x.b.Inject(c.fault)
				must(x.t, i.Err())
				x.within(time.Minute, c.took, func(ctx context.Context) {
					ds, err := x.rcv.Receive(ctx, 5)
					if !errors.Is(err, c.err) || (err == nil) != (len(ds) == 1) {
						x.t.Fatalf("%d, %v", len(ds), err)
					}
					if err == nil {
						x.want("attempt", ds[0].Attempt.Number, c.attempt)
						ack(x.t, ds)
					}
				})
				if i.Hits() == 0 {
					x.t.Fatal("no hit")
				}
			})
		})
	}
}

// A cut fences what was given out over the old connection, and only the lease
// brings it back.
func TestCutEndsHandles(t *testing.T) {
	inBubble(t, func(x *bench) {
		x.publish("a")
		d := x.one(x.rcv)
		x.b.Inject(Fault{Op: Publish, Kind: Cut, Times: 1})
		if _, err := x.pub.Publish(x.t.Context(), message("b")); !errors.Is(err, broker.ErrUnknownOutcome) {
			x.t.Fatal(err)
		}
		if o, _ := d.Ack(x.t.Context()); o.State != broker.LeaseLost {
			x.t.Fatal(o)
		}
		x.want("still leased", x.stats(), Stats{InFlight: 1})
		x.within(time.Minute, 30*time.Second, func(ctx context.Context) {
			ds, err := x.rcv.Receive(ctx, 1)
			must(x.t, err)
			ack(x.t, ds)
		})
	})
}

// Whoever waits for an answer that was lost gets going when the connection ends.
func TestLostAnswersEndWithTheConnection(t *testing.T) {
	for name, end := range map[string]func(*bench){
		"kill":    func(x *bench) { x.b.Kill() },
		"restart": func(x *bench) { x.b.Restart(true) },
		"broker":  func(x *bench) { x.b.Close() },
		"conn": func(x *bench) {
			ctx, cancel := context.WithCancel(x.t.Context())
			cancel() // not to wait for the calls
			_ = x.conn.Close(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(x *bench) {
				x.publish("a")
				d := x.one(x.rcv)
				lost := x.b.Inject(Fault{Kind: LoseResponse})
				ended := make(chan error, 2)
				go func() {
					_, err := x.pub.Publish(context.Background(), message("b"))
					ended <- err
				}()
				go func() {
					_, err := d.Ack(context.Background())
					ended <- err
				}()
				synctest.Wait()
				x.want("applied", lost.Applied(), 2)
				lost.Remove()
				end(x)
				for range 2 {
					if err := <-ended; !errors.Is(err, broker.ErrUnknownOutcome) {
						x.t.Fatal(err)
					}
				}
			})
		})
	}
}

// Nobody waits behind a fault for a broker that is closed.
func TestCloseEndsFaults(t *testing.T) {
	for _, f := range []Fault{{Kind: LoseRequest}, {Kind: Delay, Delay: time.Hour}, {Kind: Cut}, {Kind: LoseResponse}} {
		t.Run(f.Kind.String(), func(t *testing.T) {
			inBubble(t, func(x *bench) {
				x.publish("a")
				x.b.Inject(f)
				received, published := make(chan error), make(chan error)
				go func() {
					_, err := x.rcv.Receive(context.Background(), 1)
					received <- err
				}()
				go func() {
					_, err := x.pub.Publish(context.Background(), message("b"))
					published <- err
				}()
				synctest.Wait()
				time.AfterFunc(time.Second, x.b.Close)
				start := time.Now()
				if err := <-published; !errors.Is(err, broker.ErrUnknownOutcome) {
					x.t.Fatal(err)
				}
				if err := <-received; !errors.Is(err, broker.ErrClosed) {
					x.t.Fatal(err)
				}
				if d := time.Since(start); d > time.Second+reconnectTime {
					x.t.Fatalf("after %s", d)
				}
			})
		})
	}
}

// An answer of any type is one, also if it can't be compared.
type manyErrors []error

func (manyErrors) Error() string { return "many" }

func TestInjection(t *testing.T) {
	x := newBench(t, broker.Entity{})
	for _, f := range []Fault{
		{}, {Kind: Error + 1}, {Op: Commit + 1, Kind: Cut}, {Kind: Delay}, {Kind: Cut, Delay: 1},
		{Kind: Cut, Err: io.EOF}, {Kind: Cut, Times: -1},
	} {
		i := x.b.Inject(f)
		if !errors.Is(i.Err(), broker.ErrInvalid) || !errors.Is(i.WaitHit(t.Context()), broker.ErrInvalid) {
			t.Fatalf("%+v: %v", f, i.Err())
		}
		i.Remove()
	}
	other := x.b.Inject(Fault{Kind: Error, Match: "elsewhere"})
	first := x.b.Inject(Fault{Op: Publish, Kind: Error, Times: 2, Err: broker.ErrBusy})
	second := x.b.Inject(Fault{Kind: Error})
	for _, want := range []error{broker.ErrBusy, broker.ErrBusy, broker.ErrUnavailable} {
		if _, err := x.pub.Publish(t.Context(), message("a")); !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	must(t, second.WaitHit(t.Context()))
	second.Remove()
	second.Remove()
	x.want("hits", []int{other.Hits(), first.Hits(), second.Hits()}, []int{0, 2, 1})
	x.publish("a")
	x.b.Inject(Fault{Kind: Error, Err: manyErrors{}, Times: 1})
	if _, err := x.pub.Publish(t.Context(), message("b")); !errors.Is(err, broker.ErrRefused) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := other.WaitApplied(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// Refused by the broker, so nothing of it was applied.
	refused := x.b.Inject(Fault{Kind: Delay, Delay: 1, Times: 1})
	must(t, x.conn.Delete(t.Context(), broker.Entity{Topic: "orders"}))
	if _, err := x.pub.Publish(t.Context(), message("b")); !errors.Is(err, broker.ErrNotFound) {
		t.Fatal(err)
	}
	x.want("rejected", []int{refused.Applied(), refused.Rejected()}, []int{0, 1})
}

func TestRestart(t *testing.T) {
	for name, c := range map[string]struct {
		restart func(*Broker)
		kept    bool
	}{
		"restart": {func(b *Broker) { b.Restart(true) }, true},
		"kill":    {func(b *Broker) { b.Kill() }, true},
		"forgets": {func(b *Broker) { b.Restart(false) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(x *bench) {
				x.publish("acked", "held", "delayed", "ready")
				ds := x.available(x.rcv, 3)
				ack(x.t, ds[:1])
				x.settled(ds[2].Nack(x.t.Context(), time.Minute))
				other := x.receiver("orders/billing")
				ack(x.t, x.available(other, 1))
				got := make(chan string)
				go func() {
					ds, err := other.Receive(context.Background(), 1)
					if err != nil {
						x.t.Error(err)
					}
					got <- ids(ds)
				}()
				synctest.Wait()
				c.restart(x.b)
				if o, _ := ds[1].Ack(x.t.Context()); o.State != broker.LeaseLost {
					x.t.Fatalf("a handle from before: %s", o.State)
				}
				want := Stats{InFlight: 1, Delayed: 1}
				if !c.kept {
					want = Stats{}
				}
				x.want("left", x.stats(), want)
				r := x.publish("acked", "new")
				if c.kept {
					x.want("acked", r[0].Verdict, broker.Duplicate)
					x.want("new", r[1].Position.Offset, 5)
					x.want("waiting receiver", <-got, "new ")
					time.Sleep(30 * time.Second)
					x.want("held", ids(x.available(x.rcv, 9)), "held new ")
				} else {
					x.want("acked", r[0].Verdict, broker.Stored)
					x.want("new", r[1].Position.Offset, 2)
					x.want("waiting receiver", <-got, "acked ")
				}
			})
		})
	}
}
