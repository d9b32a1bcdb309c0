package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// mapped returns a deep copy of r with f applied to every string that a probe,
// a broker or a user may have written, nil slices and maps replaced by empty
// ones, the time in UTC and the schema filled in. Renderers work on such a
// copy, so that none changes the caller's report and none sees a raw string.
func (r *Report) mapped(f func(string) string) *Report {
	out := *r
	out.Schema = Schema
	out.Started = r.Started.UTC().Round(0)
	out.Toolkit, out.Command = f(r.Toolkit), f(r.Command)
	out.Claims = each(r.Claims, func(c Claim) Claim { return c.mapped(f) })
	out.Facts = each(r.Facts, func(c Fact) Fact { return c.mapped(f) })
	out.Targets = make([]Target, len(r.Targets))
	for i, t := range r.Targets {
		t.Name, t.Broker, t.Kind, t.Error = f(t.Name), f(t.Broker), Kind(f(string(t.Kind))), f(t.Error)
		t.Like, t.Of, t.Absent = f(t.Like), f(t.Of), f(t.Absent)
		versions := make(map[string]string, len(t.Versions))
		for _, k := range slices.Sorted(maps.Keys(t.Versions)) {
			versions[f(k)] = f(t.Versions[k])
		}
		t.Versions = versions
		t.Deviations = each(t.Deviations, func(d Deviation) Deviation {
			return Deviation{f(d.Claim), f(d.Answer), f(d.Reason)}
		})
		t.Findings = each(t.Findings, func(g Finding) Finding { return g.mapped(f) })
		out.Targets[i] = t
	}
	out.Mutants = each(r.Mutants, func(m Mutant) Mutant {
		return Mutant{f(m.Name), f(m.Layer), f(m.Claim), m.Killed, f(m.Answer), f(m.Reason)}
	})
	out.Databases = each(r.Databases, func(d Database) Database { return d.mapped(f) })
	out.Soaks = each(r.Soaks, func(s Soak) Soak { return s.mapped(f) })
	return &out
}

func (g Finding) mapped(f func(string) string) Finding {
	g.Claim, g.Question, g.Note, g.Reason = f(g.Claim), f(g.Question), f(g.Note), f(g.Reason)
	g.Declared, g.Documented, g.Observed = f(g.Declared), f(g.Documented), f(g.Observed)
	g.Basis, g.Verdict = Basis(f(string(g.Basis))), Verdict(f(string(g.Verdict)))
	g.Source = each(g.Source, f)
	g.Evidence.Notes = each(g.Evidence.Notes, f)
	g.Evidence.History = each(g.Evidence.History, func(e Event) Event {
		e.Actor, e.Kind, e.ID, e.Note = Actor(f(string(e.Actor))), f(e.Kind), f(e.ID), f(e.Note)
		e.Copy, e.Key, e.Verdict, e.Holder, e.Position, e.Action, e.State = f(e.Copy), f(e.Key), f(e.Verdict), f(e.Holder), f(e.Position), f(e.Action), f(e.State)
		return e
	})
	return g
}

// each maps a slice; the result is never nil, so that JSON has [] for it.
func each[T any](in []T, f func(T) T) []T {
	out := make([]T, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}

// validUTF8 is for JSON, which keeps everything but broken encodings.
func validUTF8(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// visible writes what a reader cannot see as an escape: control characters
// (an ID with ESC in it must not drive the reader's terminal), direction
// overrides (which make one text look like another) and the line separators.
// Newlines and tabs stay.
func visible(s string) string {
	s = validUTF8(s)
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, c := range s {
		if hidden(c) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(c), "'"))
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}

func hidden(c rune) bool {
	switch c {
	case '\n', '\t', '\u200d': // the joiner holds emoji and scripts together
		return false
	case '\u2028', '\u2029':
		return true
	}
	return unicode.IsControl(c) || unicode.Is(unicode.Cf, c)
}

// oneLine folds every run of white space into one blank.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// wide holds the ranges that terminals draw two columns wide.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{0x1100, 0x115F, 1}, {0x231A, 0x231B, 1}, {0x23E9, 0x23EC, 1}, {0x2614, 0x2615, 1},
		{0x26A1, 0x26A1, 1}, {0x2705, 0x2705, 1}, {0x274C, 0x274C, 1}, {0x2E80, 0x303E, 1},
		{0x3041, 0x33FF, 1}, {0x3400, 0x4DBF, 1}, {0x4E00, 0x9FFF, 1}, {0xA000, 0xA4CF, 1},
		{0xAC00, 0xD7A3, 1}, {0xF900, 0xFAFF, 1}, {0xFE30, 0xFE6F, 1}, {0xFF00, 0xFF60, 1},
		{0xFFE0, 0xFFE6, 1},
	},
	R32: []unicode.Range32{
		{0x1F300, 0x1F64F, 1}, {0x1F680, 0x1F6FF, 1}, {0x1F900, 0x1F9FF, 1},
		{0x1FA70, 0x1FAFF, 1}, {0x20000, 0x3FFFD, 1},
	},
}

func runeWidth(c rune) int {
	switch {
	case unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case c >= 0x1100 && unicode.Is(wide, c):
		return 2
	}
	return 1
}

// columns returns how many terminal columns s takes.
func columns(s string) int {
	n := 0
	for _, c := range s {
		n += runeWidth(c)
	}
	return n
}

// clip shortens s to at most n columns and marks the cut with an ellipsis.
func clip(s string, n int) string {
	if columns(s) <= n {
		return s
	}
	if n < 1 {
		return ""
	}
	return s[:fit(s, n-1)] + "…"
}

// fit returns how many bytes of s fit into n columns.
func fit(s string, n int) int {
	used := 0
	for i, c := range s {
		used += runeWidth(c)
		if used > n {
			return i
		}
	}
	return len(s)
}

// pad clips s to n columns and fills it up with blanks.
func pad(s string, n int) string {
	s = clip(s, n)
	return s + strings.Repeat(" ", max(0, n-columns(s)))
}

// wrap breaks s at blanks into lines of at most n columns; a longer word is
// broken where the line ends.
func wrap(s string, n int) []string {
	n = max(n, 8)
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if line != "" && columns(line)+1+columns(word) <= n {
			line += " " + word
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		for columns(word) > n {
			cut := fit(word, n)
			lines, word = append(lines, word[:cut]), word[cut:]
		}
		line = word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// plural returns "1 claim", "2 claims".
func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// duration shows seconds to people: to the millisecond while that matters.
func duration(s float64) string {
	switch {
	case s >= 120:
		return fmt.Sprintf("%d min %d s", int(s)/60, int(s)%60)
	case s >= 10:
		return fmt.Sprintf("%.1f s", s)
	}
	return fmt.Sprintf("%.3f s", s)
}
