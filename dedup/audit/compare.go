package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

func needsCompare(p *Plan) string {
	switch {
	case p.Effects == nil || p.Sent == nil:
		return "it needs the effects and what was sent"
	case len(p.Effects.Key) > 0 && len(p.Sent.Key) > 0:
		return ""
	case p.Effects.Time == "" || p.Sent.Time == "":
		return "it needs the key of both, or the producer's time of both"
	}
	return ""
}

// compare holds what was sent against its effects: key by key, or, where one side has no
// key, by counts.
func compare(ctx context.Context, p *Plan, out *Check) (err error) {
	effects, err := p.Effects.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, effects.end()) }()
	sent, err := p.Sent.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sent.end()) }()
	if len(p.Effects.Key) > 0 && len(p.Sent.Key) > 0 {
		return byKey(ctx, p, out, sent, effects)
	}
	return byCount(ctx, p, out, sent, effects)
}

// bucket is what was sent, or applied, in one time.
type bucket struct {
	sent, missing, unsent, unasked, applied int64
}

// buckets counts by time.
type buckets struct {
	of   map[int64]*bucket
	size int64 // microseconds
}

func newBuckets(p *Plan) *buckets {
	return &buckets{map[int64]*bucket{}, p.Bucket.Microseconds()}
}

func (b *buckets) at(micros int64) (*bucket, error) {
	n := micros / b.size
	if micros < 0 && micros%b.size != 0 {
		n--
	}
	if b.of[n] == nil {
		if len(b.of) == MostBuckets {
			return nil, fmt.Errorf("%w: over %d buckets: make them longer, or judge a shorter time", ErrPlan, MostBuckets)
		}
		b.of[n] = &bucket{}
	}
	return b.of[n], nil
}

// examples are the buckets for which text says something, in order of time.
func (b *buckets) examples(most int, text func(*bucket) (int64, string)) (all int64, es []Example) {
	for _, n := range slices.Sorted(maps.Keys(b.of)) {
		count, note := text(b.of[n])
		if note == "" {
			continue
		}
		if all++; len(es) < most {
			es = append(es, Example{Count: count, First: at(n * b.size), Last: at((n + 1) * b.size), Note: note})
		}
	}
	return all, es
}

// comparison goes through both sides in order of their keys.
type comparison struct {
	p                        *Plan
	sent, effects, waiting   *cursor
	by                       *buckets
	judged, applied, unsent  int64
	young, timeless          int64
	missing, unasked         int64
	missingFirst, unaskedTop []Example
}

func byKey(ctx context.Context, p *Plan, out *Check, sent, effects *opened) (err error) {
	c := &comparison{p: p, by: newBuckets(p)}
	// An effect isn't before its message: what is long before Since is of none that is
	// judged. What was sent is read whole, for an effect may come late.
	where := "1 = 1"
	if !p.Since.IsZero() && effects.when() != "" {
		where = fmt.Sprintf("(%[1]s IS NULL OR %[2]s)", effects.quote(effects.when()), effects.since(effects.when(), p.Since.Add(-p.Settle)))
	}
	if c.effects, err = effects.read(ctx, effects.when(), where); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.effects.close()) }()
	if c.sent, err = sent.read(ctx, sent.Time, "1 = 1"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.sent.close()) }()
	if p.Outbox != nil {
		o, err := p.Outbox.table().open(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.end()) }()
		if c.waiting, err = o.read(ctx, "", p.Outbox.topic()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.waiting.close()) }()
	}
	if err := c.merge(); err != nil {
		return err
	}
	return c.tell(ctx, out)
}

