// Onceline finds out where exactly-once ends on a message broker. See
// "onceline help".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/cmd/onceline/crashes"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

func main() {
	// A probe's broker or consumer is this program once more; those don't
	// return.
	localstack.RunIfChild()
	conformance.RunIfWorker(targets.Stores()...)
	crashes.RunIfConsumer()

	// A reader that ends early, as head does, must not kill us in the middle: the
	// write says so, and what isn't settled is given back.
	signal.Ignore(syscall.SIGPIPE)

	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		ends = append(ends, syscall.SIGHUP) // the terminal was closed
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	go func() {
		<-ctx.Done()
		stop() // the second signal ends the program at once
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program without its process. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return execute(ctx, newRoot(), args, stdout, stderr)
}

func execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	out := &checkedWriter{Writer: stdout}
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(stderr)
	ran, err := root.ExecuteContextC(ctx)
	var code exitCode
	// What could not be printed can't be known by the code of what was found. Who
	// reads no further, as head does, isn't told so.
	if lost := out.failed(); lost != nil {
		if !errors.Is(lost, syscall.EPIPE) {
			fmt.Fprintf(stderr, "onceline: the output could not be written: %v\n", lost)
		}
		if err != nil && !errors.As(err, &code) && !strings.Contains(err.Error(), lost.Error()) {
			fmt.Fprintf(stderr, "onceline: %v\n", err)
		}
		return report.ExitUnknown
	}
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintf(stderr, "onceline: %v\n", err)
	var failed runError
	if errors.As(err, &failed) {
		return report.ExitUnknown
	}
	fmt.Fprintf(stderr, "See '%s --help'.\n", ran.CommandPath())
	return report.ExitUsage
}

// checkedWriter keeps the first error of what is written to it, which some who print
// don't look at.
type checkedWriter struct {
	io.Writer
	mu  sync.Mutex
	err error
}

func (w *checkedWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.err == nil {
			w.err = err
		}
	}
	return n, err
}

func (w *checkedWriter) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// fileOf is the file that w writes to, nil if it is none.
func fileOf(w io.Writer) *os.File {
	if c, ok := w.(*checkedWriter); ok {
		w = c.Writer
	}
	file, _ := w.(*os.File)
	return file
}

// exitCode is an end that needs no further words.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit %d", int(c)) }

// runError is a failure that is not one of the command line.
type runError struct{ error }

func (e runError) Unwrap() error { return e.error }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "onceline",
		Short: "Where exactly-once ends, measured",
		Long: `Onceline finds out, by injected faults, where each message broker's
exactly-once boundary really ends, and says what it found in words that are the
same for all of them.

Hop 1 is producer to broker, hop 2 broker to consumer, hop 3 consumer to effect.

Exit codes, of all commands:
  0   all is as it should be, or what was asked for is done
  1   something is not: a difference, an anomaly, a finding, a surviving mutant, something
      left or missing
  2   the command line, or what it names, makes no sense; nothing was done
  3   it could not be found out or done: a broker, database or file that can't be reached or
      read, a probe that failed, an interrupted run, an output that couldn't be written
The help of each command says what that means for it.`,
		Example: `  onceline verify                      all embedded brokers, nothing to install
  onceline up                          the brokers for anybody's code to connect to
  onceline explain nats                one broker's boundary in words
  onceline audit --effects shop.db …   what was lost or doubled, in a database
  onceline diff sqs-fifo nats          what changes if you swap one for the other
  onceline claims                      what is asked, and what can be answered`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetHelpCommand(newHelp())
	root.AddCommand(newVerify(), newTargets(), newUp(), newPub(), newSub(), newRelay(), newBridge(), newSize(), newAudit(), newRatios(), newExplain(), newDiff(), newDiscover(), newCheck(), newClaims(), newMutants(), newCrashes(), newVersion(), newURLs(), newReference())
	return root
}

// newHelp is the command help, which refuses what isn't there.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Say what a command does",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			in, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, c := range in.Commands() {
				if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
					names = append(names, c.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return fmt.Errorf("help: there is no command %q", strings.Join(args, " "))
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}
