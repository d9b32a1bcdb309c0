package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// page is a part of a file that is made from a report.
type page struct {
	file       string
	begin, end string
	make       func(*report.Report) (string, error)
	// same says that two makings mean the same though they differ.
	same func(a, b string) bool
}

var made = []page{
	{"README.md", "<!-- matrix: go run ./.ci/check -local -write -->\n", "<!-- end of matrix -->", chosen, sameAnswers},
	{"docs/matrix.md", "<!-- matrix: go run ./.ci/check -local -write -->\n", "<!-- end of matrix -->", all, sameAnswers},
	{"docs/divergence.md", "<!-- ledger: go run ./.ci/check -local -write -->\n", "<!-- end of ledger -->", ledger, sameLedger},
	{"localstack/README.md", "<!-- claims: go run ./.ci/check -local -write -->\n", "<!-- end of claims -->", models, sameCounted},
}

// sameAnswers compares two matrices. What one run could not tell (?) is no other
// answer.
func sameAnswers(a, b string) bool {
	x, y := strings.Split(a, "|"), strings.Split(b, "|")
	return slices.EqualFunc(x, y, func(a, b string) bool {
		return a == b || strings.TrimSpace(a) == "?" || strings.TrimSpace(b) == "?"
	})
}

// counts are how many claims two targets both answered, which differs by what a run
// could not tell.
var counts = regexp.MustCompile(`\d+ of \d+ \|( \d+ \|)?`)

// sameCounted compares two tables but for their counts.
func sameCounted(a, b string) bool {
	return counts.ReplaceAllString(a, "") == counts.ReplaceAllString(b, "")
}

// pages checks what is made from r, or makes it anew.
func pages(r *report.Report, path string, write bool) error {
	var errs []error
	for _, p := range made {
		errs = append(errs, p.update(r, path, write))
	}
	return errors.Join(errs...)
}

func (p page) update(r *report.Report, path string, write bool) error {
	text, err := os.ReadFile(p.file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), p.begin)
	old, after, also := strings.Cut(rest, p.end)
	if !ok || !also {
		return fmt.Errorf("%s has no place for what is made from a report: %s…%s", p.file, strings.TrimSpace(p.begin), p.end)
	}
	now, err := p.make(r)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", p.file, err)
	case write:
		return os.WriteFile(p.file, []byte(before+p.begin+now+p.end+after), 0o644)
	case p.same(old, now):
		return nil
	}
	line, _ := report.SameLedger([]byte(old), []byte(now))
	return fmt.Errorf("%s shows another result than %s, first in %q; mend it with: go run ./.ci/check -report %s -local -write", p.file, path, line, path)
}

func ledger(r *report.Report) (string, error) {
	var b bytes.Buffer
	err := report.WriteLedger(&b, r)
	return "\n" + b.String(), err
}

func sameLedger(a, b string) bool {
	_, same := report.SameLedger(counts.ReplaceAll([]byte(a), nil), counts.ReplaceAll([]byte(b), nil))
	return same
}

// columns is how many targets stand side by side, so that a page can hold them.
const columns = 7

// inReadme are the claims that the README shows, for all would fill it.
var inReadme = []boundary.Claim{
	boundary.PublishAckDurable, boundary.PublishAckReplicated, boundary.PublishBatchPartial, boundary.PublishDedupScope, boundary.PublishDedupWindow,
	boundary.PublishDedupVerdict, boundary.PublishDedupLostResponse, boundary.PublishDedupNewProducer, boundary.PublishDedupBrokerRestart,
	boundary.PublishDedupAfterConsume, boundary.PublishOrderKey, boundary.PublishUnroutable,
	boundary.DeliverRedeliverExpiry, boundary.DeliverRedeliverCrash, boundary.DeliverLeaseExtend, boundary.DeliverRedeliveredFlag,
	boundary.DeliverOrderRedelivery, boundary.DeliverDeadLetterAfterMax, boundary.DeliverExactlyOnce,
	boundary.SettleAnswer, boundary.SettleLostResponse, boundary.SettleDurable, boundary.SettleStale, boundary.VendorSettleForeign, boundary.FenceZombie,
	boundary.EffectCrashAfterEffect, boundary.EffectZombie, boundary.EffectInboxCrashAfterEffect, boundary.EffectInboxZombie,
}

func chosen(r *report.Report) (string, error) {
	m, err := matrix(r, func(id boundary.Claim) bool { return slices.Contains(inReadme, id) })
	return m + fmt.Sprintf("\nThese are %d of %d claims: [all answers](docs/matrix.md).\n", len(inReadme), len(conformance.Claims())), err
}

