package sqs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack/fault"
)

// The service is killed and comes back: a Receive that waits goes on, what was
// published is there, handles are good as long as their lease, and nothing is
// published twice.
func TestRestart(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		s, url, stop := serve()
		defer stop()
		c := dialTo(t, url+"?anonymous=true", FIFO(fifo), PollWait(time.Second))
		e := entity(t)
		ensure(t, c, e)
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		publish(t, p, message("before"))
		d := receiveOne(t, r)
		got := make(chan []broker.Delivery, 1)
		go func() {
			ds, err := r.Receive(t.Context(), 1)
			if err != nil {
				t.Error(err)
			}
			got <- ds
		}()
		for _, kill := range []bool{true, false} {
			s.Restart(kill)
		}
		// A connection that lay idle may be found dead only as a request is on it:
		// Unknown, until it is asked again.
		for {
			o, err := d.Ack(t.Context())
			if err == nil && o.State == broker.Confirmed {
				break
			}
			if o.State != broker.Unknown {
				t.Fatalf("ack: %+v", o)
			}
		}
		m := message("after")
		for {
			rs, err := p.Publish(t.Context(), m)
			if err == nil {
				break
			}
			if v := rs[0].Verdict; v != broker.Unknown && v != broker.Refused {
				t.Fatalf("%+v", rs[0])
			}
		}
		ds := <-got
		if len(ds) != 1 || ds[0].ID != "after" {
			t.Fatalf("%s", ids(ds))
		}
		ack(t, ds...)
		closing(t, c)
	})
}

// The faults of the emulator, by operation: nothing is claimed that isn't so.
func TestServiceFaults(t *testing.T) {
	kinds(t, func(t *testing.T, fifo bool) {
		s, url, stop := serve()
		defer stop()
		c := dialTo(t, url+"?anonymous=true", FIFO(fifo), PollWait(0))
		e := entity(t)
		ensure(t, c, e)
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		for _, f := range []fault.Fault{
			{Op: fault.Publish, Kind: fault.LoseRequest, Times: 1, Cut: true},
			{Op: fault.Publish, Kind: fault.LoseResponse, Times: 1, Cut: true},
			{Op: fault.Publish, Kind: fault.Cut, Times: 1},
		} {
			i := s.Faults().Inject(f, nil)
			rs, err := p.Publish(t.Context(), message(f.Kind.String()))
			if rs[0].Verdict != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) {
				t.Errorf("%s: %v, %v", f.Kind, rs[0].Verdict, err)
			}
			i.Remove()
			publish(t, p, message(f.Kind.String()))
		}
		want := map[bool]int{true: 3, false: 4}[fifo]
		ds := receiveAll(t, r, want)
		// Held back beyond the caller's patience.
		i := s.Faults().Inject(fault.Fault{Op: fault.Settle, Kind: fault.LoseRequest, Times: 1}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if o, err := ds[0].Ack(ctx); o.State != broker.Unknown || !errors.Is(err, broker.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("lost ack: %+v", o)
		}
		i.Remove()
		ack(t, ds...)
		if ds := receive(t, r, 1, 50*time.Millisecond); len(ds) > 0 {
			t.Errorf("%s is left", ids(ds))
		}
	})
}
