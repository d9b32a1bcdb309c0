package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// MatrixOptions say how [Matrix] draws.
type MatrixOptions struct {
	// Color adds ANSI colours. The verdict is shown by a symbol either way.
	Color bool
	// Width is the terminal's width in columns; 0 means 100. Targets that do
	// not fit beside each other follow in a further block. Below 40 it is
	// taken as 40.
	Width int
}

const (
	defaultWidth = 100
	minWidth     = 40
	minCell      = 12 // a target's column is not narrower
	tightCell    = 16 // nor are answers clipped below this to save a block
	maxCell      = 28 // nor is it wider: the list below has the full answer
	columnGap    = 2
)

// Matrix writes r for a terminal: the matrix of claims by targets with the number of
// each target's findings that are no pass, then, the worst first, each difference, error and deviation in full, then targets that
// were not reached, surviving mutants, and the counts.
func Matrix(w io.Writer, r *Report, opts MatrixOptions) error {
	m := &matrix{grid: newGrid(r.mapped(visible)), color: opts.Color, width: opts.Width}
	if m.width <= 0 {
		m.width = defaultWidth
	}
	m.width = max(m.width, minWidth)
	m.blocks()
	m.list()
	m.foot()
	_, err := w.Write(m.b.Bytes())
	return err
}

type matrix struct {
	*grid
	b     bytes.Buffer
	color bool
	width int
}

// ANSI codes; 16 colours only, for those follow the user's own palette.
const (
	styleBold = "1"
	styleDim  = "2"
)

var verdictStyle = map[Verdict]string{
	Equal: "32", Weaker: "1;31", Stronger: "1;35", Deviates: "33",
	NotApplicable: "2", NotVerifiable: "36", Failed: "1;31",
}

