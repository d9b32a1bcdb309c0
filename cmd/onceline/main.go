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
	"syscall"

	"github.com/spf13/cobra"

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
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var code exitCode
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
	fmt.Fprintln(stderr, "See 'onceline --help'.")
	return report.ExitUsage
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

Hop 1 is producer to broker, hop 2 broker to consumer, hop 3 consumer to effect.`,
		Example: `  onceline verify                      all embedded brokers, nothing to install
  onceline up                          the brokers for anybody's code to connect to
  onceline explain nats                one broker's boundary in words
  onceline diff sqs-fifo nats          what changes if you swap one for the other
  onceline claims                      what is asked, and what can be answered`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newVerify(), newTargets(), newUp(), newPub(), newSub(), newRelay(), newBridge(), newSize(), newExplain(), newDiff(), newDiscover(), newCheck(), newClaims(), newMutants(), newVersion(), newURLs(), newReference())
	return root
}
