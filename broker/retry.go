package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// RetryPolicy says how [Retry] tries again. The zero value is a good start.
type RetryPolicy struct {
	// Attempts is how often a message is tried in one Publish, the first time
	// included. Zero means 10; a negative number sets no limit.
	Attempts int
	// Elapsed bounds one Publish from its start, attempts and pauses together.
	// Zero leaves it to the context, Attempts and the window.
	Elapsed time.Duration
	// PerTry bounds one attempt. Zero means 10 s.
	PerTry time.Duration
	// Backoff is the pause between attempts.
	Backoff Backoff

	// Window is how long the broker remembers a dedup ID. Zero takes that of
	// the publisher's Limits.
	Window time.Duration
	// Margin is kept free at the window's end, for clocks that run differently
	// and for what is on its way when an attempt is cut. Zero means a tenth of
	// the window, 10 s at most. No more than half the window is taken.
	Margin time.Duration
	// EventTime says that Message.Time is the time of the business event rather
	// than that of the first attempt, so that an old one says nothing of the
	// window. The guard then counts from the first attempt of this Publish.
	EventTime bool
	// AllowCopies retries Unknown also where there is no window, on a broker
	// that doesn't dedup or whose window isn't known: nothing is lost, and the
	// copies are for a dedup store on the consumer's side to remove.
	AllowCopies bool

	// ErrorHook gets the first error of each attempt that will be repeated. It
	// may be called concurrently. Nil logs a warning by slog.
	ErrorHook func(error)
	// Now is the clock of the window. Nil takes the publisher's own where it
	// has a method Now, else time.Now.
	Now func() time.Time
	// Rand returns numbers in [0, 1) for the jitter. Nil takes math/rand/v2.
	Rand func() float64
}

// Retry returns a publisher that sends through p and tries again, with the same
// messages, what has no answer (Unknown) and what was surely not stored because
// the broker couldn't take it (ErrUnavailable, ErrBusy). Of a batch only the
// failed messages are sent again. Other refusals are final.
//
// # Window
//
// To retry is safe as long as the broker remembers the message's ID. So every
// attempt ends, by its context, before the first attempt + window - margin. Past
// that a message gets ErrWindowExceeded joined with its last error, and its
// verdict stays: Unknown if any attempt of it had no answer, for a later refusal
// says nothing of the earlier attempt. Whether to send again, under the same ID
// and perhaps as a second copy, is then the caller's choice.
//
// The first attempt is [Message.Time]: Publish sets it where it is zero, also in
// the caller's slice, so that a second Publish of the same slice counts on from
// the first. A caller that keeps Time over a restart is guarded over the restart:
// a message that comes with a Time older than window - margin isn't sent at all.
// It is Unknown, not Refused, with ErrWindowExceeded, because an attempt before
// this call may have stored it. A caller whose Time is that of the business
// event, or an outbox that was down for longer than the window, sets EventTime
// and relies on its consumers' dedup store instead.
//
// Where there is no window a retry of Unknown would store a copy as often as
// not. It isn't tried again then, unless AllowCopies is set; what was surely not
// stored is.
//
// # Order
//
// Messages of a batch that fail are tried again in their order. But the later
// ones of a key may have been stored when an earlier one failed, and the retry
// comes after them. Where the order of a key matters, publish one message of it
// at a time, as [Batcher] with max 1 does for each key.
//
// # End
//
// Publish blocks until every message has its answer, is final, or ctx ends; the
// errors then join the context's cause with the last attempt's. Close ends the
// pauses, then closes p.
//
// PublishAtMostOnce and Retry contradict each other: who wants one doesn't want
// the other.
func Retry(p Publisher, policy RetryPolicy) Publisher {
	if policy.Attempts == 0 {
		policy.Attempts = 10
	}
	if policy.PerTry <= 0 {
		policy.PerTry = 10 * time.Second
	}
	policy.Backoff = policy.Backoff.withDefaults()
	if policy.Window <= 0 {
		policy.Window = p.Limits().Window
	}
	if policy.Margin <= 0 {
		policy.Margin = min(policy.Window/10, 10*time.Second)
	}
	policy.Margin = min(policy.Margin, policy.Window/2)
	if policy.ErrorHook == nil {
		policy.ErrorHook = func(err error) { slog.Warn("publish is tried again", "error", err) }
	}
	if policy.Now == nil {
		policy.Now = clockOf(p)
	}
	policy.Rand = randomOr(policy.Rand)
	return &retrier{p: p, policy: policy, stop: make(chan struct{})}
}

