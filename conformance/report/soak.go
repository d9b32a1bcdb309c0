package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Soak is what came of many publishes and settles on a cluster whose nodes were
// disturbed in the middle. All counts are of messages unless they say otherwise.
type Soak struct {
	// Target names the broker and its configuration, for example "kafka-group-3".
	Target string `json:"target"`
	// Broker is the vendor's product.
	Broker string `json:"broker"`
	// Disturbance is what was done to the nodes, for example "leader killed".
	Disturbance string `json:"disturbance"`
	// Versions are those of what ran.
	Versions map[string]string `json:"versions"`
	// Basis is what the numbers rest on.
	Basis Basis `json:"basis"`
	// Verdict is [Equal] if the broker kept what the adapter declares, [Weaker] if
	// it didn't, [NotVerifiable] if the run could not tell, [NotApplicable] if the
	// machine lacks what it takes, and [Failed] if it could not be run.
	Verdict Verdict `json:"verdict"`
	// Reason explains the verdict in a sentence.
	Reason string `json:"reason"`

	// Published were handed to a publisher.
	Published int `json:"published"`
	// Stored have a receipt which says that they are there: as a new copy, or
	// without saying which.
	Stored int `json:"stored"`
	// Duplicates have one which says that the broker had them already, which is
	// how a retry ends whose first attempt had no answer.
	Duplicates int `json:"duplicates"`
	// Unresolved never got a good receipt.
	Unresolved int `json:"unresolved"`
	// Refused and Unknown count receipts, Retried the messages that were published
	// again after one of them, under the same ID.
	Refused int `json:"refused"`
	Unknown int `json:"unknown"`
	Retried int `json:"retried"`

	// Lost have a good receipt and never came.
	Lost int `json:"lost"`
	// Stranded came only after another leader had been elected: the broker had not
	// lost them, and had given them to nobody before.
	Stranded int `json:"stranded"`
	// Received came at least once.
	Received int `json:"received"`
	// Copies counts what the broker stored of a message beyond the first copy, as
	// far as positions tell copies apart from redeliveries.
	Copies int `json:"copies"`
	// Redelivered counts deliveries of a copy after its first one.
	Redelivered int `json:"redelivered"`
	// Confirmed were settled, and the broker answered that it took effect. Sent
	// were settled where the protocol has no answer.
	Confirmed int `json:"confirmed"`
	Sent      int `json:"sent"`
	// RedeliveredAfterConfirmed counts deliveries after such an answer.
	RedeliveredAfterConfirmed int `json:"redelivered_after_confirmed"`

	// GapSeconds is the longest time in which no publisher got a good receipt.
	GapSeconds float64 `json:"gap_seconds"`
	// Seconds is how long the whole soak took, Rate how many messages a second
	// got a good receipt between the first publish and the last of them. The
	// load is paced so that it lasts as long as the disturbance: it is no
	// measure of the broker's speed.
	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"rate"`

	// Notes are what happened, in order of time.
	Notes []string `json:"notes"`
}

func (s Soak) mapped(f func(string) string) Soak {
	s.Target, s.Broker, s.Disturbance, s.Reason = f(s.Target), f(s.Broker), f(s.Disturbance), f(s.Reason)
	s.Basis, s.Verdict = Basis(f(string(s.Basis))), Verdict(f(string(s.Verdict)))
	versions := make(map[string]string, len(s.Versions))
	for _, k := range slices.Sorted(maps.Keys(s.Versions)) {
		versions[f(k)] = f(s.Versions[k])
	}
	s.Versions = versions
	s.Notes = each(s.Notes, f)
	return s
}

// check looks at what the types leave open: the closed sets of words.
func (s *Soak) check() error {
	if !s.Verdict.Valid() {
		return fmt.Errorf("unknown verdict %q", s.Verdict)
	}
	if s.Basis != Measured && s.Basis != Modelled {
		return fmt.Errorf("unknown basis %q", s.Basis)
	}
	return nil
}

// soakColumn is one number of a soak as it is shown to people.
type soakColumn struct {
	Title string
	Value func(s *Soak) string
}

// soakColumns are those of all renderings, in their order.
func soakColumns() []soakColumn {
	n := func(f func(s *Soak) int) func(s *Soak) string {
		return func(s *Soak) string { return fmt.Sprint(f(s)) }
	}
	return []soakColumn{
		{"lost", n(func(s *Soak) int { return s.Lost })},
		{"redelivered after confirmed", n(func(s *Soak) int { return s.RedeliveredAfterConfirmed })},
		{"longest gap", func(s *Soak) string { return fmt.Sprintf("%.1f s", s.GapSeconds) }},
		{"stranded", n(func(s *Soak) int { return s.Stranded })},
		{"copies", n(func(s *Soak) int { return s.Copies })},
		{"published", n(func(s *Soak) int { return s.Published })},
		{"stored", n(func(s *Soak) int { return s.Stored })},
		{"duplicate", n(func(s *Soak) int { return s.Duplicates })},
		{"no receipt", n(func(s *Soak) int { return s.Unresolved })},
		{"refused receipts", n(func(s *Soak) int { return s.Refused })},
		{"unknown receipts", n(func(s *Soak) int { return s.Unknown })},
		{"retried", n(func(s *Soak) int { return s.Retried })},
		{"received", n(func(s *Soak) int { return s.Received })},
		{"redelivered", n(func(s *Soak) int { return s.Redelivered })},
		{"confirmed", n(func(s *Soak) int { return s.Confirmed })},
		{"sent", n(func(s *Soak) int { return s.Sent })},
		{"took", func(s *Soak) string { return fmt.Sprintf("%.1f s", s.Seconds) }},
		{"msgs/s", func(s *Soak) string { return fmt.Sprintf("%.0f", s.Rate) }},
	}
}

// soakLead says what the table of soaks shows.
const soakLead = "Publishes with receipts and consumers with settles, while a node is killed, cut off or restarted. " +
	"No message with a good receipt may be lost, and none whose settle was confirmed may come again, unless the adapter's boundary declares it. " +
	"The load is paced to last as long as the disturbance. Receipts are counted one by one, a message that is retried has several; " +
	"all else counts messages. An ack whose answer was lost with its connection is neither confirmed nor sent."

// words is the verdict as it is shown to people.
func (s *Soak) words() string {
	if s.Verdict == NotApplicable {
		return "not here"
	}
	return s.Verdict.Words()
}

// asked reports whether the soak has numbers to show.
func (s *Soak) asked() bool { return s.Published > 0 }

// soaks writes the section of the Markdown report.
func (m *markdown) soaks(ss []Soak) {
	if len(ss) == 0 {
		return
	}
	m.line("## Clusters and kills\n")
	m.line("%s\n", mdText(soakLead))
	columns := soakColumns()
	head := []string{"target", "disturbance", "verdict"}
	for _, c := range columns {
		head = append(head, c.Title)
	}
	var rows, reasons [][]string
	for i := range ss {
		s := &ss[i]
		row := []string{mdCode(s.Target), mdText(s.Disturbance), s.Verdict.Symbol() + " " + mdText(s.words())}
		for _, c := range columns {
			value := ""
			if s.asked() {
				value = c.Value(s)
			}
			row = append(row, value)
		}
		rows = append(rows, row)
		reasons = append(reasons, []string{mdCode(s.Target), mdText(s.Disturbance), mdText(s.Reason), mdText(strings.Join(s.Notes, "; "))})
	}
	m.table(head, rows)
	m.table([]string{"target", "disturbance", "why", "what happened"}, reasons)
}

// soaks writes those lines of the terminal's report that tell of soaks.
func (m *matrix) soaks() {
	for i := range m.report.Soaks {
		s := &m.report.Soaks[i]
		m.entry(verdictStyle[s.Verdict], s.Verdict.Symbol()+" "+oneLine(s.words()), oneLine(s.Target)+" soaked", oneLine(s.Disturbance))
		if s.asked() {
			m.indent(s.line())
		}
		if s.Verdict != Equal {
			m.indent(s.Reason)
		}
	}
}

// soakedView is what the page shows of soaks.
type soakedView struct {
	Lead    string
	Columns []string
	Rows    []soakRow
}

type soakRow struct {
	*Soak
	Words  string
	Values []string
}

// newSoakedView returns nil if there was none.
func newSoakedView(ss []Soak) *soakedView {
	if len(ss) == 0 {
		return nil
	}
	v := &soakedView{Lead: soakLead}
	columns := soakColumns()
	for _, c := range columns {
		v.Columns = append(v.Columns, c.Title)
	}
	for i := range ss {
		row := soakRow{&ss[i], ss[i].words(), make([]string, len(columns))}
		for n, c := range columns {
			if ss[i].asked() {
				row.Values[n] = c.Value(&ss[i])
			}
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

// soakSuite is the soaks for continuous integration.
func soakSuite(ss []Soak, stamp string) junitSuite {
	suite := junitSuite{Name: "soaks", Timestamp: stamp}
	total := 0.0
	for i := range ss {
		s := &ss[i]
		total += s.Seconds
		c := junitCase{Class: "onceline." + s.Target + ".soak", Name: s.Disturbance, Time: junitTime(s.Seconds)}
		text := strings.Join(append([]string{s.line()}, s.Notes...), "\n")
		switch s.Verdict.Class() {
		case Differs:
			c.Failure = &junitTrouble{Message: string(s.Verdict) + ": " + s.Reason, Type: string(s.Verdict), Text: text}
		case Broken:
			c.Error = &junitTrouble{Message: s.Reason, Type: string(s.Verdict), Text: text}
		case Uncounted:
			c.Skipped = &junitTrouble{Message: s.words() + ": " + s.Reason}
		case Passed:
			c.Out = text
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Time = junitTime(total)
	return suite
}

// addSoaks counts the soaks, and returns the worst verdict of those that were run or
// should have been: what this machine lacks is no failure.
func (s *Summary) addSoaks(ss []Soak) Verdict {
	var worst []Verdict
	for i := range ss {
		if ss[i].Verdict == NotApplicable {
			s.SoaksAbsent++
			continue
		}
		s.Soaks++
		if ss[i].Verdict.Class() == Differs {
			s.SoaksBroken++
		}
		if ss[i].Verdict.Passes() {
			s.SoaksKept++
		}
		worst = append(worst, ss[i].Verdict)
	}
	return Worst(worst...)
}

// line is the soak in one line of numbers.
func (s *Soak) line() string {
	parts := make([]string, 0, 20)
	for _, c := range soakColumns() {
		switch v := c.Value(s); {
		case c.Title == "lost" || c.Title == "redelivered after confirmed" || v != "0":
			parts = append(parts, c.Title+" "+v)
		}
	}
	return strings.Join(parts, ", ")
}
