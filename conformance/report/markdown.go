package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// WriteMarkdown writes r as GitHub-flavoured Markdown: the result, what it ran
// on, the differences with their reasons, the matrix by hop, the deviations,
// what did not count and why, and the mutants. Text from the report is escaped
// so that it can neither break a table nor add markup.
func WriteMarkdown(w io.Writer, r *Report) error {
	g := newGrid(r.mapped(visible))
	m := &markdown{}
	m.head(g.report)
	m.targets(g.report)
	m.findings("Differences", g.pick(Verdict.Fails))
	m.matrix(g)
	m.soaks(g.report.Soaks)
	m.databases(g.report.Databases)
	m.findings("Known deviations", g.pick(func(v Verdict) bool { return v == Deviates }))
	m.ledger(g.report, "##")
	m.uncounted(g.pick(func(v Verdict) bool { return v.Class() == Uncounted }))
	m.mutants(g.report.Mutants)
	_, err := w.Write(m.b.Bytes())
	return err
}

type markdown struct{ b bytes.Buffer }

func (m *markdown) line(format string, args ...any) { fmt.Fprintf(&m.b, format+"\n", args...) }

// table writes a table whose cells are Markdown already.
func (m *markdown) table(head []string, rows [][]string) {
	write := func(cells []string) { m.line("| %s |", strings.Join(cells, " | ")) }
	write(head)
	m.line("|%s", strings.Repeat("---|", len(head)))
	for _, r := range rows {
		write(r)
	}
	m.line("")
}

func (m *markdown) head(r *Report) {
	m.line("# Onceline conformance report\n")
	m.line("**%s**\n", mdText(r.Summary.headline()))
	m.line("%s.\n", mdText(r.Summary.counts()))
	m.table([]string{"run", ""}, [][]string{
		{"toolkit", mdText(r.Toolkit)},
		{"started", r.Started.Format("2006-01-02 15:04:05 MST")},
		{"took", duration(r.Seconds)},
		{"seed", fmt.Sprint(r.Seed)},
		{"command", mdCode(r.Command)},
		{"exit code", fmt.Sprint(r.Summary.Exit)},
	})
}

func (m *markdown) targets(r *Report) {
	if len(r.Targets) == 0 {
		return
	}
	m.line("## Targets\n")
	var rows [][]string
	for i := range r.Targets {
		t := &r.Targets[i]
		state := "no findings"
		if v := t.worst(); v != "" {
			state = "worst: " + v.Symbol() + " " + mdText(v.Words())
		}
		if t.Error != "" {
			state = "**not reached**: " + mdText(t.Error)
		}
		if t.Absent != "" {
			state = "not here: " + mdText(t.Absent)
		}
		row := []string{mdCode(t.Name), mdText(t.Broker), t.place(), mdText(t.versionList()), fmt.Sprint(t.count(Equal, Deviates))}
		for _, v := range []Verdict{NotApplicable, NotVerifiable} {
			row = append(row, fmt.Sprint(t.count(v)))
		}
		rows = append(rows, append(row, state))
	}
	m.table([]string{"target", "broker", "runs as", "versions", "as declared or listed", mdText(NotApplicable.Words()), mdText(NotVerifiable.Words()), "result"}, rows)
}

func (m *markdown) findings(title string, fs []located) {
	if len(fs) == 0 {
		return
	}
	m.line("## %s\n", title)
	var rows [][]string
	for _, f := range fs {
		rows = append(rows, []string{
			f.Verdict.Symbol() + " " + mdText(string(f.Verdict)), mdCode(f.Claim), mdText(f.target.Name),
			mdText(answer(f.Declared)), mdText(answer(f.Observed)), mdText(string(f.Basis)), mdText(f.Reason),
		})
	}
	m.table([]string{"verdict", "claim", "target", "declared", "observed", "basis", "reason"}, rows)
}

func (m *markdown) matrix(g *grid) {
	if len(g.groups) == 0 {
		return
	}
	m.line("## Matrix\n")
	var legend []string
	for _, v := range Verdicts() {
		legend = append(legend, v.Symbol()+" "+v.Words())
	}
	m.line("Each cell is the observed answer. %s.\n", mdText(strings.Join(legend, ", ")))
	head := []string{"claim"}
	for _, t := range g.report.Targets {
		head = append(head, mdText(t.Name))
	}
	for _, gr := range g.groups {
		m.line("### %s\n", mdText(gr.title))
		var rows [][]string
		for _, r := range gr.rows {
			cells := []string{mdCode(r.claim)}
			for _, c := range r.cells {
				var parts []string
				for _, f := range c {
					parts = append(parts, f.Verdict.Symbol()+" "+mdText(f.shown()))
				}
				cells = append(cells, strings.Join(parts, "<br>"))
			}
			rows = append(rows, cells)
		}
		m.table(head, rows)
	}
}

// shown is what a matrix cell says: the answer, or the verdict without one.
func (f *Finding) shown() string {
	if f.Observed != "" {
		return f.Observed
	}
	return f.Verdict.Words()
}

func (m *markdown) uncounted(fs []located) {
	if len(fs) == 0 {
		return
	}
	m.line("## Neither pass nor failure\n")
	var rows [][]string
	for _, f := range fs {
		rows = append(rows, []string{mdText(f.Verdict.Words()), mdCode(f.Claim), mdText(f.target.Name), mdText(f.Reason)})
	}
	m.table([]string{"verdict", "claim", "target", "reason"}, rows)
}

// mutantScope says which mutants are in a report, for there are others.
const mutantScope = "Here are those that break any adapter; `onceline mutants` also tries those that break one broker's in a way of its own."

func (m *markdown) mutants(ms []Mutant) {
	if len(ms) == 0 {
		return
	}
	m.line("## Mutants\n")
	m.line("Adapters broken on purpose; each has to be found out by the claim that it violates. " + mutantScope + "\n")
	var rows [][]string
	for _, u := range ms {
		state := "✓ killed"
		if !u.Killed {
			state = "▼ **survived**"
		}
		rows = append(rows, []string{mdCode(u.Name), mdText(u.Layer), mdCode(u.Claim), state, mdText(answer(u.Answer)), mdText(u.Reason)})
	}
	m.table([]string{"mutant", "layer", "killed by", "result", "answer", "reason"}, rows)
}

// mdEscaper covers what starts markup inside a line. The ampersand and angle
// brackets become entities, for a backslash does not stop raw HTML everywhere.
var mdEscaper = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", `*`, `\*`, `_`, `\_`, `[`, `\[`, `]`, `\]`, `|`, `\|`, `~`, `\~`, `#`, `\#`,
	`&`, `&amp;`, `<`, `&lt;`, `>`, `&gt;`,
)

// mdText makes s one line of text without markup.
func mdText(s string) string { return mdEscaper.Replace(oneLine(s)) }

// mdCode makes s a code span for a table cell. A pipe is escaped even inside a
// code span, which is how tables want it; a backtick asks for longer fences.
func mdCode(s string) string {
	s = strings.ReplaceAll(oneLine(s), "|", `\|`)
	if s == "" {
		return ""
	}
	longest, run := 0, 0
	for _, c := range s {
		if c != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	if longest > 0 {
		s = " " + s + " "
	}
	return fence + s + fence
}
