package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// storeClaims are those about a scenario with a store.
func storeClaims(scenarios ...string) []boundary.Claim {
	var ids []boundary.Claim
	for _, scenario := range scenarios {
		for _, kind := range StoreKinds() {
			if c, ok := Lookup(effectClaim(kind, scenario)); ok {
				ids = append(ids, c.ID)
			}
		}
	}
	return ids
}

// The scenarios, as their claims are called behind the store's kind.
const (
	crashBefore   = "crash-before"
	crashAfter    = "crash-after-effect"
	zombied       = "zombie"
	replayed      = "replay"
	commitUnknown = "commit-unknown"
	rewound       = "rewind"
)

// effectClaims are those about a scenario, with no store and with each.
func effectClaims(scenario string) []boundary.Claim {
	return append(claims(effectClaim("", scenario)), storeClaims(scenario)...)
}

// askingLease is the lease of probes that ask several stores within one: where the
// shortest is waited for in real time it may be too short for a busy machine.
func (b *Bench) askingLease() time.Duration {
	if b.Instance.Advance == nil && b.Target.WishLease {
		return max(b.Target.Lease, 3*time.Second)
	}
	return b.Target.Lease
}

// longer wishes for it.
func (b *Bench) longer(e *broker.Entity) {
	if e.Lease > 0 {
		e.Lease = b.askingLease()
	}
}

// unhurried is sender with such a lease.
func (b *Bench) unhurried(ctx context.Context) (broker.Publisher, error) {
	c, err := b.Ensure(ctx, b.longer)
	if err != nil {
		return nil, err
	}
	return b.Publisher(ctx, c)
}

