package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// orderedEnds is ends with the wish for order, or without where that is refused.
func (b *Bench) orderedEnds(ctx context.Context, change func(*broker.Entity)) (e ends, refused bool, err error) {
	e, err = b.ends(ctx, func(w *broker.Entity) {
		w.Ordered = true
		if change != nil {
			change(w)
		}
	})
	if errors.Is(err, broker.ErrUnsupported) {
		b.Note("an ordered subscription is refused (%v); asked without", err)
		e, err = b.ends(ctx, change)
		return e, true, err
	}
	return e, false, err
}

// ofKey returns n new messages with a key of their own.
func (b *Bench) ofKey(key string, n int) []broker.Message {
	ms := b.Messages(n)
	for i := range ms {
		ms[i].Key = key
	}
	return ms
}

// probeOrderRedelivery. Anomaly: a message fails, those behind it are applied, and
// then it comes again. Experiment: three messages of a key; the first is given back,
// and what comes next is looked at. Then three of another key: the first is held
// until its lease ends or, where there is none, until its receiver is closed.
func probeOrderRedelivery(ctx context.Context, b *Bench) error {
	e, refused, err := b.orderedEnds(ctx, nil)
	if err != nil {
		return err
	}
	nacked, err := b.afterFirst(ctx, &e, "nacked", func(d *broker.Delivery) error { return b.giveBack(ctx, e.rcv, d) })
	if err != nil {
		return err
	}
	if refused {
		b.Answer(boundary.DeliverOrderRedelivery, boundary.None, "a subscription that promises no order; in this run the messages of a key came as %s", list(nacked))
		return nil
	}
	how := "the end of its lease"
	expired, err := b.afterFirst(ctx, &e, "expired", func(*broker.Delivery) error {
		if lease := b.Target.Lease; lease > 0 {
			return b.Wait(ctx, lease+slack(lease))
		}
		how = "the close of its receiver"
		end, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := e.rcv.Close(end); err != nil {
			return fmt.Errorf("close the first receiver: %w", err)
		}
		b.history.Add(report.Consumer, "close", "", "the receiver, with the message in hand")
		e.rcv, err = b.Receiver(ctx, e.conn)
		return err
	})
	if err != nil {
		return err
	}
	switch {
	case nacked[0] != 1 || expired[0] != 1:
		b.Answer(boundary.DeliverOrderRedelivery, boundary.None, "out of order at their first delivery: %s, %s", list(nacked), list(expired))
	case nacked[1] != 1:
		b.Answer(boundary.DeliverOrderRedelivery, boundary.Overtaken, "after the first was given back they came as %s; after %s as %s", list(nacked), how, list(expired))
	case expired[1] != 1:
		b.Answer(boundary.DeliverOrderRedelivery, boundary.UntilExpiry, "after the first was given back they came as %s; after %s as %s", list(nacked), how, list(expired))
	default:
		b.Answer(boundary.DeliverOrderRedelivery, boundary.OverNack, "after the first was given back they came as %s; after %s as %s", list(nacked), how, list(expired))
	}
	return nil
}

// afterFirst publishes three messages of a key, lets the first delivery go by letGo,
// acks what follows until each was acked once, and returns the numbers of the
// messages in the order in which they came.
func (b *Bench) afterFirst(ctx context.Context, e *ends, key string, letGo func(*broker.Delivery) error) ([]int, error) {
	ms := b.ofKey(key, 3)
	if _, err := b.MustPublish(ctx, e.pub, ms...); err != nil {
		return nil, err
	}
	var came []int
	acked := map[string]bool{}
	for len(acked) < len(ms) {
		d, err := b.next(ctx, e.rcv)
		if err != nil {
			return nil, err
		}
		n := slices.IndexFunc(ms, func(m broker.Message) bool { return m.ID == d.ID })
		if n < 0 {
			// A late copy of the key before this one.
			if err := b.MustAck(ctx, e.rcv, &d); err != nil {
				return nil, err
			}
			continue
		}
		came = append(came, n+1)
		if len(came) == 1 {
			if err := letGo(&d); err != nil {
				return nil, err
			}
			continue
		}
		if err := b.MustAck(ctx, e.rcv, &d); err != nil {
			return nil, err
		}
		acked[d.ID] = true
	}
	return came, nil
}

// list writes numbers with blanks between them.
func list(ns []int) string { return strings.Trim(fmt.Sprint(ns), "[]") }

// headOfLineLease is longer than the look at what waits, where it can be wished for.
const headOfLineLease = 60 * time.Second

