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

// windowAges are the ages, in parts of the configured window, at which IDs are
// retried. The nearest two around the window are the resolution in real time.
var windowAges = []float64{0.25, 0.5, 0.75, 0.9, 0.95, 1.05, 1.1, 1.25, 1.5}

// retry is a publish of an ID that is of an age between two.
type retry struct {
	id            string
	verdict       broker.Verdict
	before, after time.Duration
}

// windowOf tells from the copies that came up to which age IDs were known, and
// from which on one was stored again; -1 if none was. A receipt that says
// otherwise than the copies is an error, and so is an ID that was forgotten when
// an older one was still known.
func windowOf(retries []retry, copies map[string]int) (knownTo, newFrom time.Duration, err error) {
	newFrom = -1
	for _, r := range retries {
		n := copies[r.id]
		if said := r.verdict; n < 1 || n > 2 || said == broker.Duplicate && n != 1 || said == broker.Stored && n != 2 {
			return 0, 0, fmt.Errorf("the receipt of the retry of %q says %s, and %s came", r.id, said, amount(n, "copy", "copies"))
		}
		switch {
		case n == 1:
			knownTo = max(knownTo, r.before)
		case newFrom < 0 || r.after < newFrom:
			newFrom = r.after
		}
	}
	if newFrom >= 0 && knownTo > newFrom {
		return 0, 0, fmt.Errorf("an ID was known at an age of %s, and one was stored again at %s", knownTo, newFrom)
	}
	return knownTo, newFrom, nil
}

// probeWindow. Anomaly: the broker forgets an ID sooner than it was told to, and
// a retry in good faith makes a second message. Experiment: publish an ID for
// each age at once, then retry each at its age, side by side; the broker should
// know those below the window and none above it. Where the clock can be moved,
// again with ages between the oldest that was known and the youngest that wasn't,
// until a hundredth of the window is between them.
func probeWindow(ctx context.Context, b *Bench) error {
	e, window, err := b.windowed(ctx)
	if err != nil {
		return err
	}
	if window == 0 {
		return b.unwindowed(ctx, e, boundary.PublishDedupWindow)
	}
	ages := make([]time.Duration, len(windowAges))
	for i, part := range windowAges {
		ages[i] = time.Duration(part * float64(window))
	}
	knownTo, newFrom, err := b.span(ctx, e, ages)
	if err != nil {
		return err
	}
	slack := window / 20
	if b.Instance.Advance != nil {
		slack = window / 100
		for i := 0; i < 3 && newFrom-knownTo > slack; i++ {
			if knownTo, newFrom, err = b.narrow(ctx, e, knownTo, newFrom); err != nil {
				return err
			}
		}
	}
	if newFrom >= 0 {
		b.Note("window configured %s; resolution %s", window, (newFrom - knownTo).Round(time.Millisecond))
	}
	switch {
	case knownTo == 0:
		b.Answer(boundary.PublishDedupWindow, boundary.None, "no ID was known at any age")
	case newFrom < 0:
		b.Answer(boundary.PublishDedupWindow, boundary.Longer, "known still at %s, with a window of %s", knownTo, window)
	case newFrom < window-slack:
		b.Answer(boundary.PublishDedupWindow, boundary.Shorter, "stored again at %s already, with a window of %s", newFrom, window)
	case knownTo > window+slack:
		b.Answer(boundary.PublishDedupWindow, boundary.Longer, "known still at %s, with a window of %s", knownTo, window)
	default:
		b.Answer(boundary.PublishDedupWindow, boundary.AsConfigured, "known up to %s, forgotten from %s, with a window of %s",
			knownTo.Round(time.Millisecond), newFrom.Round(time.Millisecond), window)
	}
	return nil
}

// windowed is ends with the target's window; the window is 0 where it can't be
// wished for.
func (b *Bench) windowed(ctx context.Context) (ends, time.Duration, error) {
	window := b.Target.Window
	e, err := b.ends(ctx, func(w *broker.Entity) { w.Window = window })
	if errors.Is(err, broker.ErrUnsupported) {
		window = 0
		e, err = b.ends(ctx, nil)
	}
	return e, window, err
}

// unwindowed answers a claim about the window where that can't be set: there is
// none if an ID isn't even known at once.
func (b *Bench) unwindowed(ctx context.Context, e ends, id boundary.Claim) error {
	m := b.Message()
	if _, err := b.MustPublish(ctx, e.pub, m); err != nil {
		return err
	}
	again := b.Publish(ctx, e.pub, m)[0]
	n, err := b.stored(ctx, e, m)
	if err != nil {
		return err
	}
	if n > 1 {
		b.Answer(id, boundary.None, "an ID retried at once is stored %s", often(n))
	} else {
		b.NotVerifiable(id, "the ID is known (%s), and the window can't be set to one short enough to wait for", again.Verdict)
	}
	return nil
}

