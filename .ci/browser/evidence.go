package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/onceline/onceline/conformance/report"
)

// evidence is what look.js reads of the open dialog.
type evidence struct {
	Title, Question, Cite, Command, Focus          string
	Answers, Badges, Headings, Links, Scale, Lanes []string
	Events, Folded, Faults                         int
	Width                                          float64
}

// state is what look.js says of dialog, address and focus.
type state struct {
	Open, Inside, Grid bool
	Hash, Focus, Href  string
}

// opens: a click on a cell shows what the report has, at an address of its own.
func opens(ctx context.Context, c *checker, r *report.Report) error {
	var m matrix
	if err := ask(ctx, &m, "matrix"); err != nil {
		return err
	}
	ts := here(r)
	// One with a fault, as a reader would: by the mouse.
	for _, row := range m.Rows {
		if len(row.Cells[0]) == 0 {
			continue
		}
		f := finding(ts[0], row.Claim)
		if faults(f) == 0 {
			continue
		}
		href := row.Cells[0][0].Href
		var e evidence
		if err := chromedp.Do(ctx, chromedp.Click(`a.cell[href="`+href+`"]`)); err != nil {
			return err
		}
		if err := ask(ctx, &e, "evidence", href); err != nil {
			return err
		}
		c.holds(href, e, f)
		c.want(slices.Contains(e.Scale, f.Observed) || len(r.Claims) == 0, "%s has the scale %q without %q", href, e.Scale, f.Observed) // an older report has none
		if err := c.shot(ctx, "evidence"); err != nil {
			return err
		}
		var rows int
		if err := ask(ctx, &rows, "events"); err != nil {
			return err
		}
		c.want(rows == len(f.Evidence.History), "%s lists %d events, want %d", href, rows, len(f.Evidence.History))
		var s state
		if err := key(ctx, escape); err != nil {
			return err
		}
		if err := ask(ctx, &s, "state"); err != nil {
			return err
		}
		c.want(!s.Open && s.Hash == "" && s.Href == href, "after Escape: %+v, want the focus on %s", s, href)
		// The browser's Back closes it too.
		if err := chromedp.Do(ctx, chromedp.Click(`a.cell[href="`+href+`"]`)); err != nil {
			return err
		}
		if err := ask(ctx, &e, "evidence", href); err != nil {
			return err
		}
		if err := script(ctx, "history.back()"); err != nil {
			return err
		}
		if err := c.closes(ctx, "Back"); err != nil {
			return err
		}
		break
	}
	// All the others by their address, or a part of them that touches every row.
	var list [][]any
	for y, row := range m.Rows {
		for i, cells := range row.Cells {
			if len(cells) != 1 || len(ts)*len(m.Rows) > 500 && (y+i)%4 != 0 {
				continue
			}
			f := finding(ts[i], row.Claim)
			list = append(list, []any{cells[0].Href, f.Claim, min(len(f.Evidence.History), 2000), faults(f)})
		}
	}
	var wrong []string
	for part := range slices.Chunk(list, 100) {
		var w []string
		if err := ask(ctx, &w, "sweep", part); err != nil {
			return err
		}
		wrong = append(wrong, w...)
	}
	c.none("evidence", wrong)
	return nil
}

// closes waits for the dialog to be gone.
func (c *checker) closes(ctx context.Context, by string) error {
	var s state
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		if err := ask(ctx, nil, "calm"); err != nil {
			return err
		}
		if err := ask(ctx, &s, "state"); err != nil {
			return err
		}
		if !s.Open {
			break
		}
	}
	c.want(!s.Open, "%s doesn't close the evidence", by)
	return nil
}

func finding(t report.Target, claim string) *report.Finding {
	i := slices.IndexFunc(t.Findings, func(f report.Finding) bool { return f.Claim == claim })
	return &t.Findings[i]
}

func faults(f *report.Finding) int {
	n := 0
	for _, e := range f.Evidence.History {
		if e.Actor == report.Fault || e.Kind == "fault" {
			n++
		}
	}
	return n
}

