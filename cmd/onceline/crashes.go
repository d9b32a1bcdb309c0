package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/cmd/onceline/crashes"
	"github.com/onceline/onceline/conformance/report"
)

// crashesFlags are the flags of crashes.
type crashesFlags struct {
	stores, brokers, points, disturbances, require []string
	parallel                                       int
	wrong, right, inTurn, verbose, list            bool
}

func newCrashes() *cobra.Command {
	var f crashesFlags
	cmd := &cobra.Command{
		Use:   "crashes",
		Short: "Crash consumers at each step of an effect, and count the effects",
		Long: `Run consumers that keep their effects by the stores of package dedup, kill, freeze and
cut them off at each step, and count how often each effect took place.

A cell is a store, an embedded broker, a point on the way of an effect, and what happens
there: 200 messages, delivered again until they are acked, with three of them disturbed,
one after the other. Its word says how often the effects of those took place: "once"
throughout for an inbox and a stored position; what a lease and a call record promise
instead is in docs/effects.md. An asterisk is a call that was on the list of those which
somebody has to look at. All other messages must have their effect once.

Stores that are written in the usual wrong ways are run as well, where they go wrong:
what doesn't show their anomaly can't see any.

PostgreSQL, MariaDB and Redis (or Valkey) are started on private ports, if they are
installed; the stores of one that isn't are left out, unless --require names it.

Exit codes: 0 all is as promised; 1 something isn't, or a wrong store was not seen; 2 a
wrong command line; 3 the run could not be made, was interrupted, or a server that is
required isn't installed.`,
		Example: `  onceline crashes
  onceline crashes --store 'sqlite*' --broker nats
  onceline crashes --store 'postgres inbox' --what kill,freeze --point 'in commit'
  onceline crashes --wrong-only
  onceline crashes --in-turn
  onceline crashes --require postgres,mariadb,redis`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.stores, "store", nil, "only these stores, as globs (default all)")
	flags.StringSliceVar(&f.brokers, "broker", nil, "only these brokers, of "+strings.Join(crashes.Brokers(), ", "))
	flags.StringSliceVar(&f.points, "point", nil, "only these points, as globs, of "+joined(crashes.Points()))
	flags.StringSliceVar(&f.disturbances, "what", nil, "only this happening, as globs, of "+joined(crashes.Disturbances()))
	flags.StringSliceVar(&f.require, "require", nil, "servers without which the run fails, of postgres, mariadb, redis")
	flags.BoolVar(&f.wrong, "wrong-only", false, "run the wrong stores alone")
	flags.BoolVar(&f.right, "right-only", false, "run no wrong stores")
	flags.BoolVar(&f.inTurn, "in-turn", false, "of cells that differ in their broker alone run one, the brokers by turns: about half of all")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "print a line for each cell as it is done")
	flags.BoolVar(&f.list, "list", false, "list the stores, and run nothing")
	flags.IntVar(&f.parallel, "parallel", 24, "cells at a time, beside those that wait for a restart together")
	return cmd
}

func joined[S ~string](words []S) string {
	var texts []string
	for _, w := range words {
		texts = append(texts, string(w))
	}
	return strings.Join(texts, ", ")
}

// chosen are the words that a flag's globs choose, all without any.
func chosen[S ~string](flag string, globs []string, words []S) ([]S, error) {
	if len(globs) == 0 {
		return words, nil
	}
	var out []S
	for _, w := range words {
		for _, g := range globs {
			yes, err := path.Match(g, string(w))
			if err != nil {
				return nil, fmt.Errorf("--%s %s: %w", flag, g, err)
			}
			if yes && !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--%s %s: there is none like that; there are: %s", flag, strings.Join(globs, ","), joined(words))
	}
	return out, nil
}

// plan is what the flags choose.
func (f *crashesFlags) plan() (crashes.Plan, error) {
	p := crashes.Plan{Parallel: f.parallel}
	if f.parallel <= 0 {
		return p, errors.New("--parallel must be above zero")
	}
	if f.wrong && f.right {
		return p, errors.New("--wrong-only and --right-only leave nothing")
	}
	for _, name := range f.require {
		if !slices.Contains(crashes.Servers(), name) {
			return p, fmt.Errorf("--require %s: there is no such server; there are: %s", name, joined(crashes.Servers()))
		}
	}
	var names []string
	for _, s := range crashes.Stores() {
		names = append(names, s.Name)
	}
	stores, err1 := chosen("store", f.stores, names)
	brokers, err2 := chosen("broker", f.brokers, crashes.Brokers())
	points, err3 := chosen("point", f.points, crashes.Points())
	disturbances, err4 := chosen("what", f.disturbances, crashes.Disturbances())
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return p, err
	}
	if !f.wrong {
		p.Cells = slices.DeleteFunc(crashes.Cells(stores, brokers), func(c crashes.Cell) bool {
			return !slices.Contains(points, c.Point) || !slices.Contains(disturbances, c.Disturbance)
		})
		if f.inTurn {
			p.Cells = crashes.InTurn(p.Cells)
		}
	}
	if !f.right {
		p.Wrong = slices.DeleteFunc(crashes.WrongCells(brokers), func(c crashes.WrongCell) bool {
			return !slices.Contains(stores, c.Store) || !slices.Contains(points, c.Point) || !slices.Contains(disturbances, c.Disturbance)
		})
	}
	if len(p.Cells)+len(p.Wrong) == 0 {
		return p, errors.New("the flags leave no cell")
	}
	return p, nil
}

