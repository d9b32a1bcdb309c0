package report

// Verdict compares what a probe observed with what the adapter declares.
type Verdict string

// The verdicts. Their text is part of the JSON schema.
const (
	// Equal means that the observation is what was declared.
	Equal Verdict = "equal"
	// Weaker means that the target keeps less than was declared.
	Weaker Verdict = "weaker"
	// Stronger means that the target keeps more than was declared. It fails
	// too: the documentation is wrong, and the next version may take it away.
	Stronger Verdict = "stronger"
	// Deviates means that an emulator differs from the broker it stands for,
	// in a way that it lists.
	Deviates Verdict = "deviation"
	// NotApplicable means that the target lacks the capability asked for.
	NotApplicable Verdict = "not-applicable"
	// NotVerifiable means that the target cannot show it either way, as when
	// an emulator has no such fault point.
	NotVerifiable Verdict = "not-verifiable"
	// Failed means that the probe itself could not run to its end.
	Failed Verdict = "error"
)

// Class is the coarse meaning of a [Verdict].
type Class int

// The classes.
const (
	// Passed is for verdicts that agree with what is declared or listed.
	Passed Class = iota
	// Uncounted is for verdicts that are neither a pass nor a failure.
	Uncounted
	// Differs is for verdicts that contradict what is declared.
	Differs
	// Broken is for probes that did not come to a verdict at all.
	Broken
)

// String returns the class in one word.
func (c Class) String() string {
	switch c {
	case Passed:
		return "passed"
	case Uncounted:
		return "uncounted"
	case Differs:
		return "differs"
	default:
		return "broken"
	}
}

// verdictInfo is everything that depends on the verdict alone.
type verdictInfo struct {
	class  Class
	order  int
	symbol string
	word   string
}

// verdictTable is ordered from best to worst. An error ranks below a
// difference: it says that nothing is known, a difference says that something
// known is wrong.
var verdictTable = map[Verdict]verdictInfo{
	Equal:         {Passed, 0, "✓", "equal"},
	NotApplicable: {Uncounted, 1, "–", "not applicable"},
	NotVerifiable: {Uncounted, 2, "?", "not verifiable here"},
	Deviates:      {Passed, 3, "≈", "known deviation"},
	Failed:        {Broken, 4, "!", "error"},
	Stronger:      {Differs, 5, "▲", "stronger than declared"},
	Weaker:        {Differs, 6, "▼", "weaker than declared"},
}

// Verdicts returns every verdict, the best first.
func Verdicts() []Verdict {
	return []Verdict{Equal, NotApplicable, NotVerifiable, Deviates, Failed, Stronger, Weaker}
}

func (v Verdict) info() verdictInfo {
	if i, ok := verdictTable[v]; ok {
		return i
	}
	return verdictInfo{Broken, 4, "!", "unknown verdict"}
}

// Valid reports whether v is one of the constants.
func (v Verdict) Valid() bool {
	_, ok := verdictTable[v]
	return ok
}

// Class returns the three-way answer (passed, neither, differs), and Broken
// for an error. A verdict that is not one of the constants is Broken.
func (v Verdict) Class() Class { return v.info().class }

// Passes reports whether v is Equal or a listed deviation. NotApplicable and
// NotVerifiable are no pass; neither are they a failure, see [Verdict.Fails].
func (v Verdict) Passes() bool { return v.Class() == Passed }

// Fails reports whether v turns a run red: a difference or an error.
func (v Verdict) Fails() bool { c := v.Class(); return c == Differs || c == Broken }

// Order ranks verdicts for "worst of": the higher, the worse.
func (v Verdict) Order() int { return v.info().order }

// Symbol returns one character that stands for v where colour cannot be seen.
func (v Verdict) Symbol() string { return v.info().symbol }

// Words returns v as it is shown to people.
func (v Verdict) Words() string { return v.info().word }

// Worst returns the worst of vs, or "" if there is none. Of equally bad ones
// it returns the first.
func Worst(vs ...Verdict) Verdict {
	var worst Verdict
	for i, v := range vs {
		if i == 0 || v.Order() > worst.Order() {
			worst = v
		}
	}
	return worst
}
