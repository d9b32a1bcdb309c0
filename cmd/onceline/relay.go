package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/otel"
)

// relayFlags are the flags of relay.
type relayFlags struct {
	from, schema, to, topic     string
	metrics                     string
	transactor                  string
	migrate, once, pass         bool
	verbose                     bool
	workers, batch              int
	poll, window, every, within time.Duration
}

func newRelay() *cobra.Command {
	var f relayFlags
	cmd := &cobra.Command{
		Use:   "relay --from DATABASE --to URL --topic TOPIC",
		Short: "Send the messages of an outbox to a broker",
		Long: `Send the messages that applications have written to the outbox of a topic, in the
transactions of their data, and remove those that the broker has.

--from is postgres://…, mysql://… or mariadb://…, or the path of a SQLite database (also
sqlite://PATH). On MySQL it is untested: the tests run on MariaDB. Several relays may run at
once, on several machines: each takes lanes that no other has, so the order of each key is
kept. What a relay that was killed may have sent is sent again, with the same ID. When the broker may have forgotten the ID meanwhile it is held instead; a message that
the broker refuses for good is parked. The later ones of its key wait, unless --pass;
"onceline relay held" lists both kinds, releases and drops them.

With --transactor ID it sends in transactions of the broker, where that has some which can
be prepared (Kafka; PostgreSQL, MariaDB and SQLite): exactly once for consumers that read committed
messages, whatever is killed. The ID is this relay's alone. Then one relay at a time works
on the topic: one that is started takes over, and no other relay may send it.

It runs until interrupted, then ends what is under way, within --stop-within. Broker and
database may come and go while it runs; both must be there at the start.

A line of numbers is printed every --every: what was sent and how (a duplicate was there
already), attempts without answer and refused ones, and the backlog; with -v also one for
each publish. --metrics HOST:PORT serves the same and more to Prometheus, at
http://HOST:PORT/metrics, without a password: docs/operations says what each number means,
and has alerts for them. The backlog is asked for with each scrape.

Exit codes: 0 interrupted, or with --once all was sent; 1 with --once something is left; 2 a wrong
command line, or a database that isn't fit for it; 3 database or broker can't be reached.`,
		Example: `  onceline relay --from postgres://relay@db/shop --to nats://127.0.0.1:4222 --topic orders
  onceline relay --from mysql://relay@db/shop --to sqs:// --topic orders
  onceline relay --from shop.db --to kafka://127.0.0.1:9092 --topic orders --once
  onceline relay --from shop.db --to nats:// --topic orders --metrics 127.0.0.1:9464
  onceline relay --from shop.db --to kafka://127.0.0.1:9092 --topic orders --transactor shop-relay`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	outboxFlags(cmd, &f.from, &f.schema, &f.topic)
	flags.StringVar(&f.to, "to", os.Getenv(urlEnv), "the broker, as 'onceline help urls' says (default $"+urlEnv+")")
	flags.Lookup("to").DefValue = "" // it may hold a password
	flags.StringVar(&f.transactor, "transactor", "", "send in transactions of the broker, under this ID")
	flags.BoolVar(&f.migrate, "migrate", false, "make the tables that are missing")
	flags.BoolVar(&f.once, "once", false, "end when nothing is left that can be sent")
	flags.BoolVar(&f.pass, "pass", false, "send the later messages of a key although one of it is held or parked")
	flags.IntVar(&f.workers, "workers", 2, "turns under way at a time")
	flags.IntVar(&f.batch, "batch", 100, "messages in a turn, at most")
	flags.DurationVar(&f.poll, "poll", time.Second, "look for messages this often when nothing tells of them")
	flags.DurationVar(&f.window, "window", 0, "how long the broker remembers an ID (default what it says)")
	flags.DurationVar(&f.every, "every", 10*time.Second, "print numbers this often; 0 only at the end")
	flags.StringVar(&f.metrics, "metrics", "", "serve metrics to Prometheus on this address, HOST:PORT")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "print a line for each publish too")
	flags.DurationVar(&f.within, "stop-within", 15*time.Second, "bound of the end")
	cmd.AddCommand(newRelayHeld())
	return cmd
}

