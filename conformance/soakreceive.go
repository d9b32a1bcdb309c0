package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
)

// soakAsk is how long an ack without a final answer is asked for.
const soakAsk = 10 * time.Second

// unanswered is an ack to be asked for again.
type unanswered struct {
	settlement broker.Settlement
	since      time.Time
}

func (s *soak) receiver(what string) *soakHandle[broker.Receiver] {
	return &soakHandle[broker.Receiver]{soak: s, what: what,
		of: func(ctx context.Context, c broker.Conn) (broker.Receiver, error) {
			return c.OpenReceiver(ctx, s.entity.Subscription)
		}}
}

// consume receives and acks until ctx ends, and then as long as acks are without an
// answer, within a bound.
func (s *soak) consume(ctx context.Context, n int) {
	h := s.receiver(fmt.Sprintf("consumer %d", n))
	defer h.close(ctx)
	open := s.receiveUntil(ctx, h, func([]broker.Delivery) {})
	var pause soakBackoff
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), soakCall)
	defer cancel()
	for len(open) > 0 && h.opened {
		open = s.ack(end, h.handle, nil, open)
		if len(open) > 0 && !pause.wait(end) {
			return
		}
	}
}

// watch receives and acks until ctx ends, and closes came when the witness came.
func (s *soak) watch(ctx context.Context, witness string, came chan<- struct{}) {
	h := s.receiver("the last consumer")
	defer h.close(ctx)
	seen := false
	s.receiveUntil(ctx, h, func(ds []broker.Delivery) {
		for i := range ds {
			if ds[i].ID == witness && !seen {
				seen = true
				close(came)
			}
		}
	})
}

// receiveUntil receives and acks until ctx ends, and returns the acks that are
// without an answer then.
func (s *soak) receiveUntil(ctx context.Context, h *soakHandle[broker.Receiver], took func([]broker.Delivery)) []unanswered {
	var open []unanswered
	var pause soakBackoff
	for last := 0; ; {
		r, epoch, err := h.get(ctx)
		if err != nil {
			return nil
		}
		if epoch != last {
			last, open = epoch, nil // they were the old one's
		}
		began := time.Now()
		ds, err := s.receive(ctx, r, 4*s.o.Batch)
		h.used(epoch, began, len(ds) > 0 || err == nil, err)
		open = s.ack(ctx, r, ds, open)
		took(ds)
		if err == nil {
			pause = soakBackoff{}
		} else {
			pause.wait(ctx)
		}
		if ctx.Err() != nil {
			return open
		}
	}
}

// receive is a bounded Receive that is recorded. That nothing came is no error.
func (s *soak) receive(ctx context.Context, r broker.Receiver, most int) ([]broker.Delivery, error) {
	call, cancel := context.WithTimeout(ctx, soakWait)
	defer cancel()
	asked := s.log.now()
	ds, err := r.Receive(call, most)
	s.log.add(len(ds), func(i int, e *SoakEvent) {
		e.Kind, e.ID, e.Position, e.Asked = SoakDelivery, ds[i].ID, ds[i].Position, asked
	})
	s.queue.deliver(ds)
	if len(ds) == 0 && call.Err() != nil && !errors.Is(err, broker.ErrClosed) && !errors.Is(err, broker.ErrUnavailable) {
		err = nil
	}
	if err != nil {
		s.log.failed("receive", err)
	}
	return ds, err
}

// ack acks deliveries, and asks for those without a final answer. It returns what is
// still without one.
func (s *soak) ack(ctx context.Context, r broker.Receiver, ds []broker.Delivery, open []unanswered) []unanswered {
	if len(ds)+len(open) == 0 {
		return nil
	}
	now := time.Now()
	settlements := make([]broker.Settlement, 0, len(ds)+len(open))
	since := make([]time.Time, 0, len(ds)+len(open))
	for _, u := range open {
		u.settlement.Outcome = broker.Outcome{}
		settlements, since = append(settlements, u.settlement), append(since, u.since)
	}
	for i := range ds {
		settlements, since = append(settlements, broker.Settlement{Delivery: &ds[i]}), append(since, now)
	}
	// What arrived as the consumer is to end is settled nonetheless.
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), soakCall)
	defer cancel()
	if err := r.Settle(call, settlements); err != nil { // the outcomes say more
		s.log.failed("settle", err)
	}
	s.log.add(len(settlements), func(i int, e *SoakEvent) {
		d := settlements[i].Delivery
		e.Kind, e.ID, e.Position, e.State = SoakOutcome, d.ID, d.Position, settlements[i].Outcome.State
	})
	open = open[:0:0]
	for i := range settlements {
		switch settlements[i].Outcome.State {
		case broker.Unknown, broker.Pending:
			late := errors.Is(settlements[i].Outcome.Err, broker.ErrLeaseLost)
			if !late && now.Sub(since[i]) < soakAsk {
				open = append(open, unanswered{settlements[i], since[i]})
			}
		}
	}
	return open
}
