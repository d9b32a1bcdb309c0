package rabbitmq

import (
	"context"
	"fmt"
	"strconv"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Settle is driver.Receiver's. Acks are noted first, all of them, and then one
// commit covers what is contiguous: of this call and of all others that came
// while the commit before was under way. A commit is StoreOffset, which has no
// answer, with QueryOffset right behind it, whose answer shows that the offset
// is in the log.
func (r *streamReceiver) Settle(ctx context.Context, ops []driver.Op) {
	var letters []*driver.Op
	commit := false
	r.mu.Lock()
	for i := range ops {
		op := &ops[i]
		e := op.Token.Ref.(*streamEntry)
		switch {
		case op.Settlement.Action == broker.Extend:
			// No lease runs: the turn is ours as long as the connection lives.
			op.Settlement.Outcome.State = broker.Confirmed
			if e.part.ended || e.part.link.lost() || e.handle != op.Token.Tag {
				op.Settlement.Outcome = turnLost(op.Settlement)
			}
		case e.handle != op.Token.Tag:
			op.Settlement.Outcome = turnLost(op.Settlement)
		case e.settled:
			commit = true // asks; the outcome follows below
		case e.part.ended, e.part.link.lost():
			op.Settlement.Outcome = turnLost(op.Settlement)
		case op.Settlement.Action == broker.DeadLetter,
			op.Settlement.Action == broker.Nack && r.wishes.maxDeliveries > 0 && e.gives >= r.wishes.maxDeliveries:
			letters = append(letters, op)
		case op.Settlement.Action == broker.Nack:
			e.handle++ // the old handle is spent
			r.back(e, op.Settlement.Delay)
			op.Settlement.Outcome.State = broker.Confirmed
		default:
			e.part.settle(e)
			r.settledOne(e)
			commit = true
		}
	}
	r.mu.Unlock()
	if len(letters) > 0 && r.deadLetter(ctx, letters) {
		commit = true
	}
	if !commit {
		return
	}
	err := r.commit(ctx)
	for i := range ops {
		if s := ops[i].Settlement; s.Outcome.State == 0 && s.Outcome.Err == nil {
			s.Outcome = r.outcome(ctx, s, ops[i].Token.Ref.(*streamEntry), err)
		}
	}
}

func turnLost(s *broker.Settlement) broker.Outcome {
	return broker.Outcome{State: broker.LeaseLost,
		Err: broker.Errorf(broker.ErrLeaseLost, nil, "%s %q: it was given back", s.Action, s.Delivery.ID)}
}

// outcome is what is known of a settled message after a commit that ended with
// err.
func (r *streamReceiver) outcome(ctx context.Context, s *broker.Settlement, e *streamEntry, err error) broker.Outcome {
	for {
		r.mu.Lock()
		p, news := e.part, r.news
		switch {
		case e.offset < p.committed, p.ended && e.offset < r.stored && r.sessions > p.session:
			r.mu.Unlock()
			return broker.Outcome{State: broker.Confirmed}
		case p.ended && r.sessions > p.session:
			r.mu.Unlock()
			return broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrLeaseLost, nil,
				"%s %q: the connection was lost before a commit covered it", s.Action, s.Delivery.ID)}
		case !p.ended && !p.link.lost() && e.offset >= p.watermark:
			r.mu.Unlock()
			return broker.Outcome{State: broker.Pending}
		case !p.ended && !p.link.lost() && err == nil:
			err = fmt.Errorf("another receiver of %s stored a lower offset", r.name)
		}
		ended := p.ended || p.link.lost()
		r.mu.Unlock()
		if ended {
			// The next session asks the broker what it has.
			select {
			case <-news:
				continue
			case <-ctx.Done():
				if err == nil {
					err = context.Cause(ctx)
				}
			case <-r.life.Done():
				err = broker.ErrClosed
			}
		}
		return broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, err, "%s %q on %s", s.Action, s.Delivery.ID, r.name)}
	}
}

