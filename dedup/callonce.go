package dedup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/onceline/onceline/broker"
)

// Once makes a call once for id, and returns the provider's answer, now or, of a
// [Duplicate], then. Request is what is asked, nil if that is no matter: an id that
// comes with another request is refused with [ErrOtherRequest]. Key is what do is to
// send as the idempotency key: 32 characters, the same for each attempt of id.
//
// A nil error of do is a call that took place; [NotDone] one that surely didn't,
// which is [Failed]; any other leaves it open, and so does a panic. Such a call is
// [Unknown]: the next copy makes it again if the provider knows it by its key;
// otherwise it is ErrUnresolved for all copies until somebody decides. The context of
// do ends after [CallOptions].Bound. Once blocks for do and the store; it doesn't
// wait for another copy, which is [InFlight].
func (c *Calls) Once(ctx context.Context, id string, request []byte, do func(ctx context.Context, key string) ([]byte, error)) (Outcome, []byte, error) {
	defer c.stats.begin(1, c.o.Took).end()
	outcome, result, err := c.once(ctx, id, request, do)
	return c.stats.count(outcome), result, err
}

func (c *Calls) once(ctx context.Context, id string, request []byte, do func(ctx context.Context, key string) ([]byte, error)) (Outcome, []byte, error) {
	mine := Call{Consumer: c.consumer, ID: id, State: CallStarted, Attempts: 1}
	m, err := mine.Marker()
	if err != nil {
		return Failed, nil, err
	}
	if request != nil {
		sum := sha256.Sum256(request)
		mine.Request = sum[:]
	}
	token := rand.Uint64()
	for i := range mine.Token {
		mine.Token[i] = byte(token >> (8 * i))
	}
	mine, outcome, result, err := c.begin(ctx, mine)
	if outcome != Applied {
		return outcome, result, err
	}
	bounded, cancel := context.WithTimeout(ctx, c.o.Bound)
	defer cancel()
	err = contain(func() (err error) { result, err = do(bounded, hex.EncodeToString(m.Bytes[:])); return err })
	return c.end(ctx, mine, result, err)
}

// slack is how long a call is left to who began it beyond its bound: for clocks that
// differ, and for writing its end.
func (c *Calls) slack() time.Duration { return min(c.o.Bound, 15*time.Second) }

// begin makes the record say that this attempt has begun, and returns it as it is
// stored, with Applied; or why not.
func (c *Calls) begin(ctx context.Context, mine Call) (Call, Outcome, []byte, error) {
	for range 10 { // as often as another is faster
		now := time.Now()
		mine.First, mine.Changed, mine.Due = now, now, now.Add(c.o.Bound+c.slack())
		stored, err := ask(ctx, c, func() (Call, error) { return c.driver.AddCall(ctx, mine) })
		switch {
		case err != nil:
			return mine, Unknown, nil, err
		case stored.Token == mine.Token && stored.State == CallStarted:
			return stored, Applied, nil, nil
		case mine.Request != nil && stored.Request != nil && !bytes.Equal(mine.Request, stored.Request):
			return mine, Failed, nil, ErrOtherRequest
		case stored.State == CallDone:
			return mine, Duplicate, stored.Result, nil
		case stored.State == CallUnresolved:
			return mine, Unknown, nil, ErrUnresolved
		case stored.State == CallStarted && now.Before(stored.Due):
			return mine, InFlight, nil, ErrInFlight
		}
		next := stored
		crashed := stored.State == CallStarted && stored.Note == "" // its attempt left no record of its end
		if next.Changed = now; mine.Request != nil {
			next.Request = mine.Request
		}
		if stored.State == CallFree {
			next.First = now
		} else if now.Sub(stored.First) >= c.o.Idempotent {
			next.State = CallUnresolved
			next.Note = c.why(stored, now)
			ok, err := c.change(ctx, next)
			if err != nil {
				return mine, Unknown, nil, err
			}
			if ok {
				c.stats.unresolved.Add(1)
				c.countStuck(crashed)
			}
			continue // to see what it is now
		}
		next.State, next.Token, next.Due, next.Note = CallStarted, mine.Token, mine.Due, ""
		next.Attempts++
		ok, err := c.change(ctx, next)
		if err != nil {
			return mine, Unknown, nil, err
		}
		c.countStuck(ok && crashed)
	}
	return mine, InFlight, nil, ErrInFlight
}

func (c *Calls) countStuck(found bool) {
	if found {
		c.stats.stuck.Add(1)
	}
}

// why says in a record's note why it isn't tried again.
func (c *Calls) why(stored Call, now time.Time) string {
	what := "the attempt of " + stored.Changed.UTC().Format(time.RFC3339) + " ended without a record"
	if stored.Note != "" {
		what = stored.Note
	}
	if c.o.Idempotent == 0 {
		return what
	}
	return fmt.Sprintf("%s; the first was %v ago, and the provider keeps keys for %v", what, now.Sub(stored.First).Round(time.Second), c.o.Idempotent)
}

