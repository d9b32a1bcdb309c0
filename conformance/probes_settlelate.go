package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// probeBeforeRedelivery. Anomaly: a consumer whose lease has ended is told that its
// ack counted and the message comes again, or that it came too late and the message
// is gone. Experiment: hold a message past the lease (or, as a frozen process, past
// the session) while nobody else asks for any, ack it, and only then open another
// receiver.
func probeBeforeRedelivery(ctx context.Context, b *Bench) error {
	pub, err := b.sender(ctx, nil)
	if err != nil {
		return err
	}
	late, err := b.lateConsumer(ctx, false)
	if err != nil {
		return err
	}
	m := b.Message()
	if _, err := b.MustPublish(ctx, pub, m); err != nil {
		return err
	}
	if _, err := late.receive(ctx); err != nil {
		return err
	}
	bound := max(b.Target.Lease, b.Target.Session)
	late.freeze()
	err = b.Wait(ctx, bound+slack(bound))
	late.thaw()
	if err != nil {
		return err
	}
	o, err := late.ack(ctx)
	if err != nil {
		return err
	}
	late.kill() // a member that lives might be the one that gets it again
	c, err := b.Conn(ctx)
	if err != nil {
		return err
	}
	next, err := b.Receiver(ctx, c)
	if err != nil {
		return err
	}
	within := b.Target.patience()
	if b.Target.Exclusive {
		within += 2 * b.Target.Session // until the one that was killed is missed
	}
	ds, err := b.Receive(ctx, next, 1, within)
	if err != nil {
		return err
	}
	came := len(ds) > 0 && ds[0].ID == m.ID
	if len(ds) > 0 {
		if err := b.MustAck(ctx, next, &ds[0]); err != nil {
			return err
		}
	}
	if !came {
		if came, err = b.comesBack(ctx, pub, next, m.ID); err != nil {
			return err
		}
	}
	switch lost := o.State == broker.LeaseLost; {
	case came && (o.State == broker.Confirmed || o.State == broker.Pending):
		b.Answer(boundary.SettleStaleBeforeRedelivery, boundary.ClaimedDone, "the late ack is answered %s, and the message came again", o.State)
	case came:
		b.Answer(boundary.SettleStaleBeforeRedelivery, boundary.Refused, "the late ack is answered %s (%v), and the message went to the next consumer", o.State, o.Err)
	case lost:
		b.Answer(boundary.SettleStaleBeforeRedelivery, boundary.ClaimedLost, "the late ack is answered LeaseLost (%v), and the message never came again", o.Err)
	default:
		b.Answer(boundary.SettleStaleBeforeRedelivery, boundary.TakesEffect, "the late ack is answered %s, and the message never came again", o.State)
	}
	return nil
}

// pausable is a consumer for a probe that stops it: a process under SIGSTOP, or one
// that is modelled in this process where the broker's clock is moved by hand, whose
// fence a process of its own wouldn't see moving.
func (b *Bench) pausable(ctx context.Context, name string) (c consumer, ok bool, err error) {
	switch {
	case b.Instance.Advance != nil:
		c, err = b.modelled(ctx, name, false)
	case b.canCrash():
		c, err = b.consumer(ctx, name, false)
	default:
		return nil, false, nil
	}
	return c, true, err
}

// probeZombieSettle. Anomaly: a consumer that stood still goes on as if nothing had
// been: it extends a lease that is over and is told that it has it, gives back what
// another one holds so that a third gets it, or acks it away. Experiment: stop a
// process that holds a message until another one has it, let it go on, and have it
// extend, nack and ack; meanwhile look whether the message is handed out beside its
// holder, and last whether the holder can still give it back.
func probeZombieSettle(ctx context.Context, b *Bench) error {
	pub, err := b.sender(ctx, nil)
	if err != nil {
		return err
	}
	zombie, ok, err := b.pausable(ctx, "the zombie")
	if err != nil {
		return err
	}
	if !ok {
		b.unverifiable("consumers can't be frozen here: the instance has no URL, or the program doesn't call RunIfWorker",
			boundary.FenceZombie, boundary.SettleNackStale, boundary.SettleExtendStale)
		return nil
	}
	holder, held, err := b.superseded(ctx, pub, zombie)
	if err != nil {
		return err
	}
	// The holder needs its lease for what follows, and it shows whether there is one
	// to extend.
	live := b.Settle(ctx, holder, &held, broker.Extend, 0)
	if !live.Lease.IsZero() {
		held.Lease = live.Lease
	}
	var late []zombieSettle
	for _, a := range []broker.Action{broker.Extend, broker.Nack, broker.Ack} {
		o, err := zombie.settle(ctx, a)
		if err != nil {
			return err
		}
		z := zombieSettle{action: a, outcome: o}
		if a == broker.Nack {
			if z.effect, err = b.handedOutBeside(ctx, holder, &held); err != nil {
				return err
			}
		}
		late = append(late, z)
	}
	if o := b.Settle(ctx, holder, &held, broker.Nack, 0); !o.State.OK() {
		b.Note("the holder's nack: %s: %v", o.State, o.Err)
	}
	came, err := b.comesBack(ctx, pub, holder, held.ID)
	if err != nil {
		return err
	}
	late[2].effect = !came && !late[1].effect
	b.answerZombie(late, errors.Is(live.Err, broker.ErrUnsupported))
	return nil
}

