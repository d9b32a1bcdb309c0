package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onceline/onceline/conformance/report"
)

// Trial is what became of a mutant.
type Trial struct {
	Mutant
	Target string
	// Declared is what the adapter itself answers to the mutant's claim, Observed what
	// the mutant does, and Reason what was seen of it.
	Declared, Observed, Reason string
	Killed                     bool
	// Err is why it was not decided: the adapter itself doesn't answer as declared, the
	// probe failed to run, or can't be run on this target. Then the rest is empty.
	Err     error
	Seconds float64
}

// RunMutants runs each of ms as t's adapter against the claim that has to kill it:
// [Mutants], or [MutantsOf] t. It asks the adapter itself first, for what is broken
// already shows nothing. tell, which may be nil, is called with each trial as it is
// decided, one at a time; the trials are returned in the order of ms, as far as ctx
// let them be. Of o it takes Seed, Timeout and Parallel, which is how many mutants are
// tried at a time. The error is one of bad options.
func RunMutants(ctx context.Context, t Target, ms []Mutant, o Options, tell func(Trial)) ([]Trial, error) {
	if len(ms) == 0 {
		return nil, nil
	}
	o.Progress, o.Claims = nil, nil
	if o.Parallel <= 0 {
		o.Parallel = 8
	}
	for _, m := range ms {
		if !slices.Contains(o.Claims, string(m.Claim)) {
			o.Claims = append(o.Claims, string(m.Claim))
		}
	}
	itself, err := Run(ctx, t, o)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	trials, decided := make([]Trial, len(ms)), make([]bool, len(ms))
	places := make(chan struct{}, o.Parallel)
	var all sync.WaitGroup
	for i := range ms {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if ctx.Err() != nil {
				return
			}
			trial := ms[i].try(ctx, t, &itself.Targets[0], o)
			if ctx.Err() != nil {
				return // what it saw may have been the end of the run
			}
			mu.Lock()
			defer mu.Unlock()
			trials[i], decided[i] = trial, true
			if tell != nil {
				tell(trial)
			}
		})
	}
	all.Wait()
	var out []Trial
	for i := range trials {
		if decided[i] {
			out = append(out, trials[i])
		}
	}
	return out, nil
}

// try decides one. itself is what the adapter was found to answer.
func (m Mutant) try(ctx context.Context, t Target, itself *report.Target, o Options) Trial {
	start := time.Now()
	trial := Trial{Mutant: m, Target: t.Name}
	f, err := answered(itself, m)
	switch {
	case err != nil:
		trial.Err = fmt.Errorf("the adapter itself: %w", err)
	case f.Verdict.Class() == report.Differs:
		trial.Err = fmt.Errorf("the adapter itself answers %s where it declares %s: %s", f.Observed, f.Declared, f.Reason)
	case f.Observed == string(m.Answer):
		trial.Err = fmt.Errorf("the adapter itself answers %s: there is nothing here that the mutant could break", f.Observed)
	default:
		trial.Declared = f.Observed
		o.Claims, o.mutant = []string{string(m.Claim)}, &m
		r, err := Run(ctx, t, o)
		if err == nil {
			f, err = answered(&r.Targets[0], m)
		}
		if err != nil {
			trial.Declared, trial.Err = "", err
			break
		}
		trial.Observed, trial.Reason, trial.Killed = f.Observed, f.Reason, f.Verdict.Class() == report.Differs
	}
	trial.Seconds = time.Since(start).Seconds()
	return trial
}

// answered is the finding about m's claim, or why there is no answer.
func answered(t *report.Target, m Mutant) (report.Finding, error) {
	for _, f := range t.Findings {
		switch {
		case f.Claim != string(m.Claim):
		case f.Observed != "" && f.Verdict.Class() != report.Broken:
			return f, nil
		default:
			return f, fmt.Errorf("%s: %s: %s", f.Claim, f.Verdict, f.Reason)
		}
	}
	return report.Finding{}, fmt.Errorf("%s was not asked: %s%s", m.Claim, t.Error, t.Absent)
}

// Report is the trial as a report has it.
func (t Trial) Report() report.Mutant {
	return report.Mutant{Name: t.Name, Layer: t.Layer, Claim: string(t.Claim), Answer: t.Observed, Reason: t.Reason, Killed: t.Killed}
}
