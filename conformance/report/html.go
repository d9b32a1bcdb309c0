package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html.tmpl
var pageTemplate string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// WriteHTML writes r as one self-contained page: it loads nothing, and its
// content security policy forbids it to. The matrix comes first; each cell
// opens its evidence and has an address of its own
// (index.html#target--claim). The page reads without JavaScript too; the
// filters are then missing.
func WriteHTML(w io.Writer, r *Report) error {
	var b bytes.Buffer
	if err := page.Execute(&b, newView(newGrid(r.mapped(visible)))); err != nil {
		return fmt.Errorf("report: html: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"duration": duration,
	"answer":   answer,
	"breaks":   breaks,
	"link":     isLink,
	"class":    verdictClass,
}).Parse(pageTemplate))

// view is what the template reads.
type view struct {
	*Report
	CSS      template.CSS
	JS       template.JS
	Policy   string
	Headline string
	Started  string
	Tone     string // of the headline: good, bad or open
	Verdicts []verdictView
	Targets  []targetView
	Absent   []Target
	Groups   []groupView
	Findings []*findingView
	Ledger   *ledgerView
	Soaked   *soakedView
	Known    int // listed deviations over all targets
}

type verdictView struct {
	Verdict
	Count int
}

type targetView struct {
	*Target
	Index    int
	Place    string
	Worst    Verdict
	Versions string
}

type groupView struct {
	Hop   int
	Title string
	Span  int
	Rows  []rowView
}

type rowView struct {
	Claim, Question string
	Search          string // lower-case text for the filter
	Cells           []cellView
}

type cellView struct {
	Index    int
	Target   string
	Findings []*findingView
}

type findingView struct {
	*Finding
	Anchor   string
	Target   string
	Place    string
	HopTitle string
	Shown    string
	Contrast bool // the cell says what was declared, too
	Diagram  *sequence
	Listed   []Event
	Unlisted int
}

func newView(g *grid) *view {
	r := g.report
	v := &view{
		Report: r, CSS: template.CSS(pageCSS), JS: template.JS(pageJS), // our own files, embedded
		Policy:   policy(),
		Headline: r.Summary.headline(),
		Started:  r.Started.Format("2006-01-02 15:04:05 MST"),
		Absent:   g.absent,
		Tone:     map[int]string{ExitEqual: "good", ExitDifference: "bad"}[r.Summary.Exit],
	}
	if v.Tone == "" {
		v.Tone = "open"
	}
	for _, x := range Verdicts() {
		v.Verdicts = append(v.Verdicts, verdictView{x, r.Summary.Count(x)})
	}
	for i := range r.Targets {
		t := &r.Targets[i]
		v.Known += len(t.Deviations)
		v.Targets = append(v.Targets, targetView{t, i, t.place(), t.worst(), t.versionList()})
	}
	anchors := anchors{}
	for _, gr := range g.groups {
		gv := groupView{Hop: gr.hop, Title: gr.title, Span: len(r.Targets) + 1}
		for _, row := range gr.rows {
			gv.Rows = append(gv.Rows, v.row(row, anchors))
		}
		v.Groups = append(v.Groups, gv)
	}
	v.Ledger = v.ledger()
	v.Soaked = newSoakedView(r.Soaks)
	return v
}

func (v *view) row(r row, anchors anchors) rowView {
	out := rowView{Claim: r.claim, Question: r.question, Search: strings.ToLower(r.claim + " " + r.question)}
	for i, c := range r.cells {
		t := v.Targets[i]
		cv := cellView{Index: i, Target: t.Name}
		for _, f := range c {
			fv := &findingView{
				Finding: f, Target: t.Name, Place: t.Place, HopTitle: hopTitle(f.Hop), Shown: f.shown(),
				Contrast: f.Verdict.Class() == Differs && f.Declared != "",
				Anchor:   anchors.make(t.Name + "--" + f.Claim),
				Diagram:  draw("History of "+f.Claim+" on "+t.Name, f.Evidence.History),
				Listed:   f.Evidence.History,
			}
			if n := len(fv.Listed); n > maxListed {
				fv.Listed, fv.Unlisted = fv.Listed[:maxListed], n-maxListed
			}
			cv.Findings = append(cv.Findings, fv)
			v.Findings = append(v.Findings, fv)
		}
		out.Cells = append(out.Cells, cv)
	}
	return out
}

// anchors makes element IDs that are unique in the page and need no escaping
// in a fragment.
type anchors map[string]bool

func (a anchors) make(s string) string {
	base := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
			return c
		}
		return '-'
	}, s)
	id := base
	for n := 2; a[id]; n++ {
		id = fmt.Sprintf("%s-%d", base, n)
	}
	a[id] = true
	return id
}

// breaks splits a dotted name where a narrow column may break it.
func breaks(s string) []string {
	return strings.SplitAfter(s, ".")
}

func isLink(s string) bool {
	return strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://")
}

// verdictClass is the CSS class of a verdict; an unknown one looks like the
// error that it is.
func verdictClass(v Verdict) string {
	if !v.Valid() {
		v = Failed
	}
	return "v-" + string(v)
}

// policy allows this page's own script and style by their hashes and nothing
// else. Escaping is what keeps hostile IDs inert; this is the second lock.
func policy() string {
	hash := func(s string) string {
		h := sha256.Sum256([]byte(s))
		return "'sha256-" + base64.StdEncoding.EncodeToString(h[:]) + "'"
	}
	return "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src " + hash(pageCSS) + "; script-src " + hash(pageJS)
}