// outboxFlags are the flags that say which outbox is meant.
func outboxFlags(cmd *cobra.Command, from, schema, topic *string) {
	flags := cmd.Flags()
	flags.StringVar(from, "from", os.Getenv(outboxEnv), "the database: postgres://…, mysql://… or a SQLite file (default $"+outboxEnv+")")
	flags.Lookup("from").DefValue = ""
	flags.StringVar(schema, "schema", "", "the schema of the tables, in PostgreSQL (default public)")
	flags.StringVar(topic, "topic", "", "the topic, as outbox and broker name it")
}

func (f *relayFlags) check() error {
	switch {
	case f.topic == "":
		return errors.New("relay: --topic is missing")
	case f.to == "":
		return fmt.Errorf("relay: no broker: give --to, or set %s", urlEnv)
	case f.transactor != "" && (f.window != 0 || f.workers != 2):
		return errors.New("relay: --workers and --window are for a relay without --transactor, which has one worker and needs no window")
	case f.workers < 1 || f.workers > dedup.OutboxLanes || f.batch < 1:
		return fmt.Errorf("relay: --workers is from 1 to %d, --batch at least 1", dedup.OutboxLanes)
	case f.poll <= 0 || f.within <= 0 || f.window < 0 || f.every < 0:
		return errors.New("relay: --poll and --stop-within must be above zero, --window and --every not under it")
	}
	if f.metrics != "" {
		if _, _, err := net.SplitHostPort(f.metrics); err != nil {
			return fmt.Errorf("relay: --metrics %q isn't HOST:PORT, as in 127.0.0.1:9464", f.metrics)
		}
	}
	return nil
}

func (f *relayFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	box, err := openOutbox(ctx, f.from, f.schema, f.migrate, f.workers)
	if err != nil {
		return err
	}
	said := &lineWriter{to: stderr}
	if box.note != "" {
		said.printf("onceline: %s", box.note)
	}
	defer func() {
		if err := box.close(); err != nil {
			said.printf("onceline: close: %v", err)
		}
	}()
	if err := box.VerifyOutbox(ctx); err != nil {
		return failure(err)
	}
	conn, err := connect(ctx, f.to)
	if err != nil {
		return err
	}
	defer closing(conn, stderr)
	o := dedup.RelayOptions{Workers: f.workers, Batch: f.batch, Poll: f.poll, Window: f.window, Pass: f.pass, StopTimeout: f.within,
		ErrorHook: func(err error) { said.printf("onceline: %v", err) }}
	if box.listen != nil && !f.once {
		o.Listen = box.listen(f.topic)
	}
	numbers := &lineWriter{to: stdout}
	watch, unwatch, err := f.watch(box, &o, numbers, said)
	if err != nil {
		return err
	}
	defer unwatch()
	r, err := f.relay(ctx, box, conn, o)
	if err != nil {
		return err
	}
	defer func() {
		end, done := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
		defer done()
		if err := r.Close(end); err != nil {
			said.printf("onceline: close the relay: %v", err)
		}
	}()
	watch(r)
	tell := func(ctx context.Context) (dedup.OutboxBacklog, error) {
		b, err := box.OutboxBacklog(ctx, f.topic)
		if err != nil {
			numbers.printf("%s; backlog unknown: %v", relayed(r.Stats()), err)
			return b, err
		}
		numbers.printf("%s; backlog: %v", relayed(r.Stats()), b)
		return b, numbers.failed()
	}
	printing, stop := context.WithCancel(ctx)
	var printer sync.WaitGroup
	if f.every > 0 {
		printer.Go(func() {
			ticker := time.NewTicker(f.every)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
					_, _ = tell(printing)
				case <-printing.Done():
					return
				}
			}
		})
	}
	if f.once {
		_, err = r.Drain(ctx)
	} else {
		err = r.Run(ctx)
	}
	stop()
	printer.Wait()
	end, done := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
	defer done()
	left, printErr := tell(end)
	switch {
	case err != nil && (errors.Is(err, dedup.ErrVerify) || errors.Is(err, broker.ErrUnsupported)):
		return err
	case err != nil:
		return runError{err}
	case printErr != nil:
		return runError{printErr}
	case f.once && left.Waiting+left.Held+left.Parked > 0:
		return exitCode(report.ExitDifference)
	}
	return nil
}