// probeZombie. Anomaly: a consumer stops for longer than it may hold a message
// (a long pause of its runtime, a frozen machine), another takes over, and the
// first goes on as if nothing had been: the effect is there twice. Experiment:
// freeze a consumer between receive and effect until the message is somebody
// else's who applies it, thaw it, and count. With no store it asks nobody before its
// effect, as consumers do; that the broker let a second one have the message decides.
// With one it has asked that before it froze.
func probeZombie(ctx context.Context, b *Bench) error {
	pub, err := b.unhurried(ctx)
	if err != nil {
		return err
	}
	if !b.canCrash() {
		b.unverifiable("consumers can't be frozen here: the instance has no URL, or the program doesn't call RunIfWorker", effectClaims(zombied)...)
		return nil
	}
	if err := b.openStores(ctx, true, zombied); err != nil {
		return err
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
	if err := zombie.reach(ctx, Claimed); err != nil {
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
	zombie.freeze()
	d, err := b.overtake(ctx, next, b.askingLease(), m.ID)
	if errors.Is(err, errNotOvertaken) {
		return b.aloneWithIt(ctx, zombie, pub, next, m.ID)
	}
	if err == nil {
		err = b.handle(ctx, &d, "the next consumer")
	}
	if err == nil {
		err = b.MustAck(ctx, next, &d)
	}
	zombie.thaw()
	if err != nil {
		return err
	}
	if err := zombie.effect(ctx); err != nil {
		return err
	}
	if err := zombie.finish(ctx); err != nil {
		return err
	}
	o, err := zombie.ack(ctx)
	if err != nil {
		return err
	}
	return b.answerEffects(ctx, zombied, m.ID, fmt.Sprintf("by the next consumer while the zombie was frozen, and by what the zombie did then; its own ack afterwards: %s (%v)", o.State, o.Err))
}

// aloneWithIt goes on with a zombie whose message nobody else could have, in spite of
// its time being over: next gets what is published behind it.
func (b *Bench) aloneWithIt(ctx context.Context, zombie consumer, pub broker.Publisher, next broker.Receiver, id string) error {
	err := b.witness(ctx, pub, next)
	zombie.thaw()
	if err != nil {
		return fmt.Errorf("%w, nor the message behind it: %w", errNotOvertaken, err)
	}
	deliveries := 0
	for _, e := range b.history.Events() {
		if e.Kind == kindDelivery && e.ID == id {
			deliveries++
		}
	}
	if deliveries > 1 {
		return fmt.Errorf("%w in time: it came with the message behind it", errNotOvertaken)
	}
	if err := zombie.effect(ctx); err != nil {
		return err
	}
	b.unverifiable("nobody but the zombie got the message, so that the store had nothing to guard", storeClaims(zombied)...)
	b.Answer(boundary.EffectZombie, times(CheckEffects(b.history.Events())[id]), "applied by the zombie, and nobody else could have the message for as long as it was frozen")
	return nil
}

// probeEffectCrash. Anomaly: a consumer dies, and an effect is there twice or never:
// what a store wrote of it before, or not yet, says the wrong thing to the next
// consumer. Experiment: a consumer in a process of its own handles three messages. The
// first it acks; of the second the effect is there, and no record beside it; of the
// third the marker or record is there, in a transaction where the store has one, and no
// effect. Then it is killed, another one handles what comes again, and the effects are
// counted.
func probeEffectCrash(ctx context.Context, b *Bench) error {
	pub, err := b.unhurried(ctx)
	if err != nil {
		return err
	}
	all := append(slices.Concat(effectClaims(crashBefore), storeClaims(crashAfter)), boundary.EffectCrashAfterAck)
	if !b.canCrash() {
		b.unverifiable("consumers can't be killed here: the instance has no URL, or the program doesn't call RunIfWorker", all...)
		return nil
	}
	if err := b.openStores(ctx, true, crashBefore, crashAfter); err != nil {
		return err
	}
	first, err := b.consumer(ctx, "consumer 1", false)
	if err != nil {
		return err
	}
	acked, after, before := b.Message(), b.Message(), b.Message()
	for _, m := range []*broker.Message{&acked, &after, &before} {
		if m.Key != "" { // one at a time of a key may be out
			m.Key = m.ID
		}
	}
	outcome, err := b.crash(ctx, pub, first, acked, after, before)
	if err != nil {
		return err
	}
	first.kill()
	c, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	other, err := b.Receiver(ctx, c)
	if err != nil {
		return err
	}
	missing, err := b.handleAgain(ctx, other, after.ID, before.ID)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		b.Note("never came again: %v", missing)
	}
	// Shows that nothing was overlooked, the message that was acked above all.
	copies, err := b.Copies(ctx, pub, other)
	if err != nil {
		return err
	}
	for id, n := range copies {
		for range n {
			b.Effect(id, "consumer 2, to which it came again")
		}
	}
	n := CheckEffects(b.history.Events())[acked.ID]
	b.Answer(boundary.EffectCrashAfterAck, times(n), "%s: acked (%s) by the consumer that was killed then", applied(n), outcome.State)
	if err := b.answerEffects(ctx, crashBefore, before.ID, "the first consumer was killed before the effect, and another handled what came again"); err != nil {
		return err
	}
	return b.answerStores(ctx, crashAfter, after.ID, "the first consumer was killed after the effect, and another handled what came again")
}

// crash brings a consumer to where it is to be killed, and returns the outcome of its
// one ack.
func (b *Bench) crash(ctx context.Context, pub broker.Publisher, c consumer, acked, after, before broker.Message) (broker.Outcome, error) {
	if err := b.bring(ctx, pub, c, acked, true, Applied); err != nil {
		return broker.Outcome{}, err
	}
	if err := c.finish(ctx); err != nil {
		return broker.Outcome{}, err
	}
	o, err := c.ack(ctx)
	if err != nil {
		return o, err
	}
	if !o.State.OK() {
		return o, fmt.Errorf("ack %q: %s: %w", acked.ID, o.State, o.Err)
	}
	if err := b.bring(ctx, pub, c, after, true, Applied); err != nil {
		return o, err
	}
	return o, b.bring(ctx, pub, c, before, false, Begun)
}

// bring publishes m and brings the consumer that receives it to a step, with or without
// the effect that no store guards.
func (b *Bench) bring(ctx context.Context, pub broker.Publisher, c consumer, m broker.Message, effect bool, step Step) error {
	if _, err := b.MustPublish(ctx, pub, m); err != nil {
		return err
	}
	for id := ""; id != m.ID; { // one that it holds may come to it again
		var err error
		if id, err = c.receive(ctx); err != nil {
			return err
		}
	}
	if effect {
		if err := c.effect(ctx); err != nil {
			return err
		}
	}
	return c.reach(ctx, step)
}

// handleAgain handles what r gets until it has had each of the messages, and returns
// those that never came.
func (b *Bench) handleAgain(ctx context.Context, r broker.Receiver, ids ...string) (missing []string, err error) {
	bound := max(b.askingLease(), b.Target.Session)
	patience := 4*bound + 3*b.Target.patience()
	if b.Instance.Advance != nil {
		if err := b.Wait(ctx, bound+slack(bound)); err != nil {
			return nil, err
		}
		patience = b.Target.busy()
	}
	missing = slices.Clone(ids)
	for len(missing) > 0 {
		ds, err := b.Receive(ctx, r, 1, patience)
		if err != nil || len(ds) == 0 {
			return missing, err
		}
		if err := b.handle(ctx, &ds[0], "consumer 2"); err != nil {
			return missing, err
		}
		if err := b.MustAck(ctx, r, &ds[0]); err != nil {
			return missing, err
		}
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == ds[0].ID })
	}
	return nil, nil
}
