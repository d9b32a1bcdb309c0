package servicebus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/fault"
	emulator "github.com/onceline/onceline/localstack/servicebus"
)

// The answer to a publish is lost: Unknown at the context's end, and the retry
// is stored once.
func TestPublishAnswerLost(t *testing.T) {
	t.Parallel()
	n, _, e, p, r := ends(t)
	i := n.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Times: 1})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		applied(t, i)
		cancel()
	}()
	ms := messages(3, "m")
	rs, err := p.Publish(ctx, ms...)
	wantErr(t, err, broker.ErrUnknownOutcome, context.Canceled)
	for k := range rs {
		if rs[k].Verdict != broker.Unknown {
			t.Errorf("receipt %d: %v", k, rs[k])
		}
	}
	if k := n.counts(t, e.Topic); k.Active != 3 {
		t.Fatalf("the service has %+v", k)
	}
	publish(t, p, ms...)
	ack(t, receiveAll(t, r, 3)...)
	if k := n.counts(t, e.Topic); k.Active != 0 {
		t.Errorf("left: %+v", k)
	}
}

// The connection dies with a publish on its way: Unknown at once, and nothing is
// sent again behind the caller's back.
func TestPublishCut(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := n.dial(t)
	name := entity().Topic
	if err := n.CreateQueue(name, emulator.QueueProperties{}); err != nil { // without duplicate detection
		t.Fatal(err)
	}
	p := publisherOf(t, c, name)
	n.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Times: 1, Cut: true})
	begin := time.Now()
	rs, err := p.Publish(t.Context(), message("x"))
	wantErr(t, err, broker.ErrUnknownOutcome)
	if rs[0].Verdict != broker.Unknown || time.Since(begin) > 2*time.Second {
		t.Errorf("%v after %v", rs[0].Verdict, time.Since(begin))
	}
	publish(t, p, message("y"))
	if k := n.counts(t, name); k.Active != 2 {
		t.Errorf("the service has %+v, want the first once and the second", k)
	}
}

// The service refuses a transfer.
func TestPublishRefused(t *testing.T) {
	t.Parallel()
	n, _, e, p, _ := ends(t)
	for code, kind := range map[int]error{503: broker.ErrBusy, 403: broker.ErrUnavailable, 413: broker.ErrTooLarge} {
		i := n.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.Error, Code: code})
		rs, err := p.Publish(t.Context(), messages(2, "m")...)
		wantErr(t, err, kind)
		for k := range rs {
			if rs[k].Verdict != broker.Refused {
				t.Errorf("code %d: %v", code, rs[k])
			}
		}
		i.Remove()
	}
	if k := n.counts(t, e.Topic); k.Active != 0 {
		t.Errorf("the service has %+v", k)
	}
	publish(t, p, messages(2, "m")...)
}

// A batch is refused for one of its messages: the others go.
func TestBatchRefusedForOne(t *testing.T) {
	t.Parallel()
	n, _, e, p, r := ends(t)
	i := n.inject(t, fault.Fault{Op: fault.Publish, Kind: fault.Error, Code: 400, Times: 4})
	rs, err := p.Publish(t.Context(), messages(8, "m")...)
	wantErr(t, err, broker.ErrInvalid)
	refused := 0
	for k := range rs {
		if rs[k].Verdict == broker.Refused {
			refused++
		} else if rs[k].Verdict != broker.Accepted {
			t.Errorf("receipt %d: %v", k, rs[k])
		}
	}
	// 8, 4 and 2 were refused as one, then 1.
	if refused != 1 || i.Hits() != 4 {
		t.Errorf("%d refused, %d hits", refused, i.Hits())
	}
	ack(t, receiveAll(t, r, 7)...)
	if k := n.counts(t, e.Topic); k.Active != 0 {
		t.Errorf("left: %+v", k)
	}
}

// The answer to an ack is lost, and asking again can't find out: the lock token
// is gone, as it would be if the lock had been lost (SB-F-16).
func TestSettleAnswerLost(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"queue", "sessions"} {
		t.Run(kind, func(t *testing.T) {
			n, _, e, p, r := ends(t, func(e *broker.Entity) { e.Ordered = kind == "sessions" })
			publish(t, p, keyed("x", "k"))
			d := receiveOne(t, r)
			i := n.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.LoseResponse, Times: 1})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				applied(t, i)
				cancel()
			}()
			o, err := d.Ack(ctx)
			if wantErr(t, err, broker.ErrUnknownOutcome); o.State != broker.Unknown {
				t.Errorf("%v", o.State)
			}
			begin := time.Now()
			o, err = d.Ack(t.Context())
			if wantErr(t, err, broker.ErrUnknownOutcome); o.State != broker.Unknown {
				t.Errorf("asked again: %v", o.State)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("it took %v", took)
			}
			if k := n.counts(t, e.Topic); k.Active != 0 {
				t.Errorf("left: %+v", k)
			}
		})
	}
}

// An ack never reached the service: asking again carries it out.
func TestSettleRequestLost(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"queue", "sessions"} {
		t.Run(kind, func(t *testing.T) {
			n, _, e, p, r := ends(t, func(e *broker.Entity) { e.Ordered = kind == "sessions" })
			publish(t, p, keyed("x", "k"))
			d := receiveOne(t, r)
			n.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.LoseRequest, Times: 1})
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			o, err := d.Ack(ctx)
			if wantErr(t, err, broker.ErrUnknownOutcome, context.DeadlineExceeded); o.State != broker.Unknown {
				t.Errorf("%v", o.State)
			}
			ack(t, *d)
			if k := n.counts(t, e.Topic); k.Active != 0 {
				t.Errorf("left: %+v", k)
			}
		})
	}
}

