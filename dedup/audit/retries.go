package audit

import (
	"context"
	"errors"
	"fmt"
)

// magnitudes are of one if neither is over ten times the other; under enough there is no
// telling.
const (
	magnitudeFactor = 10
	magnitudeEnough = 20
)

func needsMagnitude(p *Plan) string {
	switch {
	case p.Caught == nil:
		return "it needs the number of duplicates that were caught"
	case p.Retries == nil && !p.tellsRetries():
		return "it needs the number of retries, or what was sent with its attempts"
	}
	return ""
}

// tellsRetries reports whether what was sent has attempts.
func (p *Plan) tellsRetries() bool { return p.Sent != nil && len(p.Sent.Key) > 0 }

// magnitude holds the duplicates that were caught against what should have made them.
func magnitude(ctx context.Context, p *Plan, out *Check) error {
	var retries int64
	if p.Retries != nil {
		retries = *p.Retries
	} else {
		a, err := attempts(ctx, p)
		if err != nil {
			return err
		}
		retries = a.retries
	}
	caught, redelivered := *p.Caught, int64(0)
	where := "caught"
	if p.CaughtByBroker != nil {
		caught += *p.CaughtByBroker
		where = "caught by consumer and broker"
	}
	out.Saw = fmt.Sprintf("%s %s, %s of the producer", plural(caught, "duplicate"), where, retriesWord(retries))
	if p.Redelivered != nil {
		redelivered = *p.Redelivered
		out.Saw += fmt.Sprintf(", %s that came again", plural(redelivered, "message"))
	}
	few := retries >= magnitudeEnough && caught < retries/magnitudeFactor
	many := caught >= magnitudeEnough && caught/magnitudeFactor > retries+redelivered
	switch {
	case few && p.CaughtByBroker == nil:
		out.Findings = append(out.Findings, Finding{Kind: CaughtTooFew, Count: caught, Text: out.Saw})
		out.Undecided = append(out.Undecided, "a broker that dedups catches retries before the consumer does: give how many it answered as duplicates")
	case few:
		out.Findings = append(out.Findings, Finding{Kind: CaughtTooFew, Count: caught, Text: out.Saw})
	case many && p.Redelivered == nil:
		out.Undecided = append(out.Undecided, "the duplicates are many more than the retries: redelivery explains them, or different messages have one ID; give how many deliveries came again")
	case many:
		out.Findings = append(out.Findings, Finding{Kind: CaughtTooMany, Count: caught, Text: out.Saw})
	case retries < magnitudeEnough && caught < magnitudeEnough:
		out.Undecided = append(out.Undecided, fmt.Sprintf("under %d there is no telling", magnitudeEnough))
	}
	return nil
}

func retriesWord(n int64) string {
	if n == 1 {
		return "1 retry"
	}
	return grouped(n) + " retries"
}

func needsRetryAge(p *Plan) string {
	switch {
	case p.Sent == nil || p.Sent.Time == "" || len(p.Sent.Key) == 0:
		return "it needs what was sent, with key and time"
	}
	return ""
}

// ages are the borders between which retries are counted by their age.
var ages = []struct {
	name   string
	micros int64
}{{"under 1s", 1e6}, {"under 10s", 1e7}, {"under 1m", 6e7}, {"under 5m", 3e8}, {"under 1h", 36e8}, {"under 1 day", 864e8}}

// attempted is what the attempts of a producer tell.
type attempted struct {
	messages, retried, retries, late int64
	oldest                           *int64
	under                            []int64 // of ages, cumulated
}

// attempts counts the producer's attempts.
func attempts(ctx context.Context, p *Plan) (a attempted, err error) {
	o, err := p.Sent.open(ctx)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, o.end()) }()
	err = o.one(ctx, fmt.Sprintf("SELECT count(*), coalesce(sum(CASE WHEN n > 1 THEN 1 ELSE 0 END), 0), coalesce(sum(n - 1), 0) FROM (%s) AS q", o.attempts(p)), &a.messages, &a.retried, &a.retries)
	if err != nil || o.Time == "" {
		return a, err
	}
	a.under = make([]int64, len(ages))
	sums, into := "", []any{&a.oldest, &a.late}
	for i, b := range ages {
		sums += fmt.Sprintf(", coalesce(sum(CASE WHEN z - a < %d THEN 1 ELSE 0 END), 0)", b.micros)
		into = append(into, &a.under[i])
	}
	late := int64(1<<62 - 1)
	if p.Window > 0 {
		late = p.Window.Microseconds()
	}
	err = o.one(ctx, fmt.Sprintf("SELECT max(z - a), coalesce(sum(CASE WHEN z - a >= %d THEN 1 ELSE 0 END), 0)%s FROM (%s) AS q WHERE n > 1", late, sums, o.attempts(p)), into...)
	return a, err
}

