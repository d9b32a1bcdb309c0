package dedup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	warn      func(string)
	unchecked bool
	serves    *served
	stats     *counters     // of what is handled; nil for Settlements
	window    time.Duration // how long the store keeps markers; zero: it doesn't say
	ids       *idWatch
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

// WarnHook gets the warnings of [Handler], [LeaseHandler], [CallHandler] and
// [HandleBatch]: of IDs that [IDCheck] suspects, the first and then one a minute, all
// being counted in [Stats].SuspectIDs; and at the start, of a window that is too short
// for what [Serves] names. It is called concurrently and must not block. The default
// logs by slog.
func WarnHook(f func(warning string)) HandlerOption { return func(h *handling) { h.warn = f } }

// WithoutIDCheck leaves IDs unchecked, where they are known and the check is known to
// err.
func WithoutIDCheck() HandlerOption { return func(h *handling) { h.unchecked = true } }

// DeadLetterWhen has [HandleBatch] dead-letter a message whose effect failed, with
// the reason that f returns, if f says so: by the error, or by the delivery's
// attempt. The default gives every failed one back, but what its effect called
// [broker.Poison]. A message whose outcome isn't [Failed] is never asked about.
// [Handler] leaves this to [broker.Poison] and [broker.ConsumeOptions].
func DeadLetterWhen(f func(d *broker.Delivery, err error) (reason string, yes bool)) HandlerOption {
	return func(h *handling) { h.terminal = f }
}

func newHandling(options []HandlerOption) *handling {
	h := &handling{delay: time.Second, key: func(d *broker.Delivery) Key { return Key{ID: d.ID} }, warn: logWarning}
	for _, o := range options {
		o(h)
	}
	return h
}

func logWarning(warning string) { slog.Warn(warning) }

// on ties h to what handles messages: its counts, and its store, which may say how
// long it keeps markers.
func (h *handling) on(stats *counters, watch *idWatch, window time.Duration) *handling {
	h.stats, h.window = stats, window
	if !h.unchecked {
		h.ids = watch
	}
	h.serves.check(window, h.warn)
	return h
}

// windowOf is how long a store keeps markers; zero if it doesn't say.
func windowOf(store any) time.Duration {
	if w, ok := store.(interface{ Window() time.Duration }); ok {
		return w.Window()
	}
	return 0
}

// came looks at a delivery before it is handled.
func (h *handling) came(d *broker.Delivery, k Key) {
	if h.ids == nil {
		return
	}
	m := d.Message
	m.ID = k.ID
	if says := h.ids.look(&m); says != "" {
		h.stats.suspectIDs.Add(1)
		if h.ids.due(time.Now()) {
			h.warn(says)
		}
	}
}

// went counts a delivery that was applied later than its marker would have been kept,
// had it been there before.
func (h *handling) went(d *broker.Delivery, outcome Outcome) {
	if outcome == Applied && h.window > 0 && !d.Time.IsZero() && time.Since(d.Time) > h.window {
		h.stats.late.Add(1)
	}
}

// decided counts.
func (h *handling) decided(d decision) {
	if h.stats != nil {
		h.stats.decide(d)
	}
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
	h := newHandling(options).on(&in.stats, &in.ids, windowOf(in.driver))
	return func(ctx context.Context, d *broker.Delivery) error {
		k := h.key(d)
		if _, err := in.marker(k); err != nil {
			h.decided(deadKey)
			return broker.Poison(err)
		}
		h.came(d, k)
		outcome, err := in.Once(ctx, k, func(ctx context.Context, tx T) error { return effect(ctx, tx, d) })
		h.went(d, outcome)
		return h.answer(outcome, err)
	}
}

// answer is what a handler returns to [broker.Consume] for an outcome.
func (h *handling) answer(outcome Outcome, err error) error {
	_, asked := broker.Postponed(err)
	switch {
	case outcome.OK():
		h.decided(acked)
		return nil
	case outcome == OutsideWindow:
		h.decided(deadOutside)
		return broker.Poison(err)
	case outcome == Failed && isKeyError(err):
		h.decided(deadKey)
		return broker.Poison(err)
	case outcome == Failed && errors.Is(err, ErrOtherRequest):
		h.decided(deadOther)
		return broker.Poison(err)
	case outcome == Failed && broker.IsPoison(err):
		h.decided(deadPoison)
		return err
	case outcome == Failed && asked:
		h.decided(postponed)
		return err
	case outcome == Failed:
		h.decided(retried)
		return err
	}
	h.decided(postponed)
	return broker.Postpone(err, h.delay)
}

// HandleBatch applies effect once for each of ds, in as few transactions as
// [OnceBatch], and settles all of them on r: what [Handler] says of each outcome,
// with nack for what is given back. The broker counts such a delivery where it
// counts any.
//
// It doesn't extend leases: a batch is to be as small as one lease has time for. A
// message whose effect returned broker.Poison is dead-lettered, one that returned
// broker.Postpone is given back with that delay, and of other failures
// [DeadLetterWhen] decides.
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
	if h.serves != nil && !in.ids.served.CompareAndSwap(false, true) {
		h.serves = nil // it was told
	}
	h.on(&in.stats, &in.ids, windowOf(in.driver))
	b := Batch{Keys: make([]Key, len(ds))}
	if !h.unordered {
		b.Lanes = make([]string, len(ds))
	}
	for i := range ds {
		b.Keys[i] = h.key(&ds[i])
		h.came(&ds[i], b.Keys[i])
		if b.Lanes != nil {
			b.Lanes[i] = ds[i].Key
		}
	}
	results, _ := in.Apply(ctx, b, EachSaved(in, b.Lanes, func(ctx context.Context, tx T, i int) error { return effect(ctx, tx, &ds[i]) }))
	settlements := h.settlements(ds, results)
	errs := []error{settle(ctx, r, settlements)}
	for i := range results {
		h.went(&ds[i], results[i].Outcome)
	}
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
	return newHandling(options).settlements(ds, results)
}

func (h *handling) settlements(ds []broker.Delivery, results []Result) []broker.Settlement {
	out := make([]broker.Settlement, len(ds))
	for i, r := range results {
		out[i] = h.settlement(&ds[i], r)
	}
	return out
}

// settlement is what [handling.answer] says of an outcome, without Consume.
func (h *handling) settlement(d *broker.Delivery, r Result) broker.Settlement {
	s := broker.Settlement{Delivery: d, Action: broker.Nack, Delay: h.delay}
	bury := func(why decision, reason string) broker.Settlement {
		h.decided(why)
		return broker.Settlement{Delivery: d, Action: broker.DeadLetter, Reason: reason}
	}
	switch {
	case r.Outcome.OK():
		h.decided(acked)
		return broker.Settlement{Delivery: d, Action: broker.Ack}
	case r.Outcome == OutsideWindow:
		return bury(deadOutside, r.Err.Error())
	case r.Outcome != Failed:
		h.decided(postponed)
		return s
	case isKeyError(r.Err):
		return bury(deadKey, r.Err.Error())
	case broker.IsPoison(r.Err):
		return bury(deadPoison, r.Err.Error())
	}
	if h.terminal != nil {
		if reason, yes := h.terminal(d, r.Err); yes {
			return bury(deadChosen, reason)
		}
	}
	if delay, asked := broker.Postponed(r.Err); asked {
		if delay > 0 {
			s.Delay = delay
		}
		h.decided(postponed)
		return s
	}
	h.decided(retried)
	return s
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
