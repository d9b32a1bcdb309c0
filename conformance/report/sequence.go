package report

import (
	"fmt"
	"slices"
)

// A history is drawn as a sequence diagram: a lane for each party, time
// downwards, an arrow for what passes between two parties, a dot for what one
// does alone, and a band across all lanes for faults and the clock. The Go
// side computes the coordinates; page.html.tmpl draws them, so that all text
// passes through html/template.

const (
	maxDrawn  = 40   // events in a diagram; the table holds the rest
	maxListed = 2000 // events in the table; report.json holds the rest

	seqTop     = 44 // y of the first event
	seqStep    = 30
	seqTime    = 66 // width of the time column
	seqLane    = 150
	seqNote    = 330
	seqLabel   = 21 // characters that fit over an arrow to the next lane
	seqNoteLen = 50
	idHues     = 6 // must agree with the .i0 … .i5 rules in page.css
)

type sequence struct {
	Width, Height int
	Bottom        int // y at which the lanes end
	Lanes         []lane
	Marks         []mark
	Left          int // events that were left out of the diagram
	Right         int // x where the lanes end
	NoteX         int
	Title         string
}

type lane struct {
	Name string
	X    int
}

// mark is one event. From equals To for a dot; Band is true for what concerns
// all lanes.
type mark struct {
	Time         string
	Y            int
	From, To     int
	Tip, TipBase int // x of the arrow's point, and of its base
	Band, Fault  bool
	LabelX       int
	Start        bool // the label begins at LabelX; otherwise it is centred there
	Label        string
	Note         string
	Full         string
	Hue          int // of the message ID; -1 for none
}

// path says between whom something of a kind passes, whoever reports it: a
// probe may write a receipt down as the producer's or as the broker's.
var path = map[string][2]Actor{
	"publish":  {Producer, Broker},
	"receipt":  {Broker, Producer},
	"receive":  {Consumer, Broker},
	"delivery": {Broker, Consumer},
	"settle":   {Consumer, Broker},
	"ack":      {Consumer, Broker},
	"nack":     {Consumer, Broker},
	"extend":   {Consumer, Broker},
	"outcome":  {Broker, Consumer},
	"effect":   {Consumer, Store},
}

var lanes = []Actor{Producer, Broker, Consumer, Store}

func (e Event) fault() bool { return e.Actor == Fault || e.Kind == "fault" }

// ends returns the lanes an event touches; none means all of them.
func (e Event) ends() []Actor {
	if e.Actor == Fault || e.Actor == Clock {
		return nil
	}
	if p, ok := path[e.Kind]; ok {
		return p[:]
	}
	if slices.Contains(lanes, e.Actor) {
		return []Actor{e.Actor}
	}
	return nil
}

// draw lays a history out; nil for an empty one.
func draw(title string, history []Event) *sequence {
	if len(history) == 0 {
		return nil
	}
	s := &sequence{Title: title}
	if len(history) > maxDrawn {
		s.Left = len(history) - maxDrawn
		history = history[:maxDrawn]
	}
	x := s.place(history)
	hues := map[string]int{}
	for i, e := range history {
		m := mark{
			Time: fmt.Sprintf("%.3f", e.At), Y: seqTop + i*seqStep, Fault: e.fault(), Hue: -1,
			Full: oneLine(fmt.Sprintf("%.3f s  %s  %s  %s  %s", e.At, e.Actor, e.Kind, e.ID, e.Note)),
			Note: shorten(oneLine(e.Note), seqNoteLen),
		}
		if e.ID != "" {
			if _, ok := hues[e.ID]; !ok {
				hues[e.ID] = len(hues) % idHues
			}
			m.Hue = hues[e.ID]
		}
		m.aim(e, x, s.Right)
		s.Marks = append(s.Marks, m)
	}
	s.Bottom = seqTop + (len(history)-1)*seqStep + 14
	s.Height = s.Bottom + 8
	s.NoteX = s.Right + 16
	if last := s.Lanes[len(s.Lanes)-1].X; slices.ContainsFunc(s.Marks, func(m mark) bool { return m.Start && m.From == last }) {
		s.NoteX += seqLane / 3 // a dot's label reaches out of the last lane
	}
	s.Width = s.NoteX + seqNote
	return s
}

// place makes a lane for each party that has a part in the history, and for
// the broker in any case, and returns their x.
func (s *sequence) place(history []Event) map[Actor]int {
	used := map[Actor]bool{Broker: true}
	for _, e := range history {
		for _, a := range e.ends() {
			used[a] = true
		}
	}
	x := map[Actor]int{}
	at := seqTime + seqLane/2
	for _, a := range lanes {
		if used[a] {
			x[a] = at
			s.Lanes = append(s.Lanes, lane{string(a), at})
			at += seqLane
		}
	}
	s.Right = at - seqLane/2
	return x
}

// aim sets a mark's coordinates and its label.
func (m *mark) aim(e Event, x map[Actor]int, right int) {
	label := oneLine(e.Kind + " " + e.ID)
	ends := e.ends()
	switch len(ends) {
	case 0:
		m.Band = true
		m.From, m.To = seqTime+4, right-4
		m.LabelX = (m.From + m.To) / 2
		if e.Kind != string(e.Actor) {
			label = oneLine(string(e.Actor) + " " + label)
		}
		m.Label = shorten(label, 2*seqLabel)
	case 1:
		m.From, m.To = x[ends[0]], x[ends[0]]
		m.LabelX, m.Start = m.From+9, true
		m.Label = shorten(label, seqLabel-4)
	default:
		m.From, m.To = x[ends[0]], x[ends[1]]
		m.LabelX = (m.From + m.To) / 2
		m.Label = shorten(label, seqLabel)
		m.Tip, m.TipBase = m.To-1, m.To-9
		if m.To < m.From {
			m.Tip, m.TipBase = m.To+1, m.To+9
		}
	}
}

// shorten keeps the head and the end of a long text: message IDs tend to
// differ in their last characters.
func shorten(s string, n int) string {
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	tail := (n - 1) / 3
	return string(runes[:n-1-tail]) + "…" + string(runes[len(runes)-tail:])
}