// Without a deadline of the caller's a settle ends all the same.
func TestSettleTimeout(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, srv *emulator.Server, c broker.Conn) {
		if err := srv.CreateQueue("q", emulator.QueueProperties{}); err != nil {
			t.Fatal(err)
		}
		n, p, r := &namespace{Server: srv}, publisherOf(t, c, "q"), receiverOf(t, c, "q")
		publish(t, p, messages(40, "m")...)
		ds := receiveAll(t, r, 40)
		lost := n.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.LoseRequest})
		s := make([]broker.Settlement, len(ds))
		for i := range ds {
			s[i] = broker.Settlement{Delivery: &ds[i]}
		}
		begin := time.Now()
		err := r.Settle(context.Background(), s)
		wantErr(t, err, broker.ErrUnknownOutcome)
		if took := time.Since(begin); took != 400*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		for i := range s {
			// The rest was never sent, and says so; its handles are as they were.
			if o := s[i].Outcome; o.State != broker.Unknown || o.Err == nil {
				t.Errorf("%d: %+v", i, o)
			}
		}
		lost.Remove()
		until(t, "all to be settled", func() bool { return r.Settle(t.Context(), s) == nil })
		if k := n.counts(t, "q"); k.Active != 0 {
			t.Errorf("left: %+v", k)
		}
	}, SettleTimeout(400*time.Millisecond))
}

// What is in hand survives the connection: it is settled over the next one.
func TestConnectionLostInHand(t *testing.T) {
	t.Parallel()
	n, _, e, p, r := ends(t)
	publish(t, p, messages(4, "m")...)
	ds := receiveAll(t, r, 4)
	i := n.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.Cut, Times: 1})
	begin := time.Now()
	if o, err := ds[0].Extend(t.Context(), 0); o.State != broker.Confirmed {
		t.Errorf("extend: %v %v", o.State, err)
	}
	ack(t, ds[0])
	if o, err := ds[1].Nack(t.Context(), 0); o.State != broker.Confirmed {
		t.Errorf("nack: %v %v", o.State, err)
	}
	if o, err := ds[2].DeadLetter(t.Context(), "why"); o.State != broker.Confirmed {
		t.Errorf("dead-letter: %v %v", o.State, err)
	}
	ack(t, ds[3])
	if i.Hits() != 1 || time.Since(begin) > 3*time.Second {
		t.Errorf("%d hits, %v", i.Hits(), time.Since(begin))
	}
	d := receiveOne(t, r) // over a link that is new
	if d.ID != ds[1].ID || d.Attempt.Number != 2 {
		t.Errorf("%q at attempt %d", d.ID, d.Attempt.Number)
	}
	ack(t, *d)
	if k := n.counts(t, e.Topic); k.Active != 0 || k.DeadLettered != 1 {
		t.Errorf("left: %+v", k)
	}
}

// An ack dies with its connection before the service saw it: carried out over the
// next one. If it was carried out before, nobody can tell.
func TestAckCut(t *testing.T) {
	t.Parallel()
	n, _, e, p, r := ends(t)
	publish(t, p, messages(2, "m")...)
	ds := receiveAll(t, r, 2)
	n.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.Cut, Times: 1})
	ack(t, ds[0])
	n.inject(t, fault.Fault{Op: fault.Settle, Kind: fault.LoseResponse, Cut: true, Times: 1})
	o, err := ds[1].Ack(t.Context())
	if wantErr(t, err, broker.ErrUnknownOutcome); o.State != broker.Unknown {
		t.Errorf("%v", o.State)
	}
	if k := n.counts(t, e.Topic); k.Active != 0 {
		t.Errorf("left: %+v", k)
	}
}

// Receive waits for a service that restarts.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"queue", "sessions"} {
		for _, kill := range []bool{false, true} {
			n, _, e, p, r := ends(t, func(e *broker.Entity) { e.Ordered = kind == "sessions" })
			got := make(chan []broker.Delivery, 1)
			go func() { got <- receive(t, r, 1, mustCome) }()
			n.Restart(kill)
			until(t, "a good receipt", func() bool {
				rs, _ := p.Publish(t.Context(), keyed("x", "k"))
				return rs[0].Verdict.OK()
			})
			ds := <-got
			if len(ds) != 1 {
				t.Fatalf("%s, kill %v: %d deliveries", kind, kill, len(ds))
			}
			// Locks don't survive: what is in hand is lost, and comes again.
			n.Restart(kill)
			if o, err := ds[0].Ack(t.Context()); o.State == broker.Confirmed {
				t.Errorf("%s, kill %v: %v %v", kind, kill, o.State, err)
			}
			ack(t, *receiveOne(t, r))
			if k := n.counts(t, e.Topic); k.Active != 0 {
				t.Errorf("left: %+v", k)
			}
		}
	}
}

// An entity that is deleted under a Receive ends it.
func TestDeletedUnderReceive(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"queue", "sessions"} {
		t.Run(kind, func(t *testing.T) {
			n, _, e, p, r := ends(t, func(e *broker.Entity) { e.Ordered = kind == "sessions" })
			publish(t, p, keyed("x", "k"))
			ack(t, *receiveOne(t, r))
			out := make(chan error, 1)
			go func() {
				_, err := r.Receive(context.Background(), 1)
				out <- err
			}()
			if err := n.Delete(e.Topic); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-out:
				wantErr(t, err, broker.ErrNotFound)
			case <-time.After(5 * time.Second):
				t.Fatal("Receive doesn't notice")
			}
			// The first may meet the end of the link, which says nothing of the message.
			until(t, "a publish to be refused", func() bool {
				rs, err := p.Publish(t.Context(), message("y"))
				return rs[0].Verdict == broker.Refused && errors.Is(err, broker.ErrNotFound)
			})
		})
	}
}
