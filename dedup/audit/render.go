package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// JSON writes the report as JSON, of the schema [Schema].
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// judged says of which time the report is.
func (r *Report) judged() string {
	s := "up to " + r.Until.Format(time.RFC3339)
	if !r.Since.IsZero() {
		s = "from " + r.Since.Format(time.RFC3339) + " " + s
	}
	return s
}

// conclusion is the report in a sentence.
func (r *Report) conclusion() string {
	n := map[State]int{}
	for _, c := range r.Checks {
		n[c.State]++
	}
	s := fmt.Sprintf("%s clean, %d with findings", plural(int64(n[Clean]), "check"), n[Found])
	if n[Failed] > 0 {
		s += fmt.Sprintf(", %d could not be made", n[Failed])
	}
	if n[NotAsked] > 0 {
		s += fmt.Sprintf(", %d not asked", n[NotAsked])
	}
	return s + "."
}

// Text writes the report for a terminal.
func (r *Report) Text(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Judged %s.\n", r.judged())
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "\n%-9s  %s: %s\n", c.State, c.Name, c.Saw)
		for _, f := range c.Findings {
			fmt.Fprintf(&b, "    %s: %s\n      %s\n", f.Kind, f.Text, f.Kind.Meaning())
			for _, line := range f.lines() {
				fmt.Fprintf(&b, "      - %s\n", line)
			}
		}
		for _, u := range c.Undecided {
			fmt.Fprintf(&b, "    not decided: %s\n", u)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", r.conclusion())
	_, err := w.Write(b.Bytes())
	return err
}

// lines are what a finding has beside its text.
func (f *Finding) lines() []string {
	var s []string
	for _, e := range append(append([]Example(nil), f.Buckets...), f.Examples...) {
		s = append(s, e.line())
	}
	if f.More > 0 {
		s = append(s, fmt.Sprintf("and %s more", grouped(f.More)))
	}
	return s
}

// line is an example in a line.
func (e *Example) line() string {
	var parts []string
	if e.Key != "" {
		parts = append(parts, e.Key)
	}
	if e.From != nil {
		n := grouped(*e.From)
		if e.To != nil && *e.To != *e.From {
			n += " to " + grouped(*e.To)
		}
		if e.Producer != "" {
			n = e.Producer + " " + n
		}
		parts = append(parts, n)
	}
	if e.Count > 1 {
		parts = append(parts, fmt.Sprintf("%s×", grouped(e.Count)))
	}
	switch {
	case e.First != nil && e.Last != nil:
		parts = append(parts, e.First.Format(time.RFC3339)+" to "+e.Last.Format(time.RFC3339))
	case e.First != nil:
		parts = append(parts, e.First.Format(time.RFC3339))
	case e.Last != nil:
		parts = append(parts, e.Last.Format(time.RFC3339))
	}
	if e.Note != "" {
		parts = append(parts, e.Note)
	}
	return strings.Join(parts, ", ")
}

// Markdown writes the report as a page.
func (r *Report) Markdown(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Audit\n\nJudged %s. %s\n\n| check | | what was looked at |\n|---|---|---|\n", r.judged(), r.conclusion())
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", c.Name, c.State, inCell(c.Saw))
	}
	for _, c := range r.Checks {
		for _, f := range c.Findings {
			fmt.Fprintf(&b, "\n## %s: %s\n\n%s\n\n", f.Kind, inCell(f.Text), f.Kind.Meaning())
			for _, line := range f.lines() {
				fmt.Fprintf(&b, "- %s\n", inCell(line))
			}
		}
	}
	undecided := false
	for _, c := range r.Checks {
		for _, u := range c.Undecided {
			if !undecided {
				b.WriteString("\n## Not decided\n\n")
				undecided = true
			}
			fmt.Fprintf(&b, "- %s: %s\n", c.Name, inCell(u))
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// inCell keeps text, of which keys are a part, inside a table's cell and out of the markup.
func inCell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ", "<", "&lt;", ">", "&gt;", "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`).Replace(s)
}