// merge steps through both sides, always the one whose key is lower.
func (c *comparison) merge() error {
	for c.sent.key != nil || c.effects.key != nil {
		var err error
		switch order := c.order(); {
		case order < 0:
			err = errors.Join(c.sentAlone(), c.sent.next())
		case order > 0:
			err = errors.Join(c.effectAlone(), c.effects.next())
		default:
			err = errors.Join(c.both(), c.sent.next(), c.effects.next())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) order() int {
	switch {
	case c.sent.key == nil:
		return 1
	case c.effects.key == nil:
		return -1
	}
	return bytes.Compare(c.sent.key, c.effects.key)
}

// judges reports whether the message that was sent at first is to be judged, and counts
// what isn't.
func (c *comparison) judges(side *cursor, column string) bool {
	switch {
	case column == "":
		return c.p.Since.IsZero()
	case side.first == nil:
		c.timeless++
		return false
	case *side.first >= c.p.settled().UnixMicro():
		c.young++
		return false
	}
	return c.p.judged(*side.first)
}

// bucket is that of the cursor's time, or one for all that has none.
func (c *comparison) bucket(side *cursor) (*bucket, error) {
	if side.first == nil {
		return &bucket{}, nil
	}
	return c.by.at(*side.first)
}

func (c *comparison) both() error {
	if !c.judges(c.sent, c.sent.Time) {
		return nil
	}
	c.judged++
	c.applied++
	b, err := c.bucket(c.sent)
	if err == nil {
		b.sent++
		b.applied++
	}
	return err
}

func (c *comparison) sentAlone() error {
	if !c.judges(c.sent, c.sent.Time) {
		return nil
	}
	c.judged++
	b, err := c.bucket(c.sent)
	if err != nil {
		return err
	}
	b.sent++
	if c.waiting != nil {
		there, err := c.waiting.has(c.sent.key)
		if err != nil {
			return err
		}
		if there {
			b.unsent++
			c.unsent++
			return nil
		}
	}
	b.missing++
	if c.missing++; len(c.missingFirst) < c.p.Most {
		e := Example{Key: shown(c.sent.key), Count: c.sent.n}
		if c.sent.first != nil {
			e.First = at(*c.sent.first)
		}
		c.missingFirst = append(c.missingFirst, e)
	}
	return nil
}

func (c *comparison) effectAlone() error {
	if !c.judges(c.effects, c.effects.when()) {
		return nil
	}
	b, err := c.bucket(c.effects)
	if err != nil {
		return err
	}
	b.unasked++
	if c.unasked++; len(c.unaskedTop) < c.p.Most {
		e := Example{Key: shown(c.effects.key), Count: c.effects.n}
		if c.effects.first != nil {
			e.First = at(*c.effects.first)
		}
		c.unaskedTop = append(c.unaskedTop, e)
	}
	return nil
}

// tell writes what was found into the check.
func (c *comparison) tell(ctx context.Context, out *Check) error {
	out.Saw = fmt.Sprintf("%s sent, %s with an effect; %s in all", plural(c.judged, "message"), grouped(c.applied), plural(c.effects.keys, "key")+" with effects")
	if c.unsent > 0 {
		out.Saw += fmt.Sprintf("; %s in the outbox", grouped(c.unsent))
	}
	if c.sent.keys == 0 {
		out.Undecided = append(out.Undecided, "nothing was sent")
	}
	if c.young > 0 {
		out.Undecided = append(out.Undecided, fmt.Sprintf("%s younger than --settle and not judged", plural(c.young, "key")))
	}
	if c.timeless > 0 {
		out.Undecided = append(out.Undecided, fmt.Sprintf("%s no time and can't be judged", has(c.timeless, "key")))
	}
	if c.sent.Time == "" {
		out.Undecided = append(out.Undecided, "without a time of what was sent, what is still on its way is missing")
	}
	if c.effects.when() == "" && !c.p.Since.IsZero() {
		out.Undecided = append(out.Undecided, "without a time of the effects, those that nobody sent aren't told apart from earlier ones")
	}
	if c.missing > 0 {
		f := Finding{Kind: Missing, Count: c.missing, Text: fmt.Sprintf("%s sent without an effect", plural(c.missing, "message"))}
		n, in := c.by.examples(c.p.Most, func(b *bucket) (int64, string) {
			if b.missing == 0 {
				return 0, ""
			}
			return b.missing, fmt.Sprintf("%s sent, %s applied", grouped(b.sent), grouped(b.applied))
		})
		if n > 0 {
			f.Text += fmt.Sprintf(", in %s of %s", plural(n, "bucket"), short(c.p.Bucket))
		}
		f.Buckets, f.Examples, f.More = in, c.missingFirst, c.missing-int64(len(c.missingFirst))
		out.Findings = append(out.Findings, f)
	}
	if c.unasked > 0 {
		f := Finding{Kind: Unasked, Count: c.unasked, Text: fmt.Sprintf("%s effects that nobody sent", has(c.unasked, "key")), Examples: c.unaskedTop, More: c.unasked - int64(len(c.unaskedTop))}
		out.Findings = append(out.Findings, f)
	}
	return nil
}

// byCount holds the counts of each bucket against each other. Both are by the producer's
// time: by another one a message at a border would be in two.
func byCount(ctx context.Context, p *Plan, out *Check, sent, effects *opened) error {
	b := newBuckets(p)
	var totals [2]int64
	for i, o := range []*opened{sent, effects} {
		stamp := o.micros(o.Time)
		// Distinct where it can be told: a retry is no message, nor a duplicate a second one.
		count := "count(*)"
		if len(o.Key) > 0 {
			count = "count(DISTINCT " + o.key() + ")"
		}
		div := "floor(t / %d.0)"
		if o.d.Dialect == SQLite {
			div = "t / %d - (t < 0 AND t %% %[1]d <> 0)"
		}
		inner := fmt.Sprintf("SELECT %s AS t FROM %s WHERE %s", stamp, o.table(), o.since(o.Time, p.Since))
		if len(o.Key) > 0 {
			inner = fmt.Sprintf("SELECT %s AS t, %s AS k FROM %s WHERE %s", stamp, o.key(), o.table(), o.since(o.Time, p.Since))
			count = "count(DISTINCT k)"
		}
		where := fmt.Sprintf("t < %d", p.settled().UnixMicro())
		if !p.Since.IsZero() {
			where += fmt.Sprintf(" AND t >= %d", p.Since.UnixMicro())
		}
		err := o.query(ctx, fmt.Sprintf("SELECT %s, %s FROM (%s) AS q WHERE %s GROUP BY 1", fmt.Sprintf(div, b.size), count, inner, where), func(scan func(...any) error) error {
			var which float64
			var n int64
			if err := scan(&which, &n); err != nil {
				return err
			}
			in, err := b.at(int64(which) * b.size)
			if err != nil {
				return err
			}
			totals[i] += n
			if i == 0 {
				in.sent = n
			} else {
				in.applied = n
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	out.Saw = fmt.Sprintf("%s sent, %s, in %s of %s", plural(totals[0], "message"), plural(totals[1], "effect"), plural(int64(len(b.of)), "bucket"), short(p.Bucket))
	out.Undecided = append(out.Undecided, "without the keys of both sides, a message that is lost and another that is applied twice even out")
	n, es := b.examples(p.Most, func(b *bucket) (int64, string) {
		if b.sent == b.applied {
			return 0, ""
		}
		return b.applied - b.sent, fmt.Sprintf("%s sent, %s applied", grouped(b.sent), grouped(b.applied))
	})
	if n > 0 {
		out.Findings = append(out.Findings, Finding{Kind: CountsDiffer, Count: n, Text: fmt.Sprintf("%s of %s differ", plural(n, "bucket"), short(p.Bucket)), Buckets: es})
	}
	return nil
}
