package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// grid is the report turned round: claims down, targets across, grouped by
// hop. All renderings for people start from it, so that they agree.
type grid struct {
	report *Report  // with the targets that are there
	absent []Target // the others
	groups []group
}

type group struct {
	hop   int
	title string
	rows  []row
}

// row is one claim; cells has one entry for each target, in their order.
type row struct {
	claim, question string
	cells           []cell
}

// cell holds the findings of one target on one claim. There is one as a rule,
// none if the target was not asked, and several if a suite asked twice.
type cell []*Finding

// worst returns the finding that stands for the cell, or nil.
func (c cell) worst() *Finding {
	var out *Finding
	for _, f := range c {
		if out == nil || f.Verdict.Order() > out.Verdict.Order() {
			out = f
		}
	}
	return out
}

func hopTitle(hop int) string {
	switch hop {
	case 1:
		return "Hop 1: producer → broker"
	case 2:
		return "Hop 2: broker → consumer"
	case 3:
		return "Hop 3: consumer → effect store"
	}
	return fmt.Sprintf("Hop %d", hop)
}

// newGrid expects a report that went through mapped. Claims are sorted by ID
// within their hop: their IDs are dotted paths, so relatives stand together,
// and the order does not depend on which target was asked first.
func newGrid(r *Report) *grid {
	here := *r
	g := &grid{report: &here}
	here.Targets = slices.DeleteFunc(slices.Clone(r.Targets), func(t Target) bool { return t.Absent != "" })
	for _, t := range r.Targets {
		if t.Absent != "" {
			g.absent = append(g.absent, t)
		}
	}
	r = g.report
	type key struct {
		hop   int
		claim string
	}
	rows := map[key]*row{}
	for ti := range r.Targets {
		for fi := range r.Targets[ti].Findings {
			f := &r.Targets[ti].Findings[fi]
			k := key{f.Hop, f.Claim}
			if rows[k] == nil {
				rows[k] = &row{claim: f.Claim, question: f.Question, cells: make([]cell, len(r.Targets))}
			}
			rows[k].cells[ti] = append(rows[k].cells[ti], f)
		}
	}
	keys := slices.SortedFunc(maps.Keys(rows), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.hop, b.hop), strings.Compare(a.claim, b.claim))
	})
	for _, k := range keys {
		if n := len(g.groups); n == 0 || g.groups[n-1].hop != k.hop {
			g.groups = append(g.groups, group{hop: k.hop, title: hopTitle(k.hop)})
		}
		last := &g.groups[len(g.groups)-1]
		last.rows = append(last.rows, *rows[k])
	}
	return g
}

// located is a finding together with the target it was made on.
type located struct {
	target *Target
	*Finding
}

// pick returns the findings that want accepts, the worst first, and within one
// verdict in the grid's order.
func (g *grid) pick(want func(Verdict) bool) []located {
	var out []located
	for _, gr := range g.groups {
		for _, r := range gr.rows {
			for ti, c := range r.cells {
				for _, f := range c {
					if want(f.Verdict) {
						out = append(out, located{&g.report.Targets[ti], f})
					}
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b located) int { return cmp.Compare(b.Verdict.Order(), a.Verdict.Order()) })
	return out
}

// worst returns the worst verdict of a target, or "" without findings.
func (t *Target) worst() Verdict {
	var v []Verdict
	for i := range t.Findings {
		v = append(v, t.Findings[i].Verdict)
	}
	return Worst(v...)
}

// count returns how many of a target's findings have one of the verdicts.
func (t *Target) count(vs ...Verdict) int {
	n := 0
	for i := range t.Findings {
		if slices.Contains(vs, t.Findings[i].Verdict) {
			n++
		}
	}
	return n
}

// place says in words what answered: it is what decides how far an answer on
// this target can be carried over to the vendor's service.
func (t *Target) place() string {
	switch {
	case t.Kind == KindCloud:
		return "cloud"
	case t.Kind == KindLocal && !t.Real:
		return "local emulator"
	case t.Kind == KindLocal:
		return "local broker"
	case t.Real:
		return "real server, embedded"
	}
	return "emulator"
}

// versionList returns "broker 2.1, sdk 1.0", sorted by name.
func (t *Target) versionList() string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(t.Versions)) {
		out = append(out, k+" "+t.Versions[k])
	}
	return strings.Join(out, ", ")
}

// answer shows an answer that may be missing.
func answer(s string) string {
	if s == "" {
		return "—"
	}
	return s
}

// headline is the run's result in one sentence.
func (s Summary) headline() string {
	var parts []string
	add := func(n int, one, many string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, many))
		}
	}
	add(s.Weaker, "answer weaker than declared", "answers weaker than declared")
	add(s.Stronger, "answer stronger than declared", "answers stronger than declared")
	add(s.SoaksBroken, "soak found less than is declared", "soaks found less than is declared")
	add(s.Soaks-s.SoaksKept-s.SoaksBroken, "soak couldn't tell", "soaks couldn't tell")
	add(s.Mutants-s.Killed, "mutant survived", "mutants survived")
	add(s.Error, "probe failed to run", "probes failed to run")
	add(s.Unreached, "target not reached", "targets not reached")
	if s.Interrupted {
		parts = append(parts, "the run was interrupted")
	}
	if len(parts) > 0 {
		return strings.Join(parts, ", ") + "."
	}
	if s.Claims == 0 && s.Soaks > 0 {
		return "No claim was asked. Every soak kept what is declared."
	}
	if s.Claims == 0 {
		return "No claim was asked."
	}
	if s.Deviation > 0 {
		return "No difference: every answer is as declared, or a listed deviation."
	}
	return "No difference: every answer is as declared."
}

// counts is the line of numbers below the headline.
func (s Summary) counts() string {
	out := []string{plural(s.Claims, "claim") + " × " + plural(s.Targets-s.Absent, "target")}
	for _, v := range Verdicts() {
		if n := s.Count(v); n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, v))
		}
	}
	if s.Unreached > 0 {
		out = append(out, fmt.Sprintf("%d unreached", s.Unreached))
	}
	if s.Absent > 0 {
		out = append(out, fmt.Sprintf("%d not here", s.Absent))
	}
	if s.SoaksAbsent > 0 {
		out = append(out, plural(s.SoaksAbsent, "soak")+" not here")
	}
	if s.Soaks > 0 {
		out = append(out, fmt.Sprintf("%d of %s kept", s.SoaksKept, plural(s.Soaks, "soak")))
	}
	if s.Mutants > 0 {
		out = append(out, fmt.Sprintf("%d of %s killed", s.Killed, plural(s.Mutants, "mutant")))
	}
	return strings.Join(out, ", ")
}
