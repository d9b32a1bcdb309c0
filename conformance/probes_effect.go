package conformance

import (
	"context"

	"github.com/onceline/onceline/broker/boundary"
)

// probeZombie. Anomaly: a consumer stops for longer than it may hold a message
// (a long pause of its runtime, a frozen machine), another takes over, and the
// first goes on as if nothing had been: the effect is there twice. Experiment:
// freeze a consumer between receive and effect until the message is somebody
// else's who applies it, thaw it, and count. It asks nobody before its effect, as
// consumers do; that the broker let a second one have the message decides.
func probeZombie(ctx context.Context, b *Bench) error {
	pub, err := b.sender(ctx)
	if err != nil {
		return err
	}
	if !b.canCrash() {
		b.unverifiable("consumers can't be frozen here: the instance has no URL, or the program doesn't call RunIfWorker", boundary.EffectZombie)
		return nil
	}
	zombie, err := b.consumer(ctx, "the zombie", false)
	if err != nil {
		return err
	}
	m := b.Message()
	if _, err := b.MustPublish(ctx, pub, m); err != nil {
		return err
	}
	if _, err := zombie.receive(ctx); err != nil {
		return err
	}
	c, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	next, err := b.Receiver(ctx, c)
	if err != nil {
		return err
	}
	d, err := b.takeOver(ctx, zombie, next, m.ID)
	if err != nil {
		return err
	}
	b.Effect(d.ID, "the next consumer")
	if err := b.MustAck(ctx, next, &d); err != nil {
		return err
	}
	if err := zombie.effect(ctx); err != nil {
		return err
	}
	o, err := zombie.ack(ctx)
	if err != nil {
		return err
	}
	n := CheckEffects(b.history.Events())[m.ID]
	b.Answer(boundary.EffectZombie, times(n), "applied %d times; the zombie's own ack afterwards: %s (%v)", n, o.State, o.Err)
	return nil
}
