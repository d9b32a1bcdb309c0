package servicebus

import (
	"context"
	"errors"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Close ends Receive, lets the settles under way have their answers, gives back
// what is in hand, at the cost of an attempt each (SB-F-18), and closes the link
// or the sessions. Without that a message would stay locked for the rest of its
// lock. It returns an error if something could not be given back.
func (r *receiver) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	defer r.end()
	r.close()
	r.mu.Lock()
	if r.cancel != nil {
		r.cancel()
	}
	r.mu.Unlock()
	stuck := false
	select {
	case r.receiving <- struct{}{}:
		r.dropAccept()
	case <-ctx.Done(): // Receive is in a write
		stuck = true
	}
	r.idle.Stop()
	r.lap.Stop()
	r.mu.Lock()
	r.shut = true
	r.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, s := range r.calls {
			s.cancel()
		}
		r.end()
	})
	defer stop()
	r.settles.Wait()
	err := r.giveBack(ctx)
	r.mu.Lock()
	boxes := make([]*inbox, 0, len(r.boxes))
	for b := range r.boxes {
		boxes = append(boxes, b)
	}
	clear(r.boxes)
	r.mu.Unlock()
	var wait sync.WaitGroup
	errs := make([]error, len(boxes))
	for i, b := range boxes {
		if b.epoch != nil {
			b.epoch.End()
		}
		wait.Go(func() { errs[i] = r.detach(ctx, b, stuck) })
	}
	wait.Wait()
	r.mu.Lock()
	aside := r.aside
	r.aside = nil
	r.mu.Unlock()
	if aside != nil {
		_ = aside.Close(ctx) // it holds nothing
	}
	r.reapers.Wait()
	close(r.spare) // no Settle is under way, and none begins
	r.hands.Wait()
	return errors.Join(append(errs, err)...)
}

// giveBack abandons what is in hand.
func (r *receiver) giveBack(ctx context.Context) error {
	now := r.c.Now()
	var ops []driver.Op
	r.mu.Lock()
	for _, s := range r.slabs {
		if s.done(now) {
			continue
		}
		for i := range s.items {
			if h := &s.items[i]; !h.spent.Load() && !h.box.epoch.Ended() {
				ops = append(ops, r.abandon(h.msg, h))
			}
		}
	}
	r.slabs = nil
	r.mu.Unlock()
	return r.abandonAll(ctx, ops)
}

func (r *receiver) abandon(m *azservicebus.ReceivedMessage, h *held) driver.Op {
	d := &broker.Delivery{Message: broker.Message{ID: m.MessageID}}
	return driver.Op{Settlement: &broker.Settlement{Delivery: d, Action: broker.Nack}, Token: &driver.Token{Ref: h}}
}

func (r *receiver) abandonAll(ctx context.Context, ops []driver.Op) error {
	if len(ops) == 0 {
		return nil
	}
	s := &settling{r: r, outer: outer{soft: ctx, life: r.life}, ops: ops}
	s.all()
	var first error
	n := 0
	for i := range ops {
		// What is lost is somebody else's already.
		if o := &ops[i].Settlement.Outcome; !o.State.OK() && o.State != broker.LeaseLost {
			n++
			if first == nil {
				first = o.Err
			}
		}
	}
	if n > 0 {
		return broker.Errorf(broker.ErrUnavailable, first, "close receiver of %s: %d deliveries come back after their lock", r.name, n)
	}
	return nil
}

// detach closes a link. Messages that were asked for may arrive until the service
// has taken note of that: they come to a pull that runs meanwhile, for afterwards
// the SDK has no way to them, and are given back by their lock token. The lock of
// a session covers them, and ends with its link. A Receive that is stuck has its own
// pull.
func (r *receiver) detach(ctx context.Context, b *inbox, stuck bool) error {
	b.stop()
	if stuck || b.session != nil || b.credits <= 0 {
		return r.closed(b.in.Close(ctx))
	}
	in := &entry{Context: ctx, entered: make(chan struct{})}
	caught := make(chan []*azservicebus.ReceivedMessage, 1)
	go func() { // ends with the link, or with ctx
		ms, _ := b.in.ReceiveMessages(in, b.credits, &azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: 2 * closeGrace})
		caught <- ms
	}()
	var ms []*azservicebus.ReceivedMessage
	pulling := true
	select {
	case <-in.entered:
	case ms = <-caught:
		pulling = false
	}
	err := r.closed(b.in.Close(ctx))
	if pulling {
		ms = <-caught
	}
	var ops []driver.Op
	s := newSlab(ms, b)
	for i, m := range ms {
		op := r.abandon(m, &s.items[i])
		op.Again = true // by token
		ops = append(ops, op)
	}
	return errors.Join(err, r.abandonAll(ctx, ops))
}

// closed is the error of closing a link: that it was lost before is none.
func (r *receiver) closed(err error) error {
	if err == nil || !cancelled(err) {
		return nil
	}
	return broker.Errorf(broker.ErrUnavailable, err, "close receiver of %s", r.name)
}

// entry is a context that tells when it is first waited on.
type entry struct {
	context.Context
	once    sync.Once
	entered chan struct{}
}

// Done implements context.Context.
func (e *entry) Done() <-chan struct{} {
	e.once.Do(func() { close(e.entered) })
	return e.Context.Done()
}
