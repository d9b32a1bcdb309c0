package report

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
)

// The page's matrix is HTML; what a cell opens is drawn by the page's script from
// data: one block for what all targets share and one for each target, so that only
// the block of what is opened has to be unpacked. A block is JSON, compressed and in
// base64: histories repeat themselves, and no text of a broker's stands in the page
// as anything but letters and digits.

const (
	// pageBudget is how large a page may get, in bytes. A report with more is
	// written with fewer events of its longest histories.
	pageBudget = 2_900_000
	maxEvents  = 2000 // of a finding's history in the page; report.json holds the rest
	minEvents  = 25   // no page is cut below this
)

type sharedData struct {
	Toolkit  string        `json:"toolkit"`
	Started  string        `json:"started"`
	Seed     string        `json:"seed"` // text: JavaScript's numbers lose its digits
	Command  string        `json:"command"`
	Verdicts []verdictData `json:"verdicts"`
	Hops     []string      `json:"hops"` // from 1 on
	Claims   []Claim       `json:"claims"`
	Facts    []Fact        `json:"facts"`
	Targets  []targetLink  `json:"targets"`
}

// targetLink leads from the anchors of a target to its block.
type targetLink struct {
	Name   string `json:"name"`
	Anchor string `json:"anchor"`
	Place  string `json:"place"`
}

type verdictData struct {
	Verdict Verdict `json:"verdict"`
	Symbol  string  `json:"symbol"`
	Words   string  `json:"words"`
	Fails   bool    `json:"fails"`
	Passes  bool    `json:"passes"`
}

type targetData struct {
	Name       string            `json:"name"`
	Broker     string            `json:"broker"`
	Place      string            `json:"place"`
	Like       string            `json:"like"`
	Of         string            `json:"of"`
	Versions   map[string]string `json:"versions"`
	Deviations []Deviation       `json:"deviations"`
	Error      string            `json:"error"`
	Findings   []findingData     `json:"findings"`
}

type findingData struct {
	Anchor     string      `json:"anchor"`
	Claim      string      `json:"claim"`
	Hop        int         `json:"hop"`
	Question   string      `json:"question"`
	Declared   string      `json:"declared"`
	Documented string      `json:"documented"`
	Source     []string    `json:"source"`
	Note       string      `json:"note"`
	Observed   string      `json:"observed"`
	Basis      Basis       `json:"basis"`
	Verdict    Verdict     `json:"verdict"`
	Class      string      `json:"class"`
	Reason     string      `json:"reason"`
	Took       string      `json:"took"`
	Notes      []string    `json:"notes"`
	History    []eventData `json:"history"`
	More       int         `json:"more"` // events that report.json has beside these
}

// eventData is an event as [milliseconds, actor, kind, ID, note, from, to]: the last
// two are the lanes it touches, both empty for all of them.
type eventData [7]any

func (v *view) sharedData() sharedData {
	s := sharedData{Toolkit: v.Toolkit, Started: v.Started, Seed: fmt.Sprint(v.Seed), Command: v.Command,
		Claims: v.Claims, Facts: v.Facts, Targets: []targetLink{}}
	for _, x := range Verdicts() {
		s.Verdicts = append(s.Verdicts, verdictData{x, x.Symbol(), x.Words(), x.Fails(), x.Passes()})
	}
	for hop := 1; hop <= 3; hop++ {
		s.Hops = append(s.Hops, hopTitle(hop))
	}
	for _, t := range v.Targets {
		s.Targets = append(s.Targets, targetLink{t.Name, t.Anchor, t.Place})
	}
	return s
}

// targetData is what a target's page and the evidence of its cells are drawn from,
// with at most limit events of each history.
func (v *view) targetData(t targetView, limit int) targetData {
	out := targetData{t.Name, t.Broker, t.Place, t.Like, t.Of, t.Target.Versions, t.Deviations, t.Error, []findingData{}}
	for _, f := range v.findings[t.Index] {
		d := findingData{f.Anchor, f.Claim, f.Hop, f.Question, f.Declared, f.Documented, f.Source, f.Note, f.Observed,
			f.Basis, f.Verdict, verdictClass(f.Verdict), f.Reason, duration(f.Seconds), f.Evidence.Notes, []eventData{}, 0}
		history := f.Evidence.History
		if len(history) > limit {
			history, d.More = history[:limit], len(history)-limit
		}
		for _, e := range history {
			d.History = append(d.History, dataOf(e))
		}
		out.Findings = append(out.Findings, d)
	}
	return out
}

func dataOf(e Event) eventData {
	ms := 0.0
	if !math.IsNaN(e.At) && !math.IsInf(e.At, 0) {
		ms = math.Round(e.At * 1000)
	}
	var from, to Actor
	switch ends := endsOf(e); len(ends) {
	case 1:
		from, to = ends[0], ends[0]
	case 2:
		from, to = ends[0], ends[1]
	}
	return eventData{ms, e.Actor, e.Kind, e.ID, e.Note, from, to}
}

// pack is how a block stands in the page.
func pack(data any) (template.HTML, error) {
	var b bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &b)
	zip := gzip.NewWriter(text)
	if err := json.NewEncoder(zip).Encode(data); err != nil {
		return "", err
	}
	if err := zip.Close(); err != nil {
		return "", err
	}
	if err := text.Close(); err != nil {
		return "", err
	}
	return template.HTML(b.String()), nil // base64 holds nothing to escape
}