// holds compares a dialog with the finding.
func (c *checker) holds(where string, e evidence, f *report.Finding) {
	dash := func(s string) string {
		if s == "" {
			return "—"
		}
		return s
	}
	c.want(e.Title == f.Claim && e.Question == f.Question, "%s is headed %q, %q", where, e.Title, e.Question)
	c.want(slices.Equal(e.Answers, []string{dash(f.Declared), dash(f.Documented), dash(f.Observed)}), "%s shows the answers %q", where, e.Answers)
	c.want(len(e.Badges) == 3 && strings.Contains(e.Badges[0], f.Verdict.Words()) && e.Badges[1] == string(f.Basis) && strings.HasSuffix(e.Badges[2], " s"), "%s has the badges %q", where, e.Badges)
	c.want(e.Events+e.Folded == len(f.Evidence.History) && e.Faults >= faults(f), "%s draws %d, folds %d of %d events, marks %d faults", where, e.Events, e.Folded, len(f.Evidence.History), e.Faults)
	c.want(len(e.Lanes) > 0 && slices.Contains(e.Lanes, "broker"), "%s has the lanes %q", where, e.Lanes)
	c.want(strings.Contains(e.Cite, f.Claim) && strings.Contains(e.Cite, f.Observed), "%s is quoted as %q", where, e.Cite)
	if len(f.Source) > 0 {
		c.want(slices.Contains(e.Headings, "What it rests on"), "%s doesn't say what it rests on", where)
	}
}

// drawsAsKnown: lanes, arrows, marks and folds of a history that is known.
func drawsAsKnown(ctx context.Context, c *checker, _ *report.Report) error {
	var e evidence
	if err := ask(ctx, &e, "evidence", "#t--draw.known"); err != nil {
		return err
	}
	c.want(slices.Equal(e.Lanes, []string{"producer", "broker", "consumer", "store"}), "lanes %q", e.Lanes)
	c.want(slices.Equal(e.Links, []string{"https://vendor.example/page", "https://vendor.example/code"}), "links %q", e.Links)
	c.want(slices.Equal(e.Scale, []string{"nothing", "as-known"}), "scale %q", e.Scale)
	c.want(e.Command == "onceline verify --seed 1 --broker t --claim draw.known", "the command is %q", e.Command)
	var aims []string
	if err := ask(ctx, &aims, "aims"); err != nil {
		return err
	}
	c.want(slices.Equal(aims, []string{"producer>broker", "broker>producer", "consumer>store", "consumer>broker"}), "arrows %q", aims)
	type mark struct {
		From, To, Kind, Label, Title string
		Fault, Band, Tip             bool
	}
	var marks []mark
	if err := ask(ctx, &marks, "marks"); err != nil {
		return err
	}
	want := []mark{
		{From: "producer", To: "broker", Kind: "publish", Label: "publish a", Tip: true},
		{From: "broker", To: "producer", Kind: "receipt", Label: "receipt a", Tip: true},
		{Kind: "fault", Label: "⚡ fault: cut", Fault: true, Band: true},
		{From: "consumer", To: "store", Kind: "effect", Label: "effect b", Tip: true},
		{From: "broker", To: "broker", Kind: "restart", Label: "restart", Fault: true},
		{From: "broker", To: "broker", Kind: "fault", Label: "fault a", Fault: true},
		{Kind: "wait", Label: "◷ clock wait: 2m0s", Band: true},
		{From: "consumer", To: "broker", Kind: "settle", Label: "settle a", Tip: true},
		{From: "store", To: "store", Kind: "unheard-of", Label: "unheard-of"},
	}
	c.want(len(marks) == len(want), "%d marks, want %d", len(marks), len(want))
	for i := range min(len(marks), len(want)) {
		got := marks[i]
		got.Title = ""
		c.want(got == want[i], "mark %d is %+v, want %+v", i, got, want[i])
	}
	if err := c.shot(ctx, "known"); err != nil {
		return err
	}

	// The one receipt that differs is drawn, the others are folded, and all can be had.
	if err := ask(ctx, &e, "evidence", "#t--draw.folds"); err != nil {
		return err
	}
	c.want(e.Events < 20 && e.Events+e.Folded == 101 && e.Faults == 1, "of 101 events %d are drawn, %d folded, %d marked", e.Events, e.Folded, e.Faults)
	if err := ask(ctx, &marks, "marks"); err != nil {
		return err
	}
	c.want(slices.ContainsFunc(marks, func(m mark) bool { return strings.Contains(m.Title, "Duplicate at 7") }), "the duplicate was folded away")
	if err := c.shot(ctx, "folded"); err != nil {
		return err
	}
	var n int
	if err := ask(ctx, &n, "unfold"); err != nil {
		return err
	}
	c.want(n == 101, "unfolded %d events are drawn, want 101", n)

	if err := ask(ctx, &e, "evidence", "#t--draw.long"); err != nil {
		return err
	}
	c.want(e.Events+e.Folded == 2000, "of a long history %d events are drawn or folded, want 2000", e.Events+e.Folded)
	text, err := chromedp.Run(ctx, chromedp.Text("#evidence figcaption"))
	if err != nil {
		return err
	}
	c.want(strings.Contains(text, "The first 2000 of 2100 events"), "a long history says %q", text)
	return nil
}

