package audit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Plan is what is audited. Each check is made for which there is what it needs, and the
// others say in the report what they would need.
type Plan struct {
	// Effects are the effects; Sent is what the producer wrote of its messages: a row for
	// each message, or one for each attempt.
	Effects, Sent *Table
	// Outbox has the tables of a dedup.Outbox, and Markers those of a dedup.Inbox.
	Outbox, Markers *Store

	// Caught is how many duplicates the consumer caught, and CaughtByBroker how many
	// publishes the broker answered as Duplicate, in the time that is judged: from their
	// metrics. Retries is how many publishes were repeated, where Sent doesn't tell, and
	// Redelivered how many deliveries weren't the first. Nil: not known.
	Caught, CaughtByBroker, Retries, Redelivered *int64

	// Since and Until bound what is judged, not what it is held against. A zero Since is
	// the beginning, a zero Until the present.
	Since, Until time.Time
	// Settle is how long after it was sent an effect may still be on its way; what is
	// younger isn't judged. It also covers the difference of clocks. Zero means 15
	// minutes.
	Settle time.Duration
	// Bucket is the time over which sent and applied are counted. Zero means an hour.
	Bucket time.Duration
	// Window is how long the broker remembers IDs, and Horizon how long copies may come
	// (dedup.Horizon). Zero: not known.
	Window, Horizon time.Duration
	// Most is how many examples a finding has. Zero means 10.
	Most int
	// Now is the present. Zero takes time.Now.
	Now time.Time
	// Progress is called as each check begins. It may be nil.
	Progress func(check string, n, of int)
}

// Store is where the tables of a store of package dedup are.
type Store struct {
	In     *Database
	Schema string // PostgreSQL's; "" is what the search path finds
	Topic  string // of an outbox; "" for all
}

// MostBuckets bounds how many buckets are counted: memory grows with them.
const MostBuckets = 100_000

// ErrPlan is what Run returns for a plan that makes no sense.
var ErrPlan = errors.New("audit: the plan makes no sense")

func (p Plan) withDefaults() (Plan, error) {
	if p.Settle == 0 {
		p.Settle = 15 * time.Minute
	}
	if p.Bucket == 0 {
		p.Bucket = time.Hour
	}
	if p.Most == 0 {
		p.Most = 10
	}
	if p.Now.IsZero() {
		p.Now = time.Now()
	}
	if p.Progress == nil {
		p.Progress = func(string, int, int) {}
	}
	if p.Until.IsZero() || p.Until.After(p.Now) {
		p.Until = p.Now
	}
	bad := func(what string) (Plan, error) { return p, fmt.Errorf("%w: %s", ErrPlan, what) }
	switch {
	case p.Settle < 0 || p.Window < 0 || p.Horizon < 0 || p.Most < 0:
		return bad("a time or number is under zero")
	case p.Bucket < time.Second:
		return bad("a bucket is under a second")
	case p.Since.After(p.settled()):
		return bad(fmt.Sprintf("what was sent since %s is judged up to %s only, for the rest may be on its way", p.Since.UTC().Format(time.RFC3339), p.settled().UTC().Format(time.RFC3339)))
	}
	for _, n := range []*int64{p.Caught, p.CaughtByBroker, p.Retries, p.Redelivered} {
		if n != nil && *n < 0 {
			return bad("a number is under zero")
		}
	}
	for _, t := range []*Table{p.Effects, p.Sent} {
		if t != nil && (t.Seq == "") != (t.Producer == "") && t.Seq == "" {
			return bad("a producer's column without one of its sequence")
		}
	}
	return p, nil
}

// settled is the time up to which nothing is on its way any more.
func (p *Plan) settled() time.Time {
	if at := p.Now.Add(-p.Settle); at.Before(p.Until) {
		return at
	}
	return p.Until
}

// judged reports whether a time is of the part that is judged.
func (p *Plan) judged(micros int64) bool {
	return (p.Since.IsZero() || micros >= p.Since.UnixMicro()) && micros < p.settled().UnixMicro()
}

// check is one of the checks: what it needs, "" where it has it, and the work.
type check struct {
	name  string
	needs func(*Plan) string
	run   func(context.Context, *Plan, *Check) error
}

func checks() []check {
	return []check{
		{"duplicates applied", needsDuplicates, duplicates},
		{"sequences", needsSequences, sequences},
		{"sent and applied", needsCompare, compare},
		{"duplicates caught and retries", needsMagnitude, magnitude},
		{"retry age", needsRetryAge, retryAge},
		{"outbox", needsOutbox, outbox},
		{"markers", needsMarkers, markers},
	}
}

// Run audits. It returns an error, which is [ErrPlan] or [ErrTable], for a plan that can't
// be followed; a check that fails at its work, of which its database or ctx is the cause,
// is [Failed] in the report. Run blocks for the statements, one check after another, and
// ends early with ctx.
func Run(ctx context.Context, p Plan) (*Report, error) {
	p, err := p.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Report{Schema: Schema, At: p.Now.UTC(), Since: p.Since.UTC(), Until: p.settled().UTC()}
	all := checks()
	for i, c := range all {
		out := Check{Name: c.name, State: NotAsked}
		if out.Saw = c.needs(&p); out.Saw == "" {
			p.Progress(c.name, i+1, len(all))
			begin := time.Now()
			err := context.Cause(ctx)
			if err == nil {
				err = c.run(ctx, &p, &out)
			}
			if errors.Is(err, ErrTable) || errors.Is(err, ErrPlan) {
				return nil, err
			}
			out.Seconds = time.Since(begin).Seconds()
			switch {
			case err != nil:
				out.State, out.Saw, out.Findings = Failed, err.Error(), nil
			case len(out.Findings) > 0:
				out.State = Found
			default:
				out.State = Clean
			}
		}
		r.Checks = append(r.Checks, out)
	}
	r.summarise()
	return r, nil
}

// at is a time of so many microseconds.
func at(micros int64) *time.Time {
	t := time.UnixMicro(micros).UTC()
	return &t
}
