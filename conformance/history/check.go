package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind says what is wrong in a history.
type Kind string

// The kinds of anomaly.
const (
	Lost            Kind = "lost"              // a good receipt, and it never came
	Doubled         Kind = "doubled"           // delivered again to consumers none of which gave it back
	StoredTwice     Kind = "stored-twice"      // one ID at two positions of the broker
	Unexpected      Kind = "unexpected"        // delivered, and nobody published it
	RefusedCame     Kind = "refused-came"      // delivered, and all its receipts say that it wasn't stored
	NoFirst         Kind = "no-first"          // a receipt says Duplicate of what nobody had published before
	ConfirmedAgain  Kind = "confirmed-again"   // delivered again after the broker had confirmed its ack
	LeaseLostGone   Kind = "lease-lost-gone"   // the ack was said to be too late, and yet it never came again
	StaleTook       Kind = "stale-took"        // an ack was confirmed to a holder that had been replaced
	OutOfOrder      Kind = "out-of-order"      // came first after a later one of its key
	Gap             Kind = "gap"               // a later one of its key came, and it never did
	EffectTwice     Kind = "effect-twice"      // its effect was applied more than once
	EffectMissing   Kind = "effect-missing"    // acked, and its effect never was applied
	EffectUnasked   Kind = "effect-unasked"    // an effect of what never was delivered
	AckBeforeEffect Kind = "ack-before-effect" // acked before its effect: a crash between loses it
)

// meanings are what each kind means, in a sentence.
var meanings = map[Kind]string{
	Lost:            "the receipt says that the broker has it, and it never came",
	Doubled:         "it came again though no consumer had given it back",
	StoredTwice:     "the broker has it at two positions",
	Unexpected:      "it came, and nobody had published it",
	RefusedCame:     "it came, and every receipt says that it was not stored",
	NoFirst:         "a receipt calls it a duplicate, and nobody had published it before",
	ConfirmedAgain:  "it came again after the broker had confirmed its ack",
	LeaseLostGone:   "its ack was answered as too late, and yet it never came again",
	StaleTook:       "an ack was confirmed to a consumer that another had replaced",
	OutOfOrder:      "it came after a later message of its key",
	Gap:             "later messages of its key came, and it never did",
	EffectTwice:     "its effect was applied more than once",
	EffectMissing:   "it was acked, and its effect was never applied",
	EffectUnasked:   "an effect was applied for what was never delivered",
	AckBeforeEffect: "it was acked before its effect: a crash between the two loses the effect",
}

// Meaning is what the kind means, in a sentence about a message.
func (k Kind) Meaning() string { return meanings[k] }

// Kinds returns all kinds, in the order in which anomalies are reported.
func Kinds() []Kind {
	return []Kind{Lost, Doubled, StoredTwice, Unexpected, RefusedCame, NoFirst, ConfirmedAgain, LeaseLostGone, StaleTook,
		OutOfOrder, Gap, EffectTwice, EffectMissing, EffectUnasked, AckBeforeEffect}
}

// Anomaly is one message with which something is wrong.
type Anomaly struct {
	Kind Kind   `json:"kind"`
	ID   string `json:"id"`
	Copy string `json:"copy,omitempty"`
	// Events are the places in the history that show it, counted from 0.
	Events []int `json:"events"`
	// Text says what was seen.
	Text string `json:"text"`
}

// Result is what a history shows.
type Result struct {
	Messages   int `json:"messages"`   // that were published
	Promised   int `json:"promised"`   // with a good receipt
	Unknown    int `json:"unknown"`    // with no better receipt than Unknown
	Recovered  int `json:"recovered"`  // of those, delivered all the same
	Deliveries int `json:"deliveries"` // of all messages
	Effects    int `json:"effects"`
	// Anomalies are sorted by kind, as in [Kinds], and then as they happened.
	Anomalies []Anomaly `json:"anomalies"`
	// Undecided are what could not be checked, as sentences.
	Undecided []string `json:"undecided,omitempty"`
}

