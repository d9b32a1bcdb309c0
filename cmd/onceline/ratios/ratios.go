// Package ratios measures what package dedup and its stores promise of their speed and
// size, on servers that it starts itself. What is promised are ratios of two ways of
// doing the same on the same machine in the same minute, which say something on any
// machine, and few absolute numbers.
package ratios

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/onceline/onceline/broker/driver/paired"
)

// Promise is what is held against a measurement.
type Promise struct {
	// Name is the store and what of it, for instance "postgres.pipelined".
	Name string
	// What is measured, in a sentence.
	What string
	// Bound is what is promised: of Most, that the median is no more than it; else
	// that it is no less.
	Bound float64
	Most  bool
	// Unit of the bound: "×", "s", "ms" or "B".
	Unit string
	// Exact is true for what isn't time: another run has the same answer, so a gate
	// has no slack.
	Exact bool
}

// Met reports whether x is as promised, or with a gate, at most a tenth beside it.
func (p Promise) Met(x float64, gate bool) bool {
	bound := p.Bound
	switch {
	case gate && !p.Exact && p.Most:
		bound *= 1.1
	case gate && !p.Exact:
		bound *= 0.9
	}
	if p.Most {
		return x <= bound
	}
	return x >= bound
}

// Bounds is the promise in words.
func (p Promise) Bounds() string {
	sign := "≥"
	if p.Most {
		sign = "≤"
	}
	return fmt.Sprintf("%s %g %s", sign, p.Bound, p.Unit)
}

// Options says how to measure. The zero value is the whole measurement.
type Options struct {
	// Only has the patterns, as of path.Match, of the names that are measured. Empty
	// means all.
	Only []string
	// Quick measures what takes long fewer times, and holds it to the promise with a
	// tenth of slack; what misses that is measured a second time, and fails if it
	// misses again.
	Quick bool
	// Pairs is how many pairs of runs give a ratio. Zero means 20.
	Pairs int
	// Markers is how many markers are in what is full of them. Zero means a million,
	// which is what the promises are of.
	Markers int
	// Progress is told of each step. Nil is for nobody.
	Progress func(format string, a ...any)
}

// wants reports whether a promise is to be measured.
func (o *Options) wants(p Promise) bool {
	return len(o.Only) == 0 || slices.ContainsFunc(o.Only, func(pattern string) bool {
		ok, _ := path.Match(pattern, p.Name)
		return ok
	})
}

// Result is what was measured of one promise.
type Result struct {
	Promise
	// Median of N measurements, pairs of runs where it is a ratio, and its 95 %
	// interval by order statistics.
	Median, Low, High float64
	N                 int
	// Detail has what else was seen, for people.
	Detail string
	// Kept is whether the promise is.
	Kept bool
	// Again is true of a second measurement.
	Again bool
	// Err is why nothing was measured, nil if something was. It is
	// [localstack.ErrNotInstalled] where a server is missing.
	Err error
}

// sample is a series of measurements.
type sample struct {
	values []float64
	detail string
}

// measurement is a promise with what measures it on a bench of type B.
type measurement[B any] struct {
	Promise
	measure func(ctx context.Context, b B) (sample, error)
}

// bench is what a group of measurements is made on: a server, or a file.
type bench interface{ close() error }

// Promises are all that is measured, in order.
func Promises() []Promise {
	var all []Promise
	for _, g := range groups(&Options{}) {
		all = append(all, g.promises()...)
	}
	return all
}

// group is the measurements of one bench.
type group interface {
	promises() []Promise
	run(ctx context.Context, o *Options, found func(Result))
}

type groupOf[B bench] struct {
	name         string
	open         func(ctx context.Context, o *Options) (B, error)
	measurements []measurement[B]
}

func (g *groupOf[B]) promises() []Promise {
	ps := make([]Promise, len(g.measurements))
	for i, m := range g.measurements {
		ps[i] = m.Promise
	}
	return ps
}

// run measures what is wanted, one after the other, on one bench.
func (g *groupOf[B]) run(ctx context.Context, o *Options, found func(Result)) {
	wanted := make([]measurement[B], 0, len(g.measurements))
	for _, m := range g.measurements {
		if o.wants(m.Promise) {
			wanted = append(wanted, m)
		}
	}
	if len(wanted) == 0 {
		return
	}
	o.Progress("%s: starting", g.name)
	var b B
	err := context.Cause(ctx)
	if err == nil {
		b, err = g.open(ctx, o)
	}
	if err != nil {
		for _, m := range wanted {
			found(Result{Promise: m.Promise, Err: fmt.Errorf("%s: %w", g.name, err)})
		}
		return
	}
	for _, m := range wanted {
		r := m.once(ctx, o, b)
		if o.Quick && r.Err == nil && !r.Kept && !m.Exact && ctx.Err() == nil {
			o.Progress("%s: %.3g %s misses %s; once more", m.Name, r.Median, m.Unit, m.Bounds())
			r = m.once(ctx, o, b)
			r.Again = true
		}
		found(r)
	}
	if err := b.close(); err != nil {
		o.Progress("%s: %v", g.name, err)
	}
}

func (m *measurement[B]) once(ctx context.Context, o *Options, b B) Result {
	r := Result{Promise: m.Promise}
	o.Progress("%s", m.Name)
	s, err := m.measure(ctx, b)
	switch {
	case err != nil:
		r.Err = err
	case len(s.values) == 0:
		r.Err = errNothing
	default:
		r.N, r.Detail = len(s.values), s.detail
		r.Median, r.Low, r.High = paired.Interval(s.values)
		r.Kept = m.Met(r.Median, o.Quick)
	}
	return r
}

var errNothing = errors.New("nothing was measured")

// Measure measures what o wants, which takes two to five minutes for all of it, and
// calls found with each result as it comes, in the order of [Promises]. When ctx ends,
// what is not measured yet has its error.
func Measure(ctx context.Context, o Options, found func(Result)) {
	if o.Pairs <= 0 {
		o.Pairs = paired.Pairs
	}
	if o.Markers <= 0 {
		o.Markers = 1_000_000
	}
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	for _, g := range groups(&o) {
		g.run(ctx, &o, found)
	}
}

func groups(o *Options) []group {
	return []group{postgresGroup(o), farGroup(o), fullGroup(o), sqliteGroup(o), redisGroup(o)}
}

// way is one way of handling messages.
type way struct {
	messages int
	run      func(ctx context.Context) error
}

// pairs runs base and ours in alternating order, n times after a run of each that
// isn't counted, and returns for each pair how many times as many messages ours handles
// in the same time. A run is made of parts, which alternate too: where two ways hardly
// differ, a moment in which the machine does something else should hit both.
func pairs(ctx context.Context, n, parts int, base, ours way) (sample, error) {
	var s sample
	var total [2]time.Duration
	for i := -1; i < n; i++ {
		var took [2]time.Duration
		for turn := range 2 * parts {
			which := turn % 2
			if (i+turn/2)%2 != 0 {
				which = 1 - which
			}
			w := [2]way{base, ours}[which]
			began := time.Now()
			if err := w.run(ctx); err != nil {
				return s, err
			}
			took[which] += time.Since(began)
		}
		if i < 0 {
			continue
		}
		s.values = append(s.values, per(took[0], base.messages)/per(took[1], ours.messages))
		total[0], total[1] = total[0]+took[0], total[1]+took[1]
	}
	s.detail = fmt.Sprintf("%.0f and %.0f messages/s", 1/per(total[0], n*parts*base.messages), 1/per(total[1], n*parts*ours.messages))
	return s, nil
}

func per(d time.Duration, messages int) float64 { return d.Seconds() / float64(messages) }
