package dedup

import (
	"context"
	"errors"
)

// EachSaved makes [Effects] of an effect for one message: it sets a savepoint before
// every few of them, as [Options].SavepointEvery says, and when one fails undoes what
// lies behind the savepoint and applies it again without the one that failed. Lanes
// are those of the [Batch].
func EachSaved[T any](in *Inbox[T], lanes []string, effect func(ctx context.Context, tx T, i int) error) Effects[T] {
	return func(ctx context.Context, tx T, fresh []int, failed []error) error {
		for again := false; len(fresh) > 0; again = true {
			n := min(in.o.SavepointEvery, len(fresh))
			if err := in.driver.Savepoint(ctx, tx, again); err != nil {
				return err
			}
			for !in.sweep(ctx, tx, fresh[:n], failed, effect) {
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
			}
			fresh = fresh[n:]
		}
		return nil
	}
}

// sweep applies those of the messages that haven't failed. It stops at the first
// that fails, which it notes, and reports whether there was none.
func (in *Inbox[T]) sweep(ctx context.Context, tx T, is []int, failed []error, effect func(ctx context.Context, tx T, i int) error) bool {
	for _, i := range is {
		if failed[i] != nil {
			continue
		}
		if failed[i] = contain(func() error { return effect(ctx, tx, i) }); failed[i] != nil {
			return false
		}
	}
	return true
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
