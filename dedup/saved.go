package dedup

import (
	"context"
	"errors"
)

// shortSteps is how many effects lie between two savepoints while effects fail, and
// longTime for how many transactions after the last that did.
const (
	shortSteps = 8
	longTime   = 16
)

// EachSaved makes [Effects] of an effect for one message: it sets a savepoint before
// every few of them, as [Options].SavepointEvery says, and when one fails undoes what
// lies behind the savepoint and applies it again without the one that failed. Lanes
// are those of the [Batch].
func EachSaved[T any](in *Inbox[T], lanes []string, effect func(ctx context.Context, tx T, i int) error) Effects[T] {
	return func(ctx context.Context, tx T, fresh []int, failed []error) error {
		every := in.step(len(fresh))
		for again := false; len(fresh) > 0; again = true {
			n := min(every, len(fresh))
			if err := in.driver.Savepoint(ctx, tx, again); err != nil {
				return err
			}
			for {
				at := in.sweep(ctx, tx, fresh[:n], failed, effect)
				if at < 0 {
					break
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				for _, i := range fresh[:n] {
					if failed[i] != nil && in.driver.Fault(failed[i]) != Permanent || errors.Is(failed[i], ErrLost) {
						return failed[i] // not the message's fault: the transaction is tried again
					}
				}
				if err := in.driver.Restore(ctx, tx); err != nil {
					return err
				}
				HoldBack(lanes, fresh, failed)
				if in.o.SavepointEvery <= 0 {
					in.careful.Store(longTime)
					n, every = at+1, shortSteps // what went well once isn't likely to fail now
				}
			}
			fresh = fresh[n:]
		}
		return nil
	}
}

// step is how many of a transaction's effects lie between two savepoints.
func (in *Inbox[T]) step(all int) int {
	if in.o.SavepointEvery > 0 {
		return in.o.SavepointEvery
	}
	for {
		n := in.careful.Load()
		if n == 0 {
			return all
		}
		if in.careful.CompareAndSwap(n, n-1) {
			return shortSteps
		}
	}
}

// sweep applies those of the messages that haven't failed. It stops at the first
// that fails, which it notes, and returns its place, -1 if there was none.
func (in *Inbox[T]) sweep(ctx context.Context, tx T, is []int, failed []error, effect func(ctx context.Context, tx T, i int) error) int {
	for at, i := range is {
		if failed[i] != nil {
			continue
		}
		if failed[i] = contain(func() error { return effect(ctx, tx, i) }); failed[i] != nil {
			return at
		}
	}
	return -1
}

// HoldBack marks the messages of fresh that haven't failed, but come behind one of
// their lane that has, as failed by [ErrHeldBack]. Implementations of [Effects] call
// it after a failure, before they apply anything again.
func HoldBack(lanes []string, fresh []int, failed []error) {
	if lanes == nil {
		return
	}
	var stopped map[string]bool
	for _, i := range fresh {
		switch lane := lanes[i]; {
		case lane == "":
		case failed[i] != nil:
			if stopped == nil {
				stopped = map[string]bool{}
			}
			stopped[lane] = true
		case stopped[lane]:
			failed[i] = ErrHeldBack
		}
	}
}
