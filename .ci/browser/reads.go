package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/onceline/onceline/conformance/report"
)

// matrix is what look.js reads of the table in view.
type matrix struct {
	Heads []string `json:"heads"`
	Rows  []struct {
		Claim, Question string
		Hop             int
		Cells           [][]struct{ Verdict, Text, Href, Name string }
	} `json:"rows"`
	Shown string `json:"shown"`
}

func (m *matrix) claims() []string {
	var out []string
	for _, r := range m.Rows {
		out = append(out, r.Claim)
	}
	return out
}

// here are the report's targets that were asked, in its order.
func here(r *report.Report) []report.Target {
	return slices.DeleteFunc(slices.Clone(r.Targets), func(t report.Target) bool { return t.Absent != "" })
}

// rows are the claims that keep has an answer for, in the matrix's order.
func rows(r *report.Report, keep func(t *report.Target, f *report.Finding) bool) []string {
	found := map[string]int{}
	for _, t := range here(r) {
		for i := range t.Findings {
			if f := &t.Findings[i]; keep(&t, f) {
				found[f.Claim] = f.Hop
			}
		}
	}
	var out []string
	for claim := range found {
		out = append(out, claim)
	}
	slices.SortFunc(out, func(a, b string) int {
		if found[a] != found[b] {
			return found[a] - found[b]
		}
		return strings.Compare(a, b)
	})
	return out
}

// reads goes through the page of a real run.
func reads(ctx context.Context, c *checker, r *report.Report) error {
	for _, step := range []func(context.Context, *checker, *report.Report) error{
		shows, filters, opens, pages, keyboard, colours, phones, names, withoutScript,
	} {
		if err := c.open(ctx, ""); err != nil {
			return err
		}
		if err := step(ctx, c, r); err != nil {
			return err
		}
	}
	return nil
}

// shows: the matrix has every answer of the report and nothing else, and the page
// says what ran and how to run it again.
func shows(ctx context.Context, c *checker, r *report.Report) error {
	var m matrix
	if err := ask(ctx, &m, "matrix"); err != nil {
		return err
	}
	ts := here(r)
	var heads []string
	for _, t := range ts {
		heads = append(heads, t.Name)
	}
	c.want(slices.Equal(m.Heads, heads), "the columns are %q, want %q", m.Heads, heads)
	want := rows(r, func(*report.Target, *report.Finding) bool { return true })
	c.want(slices.Equal(m.claims(), want), "the rows are %q, want %q", m.claims(), want)
	var wrong []string
	for _, row := range m.Rows {
		for i, cells := range row.Cells {
			var fs []report.Finding
			for _, f := range ts[i].Findings {
				if f.Claim == row.Claim {
					fs = append(fs, f)
				}
			}
			if len(fs) != len(cells) {
				wrong = append(wrong, fmt.Sprintf("%s on %s has %d answers, want %d", row.Claim, ts[i].Name, len(cells), len(fs)))
				continue
			}
			for j, f := range fs {
				answer := f.Observed
				if answer == "" {
					answer = f.Verdict.Words()
				}
				if cells[j].Text != answer || cells[j].Verdict != string(f.Verdict) || !strings.Contains(cells[j].Name, f.Verdict.Words()) {
					wrong = append(wrong, fmt.Sprintf("%s on %s shows %q, want %q, %s", row.Claim, ts[i].Name, cells[j].Name, answer, f.Verdict))
				}
			}
		}
	}
	c.none("cells", wrong)
	var top string
	if err := ask(ctx, &top, "run"); err != nil {
		return err
	}
	for _, s := range []string{r.Command, r.Toolkit, fmt.Sprint(r.Seed)} {
		c.want(strings.Contains(top, s), "the head of the page lacks %q", s)
	}
	var mutants [][]string
	if err := ask(ctx, &mutants, "mutants"); err != nil {
		return err
	}
	c.want(len(mutants) == len(r.Mutants), "%d mutants are listed, want %d", len(mutants), len(r.Mutants))
	for i := range min(len(mutants), len(r.Mutants)) {
		c.want(mutants[i][0] == r.Mutants[i].Name && mutants[i][2] == r.Mutants[i].Claim && strings.Contains(mutants[i][3], "killed") == r.Mutants[i].Killed, "mutant %q, want %+v", mutants[i], r.Mutants[i])
	}
	return c.shot(ctx, "matrix")
}

