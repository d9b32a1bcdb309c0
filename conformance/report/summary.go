package report

import "slices"

// The exit codes of a run, in the order in which they take precedence: a
// difference is the stronger statement, so it wins over a target that could
// not be reached, and a run that was cut short is never 0.
const (
	// ExitEqual is for a run in which all answers were as declared, or a
	// listed deviation, or did not count.
	ExitEqual = 0
	// ExitDifference is for a run in which at least one answer was weaker or
	// stronger than declared, or in which a mutant survived.
	ExitDifference = 1
	// ExitUsage is for a command line that could not be understood. No report
	// carries it unless its maker sets it.
	ExitUsage = 2
	// ExitUnknown is for a run without a difference in which a target could
	// not be reached, a probe failed to run, or which was interrupted.
	ExitUnknown = 3
)

// Summary counts a report. Claims counts the different claims asked of at
// least one target; the verdicts count findings, one for each claim and
// target.
type Summary struct {
	Claims        int `json:"claims"`
	Targets       int `json:"targets"`
	Equal         int `json:"equal"`
	Weaker        int `json:"weaker"`
	Stronger      int `json:"stronger"`
	Deviation     int `json:"deviation"`
	NotApplicable int `json:"not-applicable"`
	NotVerifiable int `json:"not-verifiable"`
	Error         int `json:"error"`
	// Unreached counts targets with an error of their own.
	Unreached int `json:"unreached"`
	// Absent counts targets that this machine lacks something for.
	Absent int `json:"absent"`
	// Soaks counts the runs on clusters that had a verdict at all, SoaksKept those
	// that found what was declared; the others couldn't tell or are below.
	Soaks     int `json:"soaks"`
	SoaksKept int `json:"soaks_kept"`
	// SoaksBroken counts those that found something else, SoaksAbsent those that
	// this machine lacks something for.
	SoaksBroken int `json:"soaks_broken"`
	SoaksAbsent int `json:"soaks_absent"`
	Mutants     int `json:"mutants"`
	Killed      int `json:"killed"`
	// Interrupted is true when the run was cancelled before its end. It is set
	// by whoever runs the suite and kept by [Report.Summarise].
	Interrupted bool `json:"interrupted"`
	// Exit is the exit code that the run deserves, see [ExitEqual] and others.
	Exit int `json:"exit"`
}

// Count returns the number of findings with verdict v.
func (s Summary) Count(v Verdict) int {
	switch v {
	case Equal:
		return s.Equal
	case Weaker:
		return s.Weaker
	case Stronger:
		return s.Stronger
	case Deviates:
		return s.Deviation
	case NotApplicable:
		return s.NotApplicable
	case NotVerifiable:
		return s.NotVerifiable
	case Failed:
		return s.Error
	}
	return 0
}

// Summarise computes r.Summary from the targets, soaks and mutants, keeping
// Interrupted, and returns it. Exit is [ExitDifference] if any finding or soak is
// weaker or stronger or any mutant survived; else [ExitUnknown] if a target
// was not reached, a probe failed, a soak failed or could not tell, a verdict is
// not one of the constants, the run was interrupted, or nothing was asked at all
// (silence is no proof); else [ExitEqual].
func (r *Report) Summarise() Summary {
	s := Summary{Targets: len(r.Targets), Mutants: len(r.Mutants), Interrupted: r.Summary.Interrupted}
	claims := map[string]bool{}
	for i := range r.Targets {
		t := &r.Targets[i]
		if t.Error != "" {
			s.Unreached++
		}
		if t.Absent != "" {
			s.Absent++
		}
		for j := range t.Findings {
			claims[t.Findings[j].Claim] = true
			s.add(t.Findings[j].Verdict)
		}
	}
	s.Claims = len(claims)
	for _, m := range r.Mutants {
		if m.Killed {
			s.Killed++
		}
	}
	beside := []Verdict{s.addSoaks(r.Soaks)}
	for i := range r.Databases {
		if v := r.Databases[i].verdict(); v != NotApplicable {
			beside = append(beside, v)
		}
	}
	s.Exit = s.exit(Worst(slices.DeleteFunc(beside, func(v Verdict) bool { return v == "" })...))
	r.Summary = s
	return s
}

func (s *Summary) add(v Verdict) {
	switch v {
	case Equal:
		s.Equal++
	case Weaker:
		s.Weaker++
	case Stronger:
		s.Stronger++
	case Deviates:
		s.Deviation++
	case NotApplicable:
		s.NotApplicable++
	case NotVerifiable:
		s.NotVerifiable++
	default:
		s.Error++
	}
}

// exit is the exit code; beside is the worst verdict of what isn't a claim: soaks
// and databases.
func (s *Summary) exit(beside Verdict) int {
	switch {
	case s.Weaker+s.Stronger > 0, s.Killed < s.Mutants, beside != "" && beside.Class() == Differs:
		return ExitDifference
	case s.Error+s.Unreached > 0, s.Interrupted, s.Claims+s.Mutants+s.Soaks == 0, beside != "" && !beside.Passes():
		return ExitUnknown
	}
	return ExitEqual
}
