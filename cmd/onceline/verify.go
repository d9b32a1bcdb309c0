package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/docs"
)

// verifyFlags are the flags of verify.
type verifyFlags struct {
	brokers, claims, urls []string
	out, disturbance      string
	local, soak, compose  bool
	embedded              bool
	costs                 bool
	json, verbose         bool
	seed                  uint64
	timeout               time.Duration
	parallel, servers     int
}

func newVerify() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Find out where exactly-once ends on each broker",
		Long: `Start the embedded brokers, drive each through one contract, break them at protocol
points, and hold what is observed against what the adapters declare. Weaker and
stronger both fail: either way what is written is wrong.

With --local the same is asked of what vendors and others ship, each run on ports and
folders of its own and stopped at the end: Apache Kafka, RabbitMQ, clusters of NATS,
Google's Pub/Sub emulator, ElasticMQ and others, as far as they are installed or a
package manager can bring them; what isn't there is reported as such. The report then
has a ledger of where emulator, real broker and documentation differ. With --soak
clusters of three are put under load while their nodes are killed, cut off and
restarted; alone it asks no claims. All of both takes a quarter of an hour. With --compose the services of docker-compose.yml are asked that are up.

A --target beyond this machine and its private networks may cost money: it needs
--yes-this-costs-money, gets entities under a prefix of this run alone, and is swept
of them at the end, also of an interrupted run.

Exit codes: 0 all answers as declared, or a listed deviation of an emulator;
1 a difference, or a mutant that survived; 2 a wrong command line; 3 a target that
could not be reached, a probe that failed to run, an interrupted run, or one in which
nothing could be asked. What this machine lacks counts for nothing beside other targets.`,
		Example: `  onceline verify
  onceline verify --broker nats --claim 'publish.dedup.*' -v
  onceline verify --target nats://127.0.0.1:4222
  onceline verify --local
  onceline verify --local --soak
  onceline verify --local --broker 'kafka*'
  onceline verify --compose
  onceline verify --target 'sqs:///?region=eu-central-1' --yes-this-costs-money
  onceline verify --seed 42 --out /tmp/report --json | jq .summary`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case cmd.Flags().Changed("servers") && !f.local:
				return errors.New("--servers bounds what --local starts: give both")
			case !f.embedded && !f.local:
				return errors.New("--embedded=false leaves out what --local asks beside its servers: give both")
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.brokers, "broker", nil, "only these targets or brokers, as globs (default all embedded ones)")
	flags.StringSliceVar(&f.claims, "claim", nil, "only these claims, as globs: 'publish.*' (default all)")
	flags.BoolVar(&f.local, "local", false, "ask the real brokers that run on this machine too, starting them")
	flags.BoolVar(&f.embedded, "embedded", true, "with --local, ask the embedded brokers and the mutants too")
	flags.BoolVar(&f.soak, "soak", false, "publish and settle on clusters of three whose nodes are killed, cut off and restarted")
	flags.StringVar(&f.disturbance, "disturbance", "", "with --soak, only this one: 'leader killed', 'leader cut off' or 'all nodes restarted in turn'")
	flags.BoolVar(&f.compose, "compose", false, "ask the services of docker-compose.yml that are up, instead of the embedded ones")
	flags.BoolVar(&f.costs, "yes-this-costs-money", false, "agree to what a --target in a cloud may cost")
	flags.StringArrayVar(&f.urls, "target", nil, "a broker that runs elsewhere, by URL with its hosts separated by commas, instead of the embedded ones; probes create and delete entities on it")
	flags.StringVar(&f.out, "out", "onceline-report", "folder for index.html, report.json, report.md and junit.xml")
	flags.BoolVar(&f.json, "json", false, "print report.json instead of the matrix")
	flags.Uint64Var(&f.seed, "seed", 0, "repeat the random choices of an earlier run (default a new seed, printed)")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "bound of each probe")
	flags.IntVar(&f.parallel, "parallel", 8, "probes at a time on each server")
	flags.IntVar(&f.servers, "servers", 3, "with --local, how many servers run at a time")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "a line for each finding, with what was seen")
	for flag, names := range map[string][]string{"broker": targets.Names(append(targets.Embedded(), targets.Local(nil)...)), "claim": claimIDs()} {
		// Fails only for a flag that doesn't exist.
		if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err)
		}
	}
	return cmd
}

