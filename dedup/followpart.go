package dedup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/onceline/onceline/broker"
)

// followed is what is read by one receiver.
type followed[T any] struct {
	*follower[T]
	r       broker.Receiver
	life    context.Context // until the receiver has to be another
	end     context.CancelCauseFunc
	work    context.Context // of what is under way
	working sync.WaitGroup
	applied atomic.Bool
	room    chan struct{} // one token: something has left

	mu       sync.Mutex
	assigned int // how often partitions were
	parts    map[string]*follows
	inHand   int
}

// follows is one assignment of a partition. One goroutine at a time works on it.
type follows struct {
	at     Partition
	number int  // of the assignment
	anew   bool // the receiver had the partition before
	ended  bool // it was assigned anew
	queue  [][]*broker.Delivery
	busy   bool

	// Of the goroutine: the position as it was last known, and the last offset that
	// was read, whatever came of it. All between the two was read, or isn't there.
	prev, read int64
}

// startFrom is what the receiver asks as a partition is assigned.
func (s *followed[T]) startFrom(partition string) (broker.Position, bool) {
	at := Partition{s.Topic, s.Epoch, partition}
	prev, err := s.p.Load(s.life, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned++
	old := s.parts[partition]
	if old != nil {
		old.ended = true
	}
	if err != nil {
		delete(s.parts, partition)
		s.again("assigned: %w", err)
		return broker.Position{}, false
	}
	s.parts[partition] = &follows{at: at, number: s.assigned, anew: old != nil, prev: prev, read: prev}
	return broker.Position{Partition: partition, Offset: uint64(prev + 1)}, prev != Start
}

func (s *followed[T]) assignments() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assigned
}

// part returns a partition's assignment, nil for none. Unsure says that what was asked
// for before may belong to an earlier one.
func (s *followed[T]) part(name string, before int) (part *follows, unsure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	part = s.parts[name]
	return part, part != nil && part.anew && part.number > before
}

func (s *followed[T]) enqueue(part *follows, ds []*broker.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inHand += len(ds)
	part.queue = append(part.queue, ds)
	if !part.busy {
		part.busy = true
		s.working.Go(func() { s.run(part) })
	}
}

// run works until nothing is queued.
func (s *followed[T]) run(part *follows) {
	for {
		s.mu.Lock()
		if len(part.queue) == 0 || s.life.Err() != nil {
			part.busy = false
			s.mu.Unlock()
			return
		}
		ds := part.queue[0]
		part.queue = part.queue[1:]
		ended := part.ended
		s.mu.Unlock()
		for rest := ds; len(rest) > 0 && !ended; {
			// What comes again does so from an earlier offset on.
			n := 1
			for n < len(rest) && offsetOf(rest[n]) > offsetOf(rest[n-1]) {
				n++
			}
			if !s.apply(part, rest[:n]) {
				return // for good: busy stays, so that nobody begins behind a gap
			}
			rest = rest[n:]
		}
		s.leave(len(ds))
	}
}

func offsetOf(d *broker.Delivery) int64 { return int64(d.Position.Offset) }

