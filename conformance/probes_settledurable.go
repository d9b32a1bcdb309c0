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
// their messages come again. Experiment: publish, receive and ack one message after
// the other while the broker is killed, so that the last confirmed ack is no older
// than one of these rounds; start it again, let a lease pass, and look.
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
	acked, err := b.killUnderAcks(ctx, e)
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

// killUnderAcks kills the broker while rounds of publish, receive and ack go on, and
// returns whose acks were confirmed. The rounds aren't in the history, which they
// would fill.
func (b *Bench) killUnderAcks(ctx context.Context, e ends) (map[string]bool, error) {
	const enough = 5 // rounds before the kill
	rounds, stop := context.WithCancel(ctx)
	defer stop()
	acked := map[string]bool{}
	begun, ended := make(chan struct{}), make(chan struct{})
	var failed error
	go func() {
		defer close(ended)
		for rounds.Err() == nil {
			id, err := b.round(rounds, e)
			if err != nil {
				failed = err
				return
			}
			if acked[id] = true; len(acked) == enough {
				close(begun)
			}
			sleep(rounds, 2*time.Millisecond) // a kill that takes its time shall not meet thousands
		}
	}()
	select {
	case <-begun:
	case <-ended:
		return nil, fmt.Errorf("before the kill: %w", failed)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	err := b.Kill(ctx)
	stop()
	<-ended
	if failed != nil {
		b.Note("The rounds ended with: %v", failed)
	}
	return acked, err
}

// round publishes a message, receives one and acks it. It returns its ID if the ack
// was confirmed.
func (b *Bench) round(ctx context.Context, e ends) (string, error) {
	if _, err := e.pub.Publish(ctx, b.Message()); err != nil {
		return "", err
	}
	ds, err := e.rcv.Receive(ctx, 1)
	if err != nil {
		return "", err
	}
	o, err := ds[0].Ack(ctx)
	if err == nil && o.State != broker.Confirmed {
		err = fmt.Errorf("ack %q: %s", ds[0].ID, o.State)
	}
	return ds[0].ID, err
}
