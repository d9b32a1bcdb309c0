package otel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/onceline/onceline/dedup"
)

// The kinds of guards, for [Telemetry.Took].
const (
	Inbox    = "inbox"
	Position = "position"
	Lease    = "lease"
	Calls    = "calls"
)

// Counted is what guards have in common: [dedup.Inbox], [dedup.Position], [dedup.Lease]
// and [dedup.Calls].
type Counted interface {
	Consumer() string
	Stats() dedup.Stats
}

type guardKey struct{ kind, consumer string }

// guard is one or several of one kind and consumer.
type guard struct {
	attrs attribute.Set
	past  dedup.Stats // of those that are watched no more
	live  map[int]Counted
}

// Inbox exports the counts of an inbox; stop ends that, and what was counted stays. Two
// of the same consumer are exported as one.
func (t *Telemetry) Inbox(in Counted) (stop func()) { return t.guard(Inbox, in) }

// Position is Inbox for stored positions.
func (t *Telemetry) Position(p Counted) (stop func()) { return t.guard(Position, p) }

// Lease is Inbox for leases.
func (t *Telemetry) Lease(l *dedup.Lease) (stop func()) { return t.guard(Lease, l) }

// Calls is Inbox for calls. It also asks their store how many wait for somebody to
// decide, with each collection.
func (t *Telemetry) Calls(c *dedup.Calls) (stop func()) {
	stopGuard, stopQuery := t.guard(Calls, c), t.query("calls "+c.Consumer(), openCalls(t, c))
	return func() { stopGuard(); stopQuery() }
}

func (t *Telemetry) guard(kind string, c Counted) (stop func()) {
	key := guardKey{kind, c.Consumer()}
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.guards[key]
	if g == nil {
		g = &guard{attrs: guardAttributes(kind, key.consumer), live: map[int]Counted{}}
		t.guards[key] = g
	}
	id := t.next
	t.next++
	g.live[id] = c
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if _, watched := g.live[id]; watched {
			delete(g.live, id)
			g.past = g.past.Add(lasting(c.Stats()))
		}
	}
}

// lasting is what stays of the counts of one that is watched no more.
func lasting(s dedup.Stats) dedup.Stats {
	s.Running = 0
	return s
}

func guardAttributes(kind, consumer string) attribute.Set {
	return attribute.NewSet(guardKind.String(kind), consumerKey.String(consumer))
}

// Took makes what Options.Took of a guard of that kind and consumer is to be.
func (t *Telemetry) Took(kind, consumer string) func(messages int, took time.Duration) {
	options := []metric.RecordOption{metric.WithAttributeSet(guardAttributes(kind, consumer))}
	return func(messages int, took time.Duration) {
		ctx := context.Background()
		t.duration.Record(ctx, took.Seconds(), options...)
		t.batch.Record(ctx, int64(messages), options...)
	}
}

// outcomes and decisions are the names in attributes.
var (
	outcomes = []struct {
		name  string
		value func(*dedup.Stats) uint64
	}{
		{"applied", func(s *dedup.Stats) uint64 { return s.Applied }},
		{"duplicate", func(s *dedup.Stats) uint64 { return s.Duplicate }},
		{"in_flight", func(s *dedup.Stats) uint64 { return s.InFlight }},
		{"failed", func(s *dedup.Stats) uint64 { return s.Failed }},
		{"outside_window", func(s *dedup.Stats) uint64 { return s.OutsideWindow }},
		{"unknown", func(s *dedup.Stats) uint64 { return s.Unknown }},
	}
	decisions = []struct {
		name, reason string
		value        func(*dedup.Decisions) uint64
	}{
		{"ack", "", func(d *dedup.Decisions) uint64 { return d.Acked }},
		{"postpone", "", func(d *dedup.Decisions) uint64 { return d.Postponed }},
		{"retry", "", func(d *dedup.Decisions) uint64 { return d.Retried }},
		{"dead_letter", "outside_window", func(d *dedup.Decisions) uint64 { return d.DeadOutsideWindow }},
		{"dead_letter", "key", func(d *dedup.Decisions) uint64 { return d.DeadKey }},
		{"dead_letter", "poison", func(d *dedup.Decisions) uint64 { return d.DeadPoison }},
		{"dead_letter", "other_request", func(d *dedup.Decisions) uint64 { return d.DeadOtherRequest }},
		{"dead_letter", "chosen", func(d *dedup.Decisions) uint64 { return d.DeadChosen }},
	}
)

// observeGuards observes all guards; mu is held.
func (t *Telemetry) observeGuards(o metric.Observer) {
	for key, g := range t.guards {
		sum := g.past
		window := time.Duration(0)
		for _, c := range g.live {
			sum = sum.Add(c.Stats())
			if w, ok := c.(interface{ Window() time.Duration }); ok {
				window = max(window, w.Window())
			}
		}
		with := metric.WithAttributeSet(g.attrs)
		count := func(c metric.Int64ObservableCounter, n uint64) { o.ObserveInt64(c, int64(n), with) }
		count(t.caught, sum.Duplicate)
		for _, x := range outcomes {
			o.ObserveInt64(t.messages, int64(x.value(&sum)), with, metric.WithAttributes(outcomeKey.String(x.name)))
		}
		for _, d := range decisions {
			if key.kind == Position {
				break // they have no handler
			}
			what := []attribute.KeyValue{decisionKey.String(d.name)}
			if d.reason != "" {
				what = append(what, reasonKey.String(d.reason))
			}
			o.ObserveInt64(t.decisions, int64(d.value(&sum.Decisions)), with, metric.WithAttributes(what...))
		}
		count(t.ambiguous, sum.Ambiguous)
		count(t.retries, sum.Retried)
		o.ObserveInt64(t.running, sum.Running, with)
		if key.kind != Position {
			count(t.late, sum.Late)
			count(t.suspectIDs, sum.SuspectIDs)
		}
		switch key.kind {
		case Position:
			count(t.fenced, sum.Fenced)
		case Lease:
			count(t.stuck, sum.Stuck)
			count(t.leaseLost, sum.LeaseLost)
			count(t.suspected, sum.Suspect)
		case Calls:
			count(t.stuck, sum.Stuck)
			count(t.suspected, sum.Suspect)
			count(t.unresolved, sum.Unresolved)
		}
		if window > 0 {
			o.ObserveFloat64(t.window, window.Seconds(), with)
		}
	}
}
