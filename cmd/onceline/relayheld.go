package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/conformance/report"
)

// relayHeldFlags are the flags of relay held.
type relayHeldFlags struct {
	from, schema, topic string
	release, drop       []int64
}

func newRelayHeld() *cobra.Command {
	var f relayHeldFlags
	cmd := &cobra.Command{
		Use:   "held --from DATABASE --topic TOPIC",
		Short: "List what a relay doesn't send, release and drop it",
		Long: `List the messages of a topic's outbox that relays don't send any more: held ones, which the
broker may have stored so long ago that it doesn't remember their IDs, and parked ones,
which it refused for good. Each line has its number, the ID, the key, how often it was tried
and the reason.

--release NUMBER sends it again with the same ID; of one that was held the consumers may get
a second copy, which is for their inbox to find. --drop NUMBER removes it. The later
messages of its key go on then.

Exit codes: 0 done; 1 a number that isn't there; 2 a wrong command line; 3 the database can't be
reached.`,
		Example: `  onceline relay held --from postgres://relay@db/shop --topic orders
  onceline relay held --from shop.db --topic orders --release 17,18 --drop 23`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	outboxFlags(cmd, &f.from, &f.schema, &f.topic)
	cmd.Flags().Int64SliceVar(&f.release, "release", nil, "let these be sent again")
	cmd.Flags().Int64SliceVar(&f.drop, "drop", nil, "remove these")
	return cmd
}

// heldAtOnce is how many rows are read at a time.
const heldAtOnce = 500

func (f *relayHeldFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.topic == "" {
		return errors.New("relay held: --topic is missing")
	}
	box, err := openOutbox(ctx, f.from, f.schema, false, 1)
	if err != nil {
		return err
	}
	defer func() {
		if err := box.close(); err != nil {
			fmt.Fprintf(stderr, "onceline: close: %v\n", err)
		}
	}()
	missing := 0
	for _, c := range []struct {
		what   string
		seqs   []int64
		change func(ctx context.Context, topic string, seqs ...int64) (int, error)
	}{{"released", f.release, box.ReleaseOutbox}, {"dropped", f.drop, box.DropOutbox}} {
		if len(c.seqs) == 0 {
			continue
		}
		n, err := c.change(ctx, f.topic, c.seqs...)
		if err != nil {
			return failure(err)
		}
		missing += len(c.seqs) - n
		fmt.Fprintf(stdout, "%s %d\n", c.what, n)
	}
	if missing > 0 {
		fmt.Fprintf(stderr, "onceline: %d of the numbers are of no message that is held or parked\n", missing)
		return exitCode(report.ExitDifference)
	}
	if len(f.release)+len(f.drop) > 0 {
		return nil
	}
	for after := int64(-1); ; {
		rows, err := box.StoppedOutbox(ctx, f.topic, after, heldAtOnce)
		if err != nil {
			return failure(err)
		}
		for _, r := range rows {
			if _, err := fmt.Fprintf(stdout, "%d\t%v\t%q\t%q\t%d\t%s\n", r.Seq, r.State, r.ID, r.Key, r.Attempts, r.Reason); err != nil {
				return runError{err}
			}
			after = r.Seq
		}
		if len(rows) < heldAtOnce {
			return nil
		}
	}
}