type retrier struct {
	p      Publisher
	policy RetryPolicy
	once   sync.Once
	stop   chan struct{} // closed by Close
	err    error         // of Close
}

func (r *retrier) Limits() Limits { return r.p.Limits() }

func (r *retrier) As(target any) bool { return r.p.As(target) }

// Now is the clock of the window, for a Batcher over it.
func (r *retrier) Now() time.Time { return r.policy.Now() }

func (r *retrier) Close(ctx context.Context) error {
	r.once.Do(func() {
		close(r.stop)
		r.err = r.p.Close(ctx)
	})
	return r.err
}

func (r *retrier) Publish(ctx context.Context, msgs ...Message) ([]Receipt, error) {
	return r.publish(ctx, r.p.Publish, msgs)
}

// PublishGiven is that of GivenPublisher.
func (r *retrier) PublishGiven(ctx context.Context, msgs ...Message) ([]Receipt, error) {
	return r.publish(ctx, givenTo(r.p), msgs)
}

func (r *retrier) publish(ctx context.Context, send func(context.Context, ...Message) ([]Receipt, error), msgs []Message) ([]Receipt, error) {
	if len(msgs) == 0 {
		return nil, nil
	}
	t := try{retrier: r, send: send, start: r.policy.Now(), msgs: msgs, receipts: make([]Receipt, len(msgs))}
	t.begin()
	for len(t.left) > 0 {
		t.attempt(ctx)
		if len(t.left) == 0 || !t.wait(ctx) {
			break
		}
	}
	return t.receipts, firstError(t.receipts)
}

// try is one Publish under way.
type try struct {
	*retrier
	send     func(context.Context, ...Message) ([]Receipt, error)
	start    time.Time
	msgs     []Message // of the caller
	receipts []Receipt // the last of each
	left     []int     // messages that are to be sent, in order
	maybe    []bool    // an attempt had no answer; nil: none
	attempts int
	again    []Message // buffer of attempts after the first
}

// begin stamps the messages and sorts out those which come too late.
func (t *try) begin() {
	t.left = make([]int, 0, len(t.msgs))
	for i := range t.msgs {
		m := &t.msgs[i]
		if m.Time.IsZero() {
			m.Time = t.start
		}
		if t.policy.Window > 0 && !t.start.Before(t.bound(i)) {
			t.receipts[i].Err = Errorf(ErrWindowExceeded, nil,
				"publish %q: not sent: its first attempt was %s ago, the window is %s less %s", m.ID, t.start.Sub(m.Time), t.policy.Window, t.policy.Margin)
			continue
		}
		t.left = append(t.left, i)
	}
}

// bound is when the last attempt of message i has to be over.
func (t *try) bound(i int) time.Time {
	first := t.start
	if at := t.msgs[i].Time; !t.policy.EventTime && at.Before(first) {
		first = at
	}
	return first.Add(t.policy.Window - t.policy.Margin)
}

// room is how long from now the earliest bound of the messages left is; ok is
// false if there is none.
func (t *try) room(now time.Time) (room time.Duration, ok bool) {
	if t.policy.Window > 0 {
		for _, i := range t.left {
			if d := t.bound(i).Sub(now); !ok || d < room {
				room, ok = d, true
			}
		}
	}
	if t.policy.Elapsed > 0 {
		if d := t.start.Add(t.policy.Elapsed).Sub(now); !ok || d < room {
			room, ok = d, true
		}
	}
	return room, ok
}

