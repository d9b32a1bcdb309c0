package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
)

// HandlerOption changes how [Handler] and [HandleBatch] work.
type HandlerOption func(*handling)

type handling struct {
	key       func(*broker.Delivery) Key
	delay     time.Duration
	unordered bool
	terminal  func(*broker.Delivery, error) (string, bool)
}

// KeyFrom makes a delivery's key by f. The default is the message's ID without a
// time. Who takes [Key].At from the message does it here, from the business event in
// it: [broker.Message].Time will do only if the producer keeps it over a restart.
func KeyFrom(f func(d *broker.Delivery) Key) HandlerOption {
	return func(h *handling) { h.key = f }
}

// RetryDelay is after how long a message comes again that is in flight, or whose
// outcome is unknown. The default is a second.
func RetryDelay(d time.Duration) HandlerOption { return func(h *handling) { h.delay = d } }

// Unordered lets [HandleBatch] apply messages also when an earlier one of their
// ordering key was not.
func Unordered() HandlerOption { return func(h *handling) { h.unordered = true } }

// DeadLetterWhen has [HandleBatch] dead-letter a message whose effect failed, with
// the reason that f returns, if f says so: by the error, or by the delivery's
// attempt. The default gives every failed one back. A message whose outcome isn't
// [Failed] is never asked about. [Handler] leaves this to [broker.Poison] and
// [broker.ConsumeOptions].
func DeadLetterWhen(f func(d *broker.Delivery, err error) (reason string, yes bool)) HandlerOption {
	return func(h *handling) { h.terminal = f }
}

func newHandling(options []HandlerOption) handling {
	h := handling{delay: time.Second, key: func(d *broker.Delivery) Key { return Key{ID: d.ID} }}
	for _, o := range options {
		o(&h)
	}
	return h
}

// Handler makes a handler for [broker.Consume], with semantics AtLeastOnce, that
// applies effect once for each message by in:
//
//	Applied, Duplicate  acked
//	InFlight, Unknown   given back for RetryDelay, no attempt counted
//	Failed              a failed attempt, by effect's error: broker.Poison and
//	                    broker.Postpone in it mean what they say
//	OutsideWindow       dead-lettered, with the reason
//
// A resubmit from a dead-letter entity, a replay and a delayed clone keep the
// message's ID, whatever their [broker.Message].Copy, and so are applied only if the
// message never was. A message whose key isn't valid is dead-lettered.
func Handler[T any](in *Inbox[T], effect func(ctx context.Context, tx T, d *broker.Delivery) error, options ...HandlerOption) broker.Handler {
	h := newHandling(options)
	return func(ctx context.Context, d *broker.Delivery) error {
		k := h.key(d)
		if _, err := in.marker(k); err != nil {
			return broker.Poison(err)
		}
		outcome, err := in.Once(ctx, k, func(ctx context.Context, tx T) error { return effect(ctx, tx, d) })
		return h.answer(outcome, err)
	}
}

// answer is what a handler returns to [broker.Consume] for an outcome.
func (h *handling) answer(outcome Outcome, err error) error {
	switch {
	case outcome.OK():
		return nil
	case outcome == OutsideWindow, outcome == Failed && isKeyError(err):
		return broker.Poison(err)
	case outcome == Failed:
		return err
	}
	return broker.Postpone(err, h.delay)
}

// HandleBatch applies effect once for each of ds, in as few transactions as
// [OnceBatch], and settles all of them on r: what [Handler] says of each outcome,
// with nack for what is given back. The broker counts such a delivery where it
// counts any.
//
// It doesn't extend leases: a batch is to be as small as one lease has time for. What
// an effect's error says by broker.Poison and broker.Postpone is for [Handler] and
// Consume; here [DeadLetterWhen] decides.
//
// Unless [Unordered] is among the options, a message isn't applied when an earlier
// one of its Key wasn't.
//
// It returns the results and the settlements, in the order of ds; each
// settlement's outcome is filled in. The error joins those of the store and of
// settling, not those of effects: an effect's error is in its result. A settle
// without an answer is asked again, a few times; the message of one that stays
// unknown comes again and is a Duplicate then.
func HandleBatch[T any](ctx context.Context, in *Inbox[T], r broker.Receiver, ds []broker.Delivery, effect func(ctx context.Context, tx T, d *broker.Delivery) error, options ...HandlerOption) ([]Result, []broker.Settlement, error) {
	h := newHandling(options)
	b := Batch{Keys: make([]Key, len(ds))}
	if !h.unordered {
		b.Lanes = make([]string, len(ds))
	}
	for i := range ds {
		b.Keys[i] = h.key(&ds[i])
		if b.Lanes != nil {
			b.Lanes[i] = ds[i].Key
		}
	}
	results, _ := in.Apply(ctx, b, EachSaved(in, b.Lanes, func(ctx context.Context, tx T, i int) error { return effect(ctx, tx, &ds[i]) }))
	settlements := Settlements(ds, results, options...)
	errs := []error{settle(ctx, r, settlements)}
	for i := range results {
		if results[i].Outcome == Unknown {
			errs = append(errs, results[i].Err)
			break // the others of the batch have mostly the same
		}
	}
	return results, settlements, errors.Join(errs...)
}

// Settlements says how deliveries with those results are to be settled, for those
// who have the results from elsewhere, as from OncePipelined of package
// dedup/postgres.
func Settlements(ds []broker.Delivery, results []Result, options ...HandlerOption) []broker.Settlement {
	h := newHandling(options)
	out := make([]broker.Settlement, len(ds))
	for i, r := range results {
		s := &out[i]
		s.Delivery = &ds[i]
		switch {
		case r.Outcome.OK():
			s.Action = broker.Ack
		case r.Outcome == OutsideWindow, r.Outcome == Failed && isKeyError(r.Err):
			s.Action, s.Reason = broker.DeadLetter, r.Err.Error()
		default:
			s.Action, s.Delay = broker.Nack, h.delay
			if r.Outcome == Failed && h.terminal != nil {
				if reason, yes := h.terminal(&ds[i], r.Err); yes {
					*s = broker.Settlement{Delivery: &ds[i], Action: broker.DeadLetter, Reason: reason}
				}
			}
		}
	}
	return out
}

// settle settles, and asks again for what has no answer.
func settle(ctx context.Context, r broker.Receiver, s []broker.Settlement) error {
	if len(s) == 0 {
		return nil
	}
	// What is applied is acked also when ctx has ended meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	err := r.Settle(ctx, s)
	for range 2 {
		var open []int
		var again []broker.Settlement
		for i := range s {
			if s[i].Outcome.State == broker.Unknown && errors.Is(s[i].Outcome.Err, broker.ErrUnknownOutcome) {
				open, again = append(open, i), append(again, s[i])
			}
		}
		if len(open) == 0 {
			break
		}
		err = r.Settle(ctx, again)
		for j, i := range open {
			s[i] = again[j]
		}
	}
	for i := range s {
		if o := s[i].Outcome; !o.State.OK() && o.Err != nil {
			err = o.Err
			break
		}
	}
	if err != nil {
		return fmt.Errorf("dedup: settle: %w", err)
	}
	return nil
}
