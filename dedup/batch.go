package dedup

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Batch is what [Inbox.Apply] works on: a key for each message.
type Batch struct {
	Keys []Key
	// Lanes holds the ordering key of each message, "" for none; nil for none at
	// all. A message isn't applied before the earlier ones of its lane are, or are
	// outside of the window: it is then [InFlight] by [ErrHeldBack].
	Lanes []string
}

// OnceBatch is [Inbox.Once] for many messages with few transactions: one for each
// [Options].MaxBatch of them, one after the other. It returns a result for each
// message, in order, and the error of the first that isn't OK.
//
// An effect that fails takes none of the others with it: it is undone to a
// savepoint, and its marker leaves the transaction. The effects run in the order of
// msgs. A key that comes twice is applied once, and the second is a [Duplicate] if
// the first was applied.
func OnceBatch[T, M any](ctx context.Context, in *Inbox[T], msgs []M, key func(M) Key, effect func(ctx context.Context, tx T, m M) error) ([]Result, error) {
	b := Batch{Keys: make([]Key, len(msgs))}
	for i, m := range msgs {
		b.Keys[i] = key(m)
	}
	return in.Apply(ctx, b, EachSaved(in, b.Lanes, func(ctx context.Context, tx T, i int) error { return effect(ctx, tx, msgs[i]) }))
}

// Effects applies effects of a batch in tx: those of the messages whose indexes
// are in fresh, which is sorted. It says in failed[i] why message i was not
// applied, and has undone what it did. An error of its own gives up the whole
// transaction. It may run several times for the same messages.
type Effects[T any] func(ctx context.Context, tx T, fresh []int, failed []error) error

// Apply is what [OnceBatch] is made of, for stores that have a faster way to apply
// many effects: it splits b into transactions, claims the markers in each, has
// effects apply the messages that are fresh, takes the markers of those that failed
// out again and commits. A transaction that the store refuses to commit, for a
// reason that may lie in any of its messages, is done again message by message.
func (in *Inbox[T]) Apply(ctx context.Context, b Batch, effects Effects[T]) ([]Result, error) {
	if b.Lanes != nil && len(b.Lanes) != len(b.Keys) {
		panic("dedup: a batch with lanes has one for each key")
	}
	defer in.stats.begin(len(b.Keys), in.o.Took).end()
	p := &part[T]{in: in, b: b, effects: effects, results: make([]Result, len(b.Keys)), failed: make([]error, len(b.Keys)), markers: make([]Marker, len(b.Keys))}
	for i, k := range b.Keys {
		p.markers[i], p.results[i].Err = in.marker(k)
		if p.results[i].Err != nil {
			p.results[i].Outcome = Failed
		}
	}
	for from := 0; from < len(b.Keys); from += in.o.MaxBatch {
		p.apply(ctx, from, min(from+in.o.MaxBatch, len(b.Keys)))
	}
	var first error
	for _, r := range p.results {
		in.stats.count(r.Outcome)
		if first == nil {
			first = r.Err
		}
	}
	return p.results, first
}

// part is one batch at work, a range of messages at a time.
type part[T any] struct {
	in      *Inbox[T]
	b       Batch
	effects Effects[T]
	markers []Marker
	results []Result
	blocked map[string]bool // lanes in which a message wasn't applied

	// Of one attempt of one range.
	sorted []Marker // without repeats
	claims []Claim  // of sorted
	first  []int    // of sorted: the first message with the marker
	fresh  []int
	undone []Marker
	failed []error // of all messages
}

// apply does the messages from and up to end in one transaction, or, where that is
// refused, in one for each.
func (p *part[T]) apply(ctx context.Context, from, end int) {
	p.sorted = p.sorted[:0]
	for i := from; i < end; i++ {
		if p.valid(i) {
			p.sorted = append(p.sorted, p.markers[i])
		}
	}
	if p.sorted = sortMarkers(p.sorted); len(p.sorted) == 0 {
		return
	}
	p.claims = append(p.claims[:0], make([]Claim, len(p.sorted))...)
	p.first = append(p.first[:0], make([]int, len(p.sorted))...)
	for i := end - 1; i >= from; i-- {
		if s, ok := p.find(i); ok {
			p.first[s] = i
		}
	}
	// What earlier attempts had claimed when they lost the connection, and whether
	// it was perhaps committed.
	var own map[Marker]bool
	var err error
	t := p.in.trying(ctx)
	for t.next() {
		ran := false
		clear(p.claims)
		err = p.in.driver.Transact(ctx, func(tx T) error {
			clear(p.claims)
			clear(p.failed[from:end])
			if err := p.in.driver.Claim(ctx, tx, p.sorted, p.claims); err != nil {
				return err
			}
			if t.own && t.attempt < t.o.Attempts && p.held(own) {
				return errOwn
			}
			return p.run(ctx, tx, from, end, &ran)
		})
		switch {
		case err == nil || errors.Is(err, errUnchanged):
			p.conclude(from, end, own)
			return
		case t.again(err, p.in.driver):
			if ran && t.own {
				own = p.remember(own, errors.Is(err, ErrCommitUnknown))
			}
		case ran && ctx.Err() == nil && end-from > 1:
			p.singly(ctx, from, end)
			return
		case ran && ctx.Err() == nil:
			p.set(from, Failed, fmt.Errorf("dedup: the store refused the transaction: %w", err))
			return
		default:
			p.unknown(from, end, wrap(ctx, err))
			return
		}
	}
	if end-from > 1 && ctx.Err() == nil && !t.ambiguous && p.in.driver.Fault(err) == Busy {
		p.singly(ctx, from, end) // one of them may be what is always in the way
		return
	}
	p.unknown(from, end, wrap(ctx, t.give(err)))
}