// span publishes an ID for each age, retries each when it is that old, and returns
// what windowOf makes of it. The ages rise.
func (b *Bench) span(ctx context.Context, e ends, ages []time.Duration) (knownTo, newFrom time.Duration, err error) {
	ms := b.Messages(len(ages))
	start := b.Now()
	if _, err := b.MustPublish(ctx, e.pub, ms...); err != nil {
		return 0, 0, err
	}
	// An ID's age is at most what has passed since start, at least since stored.
	stored := b.Now()
	retries := make([]retry, len(ages))
	for i, age := range ages {
		if err := b.Wait(ctx, start.Add(age).Sub(b.Now())); err != nil {
			return 0, 0, err
		}
		before := b.Now().Sub(stored)
		r := b.Publish(ctx, e.pub, ms[i])[0]
		if !r.Verdict.OK() {
			return 0, 0, fmt.Errorf("retry of %q: %s: %w", ms[i].ID, r.Verdict, r.Err)
		}
		retries[i] = retry{ms[i].ID, r.Verdict, before, b.Now().Sub(start)}
		b.Note("retried at an age of %s: %s", before.Round(time.Millisecond), r.Verdict)
	}
	// A receiver that stays might have asked for messages already, whose leases would
	// run out as the clock leaps.
	r, err := b.Receiver(ctx, e.conn)
	if err != nil {
		return 0, 0, err
	}
	copies, err := b.Copies(ctx, e.pub, r, ms...)
	if err = errors.Join(err, r.Close(ctx)); err != nil {
		return 0, 0, err
	}
	return windowOf(retries, copies)
}

// narrow looks between two ages.
func (b *Bench) narrow(ctx context.Context, e ends, from, to time.Duration) (knownTo, newFrom time.Duration, err error) {
	const parts = 20
	ages := make([]time.Duration, parts-1)
	for i := range ages {
		ages[i] = from + (to-from)*time.Duration(i+1)/parts
	}
	knownTo, newFrom, err = b.span(ctx, e, ages)
	if newFrom < 0 {
		newFrom = to
	}
	return max(knownTo, from), min(newFrom, to), err
}

// probeWindowAnchor. Anomaly: a producer retries for longer than the window, each
// time within the window of its last attempt, and makes a second message; or the
// other way round, an ID never gets free. Experiment: an ID is retried at three
// quarters of the window and again after its end. Others that are retried once
// show that at the former time IDs are known, and at the latter forgotten.
func probeWindowAnchor(ctx context.Context, b *Bench) error {
	const id = boundary.PublishDedupWindowAnchor
	e, window, err := b.windowed(ctx)
	if err != nil {
		return err
	}
	if window == 0 {
		return b.unwindowed(ctx, e, id)
	}
	for range 3 {
		soon, early, late, both := b.Message(), b.Message(), b.Message(), b.Message()
		start := b.Now()
		if _, err := b.MustPublish(ctx, e.pub, soon, early, late, both); err != nil {
			return err
		}
		if _, err := b.MustPublish(ctx, e.pub, soon); err != nil {
			return err
		}
		if err := b.Wait(ctx, start.Add(window*3/4).Sub(b.Now())); err != nil {
			return err
		}
		again := b.Now()
		if _, err := b.MustPublish(ctx, e.pub, early, both); err != nil {
			return err
		}
		young := b.Now().Sub(start)
		if err := b.Wait(ctx, start.Add(window*5/4).Sub(b.Now())); err != nil {
			return err
		}
		if _, err := b.MustPublish(ctx, e.pub, late, both); err != nil {
			return err
		}
		fresh := b.Now().Sub(again)
		copies, err := b.Copies(ctx, e.pub, e.rcv, soon, early, late, both)
		if err != nil {
			return err
		}
		if slow := window * 9 / 10; young > slow || fresh > slow {
			b.Note("this machine was too slow: the retries were sent at an age of up to %s, and up to %s apart", young, fresh)
			continue
		}
		b.anchor(window, copies[soon.ID], copies[early.ID], copies[late.ID], copies[both.ID])
		return nil
	}
	return errors.New("this machine was too slow three times")
}

// anchor answers by the copies of an ID that was retried at once, within the
// window, after it, and at both times.
func (b *Bench) anchor(window time.Duration, soon, early, late, both int) {
	const id = boundary.PublishDedupWindowAnchor
	seen := fmt.Sprintf("retried at once, at %s, at %s, and at both of these times: %d, %d, %d and %s", window*3/4, window*5/4, soon, early, late, amount(both, "copy", "copies"))
	switch {
	case slices.Contains([]int{soon, early, late, both}, 0):
		b.NotVerifiable(id, "a first message is lost: %s", seen)
	case soon > 1:
		b.Answer(id, boundary.None, "no ID is known: %s", seen)
	case early > 1:
		b.NotVerifiable(id, "the ID was forgotten within the window of %s: %s", window, seen)
	case late == 1:
		b.NotVerifiable(id, "the ID was known after the window of %s: %s", window, seen)
	case both == 1:
		b.Answer(id, boundary.LastSighting, "a retry within the window of %s prolongs it: %s", window, seen)
	default:
		b.Answer(id, boundary.FirstSighting, "a retry within the window of %s doesn't prolong it: %s", window, seen)
	}
}
