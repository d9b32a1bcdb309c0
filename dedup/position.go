package dedup

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/onceline/onceline/broker"
)

// Start is the position of a partition of which nothing has been applied.
const Start int64 = -1

// Partition is one sequence of messages, of which one consumer at a time applies
// each in order.
type Partition struct {
	Topic string
	// Epoch tells the topic from an earlier one of its name, which began at the
	// same offsets: the topic's ID, or the time it was made. It may be empty where
	// topics are never made again.
	Epoch string
	// Name is the partition's, as in [broker.Position].Partition.
	Name string
}

// PositionDriver is what a store implements for [Position].
type PositionDriver[T any] interface {
	Driver[T]
	// LoadPosition returns the offset stored for a consumer's partition, [Start] if
	// none is.
	LoadPosition(ctx context.Context, consumer string, p Partition) (int64, error)
	// MovePosition stores next in place of prev, in tx, and reports whether prev
	// was what was stored. Where another transaction has moved it and not ended, it
	// waits, within the bounds of [Driver].Transact.
	MovePosition(ctx context.Context, tx T, consumer string, p Partition, prev, next int64) (bool, error)
}

// Position applies the messages of a log once by keeping, in the transaction of
// their effects, the offset of the last one. It serves consumers that own a
// partition and read it in order; its state is a row for each partition, and never
// expires. A producer's retry that made a second record has an offset of its own
// and is applied: that takes an idempotent producer, or an [Inbox].
//
// The offset is compared and set: whoever goes on from another offset than the
// stored one is refused with [ErrFenced]. So the owner of a partition that was
// given to somebody else meanwhile can do no harm, whatever offsets it read; to
// compare only that the new offset is higher (PG-F-11) would let it, with batches.
//
// [Follow] does all of that with a receiver; the methods here are for those who read by
// other means.
//
// It is safe for concurrent use.
type Position[T any] struct {
	driver   PositionDriver[T]
	consumer string
	in       *Inbox[T] // its attempts and savepoints
}

// NewPosition returns the positions of the named consumer. It panics if there is no
// driver or no name.
func NewPosition[T any](d PositionDriver[T], consumer string, o Options) *Position[T] {
	if d == nil || consumer == "" {
		panic("dedup: NewPosition without a driver or a consumer's name")
	}
	return &Position[T]{driver: d, consumer: consumer, in: New[T](d, consumer, o)}
}

// Driver returns the store under the positions.
func (p *Position[T]) Driver() PositionDriver[T] { return p.driver }

// Consumer returns the name of whose positions they are.
func (p *Position[T]) Consumer() string { return p.consumer }

// Stats returns the counts of what AppliedFrom, Apply and AdvanceTx did. The messages
// behind one that failed, or that was fenced, aren't counted.
func (p *Position[T]) Stats() Stats { return p.in.stats.snapshot() }

// Load returns the offset of the last message applied in p, [Start] if none was. It
// is read when the partition is assigned, and after ErrFenced.
func (p *Position[T]) Load(ctx context.Context, at Partition) (int64, error) {
	var offset int64
	var err error
	t := p.in.trying(ctx)
	for t.next() {
		if offset, err = p.driver.LoadPosition(ctx, p.consumer, at); err == nil {
			return offset, nil
		}
		if !t.again(err, p.driver) {
			break
		}
	}
	return 0, fmt.Errorf("dedup: position of %s %s: %w", at.Topic, at.Name, wrap(ctx, err))
}

// StartFrom makes the function that [broker.StartFrom] takes, so that a receiver
// starts behind what has been applied whatever the broker remembers. A partition of
// which nothing was applied is left to the broker, and so is one whose position
// can't be loaded, which failed is told: what comes then is refused by ErrFenced, not
// applied twice. Ctx bounds the loads.
func (p *Position[T]) StartFrom(ctx context.Context, topic, epoch string, failed func(partition string, err error)) func(partition string) (broker.Position, bool) {
	return func(partition string) (broker.Position, bool) {
		offset, err := p.Load(ctx, Partition{topic, epoch, partition})
		if err != nil {
			failed(partition, err)
			return broker.Position{}, false
		}
		return broker.Position{Partition: partition, Offset: uint64(offset + 1)}, offset != Start
	}
}

// AdvanceTx moves the position in a transaction that the caller owns, from prev,
// the offset that the caller knows as the last one applied, to last. The effects of
// the messages between belong in the same transaction. If prev isn't what is stored
// it returns [ErrFenced], and the caller rolls back.
func (p *Position[T]) AdvanceTx(ctx context.Context, tx T, at Partition, prev, last int64) error {
	err := p.move(ctx, tx, at, prev, last)
	if errors.Is(err, ErrFenced) {
		p.in.stats.fenced.Add(1)
	}
	return err
}

func (p *Position[T]) move(ctx context.Context, tx T, at Partition, prev, last int64) error {
	if prev < Start || last <= prev {
		return broker.Errorf(broker.ErrInvalid, nil, "dedup: position of %s %s from %d to %d", at.Topic, at.Name, prev, last)
	}
	switch moved, err := p.driver.MovePosition(ctx, tx, p.consumer, at, prev, last); {
	case err != nil:
		return fmt.Errorf("dedup: position of %s %s: %w", at.Topic, at.Name, err)
	case !moved:
		return fmt.Errorf("%w: %s %s isn't at %d", ErrFenced, at.Topic, at.Name, prev)
	}
	return nil
}

