package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/cmd/onceline/ratios"
	"github.com/onceline/onceline/conformance/report"
)

// ratiosFlags are the flags of ratios.
type ratiosFlags struct {
	o    ratios.Options
	list bool
}

func newRatios() *cobra.Command {
	var f ratiosFlags
	cmd := &cobra.Command{
		Use:   "ratios",
		Short: "Measure what the dedup stores promise of their speed and size",
		Long: `Measure on this machine what the stores of package dedup promise: how many times as fast
batches are as one message per transaction, what the package costs beside the same SQL
written by hand, what bad effects cost, how long it takes to drop a day of markers and how
many bytes one takes. PostgreSQL and Redis or Valkey are started for it if they are
installed, on private ports and folders; SQLite needs nothing.

A ratio is the median of 20 pairs of runs that alternate, so that what else the machine does
hits both, with its 95 % interval by order statistics. What takes long, to fill and to drop
a day, is done fewer times; N says how often.

With --quick days are dropped twice instead of six times, and what is measured is held to
a gate a tenth beside the promise, and measured again where it misses that.

Exit codes: 0 all promises are kept; 1 one isn't; 2 a wrong command line; 3 something could
not be measured, as without a server.`,
		Example: `  onceline ratios
  onceline ratios --only 'sqlite.*'
  onceline ratios --quick`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.o.Only, "only", nil, "measure these alone, by name or pattern")
	flags.BoolVar(&f.o.Quick, "quick", false, "measure less, and against gates a tenth beside the promises")
	flags.IntVar(&f.o.Pairs, "pairs", 20, "pairs of runs for a ratio")
	flags.IntVar(&f.o.Markers, "markers", 1_000_000, "markers in a full table")
	flags.BoolVar(&f.list, "list", false, "list the promises and measure nothing")
	return cmd
}

func (f *ratiosFlags) check() error {
	switch {
	case f.o.Pairs < 1 || f.o.Markers < 1:
		return errors.New("ratios: --pairs and --markers must be at least 1")
	}
	for _, pattern := range f.o.Only {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("ratios: --only %q: %w", pattern, err)
		}
		found := false
		for _, p := range ratios.Promises() {
			ok, _ := path.Match(pattern, p.Name)
			found = found || ok
		}
		if !found {
			return fmt.Errorf("ratios: --only %q is no promise's name: see onceline ratios --list", pattern)
		}
	}
	return nil
}

func (f *ratiosFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	if f.list {
		fmt.Fprintln(table, "NAME\tPROMISE\tWHAT")
		for _, p := range ratios.Promises() {
			fmt.Fprintf(table, "%s\t%s\t%s\n", p.Name, p.Bounds(), p.What)
		}
		return flushed(table)
	}
	began := time.Now()
	f.o.Progress = func(format string, a ...any) {
		fmt.Fprintf(stderr, "%5.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, a...))
	}
	var results []ratios.Result
	ratios.Measure(ctx, f.o, func(r ratios.Result) {
		results = append(results, r)
		if r.Err == nil {
			f.o.Progress("%s: %.4g %s, %s", r.Name, r.Median, r.Unit, verdict(r))
		}
	})
	fmt.Fprintln(table, "NAME\tPROMISE\tMEDIAN\t95 %\tN\t\tWHAT")
	missed, unknown := 0, 0
	for _, r := range results {
		switch {
		case r.Err != nil:
			unknown++
			fmt.Fprintf(table, "%s\t%s\t-\t-\t0\tunknown\t%s\n", r.Name, r.Bounds(), r.What)
			continue
		case !r.Kept:
			missed++
		}
		fmt.Fprintf(table, "%s\t%s\t%.4g\t%.4g to %.4g\t%d\t%s\t%s\n", r.Name, r.Bounds(), r.Median, r.Low, r.High, r.N, verdict(r), r.What)
	}
	if err := flushed(table); err != nil {
		return err
	}
	fmt.Fprintln(stdout)
	for _, r := range results {
		switch {
		case r.Err != nil:
			fmt.Fprintf(stdout, "%s: %v\n", r.Name, r.Err)
		case r.Detail != "":
			fmt.Fprintf(stdout, "%s: %s\n", r.Name, r.Detail)
		}
	}
	if _, err := fmt.Fprintf(stdout, "\n%d of %d promises kept, %d missed, %d unknown; %.0f s\n", len(results)-missed-unknown, len(results), missed, unknown, time.Since(began).Seconds()); err != nil {
		return runError{err}
	}
	switch {
	case missed > 0:
		return exitCode(report.ExitDifference)
	case unknown > 0:
		return exitCode(report.ExitUnknown)
	}
	return nil
}

func verdict(r ratios.Result) string {
	s := "MISSED"
	if r.Kept {
		s = "kept"
		if !r.Met(r.Median, false) {
			s = "within the gate"
		}
	}
	if r.Again {
		s += ", second try"
	}
	return s
}

// flushed writes a table out.
func flushed(table *tabwriter.Writer) error {
	if err := table.Flush(); err != nil {
		return runError{err}
	}
	return nil
}
