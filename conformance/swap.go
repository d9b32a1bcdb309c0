package conformance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// Guarantees are the answers of one target, declared or observed.
type Guarantees struct {
	Name    string
	Of      string // the version and configuration that they hold for
	Answers map[boundary.Claim]Guarantee
	Limits  map[boundary.LimitName]boundary.Limit // declared; none of what was observed
	// Unanswered says why there is no answer at all, as of a target that was not
	// reached; "" where there are some.
	Unanswered string
}

// Guarantee is the answer to one claim.
type Guarantee struct {
	Answer boundary.Answer `json:"answer"`
	Basis  string          `json:"basis"` // declared, measured or modelled
	Note   string          `json:"note"`  // what an application should know beside it
}

// Declared are the guarantees that a boundary declares.
func Declared(name string, b boundary.Boundary) Guarantees {
	g := Guarantees{Name: name, Of: "declared of " + b.Of, Answers: map[boundary.Claim]Guarantee{}, Limits: b.Limits}
	for id, e := range b.Entries {
		g.Answers[id] = Guarantee{e.Declared, "declared", e.Note}
	}
	return g
}

// Observed are the guarantees that a target of a report showed. A claim without an
// observed answer isn't among them, except where it doesn't apply.
func Observed(t *report.Target) Guarantees {
	g := Guarantees{Name: t.Name, Of: observedOf(t), Answers: map[boundary.Claim]Guarantee{}}
	for _, f := range t.Findings {
		a := boundary.Answer(f.Observed)
		if f.Verdict == report.NotApplicable {
			a = boundary.NotApplicable
		}
		if a != "" {
			g.Answers[boundary.Claim(f.Claim)] = Guarantee{a, string(f.Basis), note(t, &f)}
		}
	}
	if len(g.Answers) == 0 {
		g.Unanswered = cmp.Or(t.Error, t.Absent, "no claim was answered")
	}
	return g
}

// note is what is known beside the observed answer: the declared entry's note, if
// that is the answer, else the listed deviation's reason.
func note(t *report.Target, f *report.Finding) string {
	if f.Observed == f.Declared || f.Observed == "" {
		return f.Note
	}
	for _, d := range t.Deviations {
		if d.Claim == f.Claim && d.Answer == f.Observed {
			return d.Reason
		}
	}
	return ""
}

// observedOf says what was observed: the versions of what answered, and whether that
// was the vendor's own.
func observedOf(t *report.Target) string {
	basis := "modelled"
	if t.Real {
		basis = "measured"
	}
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(t.Versions)) {
		versions = append(versions, name+" "+t.Versions[name])
	}
	return strings.Join(append(versions, basis), ", ")
}

// Direction is what becomes of a guarantee.
type Direction string

// The directions.
const (
	Weaker   Direction = "weaker"
	Stronger Direction = "stronger"
	// Other is where the two answers can't be ranked: one of them doesn't apply.
	Other Direction = "other"
	// Untold is where one of the two has no answer.
	Untold Direction = "untold"
)

// Change is a claim whose answer another broker would change.
type Change struct {
	Claim     boundary.Claim `json:"claim"`
	Hop       int            `json:"hop"`
	Question  string         `json:"question"`
	Direction Direction      `json:"direction"`
	From      Guarantee      `json:"from"`
	To        Guarantee      `json:"to"`
	// Meaning is why a user cares.
	Meaning string `json:"meaning"`
}

// Swap says what changes for an application that moves from one target to another:
// what gets weaker first, then what can't be compared or told, then what gets
// stronger; each in the catalogue's order.
func Swap(from, to Guarantees) []Change {
	changes := []Change{}
	for _, c := range catalogue {
		a, b := from.Answers[c.ID], to.Answers[c.ID]
		if a.Answer == b.Answer {
			continue
		}
		changes = append(changes, Change{c.ID, c.Hop, c.Question, c.direction(a.Answer, b.Answer), a, b, c.Meaning})
	}
	order := []Direction{Weaker, Other, Untold, Stronger}
	slices.SortStableFunc(changes, func(x, y Change) int {
		return slices.Index(order, x.Direction) - slices.Index(order, y.Direction)
	})
	return changes
}

// Unanswered are the claims, in the catalogue's order, to which neither has an answer: of
// them nothing can be told.
func Unanswered(from, to Guarantees) []boundary.Claim {
	claims := []boundary.Claim{}
	for _, c := range catalogue {
		if from.Answers[c.ID].Answer == "" && to.Answers[c.ID].Answer == "" {
			claims = append(claims, c.ID)
		}
	}
	return claims
}

// LimitChange is a limit that another broker would change.
type LimitChange struct {
	Limit boundary.LimitName `json:"limit"`
	// Narrower says that what the one takes the other may refuse.
	Narrower bool           `json:"narrower"`
	From     boundary.Limit `json:"from"`
	To       boundary.Limit `json:"to"`
}

// SwapLimits says which limits change for an application that moves from one target to
// another, as far as both declare them.
func SwapLimits(from, to Guarantees) []LimitChange {
	changes := []LimitChange{}
	for _, n := range boundary.LimitNames() {
		a, known := from.Limits[n]
		b, also := to.Limits[n]
		if known && also && n.Text(a) != n.Text(b) {
			changes = append(changes, LimitChange{n, a.Narrower(b), a, b})
		}
	}
	return changes
}

func (c Claim) direction(a, b boundary.Answer) Direction {
	switch from, to := c.rank(a), c.rank(b); {
	case a == "" || b == "":
		return Untold
	case from < 0 || to < 0:
		return Other
	case to < from:
		return Weaker
	default:
		return Stronger
	}
}

// Requirement is an answer that an application can't do without.
type Requirement struct {
	Claim  boundary.Claim
	Answer boundary.Answer // this one or a stronger one
}

// NewRequirement checks that there is such a claim and that it has the answer.
func NewRequirement(id boundary.Claim, a boundary.Answer) (Requirement, error) {
	c, ok := Lookup(id)
	if !ok {
		return Requirement{}, fmt.Errorf("%q: %w: there is no such claim", id, broker.ErrInvalid)
	}
	if c.rank(a) < 0 {
		return Requirement{}, fmt.Errorf("%s=%s: %w: the answers are, weakest first: %s", id, a, broker.ErrInvalid, c.Answers)
	}
	return Requirement{id, a}, nil
}

// Met reports whether g has the answer or a stronger one; why says what it has
// instead.
func (r Requirement) Met(g Guarantees) (why string, met bool) {
	c, _ := Lookup(r.Claim)
	has, ok := g.Answers[r.Claim]
	switch {
	case !ok:
		return fmt.Sprintf("%s has no answer to %s; required is %s", g.Name, r.Claim, r.Answer), false
	case c.rank(has.Answer) < c.rank(r.Answer):
		return fmt.Sprintf("%s answers %s with %s; required is %s", g.Name, r.Claim, has.Answer, r.Answer), false
	}
	return "", true
}
