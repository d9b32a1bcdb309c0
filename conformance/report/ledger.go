package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Ledger is where the answers of a report part: emulator and real broker,
// somebody else's emulator and what is declared of the service, documentation
// and measurement. It holds nothing that isn't in the report.
type Ledger struct {
	// Pairs are the embedded targets that were compared with another of the
	// same configuration.
	Pairs []Pair
	// Differences are those of all pairs, then those of documentation and
	// measurement, each in the order of the report.
	Differences []Difference
}

// Pair is an embedded target and another of the same configuration.
type Pair struct {
	Embedded, Other *Target
	Compared        int // claims that both answered
	Equal           int // of them with the same answer
	Only            int // claims that only one of the two answered
}

// DifferenceKind says what parts.
type DifferenceKind string

// The kinds of difference.
const (
	// EmulatorAndBroker is between an embedded target and the vendor's server.
	EmulatorAndBroker DifferenceKind = "emulator and real broker"
	// TwoConfigurations is between the vendor's server as it is embedded and as it is
	// configured otherwise.
	TwoConfigurations DifferenceKind = "two configurations of one broker"
	// EmulatorAndOpinion is between an embedded target and somebody else's
	// emulator of the same service.
	EmulatorAndOpinion DifferenceKind = "our emulator and another"
	// WordsAndBroker is between what the vendor documents and what its own
	// server answered through the adapter.
	WordsAndBroker DifferenceKind = "documentation and measurement"
)

// Difference is one claim with two answers.
type Difference struct {
	Kind     DifferenceKind
	Claim    string
	Question string
	Left     Side   // the emulator, or the documentation
	Right    []Side // the real brokers that answered the same, or another's emulators
	// Holds says whose answer holds, and for which release.
	Holds string
	// Why is the reason: of the listed deviation, or what is declared beside the
	// answer.
	Why string
}

// Side is one of a difference's answers.
type Side struct {
	Who      string // the target's name, or "documentation"
	Versions string
	Answer   string
	Finding  *Finding // what was seen; nil for the documentation
}

// NewLedger reads the ledger from a report.
func NewLedger(r *Report) Ledger {
	var l Ledger
	for i := range r.Targets {
		other := &r.Targets[i]
		e := slices.IndexFunc(r.Targets, func(t Target) bool { return t.Name == other.Like })
		if other.Like == "" || e < 0 || len(other.Findings) == 0 {
			continue
		}
		l.compare(&r.Targets[e], other)
	}
	for i := range r.Targets {
		if r.Targets[i].Real {
			l.words(&r.Targets[i])
		}
	}
	return l
}

// add adds a difference, to one that is the same but for the target on its right
// where there is such a one.
func (l *Ledger) add(d Difference) {
	for i := range l.Differences {
		o := &l.Differences[i]
		if o.Kind == d.Kind && o.Claim == d.Claim && o.Left.Who == d.Left.Who && o.Left.Answer == d.Left.Answer &&
			o.Right[0].Answer == d.Right[0].Answer && o.Holds == d.Holds && o.Why == d.Why {
			o.Right = append(o.Right, d.Right...)
			return
		}
	}
	l.Differences = append(l.Differences, d)
}

// compare adds a pair and its differences.
func (l *Ledger) compare(embedded, other *Target) {
	p := Pair{Embedded: embedded, Other: other}
	for i := range other.Findings {
		theirs := &other.Findings[i]
		o := slices.IndexFunc(embedded.Findings, func(f Finding) bool { return f.Claim == theirs.Claim })
		if o < 0 {
			continue
		}
		ours := &embedded.Findings[o]
		switch {
		case ours.Observed == "" && theirs.Observed == "":
		case ours.Observed == "" || theirs.Observed == "":
			p.Only++
		case ours.Observed == theirs.Observed:
			p.Compared++
			p.Equal++
		default:
			p.Compared++
			l.add(differ(embedded, other, ours, theirs))
		}
	}
	l.Pairs = append(l.Pairs, p)
}

func differ(embedded, other *Target, ours, theirs *Finding) Difference {
	d := Difference{
		Kind: EmulatorAndOpinion, Claim: ours.Claim, Question: ours.Question,
		Left: embedded.side(ours), Right: []Side{other.side(theirs)},
	}
	switch {
	case other.Real && embedded.Real:
		d.Kind, d.Why = TwoConfigurations, theirs.Note
		d.Holds = fmt.Sprintf("both: %s; %s", embedded.Of, other.Of)
	case other.Real && ours.Declared != theirs.Declared:
		d.Kind, d.Why = EmulatorAndBroker, theirs.Note
		d.Holds = fmt.Sprintf("both, each for its release: %s; %s", other.Of, embedded.Of)
	case other.Real:
		d.Kind, d.Why = EmulatorAndBroker, embedded.excuse(ours)
		d.Holds = "the broker's, for " + other.releases()
	case ours.Observed == ours.Declared:
		d.Why = other.excuse(theirs)
		d.Holds = "ours, as declared of the service"
		if ours.Documented == ours.Declared {
			d.Holds = "ours, as the vendor documents"
		}
	case theirs.Observed == theirs.Declared:
		d.Why = embedded.excuse(ours)
		d.Holds = "the other's, as declared of the service"
	default:
		d.Why = strings.TrimSpace(embedded.excuse(ours) + " " + other.excuse(theirs))
		d.Holds = "neither's: declared is " + ours.Declared
	}
	return d
}

// words adds where the vendor's own server answered otherwise than documented.
func (l *Ledger) words(t *Target) {
	for i := range t.Findings {
		f := &t.Findings[i]
		if f.Documented == "" || f.Observed == "" || f.Documented == f.Observed {
			continue
		}
		l.add(Difference{
			Kind: WordsAndBroker, Claim: f.Claim, Question: f.Question,
			Left:  Side{Who: "documentation", Answer: f.Documented},
			Right: []Side{t.side(f)}, Holds: "the measurement, for " + t.releases(), Why: f.Note,
		})
	}
}

func (t *Target) side(f *Finding) Side {
	return Side{Who: t.Name, Versions: t.releases(), Answer: f.Observed, Finding: f}
}

// releases are the versions of what answered, not of what it ran on.
func (t *Target) releases() string {
	here := Target{Versions: maps.Clone(t.Versions)}
	delete(here.Versions, "java")
	delete(here.Versions, "nodes")
	return here.versionList()
}

// excuse is the reason of the listed deviation that f is.
func (t *Target) excuse(f *Finding) string {
	for _, d := range t.Deviations {
		if d.Claim == f.Claim && d.Answer == f.Observed {
			return d.Reason
		}
	}
	return ""
}