// end makes the record say how this attempt went.
func (c *Calls) end(ctx context.Context, mine Call, result []byte, failed error) (Outcome, []byte, error) {
	// Also when ctx has ended meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(c.slack(), 5*time.Second))
	defer cancel()
	var not *notDone
	next := mine
	outcome, answer := Applied, error(nil)
	switch now := time.Now(); {
	case failed == nil:
		next.State, next.Result = CallDone, result
		if len(result) > c.o.MaxResult {
			next.Result, next.Note = nil, fmt.Sprintf("the answer of %d bytes was not kept", len(result))
		}
	case errors.As(failed, &not) && mine.First.Equal(mine.Changed):
		next.State, next.Note = CallFree, failed.Error()
		outcome, answer = Failed, failed
	case now.Sub(mine.First) < c.o.Idempotent:
		next.Due, next.Note = now, failed.Error() // the next copy need not wait
		outcome, answer = Unknown, broker.Errorf(broker.ErrUnknownOutcome, failed, "dedup: call of %s", mine.ID)
	default:
		next.State, next.Note = CallUnresolved, failed.Error()
		outcome, answer = Unknown, fmt.Errorf("%w: %w", ErrUnresolved, failed)
	}
	next.Changed = time.Now()
	for range 10 {
		ok, err := c.change(ctx, next)
		var stored Call
		if err == nil && !ok {
			stored, err = ask(ctx, c, func() (Call, error) { return c.driver.LoadCall(ctx, mine.Consumer, mine.ID) })
		}
		switch {
		case err != nil && outcome == Applied:
			c.stats.ambiguous.Add(1)
			return Unknown, result, fmt.Errorf("%w: the call took place, its record: %w", ErrCommitUnknown, err)
		case err != nil:
			return outcome, nil, fmt.Errorf("%w; its record: %w", answer, err)
		case ok:
			if next.State == CallUnresolved {
				c.stats.unresolved.Add(1)
			}
			if outcome != Applied {
				result = nil
			}
			return outcome, result, answer
		case stored.State == CallDone: // by another, who got the provider's answer too
			if outcome == Applied {
				if c.o.Idempotent == 0 {
					c.stats.suspect.Add(1)
				}
				return Applied, result, nil
			}
			return Duplicate, stored.Result, nil
		case outcome != Applied && stored.Token != mine.Token:
			return outcome, nil, answer // it is in other hands
		case stored.State == 0:
			return outcome, result, answer // deleted, by somebody who had no business to
		}
		// Somebody thought that this attempt had died. It knows better.
		next.Version = stored.Version
	}
	return Unknown, result, fmt.Errorf("%w: the call's record is changed by others all the time", ErrCommitUnknown)
}

// change changes a record, and reports whether it was of that version. A change
// whose answer is lost is found again by its token.
func (c *Calls) change(ctx context.Context, next Call) (bool, error) {
	asked := 0
	ok, err := ask(ctx, c, func() (bool, error) { asked++; return c.driver.ChangeCall(ctx, next) })
	if err != nil || ok || asked == 1 {
		return ok, err
	}
	stored, err := ask(ctx, c, func() (Call, error) { return c.driver.LoadCall(ctx, next.Consumer, next.ID) })
	return stored.Version == next.Version+1 && stored.Token == next.Token && stored.State == next.State, err
}

// ask asks the store again while it isn't there.
func ask[A any](ctx context.Context, c *Calls, f func() (A, error)) (A, error) {
	t := trying{ctx: ctx, o: &c.attempts, stats: &c.stats}
	var a A
	var err error
	for t.next() {
		if a, err = f(); err == nil {
			return a, nil
		}
		if !errors.Is(err, ErrCommitUnknown) && !errors.Is(err, ErrLost) && c.driver.Fault(err) == Permanent {
			break
		}
	}
	return a, wrap(ctx, err)
}

// CallHandler makes a handler for [broker.Consume] that makes a call once for each
// message by c. What it says of outcomes is as with [Handler]: a call that is Unknown
// or unresolved comes again after RetryDelay, no attempt counted, until it is decided.
func CallHandler(c *Calls, do func(ctx context.Context, key string, d *broker.Delivery) ([]byte, error), options ...HandlerOption) broker.Handler {
	h := newHandling(options).on(&c.stats, &c.ids, c.o.Window)
	return func(ctx context.Context, d *broker.Delivery) error {
		k := h.key(d)
		h.came(d, k)
		body := d.Body
		if body == nil {
			body = []byte{}
		}
		outcome, _, err := c.Once(ctx, k.ID, body, func(ctx context.Context, key string) ([]byte, error) { return do(ctx, key, d) })
		h.went(d, outcome)
		return h.answer(outcome, err)
	}
}