// probeHeadOfLine. Anomaly: one slow message of a key stops all keys; or it stops
// nothing, and the order that was asked for is none. Experiment: two messages of each
// of two keys; one is held, and another receiver asks for all that it can have, then
// the holder itself, who acks what comes. In the end the held one is acked, and what
// waited must come.
func probeHeadOfLine(ctx context.Context, b *Bench) error {
	e, _, err := b.orderedEnds(ctx, func(w *broker.Entity) {
		if b.Target.WishLease {
			w.Lease = max(w.Lease, headOfLineLease)
		}
	})
	if err != nil {
		return err
	}
	ms := append(b.ofKey("a", 2), b.ofKey("b", 2)...)
	keys := map[string]string{}
	for _, m := range ms {
		keys[m.ID] = m.Key
	}
	var other broker.Receiver
	if !b.Target.Exclusive {
		c, err := b.Conn(ctx)
		if err != nil {
			return err
		}
		if other, err = b.Receiver(ctx, c); err != nil {
			return err
		}
	}
	if _, err := b.MustPublish(ctx, e.pub, ms...); err != nil {
		return err
	}
	held, err := b.MustReceive(ctx, e.rcv)
	if err != nil {
		return err
	}
	within, first := b.Target.patience(), b.Target.patience()
	switch lease := b.Target.Lease; {
	case lease > 0 && b.Instance.Advance == nil && !b.Target.WishLease:
		within, first = lease/8, lease/2 // all of it before the held one comes again
	case b.Target.Boundary.Entries[boundary.DeliverOrderHeadOfLine].Declared != boundary.AllWait:
		first = b.Target.busy() // what is due is waited for longest: the answer is what is seen
	}
	if other != nil {
		if err := b.takeSome(ctx, other, first); err != nil {
			return err
		}
		if err := b.takeWhatComes(ctx, other, within, keys); err != nil {
			return err
		}
	}
	elsewhere := b.came(keys, held.ID)
	if err := b.takeWhatComes(ctx, e.rcv, within, keys); err != nil {
		return err
	}
	anywhere := b.came(keys, held.ID)
	if o := b.Settle(ctx, e.rcv, &held, broker.Ack, 0); !o.State.OK() {
		return fmt.Errorf("ack %q, which was held all along: %s: %w", held.ID, o.State, o.Err)
	}
	if err := b.theRest(ctx, len(ms)-1, keys, held.ID, e.rcv, other); err != nil {
		return err
	}
	later, others := 0, 0
	for id := range anywhere {
		if keys[id] == keys[held.ID] {
			later++
		} else {
			others++
		}
	}
	saw := fmt.Sprintf("while one message of a key was held, %d of 1 behind it came and %d of 2 with another key, %d of all to another receiver", later, others, len(elsewhere))
	toHolder := later > 0 && !slices.ContainsFunc(slices.Collect(maps.Keys(elsewhere)), func(id string) bool { return keys[id] == keys[held.ID] })
	switch {
	case toHolder && others > 0:
		b.Answer(boundary.DeliverOrderHeadOfLine, boundary.SameReceiver, "%s: what is behind it comes to its holder alone", saw)
	case later > 0:
		b.Answer(boundary.DeliverOrderHeadOfLine, boundary.NoneWaits, "%s", saw)
	case others > 0:
		b.Answer(boundary.DeliverOrderHeadOfLine, boundary.KeyWaits, "%s", saw)
	default:
		b.Answer(boundary.DeliverOrderHeadOfLine, boundary.AllWait, "%s", saw)
	}
	return nil
}

// theRest takes what waited, from either receiver, until n of the messages have come
// beside the one that was held.
func (b *Bench) theRest(ctx context.Context, n int, keys map[string]string, held string, rs ...broker.Receiver) error {
	for end := time.Now().Add(b.Target.busy()); ; {
		have := len(b.came(keys, held))
		if have >= n {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s never came, though the one before them was acked", amount(n-have, "message", "messages"))
		}
		for _, r := range rs {
			if r == nil {
				continue
			}
			if err := b.takeWhatComes(ctx, r, b.Target.patience()/4, keys); err != nil {
				return err
			}
		}
	}
}

// came are those of the messages that were delivered so far, without the one that is
// held.
func (b *Bench) came(keys map[string]string, held string) map[string]bool {
	ids := map[string]bool{}
	for _, e := range b.history.Events() {
		if _, ours := keys[e.ID]; ours && e.Kind == kindDelivery && e.ID != held {
			ids[e.ID] = true
		}
	}
	return ids
}

// takeWhatComes receives and acks until nothing comes within the time, or all came but one
// that is held.
func (b *Bench) takeWhatComes(ctx context.Context, r broker.Receiver, within time.Duration, keys map[string]string) error {
	for len(b.came(keys, "")) < len(keys) {
		ds, err := b.Receive(ctx, r, 8, within)
		if err != nil || len(ds) == 0 {
			return err
		}
		if err := b.mustAckAll(ctx, r, ds); err != nil {
			return err
		}
	}
	return nil
}

// takeSome receives and acks once.
func (b *Bench) takeSome(ctx context.Context, r broker.Receiver, within time.Duration) error {
	ds, err := b.Receive(ctx, r, 8, within)
	if err != nil || len(ds) == 0 {
		return err
	}
	return b.mustAckAll(ctx, r, ds)
}