// commit brings the stored offset up to the watermark. One at a time: who comes
// while another commits waits for its end, and the first of those then commits
// for all. It returns nil if all that was settled when it was called is stored,
// or waits for a lower offset.
func (r *streamReceiver) commit(ctx context.Context) error {
	select {
	case r.commits <- struct{}{}:
	default:
		select {
		case r.commits <- struct{}{}:
		case <-ctx.Done():
			if p, _ := r.owes(); p == nil {
				return nil
			}
			return context.Cause(ctx)
		}
	}
	defer func() { <-r.commits }()
	p, mark := r.owes()
	if p == nil {
		return nil // the one before took it along
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	store := putFrame(nil, scStoreOffset, func(b []byte) []byte { return put64(putStr(putStr(b, r.ref), r.stream), mark-1) })
	got, err := r.query(ctx, p.link, store)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.committed = got
	if got < mark {
		return fmt.Errorf("stored offset %d of %s, and the broker has %d: another receiver stores under its name", mark-1, r.name, int64(got)-1)
	}
	return nil
}

// owes returns the part whose watermark is ahead of what the broker has, and the
// watermark.
func (r *streamReceiver) owes() (*streamPart, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.part; p != nil && p.watermark > p.committed {
		return p, p.watermark
	}
	return nil, 0
}

// deadLetter publishes ops' messages to the dead-letter stream and settles those
// that got there. It reports whether any did.
func (r *streamReceiver) deadLetter(ctx context.Context, ops []*driver.Op) (any bool) {
	if r.wishes.deadLetter == "" {
		for _, op := range ops {
			op.Untouched = true
			op.Settlement.Outcome.Err = broker.Errorf(broker.ErrUnsupported, nil, "dead-letter %q: the subscription %s has no dead-letter stream, or Ensure of this connection doesn't know it",
				op.Settlement.Delivery.ID, r.name)
		}
		return false
	}
	msgs := make([]broker.Message, len(ops))
	receipts := make([]broker.Receipt, len(ops))
	for i, op := range ops {
		e := op.Token.Ref.(*streamEntry)
		reason := op.Settlement.Reason
		if op.Settlement.Action == broker.Nack {
			reason = "max deliveries"
		}
		msgs[i] = streamLetter(e, reason, r.name)
	}
	p, err := r.conn.lettersTo(ctx, r.wishes.deadLetter)
	if err == nil {
		p.Publish(ctx, msgs, receipts)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, op := range ops {
		why := err
		if why == nil && !receipts[i].Verdict.OK() {
			why = receipts[i].Err
		}
		if why != nil {
			op.Untouched = true
			op.Settlement.Outcome.Err = broker.Errorf(broker.ErrUnknownOutcome, why, "dead-letter %q to %s", op.Settlement.Delivery.ID, r.wishes.deadLetter)
			continue
		}
		any = true
		if e := op.Token.Ref.(*streamEntry); !e.part.ended && !e.settled {
			e.part.settle(e)
			r.settledOne(e)
		} else if !e.settled {
			op.Settlement.Outcome = turnLost(op.Settlement)
		}
	}
	return any
}

// streamLetter is the dead-letter copy of a message: the same identity, so that a
// second copy after a crash is recognised, and where it comes from.
func streamLetter(e *streamEntry, reason, subscription string) broker.Message {
	var m broker.Message
	readMessage(&m, e.raw)
	hs := make(broker.Headers, 0, len(m.Headers)+3)
	for _, h := range m.Headers {
		switch h.Key {
		case driver.HeaderReason, driver.HeaderSource, driver.HeaderAttempts:
			continue // of an earlier dead-letter stream
		}
		hs = append(hs, h)
	}
	m.Headers = append(hs,
		broker.Header{Key: driver.HeaderReason, Value: reason},
		broker.Header{Key: driver.HeaderSource, Value: subscription},
		broker.Header{Key: driver.HeaderAttempts, Value: strconv.Itoa(e.gives)})
	return m
}

// lettersTo returns the publisher for a dead-letter stream.
func (c *streamConn) lettersTo(ctx context.Context, stream string) (*streamPublisher, error) {
	c.mu.Lock()
	p := c.letters[stream]
	c.mu.Unlock()
	if p != nil {
		return p, nil
	}
	l, err := c.control(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.letters[stream]; p != nil {
		return p, nil
	}
	if c.letters == nil {
		return nil, broker.ErrClosed
	}
	p = c.newPublisher(stream, l.frameMax, false)
	c.letters[stream] = p
	return p, nil
}