// zombieSettle is one settle that comes too late.
type zombieSettle struct {
	action  broker.Action
	outcome broker.Outcome
	effect  bool
}

func (z zombieSettle) String() string {
	return fmt.Sprintf("%s is answered %s (%v)", z.action, z.outcome.State, z.outcome.Err)
}

func (b *Bench) answerZombie(late []zombieSettle, noExtend bool) {
	extend, nack := late[0], late[1]
	switch o := extend.outcome; {
	case noExtend:
		b.NotApplicable(boundary.SettleExtendStale, "a lease can't be extended here: %v", o.Err)
	case o.State == broker.LeaseLost:
		b.Answer(boundary.SettleExtendStale, boundary.Refused, "the late %s", extend)
	case o.State == broker.Unknown:
		b.Answer(boundary.SettleExtendStale, boundary.StaysUnknown, "the late %s", extend)
	default:
		b.Answer(boundary.SettleExtendStale, boundary.ClaimedDone, "the late %s while another one holds the message", extend)
	}
	switch {
	case nack.effect:
		b.Answer(boundary.SettleNackStale, boundary.TakesEffect, "the late %s, and the message was handed out beside its holder", nack)
	case nack.outcome.State == broker.Confirmed:
		b.Answer(boundary.SettleNackStale, boundary.ClaimedDone, "the late %s and has no effect", nack)
	default:
		b.Answer(boundary.SettleNackStale, boundary.Refused, "the late %s, and the message stays with its holder", nack)
	}
	b.answerFence(late, noExtend)
}

// answerFence takes all three together. Sent is what is said where nothing answers:
// no more can be told there.
func (b *Bench) answerFence(late []zombieSettle, noExtend bool) {
	var done, untold string
	for i, z := range late {
		switch {
		case i == 0 && noExtend:
		case z.effect:
			b.Answer(boundary.FenceZombie, boundary.TakesEffect, "the zombie's %s, and takes effect", z)
			return
		case errors.Is(z.outcome.Err, broker.ErrConflict): // not told done, but that it was settled before
		case z.outcome.State == broker.Confirmed || z.outcome.State == broker.Pending:
			done = z.String()
		case z.outcome.State == broker.Unknown:
			untold = z.String()
		}
	}
	switch {
	case done != "":
		b.Answer(boundary.FenceZombie, boundary.ClaimedDone, "the zombie's %s and has no effect", done)
	case untold != "":
		b.Answer(boundary.FenceZombie, boundary.StaysUnknown, "the zombie's %s and has no effect", untold)
	default:
		b.Answer(boundary.FenceZombie, boundary.Refused, "the zombie's %s, its %s; the message was its new holder's all along", late[1], late[2])
	}
}

// handedOutBeside reports whether held's message is handed out while held is in
// its lease.
func (b *Bench) handedOutBeside(ctx context.Context, r broker.Receiver, held *broker.Delivery) (bool, error) {
	ds, err := b.Receive(ctx, r, 1, min(b.Target.patience()/4, 500*time.Millisecond))
	if err != nil || len(ds) == 0 {
		return false, err
	}
	if ds[0].ID != held.ID {
		return false, fmt.Errorf("%q came, which nobody published here", ds[0].ID)
	}
	if !held.Lease.IsZero() && !b.Now().Before(held.Lease) {
		return false, errors.New("the holder's own lease ended while the probe looked: this machine is too slow for it")
	}
	// From here on that delivery is the one that counts.
	*held = ds[0]
	return true, nil
}