// apply applies messages whose offsets rise, and reports whether all of them stand.
func (s *followed[T]) apply(part *follows, ds []*broker.Delivery) bool {
	if first := offsetOf(ds[0]); part.read == Start || first <= part.read {
		part.read = first - 1
	}
	buried := Start // the offset of one that was dead-lettered
	failures, attempts := 0, 0
	for len(ds) > 0 {
		var err error
		if head := offsetOf(ds[0]); head == buried && part.prev < head {
			err = s.p.driver.Transact(s.work, func(tx T) error { return s.p.AdvanceTx(s.work, tx, part.at, part.prev, head) })
			if err == nil {
				part.prev = head
			}
		} else {
			part.prev, err = AppliedFrom(s.work, s.p, part.at, part.prev, ds, offsetOf,
				func(ctx context.Context, tx T, d *broker.Delivery) error { return s.effect(ctx, tx, d) })
		}
		if n := s.stands(part, ds, buried); n > 0 {
			ds, failures, attempts = ds[n:], 0, 0
		}
		if err == nil {
			continue
		}
		if s.life.Err() != nil {
			return false
		}
		err = fmt.Errorf("dedup: follow %s %s: %w", part.at.Topic, part.at.Name, err)
		s.ErrorHook(err)
		failures++
		delay, asked := broker.Postponed(err)
		switch failed := s.p.outcome(s.work, err) == Failed; {
		case !failed:
			// Who is fenced goes on at once, for that another has moved the position.
			if (failures > 1 || !errors.Is(err, ErrFenced)) && !s.pause(s.life, failures) || !s.reload(part, offsetOf(ds[len(ds)-1])) {
				return false
			}
			continue
		case asked && !broker.IsPoison(err):
			s.p.in.stats.decide(postponed)
			if delay <= 0 {
				delay = s.Backoff.Min
			}
			if !sleep(s.life, delay) {
				return false
			}
			continue
		}
		if attempts++; broker.IsPoison(err) || s.MaxAttempts > 0 && attempts >= s.MaxAttempts {
			if s.bury(ds[0], err) {
				buried = offsetOf(ds[0])
				continue
			}
		}
		s.p.in.stats.decide(retried)
		if !s.pause(s.life, failures) {
			return false
		}
	}
	return true
}

// stands acks those of ds that the position covers, and returns how many they are.
func (s *followed[T]) stands(part *follows, ds []*broker.Delivery, buried int64) int {
	n := 0
	var acks []broker.Settlement
	for ; n < len(ds) && offsetOf(ds[n]) <= part.prev; n++ {
		if offsetOf(ds[n]) != buried {
			s.p.in.stats.decide(acked)
			acks = append(acks, broker.Settlement{Delivery: ds[n], Action: broker.Ack})
		}
	}
	if n == 0 {
		return 0
	}
	part.read = max(part.read, offsetOf(ds[n-1]))
	s.applied.Store(true)
	if err := settle(s.work, s.r, acks); err != nil && !errors.Is(err, broker.ErrLeaseLost) {
		s.ErrorHook(fmt.Errorf("dedup: follow %s %s: %w", part.at.Topic, part.at.Name, err))
	}
	return n
}

// reload loads the position, and reports whether what is in hand, whose last offset is
// last, goes on from it.
func (s *followed[T]) reload(part *follows, last int64) bool {
	for failures := 1; ; failures++ {
		stored, err := s.p.Load(s.work, part.at)
		switch {
		case err != nil:
			s.ErrorHook(fmt.Errorf("dedup: follow: %w", err))
			if !s.pause(s.life, failures) {
				return false
			}
			continue
		case stored < part.read && stored != part.prev:
			s.again("the position of partition %q is at %d, and what is in hand begins behind %d", part.at.Name, stored, part.read)
			return false
		case stored-last > s.SeekAhead:
			s.again("the position of partition %q is at %d, and what is in hand ends at %d", part.at.Name, stored, last)
			return false
		}
		part.prev = stored
		return true
	}
}

// bury dead-letters a message, and reports whether the broker has it there.
func (s *followed[T]) bury(d *broker.Delivery, err error) bool {
	why := deadChosen
	if broker.IsPoison(err) {
		why = deadPoison
	}
	letter := []broker.Settlement{{Delivery: d, Action: broker.DeadLetter, Reason: err.Error()}}
	if err := settle(s.work, s.r, letter); err != nil || !letter[0].Outcome.State.OK() {
		s.ErrorHook(fmt.Errorf("dedup: follow %s: dead-letter %q: %w", s.Topic, d.ID, errors.Join(err, letter[0].Outcome.Err)))
		return false
	}
	s.p.in.stats.decide(why)
	return true
}
