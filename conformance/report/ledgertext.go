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
		rows = append(rows, []string{mdCode(p.Embedded.Name), mdCode(p.Other.Name), mdText(p.Other.versionList()), mdText(p.Other.place()),
			fmt.Sprintf("%d of %d", p.Equal, p.Compared), fmt.Sprint(p.Only)})
	}
	m.table([]string{"emulator", "compared with", "versions", "runs as", "same answer", "answered by one alone"}, rows)
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
	m.line("- %s: %s **%s**, %s **%s**.", mdCode(d.Claim), d.Left.named(left), mdText(d.Left.Answer), d.Right.named(right), mdText(d.Right.Answer))
	m.line("  - holds: %s.", mdText(strings.TrimSuffix(d.Holds, ".")))
	if d.Why != "" {
		m.line("  - why: %s", mdText(d.Why))
	}
	for _, s := range []Side{d.Left, d.Right} {
		if s.Finding != nil && s.Finding.Reason != "" {
			m.line("  - seen on %s: %s", mdText(s.Who), mdText(strings.TrimSuffix(s.Finding.Reason, " ("+d.Why+")")))
		}
	}
	m.line("")
}

// named is who answered, with its versions.
func (s Side) named(role string) string {
	if s.Finding == nil {
		return mdText(role)
	}
	if s.Versions == "" {
		return mdText(role) + " " + mdCode(s.Who)
	}
	return fmt.Sprintf("%s %s (%s)", mdText(role), mdCode(s.Who), mdText(s.Versions))
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