func (f *crashesFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.list {
		for _, s := range crashes.Stores() {
			if _, err := fmt.Fprintf(stdout, "%-32s %s\n", s.Name, s.What); err != nil {
				return runError{err}
			}
		}
		return nil
	}
	p, err := f.plan()
	if err != nil {
		return err
	}
	// The faults are ours: that an adapter warns of them is of no interest.
	slog.SetDefault(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	told := &crashProgress{w: stderr, start: time.Now(), of: len(p.Cells) + len(p.Wrong), verbose: f.verbose}
	file, _ := stderr.(*os.File)
	_, told.live = terminal(file)
	p.Progress, p.Finished = told.say, told.finished
	r, err := crashes.Run(ctx, p)
	told.end()
	if r == nil || err != nil {
		return runError{err}
	}
	if err := r.Table(stdout); err != nil {
		return runError{err}
	}
	return f.conclude(stdout, r)
}

// conclude says what it comes to.
func (f *crashesFlags) conclude(w io.Writer, r *crashes.Report) error {
	cells, wrong := r.Misses()
	for _, c := range cells {
		fmt.Fprintf(w, "✗ %s\n", c.Explain())
	}
	for _, c := range wrong {
		fmt.Fprintf(w, "✗ a wrong store of which nothing is seen: %s\n", c.Explain())
	}
	code := report.ExitEqual
	for _, name := range crashes.Servers() {
		why, absent := r.Absent[name]
		if !absent {
			continue
		}
		fmt.Fprintf(w, "not asked, without a server: %s: %s\n", name, why)
		if slices.Contains(f.require, name) {
			code = report.ExitUnknown
		}
	}
	if r.Asked()+len(r.Wrong) == 0 {
		code = report.ExitUnknown
	}
	if len(cells)+len(wrong) > 0 {
		code = report.ExitDifference
	}
	_, err := fmt.Fprintf(w, "%d of %d cells as promised, %d don't apply; %d of %d wrong stores seen; %d messages, %.0f s, exit %d\n",
		r.Asked()-len(cells), r.Asked(), len(r.Results)-r.Asked(), len(r.Wrong)-len(wrong), len(r.Wrong),
		crashes.Messages*(r.Asked()+len(r.Wrong)), r.Took.Seconds(), code)
	switch {
	case err != nil:
		return runError{err}
	case code != report.ExitEqual:
		return exitCode(code)
	}
	return nil
}

// crashProgress tells how far a run is.
type crashProgress struct {
	mu                   sync.Mutex
	w                    io.Writer
	start                time.Time
	live, verbose, drawn bool
	done, of, misses     int
	tenth                int
}

func (p *crashProgress) line(format string, a ...any) {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
	fmt.Fprintf(p.w, "%5.1f s  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, a...))
}

func (p *crashProgress) say(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line("%s", what)
}

// finished tells of a cell at once if it is a miss.
func (p *crashProgress) finished(r *crashes.Result, w *crashes.WrongCell) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	miss := w == nil && !r.OK()
	if miss {
		p.misses++
	}
	if miss || p.verbose && r.NotApplicable == "" {
		p.line("%s: %s (%.1f s)", r.Cell, r.Word(), r.Took.Seconds())
	}
	switch tenth := 10 * p.done / p.of; {
	case p.live:
		fmt.Fprintf(p.w, "\r\x1b[K%.0f s  %d of %d cells, %d misses", time.Since(p.start).Seconds(), p.done, p.of, p.misses)
		p.drawn = true
	case tenth > p.tenth:
		p.tenth = tenth
		p.line("%d of %d cells, %d misses", p.done, p.of, p.misses)
	}
}

func (p *crashProgress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}