// attempt sends the messages left and keeps those that may be sent again.
func (t *try) attempt(ctx context.Context) {
	t.attempts++
	timeout := t.policy.PerTry
	if room, ok := t.room(t.policy.Now()); ok {
		timeout = min(timeout, room)
	}
	batch := t.msgs
	if len(t.left) < len(t.msgs) {
		batch = t.again[:0]
		for _, i := range t.left {
			batch = append(batch, t.msgs[i])
		}
		t.again = batch
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	answers, err := t.send(ctx, batch...)
	cancel()
	still := t.left[:0]
	for j, i := range t.left {
		a := Receipt{Err: err}
		if j < len(answers) {
			a = answers[j]
		}
		if a.Verdict == Unknown && a.Err == nil {
			a.Err = Errorf(ErrUnknownOutcome, nil, "publish %q", t.msgs[i].ID)
		}
		repeat := t.repeatable(a)
		switch {
		case a.Verdict == Unknown:
			if t.maybe == nil {
				t.maybe = make([]bool, len(t.msgs))
			}
			t.maybe[i] = true
		case a.Verdict == Refused && t.maybe != nil && t.maybe[i]:
			a.Verdict = Unknown // of the attempt before nothing is known
			a.Err = Errorf(ErrUnknownOutcome, a.Err, "publish %q: an attempt before had no answer", t.msgs[i].ID)
		}
		t.receipts[i] = a
		if repeat {
			still = append(still, i)
		}
	}
	t.left = still
}

// repeatable reports whether what a says may be tried again.
func (t *try) repeatable(a Receipt) bool {
	switch a.Verdict {
	case Unknown:
		return (t.policy.Window > 0 || t.policy.AllowCopies) && !errors.Is(a.Err, ErrWindowExceeded) && !errors.Is(a.Err, ErrClosed)
	case Refused:
		return errors.Is(a.Err, ErrUnavailable) || errors.Is(a.Err, ErrBusy)
	}
	return false
}

// wait pauses before the next attempt. It reports whether there will be one;
// if not, the receipts say why.
func (t *try) wait(ctx context.Context) bool {
	if ctx.Err() != nil {
		t.giveUp(context.Cause(ctx))
		return false
	}
	if t.policy.Attempts > 0 && t.attempts >= t.policy.Attempts {
		t.giveUp(nil)
		return false
	}
	now := t.policy.Now()
	if t.policy.Window > 0 {
		t.dropLate(now)
		if len(t.left) == 0 {
			return false
		}
	}
	pause := t.policy.Backoff.pause(t.attempts, t.policy.Rand)
	if room, ok := t.room(now); ok {
		if room < t.policy.Backoff.Min {
			t.giveUp(nil) // by Elapsed
			return false
		}
		pause = min(pause, room/2) // the rest of the time is worth an attempt
	}
	first := t.left[0]
	t.policy.ErrorHook(fmt.Errorf("attempt %d, %d of %s to be sent again: %w", t.attempts, len(t.left), amount(len(t.msgs), "message"), t.receipts[first].Err))
	if sleep(ctx, pause, t.stop) {
		return true
	}
	if ctx.Err() != nil {
		t.giveUp(context.Cause(ctx))
	} else {
		t.giveUp(ErrClosed)
	}
	return false
}

// dropLate gives up those which have no time for another attempt.
func (t *try) dropLate(now time.Time) {
	still := t.left[:0]
	for _, i := range t.left {
		if t.bound(i).Sub(now) >= t.policy.Backoff.Min {
			still = append(still, i)
			continue
		}
		t.receipts[i].Err = Errorf(ErrWindowExceeded, t.receipts[i].Err, "publish %q: after %s", t.msgs[i].ID, amount(t.attempts, "attempt"))
	}
	t.left = still
}

// giveUp writes why the messages left aren't tried again.
func (t *try) giveUp(cause error) {
	for _, i := range t.left {
		r := &t.receipts[i]
		if cause != nil && !errors.Is(r.Err, cause) {
			r.Err = fmt.Errorf("after %s: %w: %w", amount(t.attempts, "attempt"), cause, r.Err)
		} else {
			r.Err = fmt.Errorf("after %s: %w", amount(t.attempts, "attempt"), r.Err)
		}
	}
}