func all(r *report.Report) (string, error) {
	return matrix(r, func(boundary.Claim) bool { return true })
}

// matrix is the answers of the embedded targets, and in their place those of the
// vendor's own server where one of the same configuration was asked. It holds
// nothing that differs from run to run.
func matrix(r *report.Report, shows func(boundary.Claim) bool) (string, error) {
	var embedded []report.Target
	for _, t := range r.Targets {
		if t.Kind == report.KindEmulator && t.Like == "" {
			embedded = append(embedded, t)
		}
	}
	var tables []string
	for targets := range slices.Chunk(embedded, columns) {
		tables = append(tables, table(r, targets, shows))
	}
	return strings.Join(tables, "\n"), nil
}

// measured is the vendor's own server of t's configuration that was asked first.
func measured(r *report.Report, t report.Target) (report.Target, bool) {
	if t.Real {
		return t, true
	}
	i := slices.IndexFunc(r.Targets, func(o report.Target) bool { return o.Like == t.Name && o.Real && len(o.Findings) > 0 })
	if i < 0 {
		return report.Target{}, false
	}
	return r.Targets[i], true
}

func table(r *report.Report, targets []report.Target, shows func(boundary.Claim) bool) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, t := range targets {
		fmt.Fprintf(&b, " %s |", t.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(targets)) + "\n| *basis* |")
	for _, t := range targets {
		basis := "*modelled*"
		if real, ok := measured(r, t); ok {
			basis = "**measured**, " + release(real)
		}
		fmt.Fprintf(&b, " %s |", basis)
	}
	b.WriteByte('\n')
	for i, c := range conformance.Claims() {
		if !shows(c.ID) {
			continue
		}
		fmt.Fprintf(&b, "| `%s` |", c.ID)
		for _, t := range targets {
			fmt.Fprintf(&b, " %s |", cell(r, t, i))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// release is the version of the broker itself.
func release(t report.Target) string {
	for _, name := range []string{t.Broker, t.Broker + "-server"} {
		if v := t.Versions[name]; v != "" {
			return v
		}
	}
	return "of unknown version"
}

func cell(r *report.Report, t report.Target, claim int) string {
	modelled := shown(t.Findings[claim])
	real, ok := measured(r, t)
	if !ok {
		return modelled
	}
	answer := shown(real.Findings[claim])
	if answer == "n/a" {
		return answer
	}
	if answer == "?" {
		return modelled
	}
	if answer != modelled {
		return fmt.Sprintf("**%s** (modelled: %s)", answer, modelled)
	}
	return "**" + answer + "**"
}

func shown(f report.Finding) string {
	switch f.Verdict {
	case report.Deviates:
		return f.Observed + " ≈"
	case report.NotApplicable:
		return "n/a"
	case report.NotVerifiable:
		return "?"
	}
	return f.Observed
}

// models says for each embedded target how many of its answers others gave too.
func models(r *report.Report) (string, error) {
	var b strings.Builder
	b.WriteString("| emulator | compared with | same answer | another answer |\n|---|---|---|---|\n")
	l := report.NewLedger(r)
	for _, t := range r.Targets {
		if t.Kind != report.KindEmulator || t.Like != "" {
			continue
		}
		alone := true
		for _, p := range l.Pairs {
			if p.Embedded.Name != t.Name {
				continue
			}
			alone = false
			var other []string
			for _, d := range l.Differences {
				if d.Kind != report.WordsAndBroker && d.Left.Who == t.Name &&
					slices.ContainsFunc(d.Right, func(s report.Side) bool { return s.Who == p.Other.Name }) {
					other = append(other, "`"+d.Claim+"`")
				}
			}
			who := "another emulator"
			if p.Other.Real {
				who = "the vendor's server"
			}
			fmt.Fprintf(&b, "| %s | %s, %s %s | %d of %d | %s |\n", t.Name, p.Other.Name, who, versions(p.Other), p.Equal, p.Compared, strings.Join(other, ", "))
		}
		switch {
		case alone && t.Real:
			fmt.Fprintf(&b, "| %s | is the vendor's server, embedded | | |\n", t.Name)
		case alone:
			fmt.Fprintf(&b, "| %s | nothing that runs here | | |\n", t.Name)
		}
	}
	return b.String(), nil
}

func versions(t *report.Target) string {
	var out []string
	for name, v := range t.Versions {
		if name != "java" && name != "nodes" {
			out = append(out, name+" "+v)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
