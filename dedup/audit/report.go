package audit

import "time"

// Schema is the version of the JSON form of a [Report]. It changes when a field changes
// its meaning; new fields don't change it.
const Schema = 1

// Kind says what is wrong.
type Kind string

// The kinds of finding.
const (
	AppliedTwice  Kind = "applied-twice"
	Gap           Kind = "gap"
	Renamed       Kind = "renamed"
	Missing       Kind = "missing"
	Unasked       Kind = "unasked"
	CountsDiffer  Kind = "counts-differ"
	CaughtTooFew  Kind = "caught-too-few"
	CaughtTooMany Kind = "caught-too-many"
	RetryLate     Kind = "retry-late"
	Held          Kind = "held"
	Parked        Kind = "parked"
	Stuck         Kind = "stuck"
	MarkersShort  Kind = "markers-short"
)

// Kinds are all kinds, in the order of reports.
func Kinds() []Kind {
	return []Kind{AppliedTwice, Gap, Renamed, Missing, Unasked, CountsDiffer, CaughtTooFew, CaughtTooMany, RetryLate, Held, Parked, Stuck, MarkersShort}
}

// Meaning says what is wrong and what to look at first, in a sentence or two.
func (k Kind) Meaning() string {
	return map[Kind]string{
		AppliedTwice:  "One business key has several effects. Copies close together point to a check before the write instead of a unique marker, or to a marker outside of the effect's transaction; copies far apart to markers that were gone.",
		Gap:           "Later numbers of a producer have effects, and these have none: acked before the effect, or dropped.",
		Renamed:       "One number of a producer has several keys: the key is made anew for each attempt, so that nothing can find the duplicate; or the producer counts from the start again under its old name.",
		Missing:       "It was sent, and has no effect: acked before the effect, dropped, dead-lettered, or still on its way for longer than --settle.",
		Unasked:       "It has an effect, and nobody sent it: the key is another one on the two sides, or what was sent is no longer kept.",
		CountsDiffer:  "The numbers of messages sent and of effects of one time differ.",
		CaughtTooFew:  "Far fewer duplicates were caught than the producer sent again: the ID may be another one on each attempt, which no store can know.",
		CaughtTooMany: "Far more duplicates were caught than retries and redeliveries explain: different messages may have the same ID, as when it is a hash of the body, and all but the first are lost.",
		RetryLate:     "It was sent again when the broker may have forgotten its ID: a second message, which only the consumer's markers can catch.",
		Held:          "The relay holds these back, for the broker may have stored them longer ago than it remembers: see onceline relay held.",
		Parked:        "The broker refused these for good, and later messages of their keys wait: see onceline relay held.",
		Stuck:         "These wait to be sent for longer than --settle: no relay runs, or the broker can't be reached.",
		MarkersShort:  "Markers are kept for less than the horizon: a copy that comes later is applied again.",
	}[k]
}

// Example is one thing that is wrong. Which fields it has depends on the kind.
type Example struct {
	Key      string `json:"key,omitempty"`
	Producer string `json:"producer,omitempty"`
	// From and To are the numbers that are missing, or the one with several keys.
	From *int64 `json:"from,omitempty"`
	To   *int64 `json:"to,omitempty"`
	// Count is how often: of effects, keys, attempts or messages.
	Count int64 `json:"count,omitempty"`
	// First and Last are the times of the first and the last of them, or the beginning of
	// a bucket and its end.
	First *time.Time `json:"first,omitempty"`
	Last  *time.Time `json:"last,omitempty"`
	Note  string     `json:"note,omitempty"`
}

// Finding is what is wrong in one way.
type Finding struct {
	Kind Kind `json:"kind"`
	// Count is how many: keys, numbers of a sequence, messages, buckets.
	Count int64  `json:"count"`
	Text  string `json:"text"`
	// Buckets are the first of the times in which they are.
	Buckets []Example `json:"buckets,omitempty"`
	// Examples are the first of them, by key or number.
	Examples []Example `json:"examples,omitempty"`
	// More is how many there are beside the examples.
	More int64 `json:"more,omitempty"`
}

// Check is one invariant that was looked at, or not.
type Check struct {
	Name string `json:"name"`
	// State is clean, found, failed (it could not be looked at) or not-asked.
	State State `json:"state"`
	// Saw is what it rests on; of one that failed or wasn't asked, why.
	Saw      string    `json:"saw"`
	Findings []Finding `json:"findings,omitempty"`
	// Undecided is what it could not tell.
	Undecided []string `json:"undecided,omitempty"`
	Seconds   float64  `json:"seconds"`
}

// State is what became of a check.
type State string

// The states.
const (
	Clean    State = "clean"
	Found    State = "found"
	Failed   State = "failed"
	NotAsked State = "not-asked"
)

// Report is what an audit found.
type Report struct {
	Schema int       `json:"schema"`
	At     time.Time `json:"at"`
	// Since is zero where all was judged; Until is the time up to which.
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until"`
	Checks []Check   `json:"checks"`
	// State is Found if any check's is, else Failed if any's is, or if none was asked,
	// else Clean.
	State State `json:"state"`
}

// Findings are those of all checks.
func (r *Report) Findings() []Finding {
	var all []Finding
	for _, c := range r.Checks {
		all = append(all, c.Findings...)
	}
	return all
}

// summarise sets the state.
func (r *Report) summarise() {
	n := map[State]int{}
	for _, c := range r.Checks {
		n[c.State]++
	}
	switch {
	case n[Found] > 0:
		r.State = Found
	case n[Failed] > 0 || n[Clean] == 0:
		r.State = Failed
	default:
		r.State = Clean
	}
}
