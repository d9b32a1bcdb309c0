package audit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func needsDuplicates(p *Plan) string {
	if p.Effects == nil || len(p.Effects.Key) == 0 {
		return "it needs the effects and the column of their business key"
	}
	return ""
}

// duplicates looks for keys with several effects. It groups the whole table whatever
// Since says, for the first copy may be old; Since says which are reported, by their last.
func duplicates(ctx context.Context, p *Plan, out *Check) (err error) {
	o, err := p.Effects.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.end()) }()
	when := ""
	stamp := "NULL"
	if col := o.when(); col != "" {
		stamp = o.micros(col)
		when = fmt.Sprintf(" AND (max(%[1]s) IS NULL OR max(%[1]s) < %[2]d", stamp, p.Until.UnixMicro())
		if !p.Since.IsZero() {
			when += fmt.Sprintf(" AND max(%s) >= %d", stamp, p.Since.UnixMicro())
		}
		when += ")"
	}
	grouped := fmt.Sprintf("SELECT %s AS k, count(*) AS n, min(%[2]s) AS a, max(%[2]s) AS z FROM %[3]s WHERE %[4]s GROUP BY 1 HAVING count(*) > 1%[5]s", o.key(), stamp, o.table(), o.keyed(), when)
	var keys, more int64
	if err := o.one(ctx, "SELECT count(*), coalesce(sum(n - 1), 0) FROM ("+grouped+") AS d", &keys, &more); err != nil {
		return err
	}
	var rows, keyless int64
	if err := o.one(ctx, fmt.Sprintf("SELECT count(*), coalesce(sum(CASE WHEN %s THEN 0 ELSE 1 END), 0) FROM %s", o.keyed(), o.table()), &rows, &keyless); err != nil {
		return err
	}
	out.Saw = plural(rows, "effect")
	if keyless > 0 {
		out.Undecided = append(out.Undecided, fmt.Sprintf("%s no key", has(keyless, "effect")))
	}
	if rows == 0 {
		out.Undecided = append(out.Undecided, "there are no effects to look at")
	}
	if keys == 0 {
		return nil
	}
	f := Finding{Kind: AppliedTwice, Count: keys, Text: fmt.Sprintf("%s applied more than once, %s in excess", was(keys, "key"), plural(more, "effect"))}
	err = o.query(ctx, fmt.Sprintf("SELECT k, n, a, z FROM (%s) AS d ORDER BY n DESC, k LIMIT %d", grouped, p.Most), func(scan func(...any) error) error {
		var k []byte
		var e Example
		var a, z *int64
		if err := scan(&k, &e.Count, &a, &z); err != nil {
			return err
		}
		e.Key = shown(k)
		if a != nil && z != nil {
			e.First, e.Last, e.Note = at(*a), at(*z), p.apart(*z-*a)
		}
		f.Examples = append(f.Examples, e)
		return nil
	})
	f.More = keys - int64(len(f.Examples))
	out.Findings = append(out.Findings, f)
	return err
}

// when is the column that says best when an effect took place; "" if none does.
func (o *opened) when() string {
	if o.Applied != "" {
		return o.Applied
	}
	return o.Time
}

// apart says what the time between two effects of a key tells.
func (p *Plan) apart(micros int64) string {
	d := time.Duration(micros) * time.Microsecond
	s := short(d) + " apart"
	if p.Horizon > 0 && d > p.Horizon {
		s += ", beyond the horizon"
	}
	return s
}