func (m *matrix) style(code, s string) string {
	if !m.color || code == "" || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// line writes one line without blanks at its end.
func (m *matrix) line(s string) { m.b.WriteString(strings.TrimRight(s, " ") + "\n") }

// text is the cell's text, without colour.
func (c cell) text() string {
	f := c.worst()
	if f == nil {
		return ""
	}
	return f.Verdict.Symbol() + " " + oneLine(f.shown())
}

// layout is how wide the first column and each target's are. Answers are
// clipped down to tightCell columns if that puts all targets beside each
// other; if not even that does, they get the room to be read.
func (m *matrix) layout() (first int, cells []int) {
	wanted := make([]int, len(m.report.Targets))
	for i := range m.report.Targets {
		wanted[i] = max(minCell, columns(oneLine(m.report.Targets[i].Name)))
	}
	for _, g := range m.groups {
		for _, r := range g.rows {
			first = max(first, columns(oneLine(r.claim))+2)
			for i, c := range r.cells {
				wanted[i] = max(wanted[i], columns(c.text()))
			}
		}
	}
	first = min(first, max(m.width*2/5, m.width-maxCell-columnGap))
	for limit := maxCell; limit >= tightCell; limit-- {
		cells = clamp(wanted, min(limit, m.width-first-columnGap))
		if total(cells) <= m.width-first {
			return first, cells
		}
	}
	return first, clamp(wanted, min(maxCell, m.width-first-columnGap))
}

func clamp(in []int, limit int) []int {
	return each(in, func(n int) int { return min(n, limit) })
}

func total(cells []int) int {
	n := 0
	for _, c := range cells {
		n += c + columnGap
	}
	return n
}

// blocks writes the matrix, as many targets beside each other as fit.
func (m *matrix) blocks() {
	if len(m.groups) == 0 {
		return
	}
	first, cells := m.layout()
	for from := 0; from < len(cells); {
		to, used := from, first
		for to < len(cells) && (to == from || used+columnGap+cells[to] <= m.width) {
			used += columnGap + cells[to]
			to++
		}
		m.block(first, cells, from, to)
		from = to
	}
}

func (m *matrix) block(first int, cells []int, from, to int) {
	gap := strings.Repeat(" ", columnGap)
	head := m.style(styleBold, pad("CLAIM", first))
	for i := from; i < to; i++ {
		head += gap + m.style(styleBold, pad(oneLine(m.report.Targets[i].Name), cells[i]))
	}
	m.line(head)
	for _, g := range m.groups {
		m.line(m.style(styleDim, clip(g.title, m.width)))
		for _, r := range g.rows {
			line := pad("  "+oneLine(r.claim), first)
			for i := from; i < to; i++ {
				text := pad(r.cells[i].text(), cells[i])
				if f := r.cells[i].worst(); f != nil {
					text = m.style(verdictStyle[f.Verdict], text)
				}
				line += gap + text
			}
			m.line(line)
		}
	}
	m.noPasses(first, cells, from, to)
	m.line("")
}

// noPasses writes, below the matrix, how many of each target's findings are no pass,
// so that nobody takes them for one.
func (m *matrix) noPasses(first int, cells []int, from, to int) {
	title := "No passes, counted apart"
	for _, v := range Verdicts() {
		if v.Class() != Uncounted || m.report.Summary.Count(v) == 0 {
			continue
		}
		if title != "" {
			m.line(m.style(styleDim, clip(title, m.width)))
			title = ""
		}
		line := pad("  "+v.Words(), first)
		for i := from; i < to; i++ {
			line += strings.Repeat(" ", columnGap) + m.style(verdictStyle[v], pad(v.Symbol()+" "+fmt.Sprint(m.report.Targets[i].count(v)), cells[i]))
		}
		m.line(line)
	}
}

// list writes what a reader has to know about in full.
func (m *matrix) list() {
	for _, f := range m.pick(func(v Verdict) bool { return v.Fails() || v == Deviates }) {
		head := f.Verdict.Symbol() + " " + f.Verdict.Words()
		m.entry(verdictStyle[f.Verdict], head, oneLine(f.Claim), "on "+oneLine(f.target.Name))
		if f.Verdict != Failed || f.Observed != "" {
			m.indent("declared " + answer(f.Declared) + " → observed " + answer(f.Observed) + " (" + answer(string(f.Basis)) + ")")
		}
		m.indent(f.Reason)
	}
	for _, t := range m.report.Targets {
		if t.Error != "" {
			m.entry(verdictStyle[Failed], "! not reached", oneLine(t.Name), "")
			m.indent(t.Error)
		}
	}
	for _, t := range m.absent {
		m.entry(verdictStyle[NotApplicable], "– not here", oneLine(t.Name), "")
		m.indent(t.Absent)
	}
	m.soaks()
	m.databases()
	for _, u := range m.report.Mutants {
		if !u.Killed {
			m.entry(verdictStyle[Weaker], "▼ mutant survived", oneLine(u.Name), "in "+oneLine(u.Layer))
			m.indent("claim " + u.Claim + " answered " + answer(u.Answer))
			m.indent(u.Reason)
		}
	}
}

// entry writes an entry's heading; what does not fit goes to the next line.
func (m *matrix) entry(style, head, name, where string) {
	rest := strings.TrimSpace(name + " " + where)
	if columns(head)+columnGap+columns(rest) <= m.width {
		m.line(m.style(style, head) + strings.Repeat(" ", columnGap) + rest)
		return
	}
	m.line(m.style(style, head))
	m.indent(rest)
}

func (m *matrix) indent(s string) {
	for _, l := range wrap(s, m.width-4) {
		m.line("    " + l)
	}
}

func (m *matrix) foot() {
	if m.b.Len() > 0 && !bytes.HasSuffix(m.b.Bytes(), []byte("\n\n")) {
		m.line("")
	}
	s := m.report.Summary
	for i, l := range wrap(s.headline(), m.width) {
		if i == 0 || m.color {
			l = m.style(styleBold, l)
		}
		m.line(l)
	}
	for _, l := range wrap(s.counts()+fmt.Sprintf("; seed %d, %s, exit %d", m.report.Seed, duration(m.report.Seconds), s.Exit), m.width) {
		m.line(l)
	}
}
