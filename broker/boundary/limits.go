package boundary

import (
	"fmt"
	"time"
)

// LimitName names a bound that a broker sets to what it takes.
type LimitName string

// The limits, in the order in which they are told.
const (
	LimitBody   LimitName = "body"   // of one message, in bytes; what counts along with it, Limit.Note says
	LimitID     LimitName = "id"     // of the broker's own field for dedup IDs, in characters; the contract's longer ones are hashed into it
	LimitWindow LimitName = "window" // of dedup, in nanoseconds
	LimitLease  LimitName = "lease"  // of a delivery, in nanoseconds
	LimitDelay  LimitName = "delay"  // of a nack, in nanoseconds
)

// LimitNames returns all limits.
func LimitNames() []LimitName {
	return []LimitName{LimitBody, LimitID, LimitWindow, LimitLease, LimitDelay}
}

// Limit is what a broker admits, in the unit of its name.
type Limit struct {
	Least   int64    `json:"least,omitempty"`
	Most    int64    `json:"most,omitempty"`    // 0: no bound is known
	Default int64    `json:"default,omitempty"` // where nothing is asked for; 0: none
	Absent  bool     `json:"absent,omitempty"`  // the broker has no such thing
	Note    string   `json:"note,omitempty"`
	Sources []string `json:"sources"` // fact IDs of docs/facts.md
}

// Text says a limit in words: "20 s to 7 days, 10 min by default".
func (n LimitName) Text(l Limit) string {
	if l.Absent {
		return "none"
	}
	var s string
	switch {
	case l.Most == 0 && l.Least == 0:
		s = "no bound"
	case l.Most == 0:
		s = "at least " + n.amount(l.Least)
	case l.Least == 0:
		s = "at most " + n.amount(l.Most)
	case l.Least == l.Most:
		return "always " + n.amount(l.Most)
	default:
		s = n.amount(l.Least) + " to " + n.amount(l.Most)
	}
	if l.Default > 0 {
		s += ", " + n.amount(l.Default) + " by default"
	}
	return s
}

func (n LimitName) amount(x int64) string {
	switch n {
	case LimitBody:
		for _, u := range []struct {
			name string
			of   int64
		}{{"MiB", 1 << 20}, {"KiB", 1 << 10}} {
			if x >= u.of && x%u.of == 0 {
				return fmt.Sprintf("%d %s", x/u.of, u.name)
			}
		}
		return fmt.Sprintf("%d bytes", x)
	case LimitID:
		return fmt.Sprintf("%d characters", x)
	}
	d := time.Duration(x)
	for _, u := range []struct {
		name string
		of   time.Duration
	}{{"days", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}} {
		if d >= u.of && d%u.of == 0 && (u.name != "days" || d > u.of) {
			return fmt.Sprintf("%d %s", d/u.of, u.name)
		}
	}
	return d.String()
}

// Narrower reports whether b admits less than a in one direction or another: what a
// took may be refused by b. An absent one admits nothing.
func (a Limit) Narrower(b Limit) bool {
	switch {
	case a.Absent:
		return false
	case b.Absent:
		return true
	}
	return b.Most > 0 && (a.Most == 0 || b.Most < a.Most) || b.Least > a.Least
}
