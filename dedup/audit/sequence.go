package audit

import (
	"context"
	"errors"
	"fmt"
)

func needsSequences(p *Plan) string {
	if p.Effects == nil || p.Effects.Seq == "" {
		return "it needs the effects and the column of the producer's sequence"
	}
	return ""
}

// sequences looks for numbers without an effect between others of their producer, and
// for numbers with two keys.
func sequences(ctx context.Context, p *Plan, out *Check) (err error) {
	o, err := p.Effects.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.end()) }()
	seq, stamp := o.whole(), "NULL"
	if o.when() != "" {
		stamp = o.micros(o.when())
	}
	// One row for each number. With Since only from the lowest that was applied after it,
	// but then all: a number in between may have been applied earlier than its neighbours.
	from := ""
	if !p.Since.IsZero() && o.when() != "" {
		from = fmt.Sprintf(" JOIN (SELECT %s AS onceline_p, min(%s) AS onceline_s FROM %s WHERE %s GROUP BY 1) AS f ON %[1]s = f.onceline_p AND %[2]s >= f.onceline_s", o.producer(), seq, o.table(), o.since(o.when(), p.Since))
	}
	numbers := fmt.Sprintf("SELECT %s AS p, %s AS s, min(%s) AS t FROM %s%s WHERE %s IS NOT NULL GROUP BY 1, 2", o.producer(), seq, stamp, o.table(), from, o.quote(o.Seq))
	var producers, count int64
	if err := o.one(ctx, "SELECT count(DISTINCT p), count(*) FROM ("+numbers+") AS q", &producers, &count); err != nil {
		return err
	}
	out.Saw = fmt.Sprintf("%s of %s", plural(count, "number"), plural(producers, "producer"))
	if count == 0 {
		out.Undecided = append(out.Undecided, "there are no numbers to look at")
	}
	// A hole is one once what follows it is settled.
	settled := ""
	if o.when() != "" {
		settled = fmt.Sprintf(" AND t < %d", p.settled().UnixMicro())
		if !p.Since.IsZero() {
			settled += fmt.Sprintf(" AND t >= %d", p.Since.UnixMicro())
		}
	} else {
		out.Undecided = append(out.Undecided, "without a time of the effects, what is still on its way is a gap")
	}
	gaps := fmt.Sprintf("SELECT p, prev + 1 AS a, s - 1 AS z, t FROM (SELECT p, s, t, lag(s) OVER (PARTITION BY p ORDER BY s) AS prev FROM (%s) AS q) AS w WHERE s > prev + 1%s", numbers, settled)
	var holes, lost int64
	if err := o.one(ctx, "SELECT count(*), coalesce(sum(z - a + 1), 0) FROM ("+gaps+") AS g", &holes, &lost); err != nil {
		return err
	}
	if holes > 0 {
		f := Finding{Kind: Gap, Count: lost, Text: fmt.Sprintf("%s without an effect, in %s", plural(lost, "number"), plural(holes, "gap"))}
		err := o.query(ctx, fmt.Sprintf("SELECT p, a, z, t FROM (%s) AS g ORDER BY p, a LIMIT %d", gaps, p.Most), func(scan func(...any) error) error {
			var who []byte
			var a, z int64
			var t *int64
			if err := scan(&who, &a, &z, &t); err != nil {
				return err
			}
			e := Example{Producer: shown(who), From: &a, To: &z, Count: z - a + 1}
			if t != nil {
				e.Last, e.Note = at(*t), "the next one was applied then"
			}
			f.Examples = append(f.Examples, e)
			return nil
		})
		if err != nil {
			return err
		}
		f.More = holes - int64(len(f.Examples))
		out.Findings = append(out.Findings, f)
	}
	if len(o.Key) == 0 {
		return nil
	}
	return o.renamed(ctx, p, out)
}

// renamed looks for numbers with several keys.
func (o *opened) renamed(ctx context.Context, p *Plan, out *Check) error {
	where := fmt.Sprintf("%s IS NOT NULL AND %s", o.quote(o.Seq), o.keyed())
	if o.when() != "" {
		where += " AND " + o.since(o.when(), p.Since)
	}
	keys := fmt.Sprintf("SELECT %s AS p, %s AS s, count(DISTINCT %s) AS n FROM %s WHERE %s GROUP BY 1, 2 HAVING count(DISTINCT %[3]s) > 1", o.producer(), o.whole(), o.key(), o.table(), where)
	var n int64
	if err := o.one(ctx, "SELECT count(*) FROM ("+keys+") AS q", &n); err != nil || n == 0 {
		return err
	}
	f := Finding{Kind: Renamed, Count: n, Text: has(n, "number") + " more than one key"}
	err := o.query(ctx, fmt.Sprintf("SELECT p, s, n FROM (%s) AS q ORDER BY p, s LIMIT %d", keys, p.Most), func(scan func(...any) error) error {
		var who []byte
		var s int64
		e := Example{From: &s, To: &s}
		err := scan(&who, &s, &e.Count)
		e.Producer = shown(who)
		f.Examples = append(f.Examples, e)
		return err
	})
	f.More = n - int64(len(f.Examples))
	out.Findings = append(out.Findings, f)
	return err
}

// whole is the expression of the sequence's number, which may be kept as text.
func (o *opened) whole() string {
	as := map[Dialect]string{Postgres: "bigint", MySQL: "SIGNED", SQLite: "INTEGER"}[o.d.Dialect]
	return "CAST(" + o.quote(o.Seq) + " AS " + as + ")"
}