// Count is how many anomalies of a kind there are.
func (r *Result) Count(k Kind) int {
	n := 0
	for i := range r.Anomalies {
		if r.Anomalies[i].Kind == k {
			n++
		}
	}
	return n
}

// IDs are the messages with an anomaly of the kind.
func (r *Result) IDs(k Kind) []string {
	var ids []string
	for i := range r.Anomalies {
		if r.Anomalies[i].Kind == k {
			ids = append(ids, r.Anomalies[i].ID)
		}
	}
	return ids
}

func (r *Result) String() string {
	if len(r.Anomalies) == 0 {
		return "no anomaly"
	}
	var counts []string
	for _, k := range Kinds() {
		if n := r.Count(k); n > 0 {
			counts = append(counts, fmt.Sprintf("%s %d", k, n))
		}
	}
	return strings.Join(counts, ", ")
}

// Check finds all anomalies of a history, and none that it doesn't show: where
// fields are missing, or it isn't drained, it looks for less and says so. It depends
// on nothing but h, which should be [History.Valid].
func Check(h History) Result {
	c := newChecker(h)
	c.queue()
	c.receipts()
	c.settles()
	c.order()
	c.effects()
	order := map[Kind]int{}
	for i, k := range Kinds() {
		order[k] = i
	}
	slices.SortStableFunc(c.result.Anomalies, func(a, b Anomaly) int {
		return cmp.Or(cmp.Compare(order[a.Kind], order[b.Kind]), slices.Compare(a.Events, b.Events))
	})
	return c.result
}

// checker has a history by message.
type checker struct {
	h      History
	result Result
	tracks map[message]*track
	sorted []*track       // as they first appeared
	passed map[string]int // events about messages that no check reads, by kind
}

// track is what happened to one message: places in the history.
type track struct {
	message
	key                                                         string
	publishes, receipts, deliveries, settles, outcomes, effects []int
}

func newChecker(h History) *checker {
	c := &checker{h: h, tracks: map[message]*track{}, passed: map[string]int{}}
	for i := range h.Events {
		e := &h.Events[i]
		switch e.Kind {
		case Publish, Receipt, Delivery, Settle, Outcome, Effect:
		default:
			if e.ID != "" {
				c.passed[e.Kind]++
			}
			continue
		}
		t := c.tracks[e.message()]
		if t == nil {
			t = &track{message: e.message()}
			c.tracks[e.message()] = t
			c.sorted = append(c.sorted, t)
		}
		switch e.Kind {
		case Publish:
			if len(t.publishes) == 0 {
				t.key = e.Key
			}
			t.publishes = append(t.publishes, i)
		case Receipt:
			t.receipts = append(t.receipts, i)
		case Delivery:
			t.deliveries = append(t.deliveries, i)
			c.result.Deliveries++
		case Settle:
			t.settles = append(t.settles, i)
		case Outcome:
			t.outcomes = append(t.outcomes, i)
		case Effect:
			t.effects = append(t.effects, i)
			c.result.Effects++
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(c.passed)) {
		c.undecided(fmt.Sprintf("%d events about messages are of the kind %q, which no check reads", c.passed[kind], kind))
	}
	if len(c.sorted) == 0 {
		c.undecided("the history has no event that a check reads")
	}
	if !h.Drained {
		c.undecided("the history doesn't say that it was drained: nothing is called lost, a gap, or gone, for it might have come later")
	}
	return c
}

func (c *checker) undecided(text string) { c.result.Undecided = append(c.result.Undecided, text) }

func (c *checker) found(k Kind, t *track, events []int, format string, args ...any) {
	c.result.Anomalies = append(c.result.Anomalies, Anomaly{Kind: k, ID: t.id, Copy: t.copy, Events: events, Text: fmt.Sprintf(format, args...)})
}

// at is the time of an event, for a text.
func (c *checker) at(i int) string { return fmt.Sprintf("%.3f s", c.h.Events[i].At) }

func (c *checker) times(is []int) string {
	var all []string
	for _, i := range is {
		all = append(all, c.at(i))
	}
	if len(all) > 5 {
		all = append(all[:5], "…")
	}
	return strings.Join(all, ", ")
}