// watch has o's relay export metrics and tell of each publish, where the flags ask for it:
// watch is for the relay when it is made, unwatch for the end.
func (f *relayFlags) watch(box *outbox, o *dedup.RelayOptions, numbers, said *lineWriter) (watch func(*dedup.Relay), unwatch func(), err error) {
	told := func(dedup.RelayPublish) {}
	if f.verbose {
		told = func(p dedup.RelayPublish) {
			line := fmt.Sprintf("published %d in %v", p.Messages, p.Took.Round(time.Microsecond))
			if p.Retried > 0 {
				line += fmt.Sprintf("; %d were tried before, %v ago", p.Retried, p.RetryAge.Round(time.Millisecond))
			}
			numbers.printf("%s", line)
		}
		o.Published = told
	}
	if f.metrics == "" {
		return func(*dedup.Relay) {}, func() {}, nil
	}
	failed := func(err error) { said.printf("onceline: %v", err) }
	m, err := serveMetrics(f.metrics, failed)
	if err != nil {
		return nil, nil, runError{fmt.Errorf("--metrics: %w", err)}
	}
	t, err := otel.New(otel.WithMeterProvider(m), otel.WithErrorHook(failed))
	if err != nil {
		return nil, nil, runError{errors.Join(err, m.close(context.Background()))}
	}
	export := t.Published(f.topic)
	o.Published = func(p dedup.RelayPublish) { export(p); told(p) }
	t.Outbox(f.topic, box)
	said.printf("onceline: metrics at %s", m.url)
	return func(r *dedup.Relay) { t.Relay(r) }, func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeBound)
		defer cancel()
		if err := errors.Join(t.Close(), m.close(ctx)); err != nil {
			failed(fmt.Errorf("metrics: %w", err))
		}
	}, nil
}

// relay makes the relay, by messages or by transactions.
func (f *relayFlags) relay(ctx context.Context, box *outbox, conn broker.Conn, o dedup.RelayOptions) (*dedup.Relay, error) {
	to, err := conn.OpenPublisher(ctx, f.topic) // also where it isn't used: is the topic there?
	if err != nil {
		return nil, failure(err)
	}
	if f.transactor == "" {
		return dedup.NewRelay(box, f.topic, to, o), nil
	}
	records, ok := box.OutboxStore.(dedup.RelayRecords)
	if !ok {
		return nil, errors.New("relay: --transactor needs PostgreSQL or SQLite: this database keeps no record of transactions")
	}
	if err := records.VerifyRelays(ctx); err != nil {
		return nil, failure(err)
	}
	return dedup.NewTransactionalRelay(records, f.topic, conn, f.transactor, o), nil
}

// relayed is what a relay did, in words.
func relayed(s dedup.RelayStats) string {
	return fmt.Sprintf("sent %d (%d stored, %d duplicate, %d accepted), %d without answer, %d refused, errors %d",
		s.Sent(), s.Stored, s.Duplicate, s.Accepted, s.Unknown, s.Refused, s.Errors)
}

// lineWriter writes lines of several goroutines, and keeps the first error.
type lineWriter struct {
	to  io.Writer
	mu  sync.Mutex
	err error
}

func (w *lineWriter) printf(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := fmt.Fprintf(w.to, format+"\n", a...); w.err == nil {
		w.err = err
	}
}

func (w *lineWriter) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
