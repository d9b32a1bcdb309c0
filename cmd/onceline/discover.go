package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// discoverFlags are the flags of discover.
type discoverFlags struct {
	url      string
	claims   []string
	json     bool
	costs    bool
	timeout  time.Duration
	parallel int
}

func newDiscover() *cobra.Command {
	var f discoverFlags
	cmd := &cobra.Command{
		Use:   "discover --target URL",
		Short: "Observe a broker's boundary and print it as code to declare",
		Long: `Ask a running broker every claim, whatever its adapter declares, and print what was
observed as the Go source of a boundary, each answer with what was seen. Probes create
and delete entities. A claim that can't be told there is a comment.

Exit codes: 0 it is printed; 2 a wrong command line; 3 the broker could not be reached, a probe
failed to run, or the run was interrupted.`,
		Example: `  onceline discover --target nats://127.0.0.1:4222
  onceline discover --target kafka://127.0.0.1:9092 --claim 'settle.*' --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "target", "", "the broker's URL")
	flags.StringSliceVar(&f.claims, "claim", nil, "only these claims, as globs (default all)")
	flags.BoolVar(&f.costs, "yes-this-costs-money", false, "agree to what a --target in a cloud may cost")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "bound of each probe")
	flags.IntVar(&f.parallel, "parallel", 8, "probes at a time")
	if err := cmd.MarkFlagRequired("target"); err != nil {
		panic(err) // only for a flag that doesn't exist
	}
	return cmd
}

func (f *discoverFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.timeout <= 0 || f.parallel <= 0 {
		return fmt.Errorf("--timeout and --parallel must be above zero")
	}
	var progress *progress
	t, err := byURL(f.url, f.costs, func(target, step string) { progress.step(target, step) })
	if err != nil {
		return err
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	progress = newProgress(stderr, false, []conformance.Target{t})
	stop := progress.watch(ctx)
	r, err := conformance.Run(ctx, t, conformance.Options{Claims: f.claims, Timeout: f.timeout, Parallel: f.parallel, Progress: progress.finding})
	stop()
	progress.end()
	if err != nil {
		return err
	}
	found := &r.Targets[0]
	if found.Error != "" {
		return runError{fmt.Errorf("%s: %s", t.Name, found.Error)}
	}
	if err := f.print(stdout, t.Broker, found); err != nil {
		return runError{err}
	}
	if r.Summary.Error > 0 || r.Summary.Interrupted {
		return exitCode(report.ExitUnknown)
	}
	return nil
}

func (f *discoverFlags) print(w io.Writer, product string, t *report.Target) error {
	if !f.json {
		_, err := io.WriteString(w, conformance.Discover(product, t.Findings))
		return err
	}
	b := boundary.Boundary{Broker: product, Entries: map[boundary.Claim]boundary.Entry{}}
	for id, g := range conformance.Observed(t).Answers {
		b.Entries[id] = boundary.Entry{Declared: g.Answer}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(b)
}
