package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/dedup/audit"
)

// auditFlags are the flags of audit.
type auditFlags struct {
	effects, sent, outbox, markers string
	schema, topic                  string
	table, sentTable               audit.Table
	sentKey                        []string
	since, until, format           string
	caught, byBroker               int64
	retries, redelivered           int64
	timeout                        time.Duration
	plan                           audit.Plan
}

// The environment holds addresses with passwords, out of the list of processes.
const (
	effectsEnv = "ONCELINE_EFFECTS"
	sentEnv    = "ONCELINE_SENT"
)

func newAudit() *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use:   "audit --effects DATABASE --table TABLE --key COLUMN",
		Short: "Look in a database for effects that are missing, doubled or late",
		Long: `Look, in what is left of messages and their effects, for what went wrong silently:

  duplicates applied     several effects of one business key, however long apart
  sequences              numbers of a producer without an effect, or with two keys
  sent and applied       messages without an effect and effects without a message, by key,
                         or, without keys, by counts of each --bucket
  duplicates caught      as many as the producer's retries, to a magnitude
  retry age              messages sent again after the broker's --window
  outbox                 messages that are held, parked, or wait for too long
  markers                whether they are kept for the --horizon

Each is looked at for which there is what it needs; the others say what they lack.

A source is postgres://…, mysql://…, the path of a SQLite database (also sqlite://PATH), or a
file of rows: FILE.jsonl with a JSON object on each line, or FILE.csv with a head. FILE#COLUMN=TEXT
takes the rows of a file whose COLUMN is TEXT. Databases are only read, each check of one moment
each, in transactions that are read-only and whose statements end after --timeout; a replica
serves as well. Where rows have to be chosen, name a view. Files are put into a temporary
database first.

--time is the producer's time of the message, --applied when its effect took place. What was sent
has a row for each message, with --sent-attempts and --sent-last where they are known, or
one for each attempt: several rows of one key are attempts.

Exit codes: 0 nothing was found; 1 something was; 2 a wrong command line, or a table or column that
isn't there; 3 a database can't be reached, or a check failed and the others found nothing.`,
		Example: `  onceline audit --effects shop.db --table payments --key order_id --applied paid_at
  onceline audit --effects postgres://audit@replica/shop --table payments --key order_id \
      --time ordered_at --applied paid_at --producer sender --seq n \
      --sent-table orders --sent-time ordered_at --since 24h
  onceline audit --effects 'events.jsonl#kind=effect' --key id --applied at \
      --sent 'events.jsonl#kind=publish' --sent-time at --window 2m
  onceline audit --caught 12 --retries 40000
  onceline audit --outbox shop.db --markers shop.db --format json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			set := cmd.Flags().Changed
			for name, n := range map[string]struct {
				to    **int64
				value *int64
			}{"caught": {&f.plan.Caught, &f.caught}, "caught-by-broker": {&f.plan.CaughtByBroker, &f.byBroker},
				"retries": {&f.plan.Retries, &f.retries}, "redelivered": {&f.plan.Redelivered, &f.redelivered}} {
				if set(name) {
					*n.to = n.value
				}
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.flags(cmd)
	return cmd
}

func (f *auditFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	source := func(to *string, name, env, usage string) {
		if env != "" {
			usage += " (default $" + env + ")"
		}
		flags.StringVar(to, name, os.Getenv(env), usage)
		flags.Lookup(name).DefValue = "" // it may hold a password
	}
	source(&f.effects, "effects", effectsEnv, "where the effects are")
	flags.StringVar(&f.table.Name, "table", "", "the table of the effects, or SCHEMA.TABLE")
	flags.StringSliceVar(&f.table.Key, "key", nil, "the column of the business key, or several that make it together")
	flags.StringVar(&f.table.Time, "time", "", "the column of the producer's time")
	flags.StringVar(&f.table.Applied, "applied", "", "the column of the time when the effect took place")
	flags.StringVar(&f.table.Producer, "producer", "", "the column that names the producer (default: there is one)")
	flags.StringVar(&f.table.Seq, "seq", "", "the column of the producer's sequence, which counts without holes")
	source(&f.sent, "sent", sentEnv, "where is what was sent; with --sent-table alone, where the effects are")
	flags.StringVar(&f.sentTable.Name, "sent-table", "", "its table")
	flags.StringSliceVar(&f.sentKey, "sent-key", nil, "its column of the business key (default as --key)")
	flags.StringVar(&f.sentTable.Time, "sent-time", "", "its column of the producer's time, or of an attempt's")
	flags.StringVar(&f.sentTable.Last, "sent-last", "", "its column of the time of the last attempt")
	flags.StringVar(&f.sentTable.Attempts, "sent-attempts", "", "its column of how often it was tried")
	source(&f.outbox, "outbox", outboxEnv, "the database of a dedup.Outbox")
	source(&f.markers, "markers", "", "the database of a dedup.Inbox")
	flags.StringVar(&f.schema, "schema", "", "the schema of the outbox and the markers, in PostgreSQL (default what the search path finds)")
	flags.StringVar(&f.topic, "topic", "", "only this topic of the outbox")
	flags.Int64Var(&f.caught, "caught", 0, "duplicates that the consumer caught, from its metrics")
	flags.Int64Var(&f.byBroker, "caught-by-broker", 0, "publishes that the broker answered as duplicates")
	flags.Int64Var(&f.retries, "retries", 0, "publishes that were repeated (default as what was sent says)")
	flags.Int64Var(&f.redelivered, "redelivered", 0, "deliveries that weren't the first of their message")
	flags.StringVar(&f.since, "since", "", "judge what is of this time or later: a time, or a duration before the present (default all)")
	flags.StringVar(&f.until, "until", "", "judge what is before this time (default the present)")
	flags.DurationVar(&f.plan.Settle, "settle", 15*time.Minute, "how long after it was sent an effect may be on its way; what is younger isn't judged")
	flags.DurationVar(&f.plan.Bucket, "bucket", time.Hour, "the time over which messages are counted")
	flags.DurationVar(&f.plan.Window, "window", 0, "how long the broker remembers an ID")
	flags.DurationVar(&f.plan.Horizon, "horizon", 0, "how long after its first copy a message may come again, as 'onceline size' says")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Minute, "bound of each statement")
	flags.IntVar(&f.plan.Most, "most", 10, "how many examples are shown of each finding")
	flags.StringVar(&f.format, "format", "text", "text, markdown or json")
}

func (f *auditFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	show, ok := map[string]func(*audit.Report, io.Writer) error{"text": (*audit.Report).Text, "markdown": (*audit.Report).Markdown, "json": (*audit.Report).JSON}[f.format]
	if !ok {
		return fmt.Errorf("audit: --format %q: it is text, markdown or json", f.format)
	}
	if err := f.check(); err != nil {
		return err
	}
	f.plan.Now = time.Now()
	var err error
	if f.plan.Since, err = moment("since", f.since, f.plan.Now); err != nil {
		return err
	}
	if f.plan.Until, err = moment("until", f.until, f.plan.Now); err != nil {
		return err
	}
	said := newSteps(stderr)
	defer said.end()
	s := &sources{timeout: f.timeout, said: said, open: map[string]*audit.Database{}}
	defer func() {
		if err := s.close(); err != nil {
			fmt.Fprintf(stderr, "onceline: close: %v\n", err)
		}
	}()
	if err := f.open(ctx, s); err != nil {
		return err
	}
	f.plan.Progress = func(check string, n, of int) { said.step(fmt.Sprintf("%s (%d of %d)", check, n, of)) }
	r, err := audit.Run(ctx, f.plan)
	said.end()
	switch {
	case errors.Is(err, audit.ErrPlan), errors.Is(err, audit.ErrTable):
		return err
	case err != nil:
		return runError{err}
	}
	if err := show(r, stdout); err != nil {
		return runError{err}
	}
	switch r.State {
	case audit.Found:
		return exitCode(report.ExitDifference)
	case audit.Failed:
		return exitCode(report.ExitUnknown)
	}
	return nil
}

// check refuses flags that say nothing together.
func (f *auditFlags) check() error {
	database := func(source string) bool { return source != "" && formatOf(source) == "" }
	if f.sent == "" && f.sentTable.Name != "" {
		f.sent = f.effects
	}
	switch {
	case f.effects == "" && f.sent == "" && f.outbox == "" && f.markers == "" && f.plan.Caught == nil:
		return errors.New("audit: nothing to look at: give --effects, --sent, --outbox, --markers or --caught")
	case database(f.effects) && f.table.Name == "":
		return errors.New("audit: --effects is a database: give --table")
	case database(f.sent) && f.sentTable.Name == "":
		return errors.New("audit: --sent is a database: give --sent-table")
	case f.effects == "" && (f.table.Name != "" || f.table.Time+f.table.Applied+f.table.Producer+f.table.Seq != ""):
		return fmt.Errorf("audit: columns of effects, and none: give --effects, or set %s", effectsEnv)
	case f.sent == "" && (len(f.sentKey) > 0 || f.sentTable.Time+f.sentTable.Last+f.sentTable.Attempts != ""):
		return fmt.Errorf("audit: columns of what was sent, and no --sent or --sent-table (or %s)", sentEnv)
	case f.effects != "" && len(f.table.Key) == 0 && f.table.Time == "" && f.table.Seq == "":
		return errors.New("audit: of the effects no column is named: give --key, --time, or --producer and --seq")
	case f.timeout <= 0 || f.plan.Settle <= 0 || f.plan.Bucket <= 0 || f.plan.Most <= 0:
		return errors.New("audit: --timeout, --settle, --bucket and --most must be above zero")
	}
	for flag, source := range map[string]string{"outbox": f.outbox, "markers": f.markers} {
		if formatOf(source) != "" {
			return fmt.Errorf("audit: --%s is a database", flag)
		}
	}
	return nil
}

// open opens the sources of the plan.
func (f *auditFlags) open(ctx context.Context, s *sources) (err error) {
	if f.effects != "" {
		if err := s.table(ctx, "effects", f.effects, &f.table); err != nil {
			return err
		}
		f.plan.Effects = &f.table
	}
	if f.sent != "" {
		if f.sentTable.Key = f.sentKey; len(f.sentKey) == 0 {
			f.sentTable.Key = f.table.Key
		}
		if err := s.table(ctx, "sent", f.sent, &f.sentTable); err != nil {
			return err
		}
		f.plan.Sent = &f.sentTable
	}
	for flag, x := range map[string]struct {
		source string
		to     **audit.Store
	}{"outbox": {f.outbox, &f.plan.Outbox}, "markers": {f.markers, &f.plan.Markers}} {
		if x.source == "" {
			continue
		}
		d, err := s.database(ctx, flag, x.source)
		if err != nil {
			return err
		}
		*x.to = &audit.Store{In: d, Schema: f.schema, Topic: f.topic}
	}
	return nil
}

// moment reads a time, or a duration before the present; "" is none.
func moment(flag, s string, now time.Time) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(layout, strings.TrimSpace(s)); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("audit: --%s %q: it is a time (2026-03-01T12:00:00Z; UTC if it names no zone) or a duration before the present (24h)", flag, s)
}