// filters: each leaves what it says, and all together can be taken back.
func filters(ctx context.Context, c *checker, r *report.Report) error {
	var m matrix
	everything := rows(r, func(*report.Target, *report.Finding) bool { return true })
	expect := func(what string, want []string) {
		c.want(slices.Equal(m.claims(), want), "filtered by %s the rows are %q, want %q", what, m.claims(), want)
		if len(want) < len(everything) {
			c.want(strings.HasPrefix(m.Shown, fmt.Sprintf("%d of %d claims", len(want), len(everything))), "filtered by %s the page says %q", what, m.Shown)
		}
	}
	for _, v := range report.Verdicts() {
		if r.Summary.Count(v) == 0 {
			continue
		}
		if err := ask(ctx, &m, "chip", v); err != nil {
			return err
		}
		expect(string(v), rows(r, func(_ *report.Target, f *report.Finding) bool { return f.Verdict == v }))
		var heads []string
		for _, t := range here(r) {
			if slices.ContainsFunc(t.Findings, func(f report.Finding) bool { return f.Verdict == v }) {
				heads = append(heads, t.Name)
			}
		}
		c.want(slices.Equal(m.Heads, heads), "filtered by %s the columns are %q, want %q", v, m.Heads, heads)
		if v == report.NotApplicable {
			if err := c.shot(ctx, "filtered"); err != nil {
				return err
			}
		}
		if err := ask(ctx, &m, "reset"); err != nil {
			return err
		}
		expect("nothing", everything)
	}
	for hop := 1; hop <= 3; hop++ {
		want := rows(r, func(_ *report.Target, f *report.Finding) bool { return f.Hop == hop })
		if len(want) == 0 {
			continue
		}
		if err := ask(ctx, &m, "field", "hop", fmt.Sprint(hop)); err != nil {
			return err
		}
		expect(fmt.Sprintf("hop %d", hop), want)
	}
	if err := ask(ctx, &m, "reset"); err != nil {
		return err
	}
	brokers := map[string][]string{}
	for _, t := range here(r) {
		brokers[t.Broker] = append(brokers[t.Broker], t.Name)
	}
	for broker, names := range brokers {
		if err := ask(ctx, &m, "field", "broker", broker); err != nil {
			return err
		}
		c.want(slices.Equal(m.Heads, names), "filtered by broker %s the columns are %q, want %q", broker, m.Heads, names)
		c.want(len(m.Rows) > 0 && len(m.Rows[0].Cells) == len(names), "filtered by broker %s a row has other cells than the head", broker)
	}
	if err := ask(ctx, &m, "reset"); err != nil {
		return err
	}
	word := everything[len(everything)/2]
	if err := ask(ctx, &m, "field", "text", strings.ToUpper(word)); err != nil {
		return err
	}
	c.want(slices.Contains(m.claims(), word) && len(m.Rows) < len(everything) || len(everything) == 1, "the text %q finds %q", word, m.claims())
	if err := ask(ctx, &m, "field", "text", "nothing is called so"); err != nil {
		return err
	}
	expect("a text that nothing has", nil)
	return ask(ctx, &m, "reset")
}

// pages: each target has one in words, each claim one by answer.
func pages(ctx context.Context, c *checker, r *report.Report) error {
	type sheet struct {
		Title, Text, Document, Focus string
		Said, Links                  []string
		Home                         bool
	}
	var hashes []string
	if err := ask(ctx, &hashes, "sheets"); err != nil {
		return err
	}
	ts := here(r)
	claims := rows(r, func(*report.Target, *report.Finding) bool { return true })
	if len(hashes) != len(ts)+len(claims) {
		return fmt.Errorf("%d pages of targets and claims, want %d and %d", len(hashes), len(ts), len(claims))
	}
	for i, t := range ts {
		var s sheet
		if err := ask(ctx, &s, "sheet", hashes[i]); err != nil {
			return err
		}
		c.want(s.Title == t.Name && !s.Home && strings.HasPrefix(s.Document, t.Name), "the page of %s is headed %q", t.Name, s.Title)
		c.want(s.Focus == "article#page" || strings.HasPrefix(s.Focus, "article#page"), "the page of %s has the focus on %s", t.Name, s.Focus)
		c.want(len(s.Said) == len(t.Findings), "the page of %s says %d things, want %d", t.Name, len(s.Said), len(t.Findings))
		var missing []string
		for _, f := range t.Findings {
			for _, text := range []string{f.Question, f.Note, f.Reason, f.Observed} {
				if !strings.Contains(squeeze(s.Text), squeeze(text)) {
					missing = append(missing, text)
				}
			}
		}
		for k, v := range t.Versions {
			if !strings.Contains(s.Text, k) || !strings.Contains(s.Text, v) {
				missing = append(missing, k+" "+v)
			}
		}
		c.none("the page of "+t.Name+" lacks", missing)
		if i == len(ts)/2 {
			if err := c.shot(ctx, "target"); err != nil {
				return err
			}
		}
	}
	for i, claim := range claims {
		var s sheet
		if err := ask(ctx, &s, "sheet", hashes[len(ts)+i]); err != nil {
			return err
		}
		asked := 0
		for _, t := range ts {
			for _, f := range t.Findings {
				if f.Claim == claim {
					asked++
				}
			}
		}
		c.want(s.Title == claim && len(s.Links) == asked, "the page of %s is headed %q and has %d answers, want %d", claim, s.Title, len(s.Links), asked)
		if i == 0 {
			if err := c.shot(ctx, "claim"); err != nil {
				return err
			}
		}
	}
	var title string
	if err := ask(ctx, &title, "home"); err != nil {
		return err
	}
	c.want(strings.HasPrefix(title, "Onceline conformance report"), "back at the matrix the title is %q", title)
	return nil
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// withoutScript: what reads without it is there, and the page says what isn't.
func withoutScript(ctx context.Context, c *checker, r *report.Report) error {
	disable := func(yes bool) error {
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: yes})
		return err
	}
	if err := disable(true); err != nil {
		return err
	}
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(c.url)); err != nil {
		return err
	}
	if err := c.shot(ctx, "no-script"); err != nil {
		return err
	}
	// What is asked from here runs all the same.
	cells, err := chromedp.Run(ctx, chromedp.Evaluate[int](`document.querySelectorAll('.grid .cell').length`))
	if err != nil {
		return err
	}
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err
	}
	n := 0
	for _, t := range here(r) {
		n += len(t.Findings)
	}
	c.want(cells == n, "without JavaScript there are %d cells, want %d", cells, n)
	c.want(strings.Contains(text, "need JavaScript"), "without JavaScript the page doesn't say what is missing")
	c.want(!strings.Contains(text, "part of an ID"), "without JavaScript there are filters that do nothing")
	return disable(false)
}
