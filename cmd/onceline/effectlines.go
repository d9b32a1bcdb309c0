package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// effectLines says in a few lines how often effects took place: a line for no store and
// one for each, with what was observed on all targets together. It writes nothing where
// no claim about a store was asked.
func effectLines(w io.Writer, r *report.Report) error {
	kinds := append([]string{""}, conformance.StoreKinds()...)
	lines := map[string]map[string][]string{} // of a kind, of an answer, the scenarios
	stores := false
	for _, t := range r.Targets {
		for _, f := range t.Findings {
			kind, scenario := storeOf(f.Claim, kinds)
			if scenario == "" {
				continue
			}
			stores = stores || kind != ""
			if lines[kind] == nil {
				lines[kind] = map[string][]string{}
			}
			if f.Observed != "" && !slices.Contains(lines[kind][f.Observed], scenario) {
				lines[kind][f.Observed] = append(lines[kind][f.Observed], scenario)
			}
		}
	}
	if !stores {
		return nil
	}
	var s strings.Builder
	s.WriteString("\nHow often an effect took place (docs/effects.md says what to use when):\n")
	for _, kind := range kinds {
		if lines[kind] == nil {
			continue
		}
		fmt.Fprintf(&s, "  %-13s %s\n", cmp.Or(kind, "no store"), multiplicities(lines[kind]))
	}
	_, err := io.WriteString(w, s.String())
	return err
}

// storeOf takes a claim about an effect apart: effect.lease.fenced.zombie is
// "lease.fenced" and "zombie". A claim about something else has no scenario.
func storeOf(claim string, kinds []string) (kind, scenario string) {
	rest, about := strings.CutPrefix(claim, "effect.")
	if !about {
		return "", ""
	}
	if dot := strings.LastIndexByte(rest, '.'); dot >= 0 {
		kind, rest = rest[:dot], rest[dot+1:]
	}
	if !slices.Contains(kinds, kind) {
		return "", ""
	}
	return kind, rest
}

// multiplicities are the scenarios by what was observed of them, the good news first.
func multiplicities(by map[string][]string) string {
	words := []struct{ answer, word string }{{"once", "once"}, {"twice", "more than once"}, {"lost", "never"}}
	var parts []string
	for _, x := range words {
		if scenarios := by[x.answer]; len(scenarios) > 0 {
			slices.Sort(scenarios)
			parts = append(parts, x.word+": "+strings.Join(scenarios, ", "))
		}
	}
	if len(parts) == 0 {
		return "nothing could be asked here: --local starts the servers that such stores need"
	}
	return strings.Join(parts, "; ")
}
