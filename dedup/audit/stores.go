package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// named is the name of one of the store's tables.
func (s *Store) named(table string) string {
	if s.Schema != "" {
		return s.Schema + "." + table
	}
	return table
}

// table is the outbox's.
func (s *Store) table() *Table {
	return &Table{In: s.In, Name: s.named("onceline_outbox"), Key: []string{"id"}}
}

// topic is the condition that a row is of the topic that is meant.
func (s *Store) topic() string {
	if s.Topic == "" {
		return "1 = 1"
	}
	text := strings.ReplaceAll(s.Topic, "'", "''")
	if s.In.Dialect == MySQL {
		text = strings.ReplaceAll(text, `\`, `\\`)
	}
	return "topic = '" + text + "'"
}

func needsOutbox(p *Plan) string {
	if p.Outbox == nil {
		return "it needs the database of an outbox"
	}
	return ""
}

// outbox looks for what isn't sent: held, parked, or waiting for too long.
func outbox(ctx context.Context, p *Plan, out *Check) (err error) {
	t := p.Outbox.table()
	t.Seq = "state"
	t.Producer = "topic"
	o, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.end()) }()
	var total int64
	stuck := p.Now.Add(-p.Settle).UnixMicro()
	late := int64(-1)
	if p.Window > 0 {
		late = p.Now.Add(-p.Window).UnixMicro()
	}
	f := map[Kind]*Finding{}
	add := func(k Kind, topic string, n int64, text string, first *int64) {
		if n == 0 {
			return
		}
		if f[k] == nil {
			f[k] = &Finding{Kind: k}
		}
		f[k].Count += n
		f[k].Text = was(f[k].Count, "message") + " " + text
		e := Example{Key: "topic " + topic, Count: n}
		if first != nil {
			e.First, e.Note = at(*first), "the oldest is of then"
		}
		if len(f[k].Examples) < p.Most {
			f[k].Examples = append(f[k].Examples, e)
		}
	}
	err = o.query(ctx, fmt.Sprintf(`SELECT topic, state, count(*), min(added), coalesce(sum(CASE WHEN added < %d THEN 1 ELSE 0 END), 0), coalesce(sum(CASE WHEN tried < %d THEN 1 ELSE 0 END), 0), min(tried)
		FROM %s WHERE %s GROUP BY topic, state ORDER BY topic, state`, stuck, late, o.table(), p.Outbox.topic()), func(scan func(...any) error) error {
		var topic string
		var state, n, old, tried int64
		var added, first *int64
		if err := scan(&topic, &state, &n, &added, &old, &tried, &first); err != nil {
			return err
		}
		total += n
		switch state {
		case 0:
			add(Stuck, topic, old, "not sent for longer than "+short(p.Settle), added)
			add(RetryLate, topic, tried, "tried first longer ago than the broker's window of "+short(p.Window)+", and not sent yet", first)
		case 1:
			add(Held, topic, n, "held back", first)
		case 2:
			add(Parked, topic, n, "refused for good", added)
		default:
			return fmt.Errorf("%w: %s: a row is in the state %d, which isn't known", ErrTable, o.Name, state)
		}
		return nil
	})
	out.Saw = plural(total, "message") + " in the outbox"
	for _, k := range Kinds() {
		if f[k] != nil {
			out.Findings = append(out.Findings, *f[k])
		}
	}
	return err
}

func needsMarkers(p *Plan) string {
	if p.Markers == nil {
		return "it needs the database of an inbox's markers"
	}
	return ""
}

// markers tells how many there are and how far they reach back. That they don't reach
// back over the horizon means nothing where there were no effects before.
func markers(ctx context.Context, p *Plan, out *Check) (err error) {
	s, err := p.Markers.In.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	o := &opened{session: s, Table: &Table{In: p.Markers.In, Name: p.Markers.named("onceline_marker")}, units: map[string]int64{"seen": 1}, types: map[string]string{"seen": "INT"}}
	key := "key"
	switch s.d.Dialect {
	case MySQL:
		key = "marker"
	case Postgres:
		o.types["seen"] = "TIMESTAMPTZ"
	}
	var n, timed int64
	var oldest *int64
	if err := o.one(ctx, fmt.Sprintf("SELECT count(*), min(%s) FROM %s", o.micros("seen"), o.table()), &n, &oldest); err != nil {
		return fmt.Errorf("%w: %w", ErrTable, err)
	}
	o.Table.Name = p.Markers.named("onceline_marker_timed")
	if err := o.one(ctx, fmt.Sprintf("SELECT count(*) FROM %s", o.table()), &timed); err != nil {
		return fmt.Errorf("%w: %w", ErrTable, err)
	}
	out.Saw = plural(n, "marker") + " without a time"
	if oldest != nil {
		out.Saw += ", the oldest of " + stamp(*oldest)
	}
	out.Saw += fmt.Sprintf("; %s with one", grouped(timed))
	if timed > 0 {
		var first []byte
		low := o.quote(key)
		if s.d.Dialect == Postgres {
			low = "uuid_send(" + low + ")"
		}
		if err := o.one(ctx, fmt.Sprintf("SELECT %s FROM %s ORDER BY %s LIMIT 1", low, o.table(), o.quote(key)), &first); err != nil {
			return err
		}
		if len(first) == 16 {
			t := int64(binary.BigEndian.Uint32(first)) * 60 * 1e6
			out.Saw += ", the oldest of " + stamp(t)
			if oldest == nil || t < *oldest {
				oldest = &t
			}
		}
	}
	return p.reach(ctx, out, oldest)
}

// reach holds how far the markers reach back against the horizon.
func (p *Plan) reach(ctx context.Context, out *Check, oldest *int64) (err error) {
	switch {
	case p.Horizon == 0:
		out.Undecided = append(out.Undecided, "without the horizon it can't be told whether markers are kept for long enough")
		return nil
	case p.Effects == nil || p.Effects.Applied == "":
		out.Undecided = append(out.Undecided, "without the effects and the time at which they were applied, it can't be told whether markers were there and are gone")
		return nil
	}
	o, err := p.Effects.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.end()) }()
	border := p.Now.Add(-p.Horizon).UnixMicro()
	from := p.Now.UnixMicro()
	if oldest != nil {
		from = *oldest
	}
	var n int64
	var first *int64
	// A minute, for a marker's time is cut to it.
	err = o.one(ctx, fmt.Sprintf("SELECT count(*), min(%[1]s) FROM %[2]s WHERE %[1]s >= %[3]d AND %[1]s < %[4]d", o.micros(o.Applied), o.table(), border, from-60*1e6), &n, &first)
	if err != nil || n == 0 {
		return err
	}
	out.Findings = append(out.Findings, Finding{Kind: MarkersShort, Count: n, Text: fmt.Sprintf("%s applied within the horizon of %s and before the oldest marker, so theirs are gone", was(n, "effect"), short(p.Horizon)),
		Examples: []Example{{First: at(*first), Last: at(from), Note: "the oldest of them, and the oldest marker"}}})
	return nil
}

func stamp(micros int64) string { return at(micros).Format(time.RFC3339) }