func (f *verifyFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.timeout <= 0 || f.parallel <= 0 || f.servers <= 0 {
		return fmt.Errorf("--timeout, --parallel and --servers must be above zero")
	}
	var progress *progress
	step := func(target, step string) { progress.step(target, step) }
	ts, err := f.targets(step)
	if err != nil {
		return err
	}
	cs, err := f.clusters(step)
	if err != nil {
		return err
	}
	// Found before the run: a run whose report can't be kept is minutes lost.
	if err := writable(f.out); err != nil {
		return runError{err}
	}
	// The faults are ours: that an adapter warns of them is of interest to those
	// who look closely alone.
	level := slog.LevelError
	if f.verbose {
		level = slog.LevelInfo
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})))
	progress = newProgress(stderr, f.verbose, ts)
	stop := progress.watch(ctx)
	started := time.Now()
	r, undecided, err := f.measure(ctx, ts, cs, progress)
	stop()
	progress.end()
	if err != nil {
		return err
	}
	r.Seconds = time.Since(started).Seconds()
	r.Command = f.command(r.Seed)
	r.Facts = cited(r)
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

// measure runs the probes, what is asked for beside them and, in a whole run, the
// mutants. undecided names those of them whose probe failed to run; the report has
// the others.
func (f *verifyFlags) measure(ctx context.Context, ts []conformance.Target, cs []conformance.Cluster, p *progress) (r *report.Report, undecided, err error) {
	o := conformance.Options{Claims: f.claims, Seed: f.seed, Timeout: f.timeout, Parallel: f.parallel,
		Toolkit: version(), Progress: p.finding}
	// What is embedded starts in milliseconds, a server takes seconds and memory.
	embedded, servers := split(ts)
	if r, err = conformance.RunAll(ctx, embedded, o); err != nil {
		return nil, nil, err
	}
	o.Seed = r.Seed
	if len(servers) > 0 {
		p.phase("real servers, " + strconv.Itoa(f.servers) + " at a time")
		o.Servers = f.servers
		more, err := conformance.RunAll(ctx, servers, o)
		if err != nil {
			return nil, nil, err
		}
		r.Targets = append(r.Targets, more.Targets...)
	}
	if f.local && f.whole() && ctx.Err() == nil {
		p.phase("databases")
		r.Databases = databases(targets.Databases(ctx, p.step))
	}
	if len(cs) > 0 && ctx.Err() == nil {
		p.phase("clusters")
		r.Soaks = conformance.Soaks(ctx, cs, conformance.SoakOptions{Disturbance: f.disturbance, Progress: func(target, disturbance, step string) {
			p.step(target, disturbance+": "+step)
		}})
	}
	if !f.whole() && len(f.brokers) == 0 || len(f.claims) > 0 || len(embedded) == 0 || ctx.Err() != nil {
		return r, nil, nil
	}
	p.phase("mutants")
	// The mutants are of the reference adapter; the suite is what they test.
	o.Servers = 0
	trials, err := conformance.RunMutants(ctx, targets.Memory(), conformance.Mutants(), o, nil)
	if err != nil {
		return nil, nil, err
	}
	var why []error
	for _, t := range trials {
		if t.Err != nil {
			why = append(why, fmt.Errorf("%s: %w", t.Name, t.Err))
			continue
		}
		r.Mutants = append(r.Mutants, t.Report())
	}
	return r, errors.Join(why...), nil
}

// whole reports whether nothing was left out by the command line.
func (f *verifyFlags) whole() bool {
	return len(f.claims) == 0 && len(f.urls) == 0 && len(f.brokers) == 0 && !f.compose
}

// cited are the facts that the findings rest on.
func cited(r *report.Report) []report.Fact {
	ids := map[string]bool{}
	for i := range r.Targets {
		for j := range r.Targets[i].Findings {
			for _, id := range r.Targets[i].Findings[j].Source {
				ids[id] = true
			}
		}
	}
	var facts []report.Fact
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if f, ok := docs.Facts()[id]; ok { // the others are URLs
			facts = append(facts, report.Fact(f))
		}
	}
	return facts
}

// summarise counts what was found. A mutant that is undecided makes a run that
// looks fine unknown; a difference that was found stays one.
func summarise(r *report.Report, undecided error) {
	r.Summarise()
	if undecided != nil && r.Summary.Exit != report.ExitDifference {
		r.Summary.Exit = report.ExitUnknown
	}
}

func claimIDs() []string {
	var ids []string
	for _, c := range conformance.Claims() {
		ids = append(ids, string(c.ID))
	}
	return ids
}

// noArgs refuses arguments where names go with a flag.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments; did you mean: onceline %s --broker %s", cmd.Name(), cmd.Name(), args[0])
	}
	return nil
}
