package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string           `xml:"name,attr"`
	Tests      int              `xml:"tests,attr"`
	Failures   int              `xml:"failures,attr"`
	Errors     int              `xml:"errors,attr"`
	Skipped    int              `xml:"skipped,attr"`
	Time       string           `xml:"time,attr"`
	Timestamp  string           `xml:"timestamp,attr"`
	Properties *junitProperties `xml:"properties"`
	Cases      []junitCase      `xml:"testcase"`
}

type junitProperties struct {
	Property []junitProperty `xml:"property"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitTrouble `xml:"failure"`
	Error   *junitTrouble `xml:"error"`
	Skipped *junitTrouble `xml:"skipped"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitTrouble struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes r as JUnit XML: a suite for each target, a case for each
// claim. Weaker and stronger are failures, an error is an error, not
// applicable and not verifiable are skipped with their reason, and a listed
// deviation passes with its text as output. A target that could not be reached
// is a suite with one erroneous case named "reach". Mutants are a suite of
// their own, in which a survivor is a failure.
func WriteJUnit(w io.Writer, r *Report) error {
	r = r.mapped(visible)
	all := junitSuites{Name: "onceline conformance", Time: junitTime(r.Seconds)}
	stamp := r.Started.Format("2006-01-02T15:04:05")
	for i := range r.Targets {
		all.add(targetSuite(r, &r.Targets[i], stamp))
	}
	if len(r.Soaks) > 0 {
		all.add(soakSuite(r.Soaks, stamp))
	}
	if len(r.Mutants) > 0 {
		all.add(mutantSuite(r.Mutants, stamp))
	}
	b := bytes.NewBufferString(xml.Header)
	enc := xml.NewEncoder(b)
	enc.Indent("", "  ")
	if err := enc.Encode(all); err != nil {
		return fmt.Errorf("report: junit: %w", err)
	}
	b.WriteByte('\n')
	_, err := w.Write(b.Bytes())
	return err
}

func junitTime(s float64) string { return fmt.Sprintf("%.3f", s) }

func (all *junitSuites) add(s junitSuite) {
	for _, c := range s.Cases {
		s.Tests++
		switch {
		case c.Failure != nil:
			s.Failures++
		case c.Error != nil:
			s.Errors++
		case c.Skipped != nil:
			s.Skipped++
		}
	}
	all.Tests += s.Tests
	all.Failures += s.Failures
	all.Errors += s.Errors
	all.Skipped += s.Skipped
	all.Suites = append(all.Suites, s)
}

func targetSuite(r *Report, t *Target, stamp string) junitSuite {
	s := junitSuite{Name: t.Name, Timestamp: stamp, Properties: &junitProperties{}}
	prop := func(name, value string) {
		s.Properties.Property = append(s.Properties.Property, junitProperty{name, value})
	}
	prop("toolkit", r.Toolkit)
	prop("seed", fmt.Sprint(r.Seed))
	prop("command", r.Command)
	prop("broker", t.Broker)
	prop("kind", string(t.Kind))
	prop("real", fmt.Sprint(t.Real))
	for _, k := range slices.Sorted(maps.Keys(t.Versions)) {
		prop("version."+k, t.Versions[k])
	}
	total := 0.0
	if t.Error != "" {
		s.Cases = append(s.Cases, junitCase{
			Class: "onceline." + t.Name, Name: "reach", Time: junitTime(0),
			Error: &junitTrouble{Message: "the target could not be reached", Type: "unreached", Text: t.Error},
		})
	}
	if t.Absent != "" {
		s.Cases = append(s.Cases, junitCase{
			Class: "onceline." + t.Name, Name: "reach", Time: junitTime(0),
			Skipped: &junitTrouble{Message: "not here: " + t.Absent},
		})
	}
	for i := range t.Findings {
		total += t.Findings[i].Seconds
		s.Cases = append(s.Cases, findingCase(t, &t.Findings[i]))
	}
	s.Time = junitTime(total)
	return s
}

func findingCase(t *Target, f *Finding) junitCase {
	c := junitCase{
		Class: fmt.Sprintf("onceline.%s.hop%d", t.Name, f.Hop),
		Name:  f.Claim,
		Time:  junitTime(f.Seconds),
	}
	text := findingText(f)
	switch f.Verdict.Class() {
	case Differs:
		msg := fmt.Sprintf("%s: declared %s, observed %s", f.Verdict, answer(f.Declared), answer(f.Observed))
		c.Failure = &junitTrouble{Message: msg, Type: string(f.Verdict), Text: text}
	case Broken:
		c.Error = &junitTrouble{Message: f.Reason, Type: string(f.Verdict), Text: text}
	case Uncounted:
		c.Skipped = &junitTrouble{Message: fmt.Sprintf("%s: %s", f.Verdict.Words(), f.Reason)}
	case Passed:
		if f.Verdict == Deviates {
			c.Out = "known deviation\n" + text
		}
	}
	return c
}

// findingText is a finding as a block of lines, for tools that show no more
// than text.
func findingText(f *Finding) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-11s %s\n", name+":", value)
		}
	}
	line("question", f.Question)
	line("declared", answer(f.Declared))
	line("documented", f.Documented)
	line("observed", answer(f.Observed))
	line("basis", string(f.Basis))
	line("reason", f.Reason)
	line("sources", strings.Join(f.Source, " "))
	for _, n := range f.Evidence.Notes {
		line("note", n)
	}
	return b.String()
}

func mutantSuite(mutants []Mutant, stamp string) junitSuite {
	s := junitSuite{Name: "mutants", Timestamp: stamp, Time: junitTime(0)}
	for _, m := range mutants {
		c := junitCase{Class: "onceline.mutants." + m.Layer, Name: m.Name, Time: junitTime(0)}
		if !m.Killed {
			c.Failure = &junitTrouble{
				Message: "survived: " + m.Claim + " answered " + answer(m.Answer),
				Type:    "survived", Text: m.Reason,
			}
		}
		s.Cases = append(s.Cases, c)
	}
	return s
}
