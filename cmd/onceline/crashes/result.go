package crashes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceline/onceline/dedup"
)

// Result is what came out of a cell.
type Result struct {
	Cell
	// NotApplicable says why it wasn't asked.
	NotApplicable string
	// Rounds are what was seen of the message that was disturbed, by round.
	Rounds []Round
	// Others are those whose effect took place more than once, or never, without having
	// been disturbed.
	Others []string
	// Err is why nothing was found out.
	Err error
	// Notes are the last errors that its consumers went on after.
	Notes []string
	Took  time.Duration
}

// Round is what was seen in one round.
type Round struct {
	ID      string
	Effects Seen
	Times   int
	// Listed is true if it was on the list of calls that somebody has to look at, and
	// Meanwhile how often it had taken place then.
	Listed    bool
	Meanwhile Seen
	// Blocked is true if it came again and again, and nobody could apply it.
	Blocked bool
	// Wanted is what the store promises, and OK whether it was so.
	Wanted string
	OK     bool
}

// OK reports whether everything was as the store promises.
func (r *Result) OK() bool {
	return r.NotApplicable != "" || r.Err == nil && len(r.Others) == 0 && len(r.Rounds) == rounds && !slices.ContainsFunc(r.Rounds, func(r Round) bool { return !r.OK })
}

// decide does what the people do who have the list of calls that nobody knows the end
// of: they ask the provider.
func (r *run) decide(ctx context.Context) error {
	if r.frozen {
		return nil
	}
	_, err := r.calls.Reconcile(ctx, func(_ context.Context, c dedup.Call) (dedup.Answer, []byte, string, error) {
		n := r.outside[c.ID]
		r.listed[c.ID] = seen(n)
		if n > 0 {
			return dedup.TookPlace, []byte("done"), "asked the provider", nil
		}
		return dedup.DidNot, nil, "asked the provider", nil
	})
	return err
}

// judge counts effects where they took place.
func (r *run) judge(ctx context.Context, result *Result) error {
	effects := r.outside
	if r.store.kind == inboxKind || r.store.kind == positionKind {
		var err error
		if effects, err = r.db.own.effects(ctx, r.name); err != nil {
			return fmt.Errorf("count the effects: %w", err)
		}
	}
	disturbed := map[string]bool{}
	for i := range r.rounds {
		o := &r.rounds[i]
		disturbed[o.ID] = true
		o.Times = effects[o.ID]
		o.Effects = seen(o.Times)
		o.Meanwhile, o.Listed = r.listed[o.ID], r.listed[o.ID] != ""
		w := want(r.store, r.Cell, i)
		o.Wanted = w.String()
		o.OK = slices.Contains(w.effects, o.Effects) && !o.Blocked &&
			(w.listed == nil || *w.listed == o.Listed) && (!o.Listed || w.meanwhile == "" || w.meanwhile == o.Meanwhile)
	}
	for i := range Messages {
		id := fmt.Sprintf("%s-%03d", r.name, i)
		if n := effects[id]; n != 1 && !disturbed[id] {
			result.Others = append(result.Others, fmt.Sprintf("%s %d times", id, n))
		}
		if _, listed := r.listed[id]; listed && !disturbed[id] {
			result.Others = append(result.Others, id+" listed")
		}
	}
	for id := range effects {
		if !strings.HasPrefix(id, r.name+"-") {
			result.Others = append(result.Others, "an effect of "+id+", which nobody published")
		}
	}
	return nil
}