// attempts is a query with a row for each message: its key, how often it was tried, and
// when first and last.
func (o *opened) attempts(p *Plan) string {
	n, first, last := "count(*)", "NULL", "NULL"
	if o.Time != "" {
		first, last = "min("+o.micros(o.Time)+")", "max("+o.micros(o.Time)+")"
	}
	if o.Last != "" {
		last = "max(" + o.micros(o.Last) + ")"
	}
	switch {
	case o.Attempts != "":
		n = fmt.Sprintf("max(%s)", o.number64(o.Attempts))
	case o.Last != "" && o.Time != "":
		n = fmt.Sprintf("CASE WHEN max(%s) > min(%s) AND count(*) = 1 THEN 2 ELSE count(*) END", o.micros(o.Last), o.micros(o.Time))
	}
	having := ""
	if o.Time != "" {
		having = fmt.Sprintf(" HAVING %s < %d", last, p.Until.UnixMicro())
		if !p.Since.IsZero() {
			having += fmt.Sprintf(" AND %s >= %d", last, p.Since.UnixMicro())
		}
	}
	return fmt.Sprintf("SELECT %s AS k, %s AS n, %s AS a, %s AS z FROM %s WHERE %s GROUP BY 1%s", o.key(), n, first, last, o.table(), o.keyed(), having)
}

func (o *opened) number64(col string) string {
	as := map[Dialect]string{Postgres: "bigint", MySQL: "SIGNED", SQLite: "INTEGER"}[o.d.Dialect]
	return "CAST(" + o.quote(col) + " AS " + as + ")"
}

// retryAge tells how long after their first attempt messages were sent for the last time,
// and finds those that were after the broker's window.
func retryAge(ctx context.Context, p *Plan, out *Check) (err error) {
	a, err := attempts(ctx, p)
	if err != nil {
		return err
	}
	out.Saw = fmt.Sprintf("%s, %s of them sent again", plural(a.messages, "message"), grouped(a.retried))
	if a.oldest != nil {
		out.Saw += ", the last time " + short(microseconds(*a.oldest)) + " after the first at most"
		before := int64(0)
		for i, b := range ages {
			if n := a.under[i] - before; n > 0 {
				out.Saw += fmt.Sprintf("; %s %s", grouped(n), b.name)
			}
			before = a.under[i]
		}
		if rest := a.retried - before; rest > 0 {
			out.Saw += fmt.Sprintf("; %s later", grouped(rest))
		}
	}
	if a.retried > 0 && p.Window == 0 {
		out.Undecided = append(out.Undecided, "without the broker's window nothing is called late")
	}
	if a.late == 0 {
		return nil
	}
	f := Finding{Kind: RetryLate, Count: a.late, Text: fmt.Sprintf("%s sent again after the broker's window of %s", was(a.late, "message"), short(p.Window))}
	o, err := p.Sent.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.end()) }()
	err = o.query(ctx, fmt.Sprintf("SELECT k, n, a, z FROM (%s) AS q WHERE n > 1 AND z - a >= %d ORDER BY z - a DESC, k LIMIT %d", o.attempts(p), p.Window.Microseconds(), p.Most), func(scan func(...any) error) error {
		var k []byte
		var e Example
		var a, z int64
		err := scan(&k, &e.Count, &a, &z)
		e.Key, e.First, e.Last, e.Note = shown(k), at(a), at(z), short(microseconds(z-a))+" apart"
		f.Examples = append(f.Examples, e)
		return err
	})
	f.More = a.late - int64(len(f.Examples))
	out.Findings = append(out.Findings, f)
	return err
}