// isInert: no text of a report becomes more than text, wherever it is shown.
func isInert(ctx context.Context, c *checker, _ *report.Report) error {
	look := func(where string) error {
		var foreign, ran []string
		if err := ask(ctx, &foreign, "foreign"); err != nil {
			return err
		}
		c.none(where+" holds", foreign)
		if err := ask(ctx, &ran, "pwned"); err != nil {
			return err
		}
		c.none(where+" ran", ran)
		return nil
	}
	if err := look("the matrix"); err != nil {
		return err
	}
	var hashes []string
	if err := ask(ctx, &hashes, "all"); err != nil {
		return err
	}
	c.want(len(hashes) == 1, "%d cells, want 1", len(hashes))
	for _, h := range hashes {
		var e evidence
		if err := ask(ctx, &e, "evidence", h); err != nil {
			return err
		}
		c.want(e.Title == evil && e.Question == evil && slices.Equal(e.Answers, []string{evil, evil, evil}), "hostile text is shown as %q", e.Title)
		c.want(len(e.Links) == 0, "hostile links %q", e.Links)
		c.want(e.Events+e.Folded == 3, "%d hostile events are drawn", e.Events)
		if err := ask(ctx, new(int), "events"); err != nil {
			return err
		}
		if err := look("the evidence"); err != nil {
			return err
		}
		if err := c.fits(ctx, "the hostile evidence"); err != nil {
			return err
		}
	}
	if err := ask(ctx, &hashes, "sheets"); err != nil {
		return err
	}
	for _, h := range hashes {
		var s struct{ Title string }
		if err := ask(ctx, &s, "sheet", h); err != nil {
			return err
		}
		c.want(s.Title == evil, "the page %s is headed %q", h, s.Title)
		if err := look("a page of its own"); err != nil {
			return err
		}
	}
	return chromedp.Do(ctx, desk())
}

// isQuick: the largest report is there within a second, and works.
func isQuick(ctx context.Context, c *checker, r *report.Report) error {
	best := 1e9
	for range 20 { // a busy machine may be slow at times
		if err := c.open(ctx, ""); err != nil {
			return err
		}
		var ms float64
		if err := ask(ctx, &ms, "drawn"); err != nil {
			return err
		}
		if best = min(best, ms); best < 1000 {
			break
		}
	}
	c.want(best < 1000, "the page takes %.0f ms to load", best)
	logf("%d targets by %d claims load in %.0f ms", len(r.Targets), r.Summary.Claims, best)
	if err := c.shot(ctx, "matrix"); err != nil {
		return err
	}
	if err := filters(ctx, c, r); err != nil {
		return err
	}
	var hashes []string
	if err := ask(ctx, &hashes, "all"); err != nil {
		return err
	}
	last := hashes[len(hashes)-1]
	started := time.Now()
	var e evidence
	if err := ask(ctx, &e, "evidence", last); err != nil {
		return err
	}
	took := time.Since(started)
	c.want(took < time.Second, "the last cell takes %s to open", took.Round(time.Millisecond))
	return nil
}
