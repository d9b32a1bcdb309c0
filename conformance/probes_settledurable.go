package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// probeSettleDurable. Anomaly: acks were confirmed, the broker's process dies, and
// their messages come again. Experiment: hold a hundred messages, ack one after the
// other as fast as the broker answers, and kill it meanwhile, so that there are acks
// which it confirmed a moment before; start it again, let a lease pass, and look.
func probeSettleDurable(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	d, err := b.handOver(ctx, e)
	if err != nil {
		return err
	}
	switch o := b.Settle(ctx, e.rcv, &d, broker.Ack, 0); {
	case o.State == broker.Sent:
		b.NotApplicable(boundary.SettleDurable, "the broker confirms no ack (%s)", o.State)
		return nil
	case o.State != broker.Confirmed:
		return fmt.Errorf("ack %q: %s: %w", d.ID, o.State, o.Err)
	}
	stock, err := b.stock(ctx, e, 100)
	if err != nil {
		return err
	}
	acked, err := b.killUnderAcks(ctx, stock)
	if err != nil {
		return err
	}
	acked[d.ID] = true
	e, err = b.reopen(ctx, e)
	if errors.Is(err, broker.ErrNotFound) {
		b.Answer(boundary.SettleDurable, boundary.Final, "the crash leaves nothing that could come again, not even the topic: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	bound := max(b.Target.Lease, b.Target.Session)
	if err := b.Wait(ctx, bound+slack(bound)); err != nil {
		return err
	}
	copies, err := b.Copies(ctx, e.pub, e.rcv)
	if err != nil {
		return err
	}
	again := 0
	for id := range copies {
		if acked[id] {
			again++
		}
	}
	if again > 0 {
		b.Answer(boundary.SettleDurable, boundary.Redelivered, "%d acks were confirmed while the broker was killed: %d of their messages came again", len(acked), again)
	} else {
		b.Answer(boundary.SettleDurable, boundary.Final, "%d acks were confirmed while the broker was killed: none of their messages came again", len(acked))
	}
	return nil
}

// stock publishes n messages and receives them. They aren't in the history, which
// they would fill.
func (b *Bench) stock(ctx context.Context, e ends, n int) ([]broker.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*b.Target.patience()+10*time.Second)
	defer cancel()
	if _, err := e.pub.Publish(ctx, b.Messages(n)...); err != nil {
		return nil, err
	}
	var ds []broker.Delivery
	for len(ds) < n {
		more, err := e.rcv.Receive(ctx, n-len(ds))
		if err != nil {
			return nil, fmt.Errorf("receive: %d of %d: %w", len(ds), n, err)
		}
		ds = append(ds, more...)
	}
	return ds, nil
}

// killUnderAcks kills the broker while one delivery after the other is acked, and
// returns whose acks were confirmed.
func (b *Bench) killUnderAcks(ctx context.Context, ds []broker.Delivery) (map[string]bool, error) {
	const enough = 5 // acks before the kill
	acks, stop := context.WithCancel(ctx)
	defer stop()
	acked := map[string]bool{}
	begun, ended := make(chan struct{}), make(chan struct{})
	var last error
	go func() {
		defer close(ended)
		for i := range ds {
			o, err := ds[i].Ack(acks)
			if o.State != broker.Confirmed {
				last = fmt.Errorf("%s: %w", o.State, err)
				return
			}
			if acked[ds[i].ID] = true; len(acked) == enough {
				close(begun)
			}
		}
	}()
	select {
	case <-begun:
	case <-ended:
		return nil, fmt.Errorf("ack before the kill: %w", last)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	err := b.Kill(ctx)
	stop()
	<-ended
	if last != nil {
		b.Note("The first ack that wasn't confirmed: %v", last)
	}
	return acked, err
}
