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

var (
	//go:embed page.html.tmpl
	pageTemplate string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	filterJS string
	//go:embed evidence.js
	evidenceJS string
	//go:embed sequence.js
	sequenceJS string
)

var pageJS = "'use strict';\n" + sequenceJS + evidenceJS + filterJS

// WriteHTML writes r as one self-contained page: it loads nothing, and its
// content security policy forbids it to. The matrix comes first; each cell
// opens its evidence and has an address of its own
// (index.html#target--claim), and so have targets (#target--NAME) and claims
// (#claim--ID). Matrix and tables read without JavaScript too; evidence and
// filters need it. Where the histories would make the page larger than 3 MB,
// the longest are cut, and the page says by how much.
func WriteHTML(w io.Writer, r *Report) error {
	v := newView(newGrid(r.mapped(visible)))
	var b bytes.Buffer
	for limit := min(v.longest(), maxEvents); ; limit /= 2 {
		if err := v.pack(max(limit, minEvents)); err != nil {
			return fmt.Errorf("report: html: %w", err)
		}
		b.Reset()
		if err := page.Execute(&b, v); err != nil {
			return fmt.Errorf("report: html: %w", err)
		}
		if b.Len() <= pageBudget || limit <= minEvents {
			break
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"duration": duration,
	"answer":   answer,
	"stem":     stem,
	"leaf":     leaf,
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
	Brokers  []string
	Targets  []targetView
	Absent   []Target
	Groups   []groupView
	Ledger   *ledgerView
	Soaked   *soakedView
	Stores   []storeView
	Known    int             // listed deviations over all targets
	Shared   template.HTML   // base64
	Packed   []template.HTML // one block for each target

	findings [][]*findingView  // by target
	anchors  map[string]string // of claims
}

type verdictView struct {
	Verdict
	Count int
}

type targetView struct {
	*Target
	Index    int
	Anchor   string
	Place    string
	Worst    Verdict
	Versions string
	Passed   int // answers that are as declared or listed
	Failed   int // differences and errors
	// Neither of these is a pass.
	NotApplicable, NotVerifiable int
}

type groupView struct {
	Hop   int
	Title string
	Span  int
	Rows  []rowView
}

type rowView struct {
	Claim, Question string
	Anchor          string
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
	Shown    string
	Contrast bool // the cell says what was declared, too
}

type storeView struct {
	Name, Version, State string
	Verdict              Verdict
}

// MutantScope says which mutants are in a report.
func (*view) MutantScope() string { return strings.ReplaceAll(mutantScope, "`", "") }

func newView(g *grid) *view {
	r := g.report
	v := &view{
		Report: r, CSS: template.CSS(pageCSS), JS: template.JS(pageJS), // our own files, embedded
		Policy:   policy(),
		Headline: r.Summary.headline(),
		Started:  r.Started.Format("2006-01-02 15:04:05 MST"),
		Absent:   g.absent,
		Tone:     map[int]string{ExitEqual: "good", ExitDifference: "bad"}[r.Summary.Exit],
		findings: make([][]*findingView, len(r.Targets)), anchors: map[string]string{},
	}
	if v.Tone == "" {
		v.Tone = "open"
	}
	for _, x := range Verdicts() {
		v.Verdicts = append(v.Verdicts, verdictView{x, r.Summary.Count(x)})
	}
	anchors := anchors{}
	brokers := map[string]bool{}
	for i := range r.Targets {
		t := &r.Targets[i]
		v.Known += len(t.Deviations)
		v.Targets = append(v.Targets, newTargetView(t, i, anchors.make("target--"+t.Name)))
		if !brokers[t.Broker] {
			brokers[t.Broker] = true
			v.Brokers = append(v.Brokers, t.Broker)
		}
	}
	for _, gr := range g.groups {
		gv := groupView{Hop: gr.hop, Title: gr.title, Span: len(r.Targets) + 1}
		for _, row := range gr.rows {
			gv.Rows = append(gv.Rows, v.row(row, anchors))
		}
		v.Groups = append(v.Groups, gv)
	}
	v.Ledger = v.ledger()
	v.Soaked = newSoakedView(r.Soaks)
	for i := range r.Databases {
		d := &r.Databases[i]
		v.Stores = append(v.Stores, storeView{d.Name, d.Version, d.state(), d.verdict()})
	}
	return v
}

// claimLink is a claim's ID with the anchor of its page, which is empty for a claim
// that was not asked.
type claimLink struct{ Claim, Anchor string }

// Link is for the template.
func (v *view) Link(claim string) claimLink { return claimLink{claim, v.anchors[claim]} }

func newTargetView(t *Target, index int, anchor string) targetView {
	out := targetView{Target: t, Index: index, Anchor: anchor, Place: t.place(), Worst: t.worst(), Versions: t.versionList(),
		NotApplicable: t.count(NotApplicable), NotVerifiable: t.count(NotVerifiable)}
	for i := range t.Findings {
		switch v := t.Findings[i].Verdict; {
		case v.Passes():
			out.Passed++
		case v.Fails():
			out.Failed++
		}
	}
	return out
}

func (v *view) row(r row, anchors anchors) rowView {
	out := rowView{Claim: r.claim, Question: r.question, Anchor: anchors.make("claim--" + r.claim),
		Search: strings.ToLower(r.claim + " " + r.question)}
	v.anchors[r.claim] = out.Anchor
	for i, c := range r.cells {
		t := v.Targets[i]
		cv := cellView{Index: i, Target: t.Name}
		for _, f := range c {
			fv := &findingView{
				Finding: f, Shown: f.shown(), Anchor: anchors.make(t.Name + "--" + f.Claim),
				Contrast: f.Verdict.Class() == Differs && f.Declared != "",
			}
			cv.Findings = append(cv.Findings, fv)
			v.findings[i] = append(v.findings[i], fv)
		}
		out.Cells = append(out.Cells, cv)
	}
	return out
}

// longest is how many events the longest history has.
func (v *view) longest() int {
	n := 0
	for _, fs := range v.findings {
		for _, f := range fs {
			n = max(n, len(f.Evidence.History))
		}
	}
	return n
}

// pack fills in the blocks of data, with at most limit events of each history.
func (v *view) pack(limit int) (err error) {
	if v.Shared, err = pack(v.sharedData()); err != nil {
		return err
	}
	v.Packed = make([]template.HTML, len(v.Targets))
	for i, t := range v.Targets {
		if v.Packed[i], err = pack(v.targetData(t, limit)); err != nil {
			return err
		}
	}
	return nil
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

// stem is what the IDs of related claims have in common: all but the last part, in
// pieces between which a narrow column may break the line.
func stem(claim string) []string {
	parts := strings.SplitAfter(claim, ".")
	return parts[:len(parts)-1]
}

// leaf is the last part of a claim's ID.
func leaf(claim string) string { return claim[strings.LastIndexByte(claim, '.')+1:] }

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
