package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// verifyFlags are the flags of verify.
type verifyFlags struct {
	brokers, claims, urls []string
	out                   string
	json, verbose         bool
	seed                  uint64
	timeout               time.Duration
	parallel              int
}

func newVerify() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Find out where exactly-once ends on each broker",
		Long: `Start the embedded brokers, drive each through one contract, break them at protocol
points, and hold what is observed against what the adapters declare. Weaker and
stronger both fail: either way what is written is wrong.

Exit codes: 0 all answers as declared, or a listed deviation of an emulator;
1 a difference, or a mutant that survived; 2 a wrong command line; 3 a target that
could not be reached, a probe that failed to run, or an interrupted run.`,
		Example: `  onceline verify
  onceline verify --broker nats --claim 'publish.dedup.*' -v
  onceline verify --target nats://127.0.0.1:4222
  onceline verify --seed 42 --out /tmp/report --json | jq .summary`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.brokers, "broker", nil, "only these targets or brokers, as globs (default all embedded ones)")
	flags.StringSliceVar(&f.claims, "claim", nil, "only these claims, as globs: 'publish.*' (default all)")
	flags.StringArrayVar(&f.urls, "target", nil, "a broker that runs elsewhere, by URL with its hosts separated by commas, instead of the embedded ones; probes create and delete entities on it")
	flags.StringVar(&f.out, "out", "onceline-report", "folder for index.html, report.json, report.md and junit.xml")
	flags.BoolVar(&f.json, "json", false, "print report.json instead of the matrix")
	flags.Uint64Var(&f.seed, "seed", 0, "repeat the random choices of an earlier run (default a new seed, printed)")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "bound of each probe")
	flags.IntVar(&f.parallel, "parallel", 8, "probes at a time on each target")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "a line for each finding, with what was seen")
	for flag, names := range map[string][]string{"broker": targets.Names(targets.Embedded()), "claim": claimIDs()} {
		// Fails only for a flag that doesn't exist.
		if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err)
		}
	}
	return cmd
}

func (f *verifyFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.timeout <= 0 || f.parallel <= 0 {
		return fmt.Errorf("--timeout and --parallel must be above zero")
	}
	ts, err := f.targets()
	if err != nil {
		return err
	}
	// Found before the run: a run whose report can't be kept is minutes lost.
	if err := writable(f.out); err != nil {
		return err
	}
	// The faults are ours: that an adapter warns of them is of interest to those
	// who look closely alone.
	level := slog.LevelError
	if f.verbose {
		level = slog.LevelInfo
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})))
	progress := newProgress(stderr, f.verbose, ts)
	stop := progress.watch(ctx)
	started := time.Now()
	r, undecided, err := f.measure(ctx, ts, progress)
	stop()
	progress.end()
	if err != nil {
		return err
	}
	r.Seconds = time.Since(started).Seconds()
	r.Command = f.command(r.Seed)
	r.Summary.Interrupted = ctx.Err() != nil
	summarise(r, undecided)
	err = f.show(stdout, stderr, r)
	if undecided != nil {
		fmt.Fprintf(stderr, "onceline: mutants: %v\n", undecided)
	}
	if err != nil {
		return runError{err}
	}
	if r.Summary.Exit != 0 {
		return exitCode(r.Summary.Exit)
	}
	return nil
}

// measure runs the probes and, in a whole run, the mutants. undecided names those
// of them whose probe failed to run; the report has the others.
func (f *verifyFlags) measure(ctx context.Context, ts []conformance.Target, p *progress) (r *report.Report, undecided, err error) {
	o := conformance.Options{Claims: f.claims, Seed: f.seed, Timeout: f.timeout, Parallel: f.parallel,
		Toolkit: version(), Progress: p.finding}
	if r, err = conformance.RunAll(ctx, ts, o); err != nil {
		return nil, nil, err
	}
	if len(f.claims) > 0 || len(f.urls) > 0 || ctx.Err() != nil {
		return r, nil, nil
	}
	p.phase("mutants")
	o.Seed = r.Seed
	// The mutants are of the reference adapter; the suite is what they test.
	r.Mutants, undecided = conformance.RunMutants(ctx, targets.Memory(), o)
	return r, undecided, nil
}

// summarise counts what was found. A mutant that is undecided makes a run that
// looks fine unknown; a difference that was found stays one.
func summarise(r *report.Report, undecided error) {
	r.Summarise()
	if undecided != nil && r.Summary.Exit != report.ExitDifference {
		r.Summary.Exit = report.ExitUnknown
	}
}

// writable makes the folder if need be and reports why nothing can be written
// there.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("--out %s: %w", dir, err)
	}
	tmp, err := os.CreateTemp(dir, ".onceline-*")
	if err != nil {
		return fmt.Errorf("--out %s: %w", dir, err)
	}
	if err := errors.Join(tmp.Close(), os.Remove(tmp.Name())); err != nil {
		return fmt.Errorf("--out %s: %w", dir, err)
	}
	return nil
}

func (f *verifyFlags) targets() ([]conformance.Target, error) {
	if len(f.urls) == 0 {
		return targets.Select(targets.Embedded(), f.brokers)
	}
	if len(f.brokers) > 0 {
		return nil, fmt.Errorf("--broker chooses among the embedded ones and --target names another: give one of the two")
	}
	var ts []conformance.Target
	for _, u := range f.urls {
		t, err := targets.ByURL(u)
		if err != nil {
			return nil, err
		}
		if n := len(ts); n > 0 {
			t.Name += "-" + strconv.Itoa(n+1)
		}
		ts = append(ts, t)
	}
	return ts, nil
}

// command is the line that repeats the run. URLs stay out of it: they may hold
// a password.
func (f *verifyFlags) command(seed uint64) string {
	s := "onceline verify"
	for _, b := range f.brokers {
		s += " --broker " + quote(b)
	}
	for range f.urls {
		s += " --target URL"
	}
	for _, c := range f.claims {
		s += " --claim " + quote(c)
	}
	return fmt.Sprintf("%s --seed %d", s, seed)
}

func quote(s string) string {
	if strings.ContainsAny(s, "*?[ ") {
		return "'" + s + "'"
	}
	return s
}

// show prints the matrix, or the JSON, and writes the report's files: each of the
// two even if the other fails, so that no run's result is lost.
func (f *verifyFlags) show(stdout, stderr io.Writer, r *report.Report) error {
	printed := f.print(stdout, r)
	if err := report.WriteAll(f.out, r); err != nil {
		return errors.Join(printed, fmt.Errorf("write the report: %w", err))
	}
	if printed != nil || f.json {
		return printed
	}
	_, err := fmt.Fprintf(stderr, "%.1f s, seed %d; the report is in %s/index.html\n", r.Seconds, r.Seed, f.out)
	return err
}

func (f *verifyFlags) print(stdout io.Writer, r *report.Report) error {
	if f.json {
		return report.WriteJSON(stdout, r)
	}
	file, _ := stdout.(*os.File)
	width, color := terminal(file)
	if width == 0 {
		width = 132
	}
	return report.Matrix(stdout, r, report.MatrixOptions{Color: color, Width: width})
}

func claimIDs() []string {
	var ids []string
	for _, c := range conformance.Claims() {
		ids = append(ids, string(c.ID))
	}
	return ids
}
