package crashes

import (
	"fmt"
	"slices"
)

// Seen is how often the effect of a message took place that was disturbed.
type Seen string

// What is seen.
const (
	Once  Seen = "once"
	Twice Seen = "twice" // or more often
	Never Seen = "never"
)

func seen(n int) Seen {
	switch {
	case n <= 0:
		return Never
	case n == 1:
		return Once
	}
	return Twice
}

// wanted is what a store promises of the message that is disturbed in a round.
type wanted struct {
	effects []Seen // any of these
	// listed says whether it has to be on the reconciliation list of a call: nil where
	// either is right.
	listed *bool
	// meanwhile is how often the call took place when it is put on the list.
	meanwhile Seen
}

func (w wanted) String() string {
	s := fmt.Sprint(w.effects)
	if len(w.effects) == 1 {
		s = string(w.effects[0])
	}
	switch {
	case w.listed != nil && *w.listed:
		s = fmt.Sprintf("listed (until then %s), then %s", w.meanwhile, s)
	case w.listed != nil:
		s += ", not listed"
	}
	return s
}

// want says what is right in a round of a cell. docs/effects.md has the same in words.
func want(s *Store, c Cell, round int) wanted {
	yes, no := true, false
	is := func(effects ...Seen) wanted { return wanted{effects: effects} }
	wired := c.Point == InCommit && s.Server != ""
	unsent, onItsWay := wired && round%3 == 0, wired && round%3 == 1
	// The effect is there, and surely no record of it.
	between := slices.Contains([]Point{AfterEffect, BeforeCommit}, c.Point) || unsent
	switch s.kind {
	case leaseKind:
		switch {
		case c.Disturbance == Kill && between, c.Disturbance == Freeze && between:
			return is(Twice)
		case c.Disturbance == Freeze && c.Point == AfterClaim && !s.helped:
			return is(Twice)
		case c.Disturbance == Kill && onItsWay:
			return is(Once, Twice) // who is killed may take what it has sent with it
		}
		return is(Once)
	case callKind:
		w := wanted{effects: []Seen{Once}, listed: &no}
		switch {
		case s.helped:
			return w
		case slices.Contains([]Disturbance{Freeze, Restart}, c.Disturbance) && (c.Point == BeforeCommit || c.Point == InCommit):
			w.listed, w.meanwhile = nil, Once // held up for longer than its record may take
			return w
		case c.Disturbance != Kill:
			return w
		}
		switch {
		case c.Point == AfterClaim:
			w.listed, w.meanwhile = &yes, Never
		case between:
			w.listed, w.meanwhile = &yes, Once
		case onItsWay, c.Point == InCommit && !wired:
			w.listed, w.meanwhile = nil, Once
		}
		return w
	}
	return is(Once)
}

// Applies says why a cell can't be asked, "" if it can.
func (c Cell) Applies() string {
	s, ok := storeNamed(c.Store)
	switch {
	case !ok:
		return "there is no such store"
	case s.Server == "" && (c.Disturbance == CutStore || c.Disturbance == Restart):
		return "SQLite is a file that the consumer opens: it has no connection that could be cut, and no server that could be restarted"
	case s.Server == "" && c.Point == InCommit && c.Disturbance == CutBroker:
		return "nobody waits within a commit of SQLite, so that nothing could be cut off meanwhile"
	case s.kind == positionKind && c.Broker == NATS:
		return "no consumer owns a sequence of messages on a durable consumer of NATS: one that comes again behind a later one would be taken for applied"
	}
	return ""
}
