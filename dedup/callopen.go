package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
)

// Find returns the record of id, or [broker.ErrNotFound].
func (c *Calls) Find(ctx context.Context, id string) (Call, error) {
	call, err := ask(ctx, c, func() (Call, error) { return c.driver.LoadCall(ctx, c.consumer, id) })
	if err == nil && call.State == 0 {
		err = broker.Errorf(broker.ErrNotFound, nil, "dedup: call of %s", id)
	}
	return call, err
}

// Open is the reconciliation list: the calls that are unresolved, and those whose
// attempt has ended without a record and of which no copy came since. It returns no
// more than limit, 100 for zero; behind the call named, from the first for the zero
// Call.
func (c *Calls) Open(ctx context.Context, after Call, limit int) ([]Call, error) {
	if limit <= 0 {
		limit = 100
	}
	var behind Marker
	if after.ID != "" {
		var err error
		if behind, err = after.Marker(); err != nil {
			return nil, err
		}
	}
	return ask(ctx, c, func() ([]Call, error) {
		return c.driver.OpenCalls(ctx, c.consumer, time.Now(), behind, limit)
	})
}

// Resolve records that a call took place, with the provider's answer, which copies
// get from then on. Call is as [Calls.Open] or [Calls.Find] returned it; if it was
// changed since, or is done, the error is [broker.ErrConflict].
func (c *Calls) Resolve(ctx context.Context, call Call, result []byte, note string) error {
	call.Result = result
	return c.decide(ctx, call, CallDone, note)
}

// Resume records that a call did not take place, so that the next copy of its message
// makes it. Its errors are those of Resolve.
func (c *Calls) Resume(ctx context.Context, call Call, note string) error {
	return c.decide(ctx, call, CallFree, note)
}

func (c *Calls) decide(ctx context.Context, call Call, state CallState, note string) error {
	if call.State != CallUnresolved && (call.State != CallStarted || time.Now().Before(call.Due)) {
		return broker.Errorf(broker.ErrConflict, nil, "dedup: call of %s is %v", call.ID, call.State)
	}
	call.State, call.Note, call.Changed = state, note, time.Now()
	ok, err := c.change(ctx, call)
	if err == nil && !ok {
		err = broker.Errorf(broker.ErrConflict, nil, "dedup: call of %s was changed meanwhile", call.ID)
	}
	return err
}

// Answer is what a provider says of a call that is asked about.
type Answer uint8

// The answers. The zero is none of them.
const (
	// StillOpen: nobody can say, the call stays on the list.
	StillOpen Answer = iota
	// TookPlace: as by [Calls.Resolve].
	TookPlace
	// DidNot: as by [Calls.Resume].
	DidNot
)

// Reconcile asks about each call on the list of [Calls.Open], and decides those that
// have an answer; it returns how many. Ask looks the call up at the provider, and must
// only say DidNot when it can't take place later either. An error of ask leaves its
// call on the list and is among those returned; ctx ends the whole.
func (c *Calls) Reconcile(ctx context.Context, ask func(ctx context.Context, call Call) (answer Answer, result []byte, note string, err error)) (decided int, err error) {
	var errs []error
	var after Call
	for {
		calls, err := c.Open(ctx, after, 0)
		if err != nil || len(calls) == 0 {
			return decided, errors.Join(append(errs, err)...)
		}
		for _, call := range calls {
			if err := ctx.Err(); err != nil {
				return decided, errors.Join(append(errs, err)...)
			}
			answer, result, note, err := ask(ctx, call)
			if err == nil {
				switch answer {
				case TookPlace:
					err = c.Resolve(ctx, call, result, note)
				case DidNot:
					err = c.Resume(ctx, call, note)
				default:
					continue
				}
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("dedup: reconcile %s: %w", call.ID, err))
				continue
			}
			decided++
		}
		after = calls[len(calls)-1]
	}
}

// Expire deletes the records of calls that are done and older than the window, and
// returns how many. What is open stays. Call it from time to time, an hour apart for
// instance.
func (c *Calls) Expire(ctx context.Context) (int64, error) {
	return ask(ctx, c, func() (int64, error) {
		return c.driver.ExpireCalls(ctx, c.consumer, time.Now().Add(-c.o.Window))
	})
}