// singly does each message in a transaction of its own.
func (p *part[T]) singly(ctx context.Context, from, end int) {
	for i := from; i < end; i++ {
		p.apply(ctx, i, i+1)
	}
}

// valid reports whether message i has a marker.
func (p *part[T]) valid(i int) bool { return p.markers[i] != Marker{} }

// find returns where message i's marker is in sorted, false if it has none.
func (p *part[T]) find(i int) (int, bool) {
	if !p.valid(i) {
		return 0, false
	}
	return slices.BinarySearchFunc(p.sorted, p.markers[i], Marker.Compare)
}

func (p *part[T]) lane(i int) string {
	if p.b.Lanes == nil {
		return ""
	}
	return p.b.Lanes[i]
}

// run applies what is fresh, and takes the markers of what isn't applied out.
func (p *part[T]) run(ctx context.Context, tx T, from, end int, ran *bool) error {
	p.fresh, p.undone = p.fresh[:0], p.undone[:0]
	var waits map[string]bool // lanes behind a message that is in flight
	for i := from; i < end; i++ {
		s, ok := p.find(i)
		if !ok || p.first[s] != i {
			continue
		}
		lane := p.lane(i)
		switch claim := p.claims[s]; {
		case claim == Seen || claim == Outside:
		case lane != "" && (p.blocked[lane] || waits[lane]):
			p.failed[i] = ErrHeldBack
			if claim == Fresh {
				p.undone = append(p.undone, p.sorted[s])
			}
		case claim == Fresh:
			p.fresh = append(p.fresh, i)
		case lane != "":
			if waits == nil {
				waits = map[string]bool{}
			}
			waits[lane] = true
		}
	}
	if len(p.fresh) == 0 {
		return errUnchanged
	}
	*ran = true
	if err := p.effects(ctx, tx, p.fresh, p.failed); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	bad := 0
	for _, i := range p.fresh {
		if p.failed[i] != nil {
			p.undone = append(p.undone, p.markers[i])
			bad++
		}
	}
	if bad == len(p.fresh) {
		return errUnchanged
	}
	if len(p.undone) == 0 {
		return nil
	}
	return p.in.driver.Release(ctx, tx, sortMarkers(p.undone))
}

// remember adds what this attempt had claimed to own, and whether the commit of it
// was sent.
func (p *part[T]) remember(own map[Marker]bool, sent bool) map[Marker]bool {
	if own == nil {
		own = map[Marker]bool{}
	}
	for _, i := range p.fresh {
		own[p.markers[i]] = own[p.markers[i]] || sent && p.failed[i] == nil
	}
	return own
}

// held reports whether a marker is held that an earlier attempt had claimed.
func (p *part[T]) held(own map[Marker]bool) bool {
	for s, claim := range p.claims {
		if _, ours := own[p.sorted[s]]; ours && claim == Held {
			return true
		}
	}
	return false
}

// conclude fills the results of a range whose transaction ended well.
func (p *part[T]) conclude(from, end int, own map[Marker]bool) {
	for i := from; i < end; i++ {
		s, ok := p.find(i)
		if !ok {
			continue
		}
		if first := p.first[s]; first != i {
			p.copyOf(i, first)
			continue
		}
		switch claim := p.claims[s]; {
		case errors.Is(p.failed[i], ErrHeldBack):
			p.set(i, InFlight, p.failed[i])
		case claim == Fresh && p.failed[i] != nil:
			p.set(i, Failed, p.failed[i])
		case claim == Fresh:
			p.set(i, Applied, nil)
		default:
			outcome, err := claim.outcome(own[p.markers[i]])
			p.set(i, outcome, err)
		}
	}
}

// copyOf fills the result of a message whose key came before in the batch.
func (p *part[T]) copyOf(i, first int) {
	switch r := p.results[first]; {
	case r.Outcome.OK():
		p.set(i, Duplicate, nil)
	case r.Outcome == Failed:
		p.set(i, InFlight, ErrHeldBack)
	default:
		p.set(i, r.Outcome, r.Err)
	}
}

func (p *part[T]) unknown(from, end int, err error) {
	for i := from; i < end; i++ {
		if _, ok := p.find(i); ok {
			p.set(i, Unknown, err)
		}
	}
}

func (p *part[T]) set(i int, o Outcome, err error) {
	p.results[i] = Result{o, err}
	if lane := p.lane(i); lane != "" && !o.OK() && o != OutsideWindow {
		if p.blocked == nil {
			p.blocked = map[string]bool{}
		}
		p.blocked[lane] = true
	}
}
