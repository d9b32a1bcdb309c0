package kafka

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/onceline/onceline/broker"
)

// An idempotent record that is in flight can't be taken back: its sequence
// number is spent. So when the caller's context ends, its Publish returns
// Unknown and the record stays with the SDK, which sends it again until the
// broker answers. A retry with the same ID and Copy then joins that record
// instead of adding a copy. The ID is the identity: a retry with another body
// joins too, and what is stored is the first body.

// joinKey is the identity by which a retry finds the record in flight.
type joinKey struct{ id, copy string }

// joins is what a publisher remembers of abandoned messages. It is touched only
// when one exists.
type joins struct {
	n     atomic.Int64 // entries of slots
	mu    sync.Mutex
	slots map[joinKey]*slot
	// answered has the keys in slots whose answer has come, oldest first, and
	// bounds them; those in flight are bounded by the producer's buffer.
	answered []*slot
	shut     bool
}

// maxJoinable is how many answered and unclaimed records a publisher remembers.
const maxJoinable = 16_384

// find returns the slots which msgs join, by index; nil in the normal case.
func (j *joins) find(msgs []broker.Message) map[int]*slot {
	if j.n.Load() == 0 {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	var found map[int]*slot
	for i := range msgs {
		if msgs[i].ID == "" {
			continue
		}
		if s := j.slots[joinKey{msgs[i].ID, msgs[i].Copy}]; s != nil {
			if found == nil {
				found = map[int]*slot{}
			}
			found[i] = s
		}
	}
	return found
}

// abandon gives up on what of a flight has no answer yet. keep lets retries
// join it.
func (j *joins) abandon(f *flight, msgs []broker.Message, keep bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range f.slots {
		s := &f.slots[i]
		if keep && !j.shut && msgs[i].ID != "" && s.state.Load() == pending {
			// Before the swap, for the answer may come right after it.
			s.key, s.ready = joinKey{msgs[i].ID, msgs[i].Copy}, make(chan struct{})
		}
		if !s.state.CompareAndSwap(pending, abandoned) || s.ready == nil {
			s.ready = nil
			continue
		}
		if j.slots == nil {
			j.slots = map[joinKey]*slot{}
		}
		j.slots[s.key] = s
		j.n.Store(int64(len(j.slots)))
	}
}

// late takes the answer of an abandoned slot.
func (j *joins) late(s *slot) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s.ready == nil {
		return
	}
	close(s.ready)
	if j.slots[s.key] != s {
		return
	}
	if s.err != nil {
		// Not stored, or the SDK gave up on it: a retry is a new attempt.
		j.drop(s)
		return
	}
	j.answered = append(j.answered, s)
	if len(j.answered) > maxJoinable {
		old := j.answered[0]
		j.answered[0] = nil
		j.answered = j.answered[1:]
		if j.slots[old.key] == old {
			j.drop(old)
		}
	}
}

// claim forgets a slot whose answer a retry has got.
func (j *joins) claim(s *slot) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.slots[s.key] == s {
		j.drop(s)
	}
}

func (j *joins) drop(s *slot) {
	delete(j.slots, s.key)
	j.n.Store(int64(len(j.slots)))
	if len(j.slots) == 0 {
		j.answered = nil
	}
}

func (j *joins) forget() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.shut, j.slots, j.answered = true, nil, nil
	j.n.Store(0)
}

// awaitJoined waits for the answer of a joined slot.
func (p *publisher) awaitJoined(ctx context.Context, s *slot, r *broker.Receipt) {
	select {
	case <-s.ready:
	default:
		select {
		case <-s.ready:
		case <-ctx.Done():
			r.Err = broker.Errorf(broker.ErrUnknownOutcome, context.Cause(ctx), "publish to %s: joined the record in flight", p.topic)
			return
		case <-p.gone:
			r.Err = broker.Errorf(broker.ErrUnknownOutcome, broker.ErrClosed, "publish to %s: joined the record in flight", p.topic)
			return
		}
	}
	*r = s.receipt()
	p.joins.claim(s)
}
