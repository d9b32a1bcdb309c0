package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// mutantsFlags are the flags of mutants.
type mutantsFlags struct {
	brokers    []string
	json, list bool
	seed       uint64
	timeout    time.Duration
	parallel   int
}

func newMutants() *cobra.Command {
	var f mutantsFlags
	cmd := &cobra.Command{
		Use:   "mutants",
		Short: "Break adapters on purpose, and see whether the suite notices",
		Long: `Run adapters that are wrong in one way each, a way in which one can be written by
mistake, and see whether the claim that forbids it finds it out. A suite that passes a
wrong adapter proves nothing of a right one.

Most mutants break any adapter, and are tried on the reference implementation in
memory; the others break the adapter of one broker in a way that this broker invites,
and are tried on its embedded target. The adapter itself is asked first: what fails without a
mutant shows nothing. A line is printed for each mutant as it is decided, the score
last.

Exit codes: 0 all are killed; 1 one survived; 2 a wrong command line; 3 none survived,
but one could not be decided, or the run was interrupted.`,
		Example: `  onceline mutants
  onceline mutants --broker memory
  onceline mutants --broker 'rabbitmq*' --broker nats
  onceline mutants --list
  onceline mutants --json | jq -r '.mutants[] | select(.killed | not) | .name'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.brokers, "broker", nil, "only the mutants of these targets or brokers, as globs (default all)")
	flags.BoolVar(&f.json, "json", false, "print JSON at the end instead of lines")
	flags.BoolVar(&f.list, "list", false, "list the mutants and what they do wrong, and try none")
	flags.Uint64Var(&f.seed, "seed", 0, "repeat the random choices of an earlier run (default a new seed, printed)")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "bound of each probe")
	flags.IntVar(&f.parallel, "parallel", 8, "mutants at a time on each target")
	var names []string
	for _, b := range targets.Mutants() {
		names = append(names, b.Name)
	}
	if err := cmd.RegisterFlagCompletionFunc("broker", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // only for a flag that doesn't exist
	}
	return cmd
}

func (f *mutantsFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.timeout <= 0 || f.parallel <= 0 {
		return errors.New("--timeout and --parallel must be above zero")
	}
	broken, err := f.targets()
	if err != nil {
		return err
	}
	if f.list {
		return f.printList(stdout, broken)
	}
	for f.seed == 0 {
		f.seed = rand.Uint64()
	}
	s := score{Seed: f.seed, Mutants: []mutantLine{}}
	for _, b := range broken {
		s.Tried += len(b.Mutants)
	}
	// The faults are ours: that an adapter warns of them is of no interest.
	slog.SetDefault(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	if err := f.try(ctx, stdout, broken, &s); err != nil {
		return err
	}
	if f.json {
		err = indented(stdout, s)
	} else {
		_, err = fmt.Fprintln(stdout, s)
	}
	switch {
	case err != nil:
		return runError{err}
	case s.Exit != report.ExitEqual:
		return exitCode(s.Exit)
	}
	return nil
}

// targets are those that the flags choose.
func (f *mutantsFlags) targets() ([]targets.Broken, error) {
	all := targets.Mutants()
	ts := make([]conformance.Target, len(all))
	for i := range all {
		ts[i] = all[i].Target
	}
	chosen, err := targets.Select(ts, f.brokers)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(b targets.Broken) bool {
		return !slices.ContainsFunc(chosen, func(t conformance.Target) bool { return t.Name == b.Name })
	}), nil
}

// try runs all, the targets at the same time, and counts.
func (f *mutantsFlags) try(ctx context.Context, stdout io.Writer, broken []targets.Broken, s *score) error {
	start := time.Now()
	var mu sync.Mutex
	var printed error
	tell := func(t conformance.Trial) {
		mu.Lock()
		defer mu.Unlock()
		s.add(t)
		if !f.json && printed == nil {
			_, printed = fmt.Fprintln(stdout, s.Mutants[len(s.Mutants)-1])
		}
	}
	errs := make([]error, len(broken))
	var all sync.WaitGroup
	for i, b := range broken {
		all.Go(func() {
			_, errs[i] = conformance.RunMutants(ctx, b.Target, b.Mutants,
				conformance.Options{Seed: f.seed, Timeout: f.timeout, Parallel: f.parallel}, tell)
		})
	}
	all.Wait()
	s.conclude(time.Since(start))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if printed != nil {
		return runError{printed}
	}
	return nil
}

// score is what came out, as --json prints it.
type score struct {
	Tried     int          `json:"tried"` // or meant to be, in an interrupted run
	Killed    int          `json:"killed"`
	Survived  int          `json:"survived"`
	Undecided int          `json:"undecided"`
	Seed      uint64       `json:"seed"`
	Seconds   float64      `json:"seconds"`
	Exit      int          `json:"exit"`
	Mutants   []mutantLine `json:"mutants"`
}

// mutantLine is one mutant of it.
type mutantLine struct {
	Name      string          `json:"name"`
	On        string          `json:"on"` // the target
	Layer     string          `json:"layer"`
	Does      string          `json:"does"`
	Claim     boundary.Claim  `json:"claim"`
	Declared  string          `json:"declared,omitempty"` // and observed of the adapter itself
	Observed  string          `json:"observed,omitempty"`
	Expected  boundary.Answer `json:"expected"`
	Killed    bool            `json:"killed"`
	Undecided string          `json:"undecided,omitempty"` // why
	Reason    string          `json:"reason,omitempty"`
	Seconds   float64         `json:"seconds,omitempty"`
}

func (s *score) add(t conformance.Trial) {
	l := mutantLineOf(t.Target, t.Mutant)
	l.Declared, l.Observed, l.Reason, l.Killed, l.Seconds = t.Declared, t.Observed, t.Reason, t.Killed, t.Seconds
	switch {
	case t.Err != nil:
		l.Undecided = t.Err.Error()
	case t.Killed:
		s.Killed++
	default:
		s.Survived++
	}
	s.Mutants = append(s.Mutants, l)
}

// conclude counts what was not decided, in an interrupted run also for its not having
// been tried.
func (s *score) conclude(took time.Duration) {
	s.Seconds = took.Seconds()
	s.Undecided = s.Tried - s.Killed - s.Survived
	switch {
	case s.Survived > 0:
		s.Exit = report.ExitDifference
	case s.Undecided > 0 || s.Tried == 0:
		s.Exit = report.ExitUnknown
	}
}

func (s score) String() string {
	line := fmt.Sprintf("%d of %d mutants killed", s.Killed, s.Tried)
	if s.Survived > 0 {
		line += fmt.Sprintf(", %d survived", s.Survived)
	}
	if s.Undecided > 0 {
		line += fmt.Sprintf(", %d not decided", s.Undecided)
	}
	return fmt.Sprintf("%s; seed %d, %.1f s, exit %d", line, s.Seed, s.Seconds, s.Exit)
}

func mutantLineOf(target string, m conformance.Mutant) mutantLine {
	return mutantLine{Name: m.Name, On: target, Layer: m.Layer, Does: m.Does, Claim: m.Claim, Expected: m.Answer}
}

func (l mutantLine) String() string {
	what, why := "✓ killed", fmt.Sprintf("%s instead of %s", l.Observed, l.Declared)
	switch {
	case l.Undecided != "":
		what, why = "? undecided", l.Undecided
	case !l.Killed:
		what, why = "▼ survived", fmt.Sprintf("%s all the same: %s", l.Observed, l.Reason)
	}
	return fmt.Sprintf("%-11s %-35s %-27s %-7s %s: %s", what, l.Name, l.On, l.Layer, l.Claim, why)
}

func (f *mutantsFlags) printList(w io.Writer, broken []targets.Broken) error {
	var list []mutantLine
	for _, b := range broken {
		for _, m := range b.Mutants {
			list = append(list, mutantLineOf(b.Name, m))
		}
	}
	if f.json {
		return indented(w, list)
	}
	for _, l := range list {
		if _, err := fmt.Fprintf(w, "%s (%s, %s)\n  %s\n  killed by %s: %s\n\n", l.Name, l.On, l.Layer, l.Does, l.Claim, l.Expected); err != nil {
			return runError{err}
		}
	}
	return nil
}

func indented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