// AppliedFrom applies msgs, whose offsets rise, in order and in few transactions,
// each of which also moves the position. Messages at prev or below were applied
// before and are left out. It returns the position that is now stored.
//
// When an effect fails, those before it stand, and the error is the effect's. With
// ErrFenced nothing of the last transaction stands: Load, and seek. With
// [ErrCommitUnknown], [ErrLost] or ctx's error the position is the last one known:
// Load tells.
func AppliedFrom[T, M any](ctx context.Context, p *Position[T], at Partition, prev int64, msgs []M, offset func(M) int64, effect func(ctx context.Context, tx T, m M) error) (int64, error) {
	offsets := make([]int64, len(msgs))
	for i, m := range msgs {
		offsets[i] = offset(m)
	}
	skip, err := behind(offsets, prev)
	if err != nil {
		return prev, err
	}
	p.in.stats.outcomes[Duplicate].Add(uint64(skip))
	msgs, offsets = msgs[skip:], offsets[skip:]
	return p.Apply(ctx, at, prev, offsets, EachSaved(p.in, OneLane(len(msgs)), func(ctx context.Context, tx T, i int) error { return effect(ctx, tx, msgs[i]) }))
}

// OneLane returns n lanes that are all the same, for effects of which none may come
// before an earlier one.
func OneLane(n int) []string {
	lanes := make([]string, n)
	for i := range lanes {
		lanes[i] = "all"
	}
	return lanes
}

// behind returns how many of the offsets, which must rise, are at prev or below.
func behind(offsets []int64, prev int64) (int, error) {
	skip := 0
	last := int64(math.MinInt64)
	for _, o := range offsets {
		if o <= last || o < 0 {
			return 0, broker.Errorf(broker.ErrInvalid, nil, "dedup: offset %d after %d", o, last)
		}
		if last = o; o <= prev {
			skip++
		}
	}
	return skip, nil
}

// Apply is what [AppliedFrom] is made of, for stores that have a faster way to apply
// many effects. The offsets rise and are above prev; effects must hold back what
// comes behind a message that failed, as with lanes that are all the same.
func (p *Position[T]) Apply(ctx context.Context, at Partition, prev int64, offsets []int64, effects Effects[T]) (int64, error) {
	if skip, err := behind(offsets, prev); err != nil || skip > 0 || prev < Start {
		return prev, errors.Join(err, broker.Errorf(broker.ErrInvalid, nil, "dedup: %d offsets at %d or below", skip, prev))
	}
	defer p.in.stats.begin(len(offsets), p.in.o.Took).end()
	failed := make([]error, len(offsets))
	for from := 0; from < len(offsets); {
		end := min(from+p.in.o.MaxBatch, len(offsets))
		next, err := p.advance(ctx, at, prev, offsets, from, end, effects, failed)
		for from < end && offsets[from] <= next {
			p.in.stats.count(Applied)
			from++
		}
		if prev = next; err != nil {
			p.countError(ctx, err)
			return prev, err
		}
		from = end
	}
	return prev, nil
}

// countError counts the one message, or the one transaction, that Apply ended at.
func (p *Position[T]) countError(ctx context.Context, err error) {
	if errors.Is(err, ErrFenced) {
		p.in.stats.fenced.Add(1)
		return
	}
	p.in.stats.count(p.outcome(ctx, err))
}

// outcome is Failed for an error of an effect, and Unknown for one that isn't its
// message's fault.
func (p *Position[T]) outcome(ctx context.Context, err error) Outcome {
	if errors.Is(err, ErrFenced) || ctx.Err() != nil || errors.Is(err, ErrCommitUnknown) || errors.Is(err, ErrLost) || p.driver.Fault(err) != Permanent {
		return Unknown
	}
	return Failed
}

// advance applies a range in one transaction, or, where that is refused, in one for
// each message. It returns the position as far as it is known.
func (p *Position[T]) advance(ctx context.Context, at Partition, prev int64, offsets []int64, from, end int, effects Effects[T], failed []error) (int64, error) {
	fresh := make([]int, end-from)
	for i := range fresh {
		fresh[i] = from + i
	}
	t := p.in.trying(ctx)
	sent := Start // where an attempt would be whose commit got no answer
	var cut error // and the effect that failed in it
	arrived := func() bool {
		stored, err := p.Load(ctx, at)
		return err == nil && stored == sent && t.ambiguous
	}
	var err error
	for t.next() {
		ran := false
		var bad error // of the first effect that failed
		reached := offsets[end-1]
		err = p.driver.Transact(ctx, func(tx T) error {
			reached, bad = offsets[end-1], nil
			clear(failed)
			if err := p.move(ctx, tx, at, prev, offsets[end-1]); err != nil {
				return err
			}
			ran = true
			if err := effects(ctx, tx, fresh, failed); err != nil {
				return err
			}
			for i := from; i < end; i++ {
				if bad = failed[i]; bad == nil {
					continue
				}
				if i == from {
					return errUnchanged
				}
				reached = offsets[i-1]
				moved, err := p.driver.MovePosition(ctx, tx, p.consumer, at, offsets[end-1], reached)
				if err == nil && !moved {
					err = ErrFenced
				}
				return err
			}
			return ctx.Err()
		})
		switch {
		case err == nil:
			return reached, bad
		case errors.Is(err, errUnchanged):
			return prev, bad
		case errors.Is(err, ErrFenced):
			if t.ambiguous && arrived() { // by our own commit
				return sent, cut
			}
			return prev, err
		case t.again(err, p.driver):
			if errors.Is(err, ErrCommitUnknown) {
				if sent, cut = reached, bad; arrived() {
					return sent, cut
				}
			}
		case ran && ctx.Err() == nil && end-from > 1:
			for i := from; i < end && (i == from || err == nil); i++ {
				prev, err = p.advance(ctx, at, prev, offsets, i, i+1, effects, failed)
			}
			return prev, err
		default:
			return prev, wrap(ctx, err)
		}
	}
	return prev, wrap(ctx, t.give(err))
}
