package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/dedup"
)

// subFlags are the flags of sub.
type subFlags struct {
	url, subscription, topic, settle, reason string
	json, ensure, follow, verbose            bool
	count, batch                             int
	wait, delay                              time.Duration

	// Wishes for --ensure.
	deadLetter    string
	maxDeliveries int
	lease         time.Duration
	ordered       bool
}

// settles are the values of --settle.
var settles = map[string]broker.Action{"ack": broker.Ack, "nack": broker.Nack, "dead-letter": broker.DeadLetter}

func newSub() *cobra.Command {
	var f subFlags
	cmd := &cobra.Command{
		Use:   "sub --url URL --subscription SUBSCRIPTION",
		Short: "Receive messages from the shell",
		Long: `Print the body of each message on a line, or with --json the whole delivery, then settle
it. A message is settled after it was printed, so that nothing is lost; what was printed
and not settled, because the program was killed or the answer lost, comes again.

Without --follow it ends when nothing has come for --wait; a Kafka group may need 45 s
to give up a member that was killed. A reader that ends early, as head does, may leave
what it didn't read settled: give --count. --settle none looks at messages and gives
them back at the end, which costs them an attempt on most brokers.

Standard error is told of IDs that can't find duplicates: hashes of the body, and random
ones that differ between two copies of what seems to be one message.

Exit codes: 0 all that was received is settled; 1 a settle has failed: the message comes
again; 2 a wrong command line; 3 the broker can't be reached, or an interrupt.`,
		Example: `  onceline sub --url nats://127.0.0.1:4222 --subscription ORDERS/billing --topic orders --ensure --follow
  onceline sub --url kafka://127.0.0.1:9092 --subscription orders/billing --count 10 --json
  onceline sub --url URL --topic T --subscription S --ensure --dead-letter D --settle dead-letter --reason 'cannot be parsed' --count 1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", os.Getenv(urlEnv), "the broker, as 'onceline help urls' says (default $"+urlEnv+")")
	flags.Lookup("url").DefValue = "" // it may hold a password
	flags.StringVar(&f.subscription, "subscription", "", "the subscription, by the name that the broker's adapter gives it")
	flags.StringVar(&f.topic, "topic", "", "its topic, for --ensure")
	flags.BoolVar(&f.ensure, "ensure", false, "create topic and subscription if they don't exist")
	flags.StringVar(&f.deadLetter, "dead-letter", "", "topic for dead-lettered messages, with --ensure")
	flags.IntVar(&f.maxDeliveries, "max-deliveries", 0, "how often a message is delivered before it is dead-lettered, with --ensure")
	flags.DurationVar(&f.lease, "lease", 0, "how long a delivery may be held, with --ensure (default the broker's)")
	flags.BoolVar(&f.ordered, "ordered", false, "keep the order of each key over redelivery, with --ensure")
	flags.StringVar(&f.settle, "settle", "ack", "what becomes of a message: ack, nack, dead-letter or none")
	flags.DurationVar(&f.delay, "delay", 0, "give it back for this long, with --settle nack")
	flags.StringVar(&f.reason, "reason", "", "why, with --settle dead-letter")
	flags.IntVar(&f.count, "count", 0, "end after this many messages (default no limit)")
	flags.IntVar(&f.batch, "batch", 100, "messages to ask for at a time, at most")
	flags.BoolVarP(&f.follow, "follow", "f", false, "wait for further messages until interrupted")
	flags.DurationVar(&f.wait, "wait", 5*time.Second, "end when nothing has come for this long")
	flags.BoolVar(&f.json, "json", false, "print each delivery as a JSON object")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "say to standard error what the broker said of each settle")
	return cmd
}

// entity is what --ensure creates.
func (f *subFlags) entity() broker.Entity {
	return broker.Entity{Topic: f.topic, Subscription: f.subscription, DeadLetter: f.deadLetter,
		MaxDeliveries: f.maxDeliveries, Lease: f.lease, Ordered: f.ordered}
}

func (f *subFlags) check() error {
	_, known := settles[f.settle]
	switch {
	case f.subscription == "":
		return errors.New("sub: --subscription is missing")
	case !known && f.settle != "none":
		return fmt.Errorf("sub: --settle %q is not ack, nack, dead-letter or none", f.settle)
	case f.ensure && f.topic == "":
		return errors.New("sub: --ensure needs --topic")
	case !f.ensure && (f.deadLetter != "" || f.maxDeliveries != 0 || f.lease != 0 || f.ordered):
		return errors.New("sub: --dead-letter, --max-deliveries, --lease and --ordered are for --ensure")
	case f.delay != 0 && f.settle != "nack":
		return errors.New("sub: --delay is for --settle nack")
	case f.reason != "" && f.settle != "dead-letter":
		return errors.New("sub: --reason is for --settle dead-letter")
	case f.batch < 1 || f.count < 0 || f.wait <= 0 || f.delay < 0:
		return errors.New("sub: --batch and --wait must be above zero, --count and --delay not below")
	}
	return nil
}

func (f *subFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	c, err := connect(ctx, f.url)
	if err != nil {
		return err
	}
	defer closing(c, stderr)
	if f.ensure {
		if err := c.Ensure(ctx, f.entity()); err != nil {
			return failure(err)
		}
	}
	r, err := c.OpenReceiver(ctx, f.subscription)
	if err != nil {
		return failure(err)
	}
	failed, err := f.receive(ctx, r, stdout, stderr)
	switch {
	case ctx.Err() != nil && f.follow:
		return nil // the interrupt is how it ends
	case err != nil:
		return runError{err}
	case failed > 0:
		return exitCode(report.ExitDifference)
	}
	return nil
}

// receive prints and settles until there is enough, and returns how many settles
// have failed.
func (f *subFlags) receive(ctx context.Context, r broker.Receiver, stdout, stderr io.Writer) (failed int, err error) {
	ids := idWarnings{check: dedup.NewIDCheck(0), to: stderr}
	defer ids.end()
	for n := 0; f.count == 0 || n < f.count; {
		most := f.batch
		if f.count > 0 {
			most = min(most, f.count-n)
		}
		ds, err := f.next(ctx, r, most)
		if err != nil || len(ds) == 0 {
			return failed, err
		}
		n += len(ds)
		ids.look(ds)
		if err := f.print(ds, stdout); err != nil {
			return failed, err // what isn't settled is given back as the receiver closes
		}
		failed += f.settleAll(ctx, r, ds, stderr)
	}
	return failed, nil
}

// next returns none when nothing came for long enough.
func (f *subFlags) next(ctx context.Context, r broker.Receiver, most int) ([]broker.Delivery, error) {
	bound := ctx
	if !f.follow {
		var cancel context.CancelFunc
		bound, cancel = context.WithTimeout(ctx, f.wait)
		defer cancel()
	}
	ds, err := r.Receive(bound, most)
	if len(ds) == 0 && ctx.Err() == nil && bound.Err() != nil {
		return nil, nil
	}
	return ds, err
}

func (f *subFlags) print(ds []broker.Delivery, stdout io.Writer) error {
	for i := range ds {
		text := append(ds[i].Body[:len(ds[i].Body):len(ds[i].Body)], '\n')
		if f.json {
			var err error
			if text, err = lineOf(&ds[i]); err != nil {
				return err
			}
		}
		if _, err := stdout.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// settleBound is how long the answer to a settle is waited for, also after an
// interrupt: the messages have been printed.
const settleBound = 10 * time.Second

func (f *subFlags) settleAll(ctx context.Context, r broker.Receiver, ds []broker.Delivery, stderr io.Writer) (failed int) {
	action, settle := settles[f.settle]
	if !settle {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleBound)
	defer cancel()
	s := make([]broker.Settlement, len(ds))
	for i := range ds {
		s[i] = broker.Settlement{Delivery: &ds[i], Action: action, Delay: f.delay, Reason: f.reason}
	}
	_ = r.Settle(ctx, s) // the outcomes say more
	for i := range s {
		o := &s[i].Outcome
		switch {
		case !o.State.OK():
			failed++
			fmt.Fprintf(stderr, "onceline: %s %s: %s: %v\n", f.settle, ds[i].ID, o.State, o.Err)
		case f.verbose:
			fmt.Fprintf(stderr, "%s %s: %s\n", f.settle, ds[i].ID, o.State)
		}
	}
	return failed
}

// idWarnings tells of suspicious IDs: of the first few, and how many more there were.
type idWarnings struct {
	check *dedup.IDCheck
	to    io.Writer
	n     int
}

// idWarningsShown is how many are told in full.
const idWarningsShown = 3

func (w *idWarnings) look(ds []broker.Delivery) {
	for i := range ds {
		if says := w.check.Look(&ds[i].Message); says != "" {
			if w.n++; w.n <= idWarningsShown {
				fmt.Fprintf(w.to, "onceline: warning: %s\n", says)
			}
		}
	}
}

func (w *idWarnings) end() {
	if more := w.n - idWarningsShown; more > 0 {
		fmt.Fprintf(w.to, "onceline: warning: the IDs of %d more messages are like these\n", more)
	}
}
