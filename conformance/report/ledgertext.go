package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ledgerSections are the kinds of difference in the order in which a reader is
// told of them.
var ledgerSections = []struct {
	kind        DifferenceKind
	title, lead string
	left, right string
}{
	{EmulatorAndBroker, "Emulator and real broker",
		"Where the emulator in this program answers otherwise than the vendor's own server. The real broker is right, for the release that was asked.",
		"emulator", "real broker"},
	{TwoConfigurations, "One broker, two configurations",
		"Where the vendor's server answers otherwise in another configuration than in the embedded one. Each is declared as it is.",
		"embedded", "configured otherwise"},
	{EmulatorAndOpinion, "Our emulator and another's",
		"Where somebody else's emulator of the same service answers otherwise than ours. Neither is the service: what the vendor documents decides, or what was recorded from it.",
		"ours", "the other"},
	{WordsAndBroker, "Documentation and measurement",
		"Where the vendor's own server, through the adapter, answers otherwise than the vendor's words say. Often the adapter adds what is missing; the reason says which.",
		"documented", "measured"},
}

// WriteLedger writes the ledger of r as Markdown: whom the emulators were compared
// with, and each difference with both answers, whose holds and why. Lines that
// begin with "  - seen" hold what was seen in this run; all others are the same for
// every run with the same answers of the same versions.
func WriteLedger(w io.Writer, r *Report) error {
	m := &markdown{}
	m.ledger(newGrid(r.mapped(visible)).report, "##")
	_, err := w.Write(m.b.Bytes())
	return err
}

// ledger writes the sections below a heading of that level.
func (m *markdown) ledger(r *Report, level string) {
	l := NewLedger(r)
	if len(l.Pairs) == 0 {
		return
	}
	m.line("%s Compared\n", level)
	var rows [][]string
	for _, p := range l.Pairs {
		rows = append(rows, []string{mdCode(p.Embedded.Name), mdCode(p.Other.Name), mdText(p.Other.releases()), mdText(p.Other.place()),
			fmt.Sprintf("%d of %d", p.Equal, p.Compared), fmt.Sprint(p.Only)})
	}
	m.table([]string{"embedded", "compared with", "versions", "runs as", "same answer", "answered by one alone"}, rows)
	for _, s := range ledgerSections {
		ds := slices.DeleteFunc(slices.Clone(l.Differences), func(d Difference) bool { return d.Kind != s.kind })
		m.line("%s %s\n", level, s.title)
		m.line("%s\n", s.lead)
		if len(ds) == 0 {
			m.line("None.\n")
		}
		for _, d := range ds {
			m.difference(d, s.left, s.right)
		}
	}
}

func (m *markdown) difference(d Difference, left, right string) {
	m.line("- %s: %s **%s**, %s **%s**.", mdCode(d.Claim), named(left, d.Left), mdText(d.Left.Answer), named(right, d.Right...), mdText(d.Right[0].Answer))
	m.line("  - holds: %s.", mdText(strings.TrimSuffix(d.Holds, ".")))
	if d.Why != "" {
		m.line("  - why: %s", mdText(d.Why))
	}
	for _, s := range append([]Side{d.Left}, d.Right...) {
		if s.Finding != nil && s.Finding.Reason != "" {
			m.line("  - seen on %s: %s", mdText(s.Who), mdText(short(strings.TrimSuffix(s.Finding.Reason, " ("+d.Why+")"))))
		}
	}
	m.line("")
}

// longest is how much of what was seen the ledger repeats: an error of an SDK can be
// long, and the report has all of it.
const longest = 160

func short(s string) string {
	if r := []rune(s); len(r) > longest {
		return string(r[:longest]) + "…"
	}
	return s
}

// named is who answered, with the versions of the first: all have the same.
func named(role string, sides ...Side) string {
	s := mdText(role)
	for i, side := range sides {
		switch {
		case side.Finding == nil:
			return s
		case i > 0:
			s += ","
		}
		s += " " + mdCode(side.Who)
	}
	if sides[0].Versions != "" {
		s += " (" + mdText(sides[0].Versions) + ")"
	}
	return s
}

// SameLedger reports the first line in which two ledgers differ, not counting what
// was seen.
func SameLedger(a, b []byte) (line string, same bool) {
	x, y := ledgerLines(a), ledgerLines(b)
	for i := range max(len(x), len(y)) {
		switch {
		case i >= len(x):
			return y[i], false
		case i >= len(y) || x[i] != y[i]:
			return x[i], false
		}
	}
	return "", true
}

func ledgerLines(text []byte) []string {
	var lines []string
	for line := range bytes.Lines(text) {
		s := strings.TrimRight(string(line), "\n")
		if s != "" && !strings.HasPrefix(s, "  - seen") {
			lines = append(lines, s)
		}
	}
	return lines
}
