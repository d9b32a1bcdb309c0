package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/mysql"
	"github.com/onceline/onceline/dedup/postgres"
	"github.com/onceline/onceline/dedup/redis"
	"github.com/onceline/onceline/dedup/sqlite"
)

// sizeFlags are the flags of size.
type sizeFlags struct {
	rate, retried, bytes float64
	window, commit       time.Duration
	horizon              dedup.Horizon
	restarts             int
}

func newSize() *cobra.Command {
	var f sizeFlags
	cmd := &cobra.Command{
		Use:   "size --rate RATE",
		Short: "How large a dedup store grows, and how long it has to remember",
		Long: `Tell how many markers a dedup store holds at a time, and how many bytes they take in each
of the stores, from what was measured at a million markers. Redis holds them in memory.

The horizon is how long after its first copy a message may come again: as long as the
producer goes on trying to send it, plus as long as the broker goes on delivering it,
plus as far back as operators replay. --window is how long markers are kept; without it
they are kept for the horizon. One of the two must be given.

With --retried, --restarts and --commit-every it also tells how many copies a day the
store has to catch, for its count of duplicates to be held against.

Exit codes: 0 the window covers the horizon; 1 it doesn't, so that copies would be applied
again; 2 a wrong command line.`,
		Example: `  onceline size --rate 2000 --window 24h
  onceline size --rate 2000 --producer-retry 1h --redelivery 96h --replay 72h
  onceline size --rate 2000 --window 168h --retried 0.0005 --restarts 20 --commit-every 5s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.Float64Var(&f.rate, "rate", 0, "messages a second")
	flags.DurationVar(&f.window, "window", 0, "how long markers are kept (default the horizon)")
	flags.DurationVar(&f.horizon.ProducerRetry, "producer-retry", 0, "how long a producer goes on trying, outages and an outbox that was down included")
	flags.DurationVar(&f.horizon.Redelivery, "redelivery", 0, "how long the broker delivers what isn't acked: retention, or lease times deliveries")
	flags.DurationVar(&f.horizon.Replay, "replay", 0, "how far back offsets are reset, and how old a dead letter is that is resubmitted")
	flags.Float64Var(&f.retried, "retried", 0, "share of publishes that are sent again, from 0 to 1")
	flags.IntVar(&f.restarts, "restarts", 0, "restarts and rebalances of the consumers a day")
	flags.DurationVar(&f.commit, "commit-every", 5*time.Second, "time between two commits of a consumer's progress")
	flags.Float64Var(&f.bytes, "bytes", 0, "also tell for a store of one's own with this many bytes per marker")
	return cmd
}

func (f *sizeFlags) check() error {
	switch {
	case !(f.rate > 0) || math.IsInf(f.rate, 0):
		return errors.New("size: --rate must be above zero")
	case f.window < 0 || f.horizon.ProducerRetry < 0 || f.horizon.Redelivery < 0 || f.horizon.Replay < 0 || f.commit < 0:
		return errors.New("size: a time must not be under zero")
	case !(f.retried >= 0 && f.retried <= 1) || f.restarts < 0:
		return errors.New("size: --retried is from 0 to 1, --restarts at least 0")
	case !(f.bytes >= 0) || math.IsInf(f.bytes, 0):
		return errors.New("size: --bytes must not be under zero")
	case f.window == 0 && f.horizon.Total() == 0:
		return errors.New("size: give --window, or what makes the horizon: --producer-retry, --redelivery, --replay")
	}
	return nil
}

func (f *sizeFlags) run(stdout io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	horizon, window := f.horizon.Total(), f.window
	if window == 0 {
		window = horizon
	}
	if horizon > 0 {
		fmt.Fprintf(stdout, "horizon  %v (producer's retries %v, redelivery %v, replay %v)\n", horizon, f.horizon.ProducerRetry, f.horizon.Redelivery, f.horizon.Replay)
	}
	one := dedup.Size(f.rate, window, 1)
	fmt.Fprintf(stdout, "window   %v\nmarkers  %s, %s written and removed a day\n\n", window, grouped(one.Markers), grouped(one.PerDay))
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STORE\tBYTES A MARKER\tSIZE")
	stores := []struct {
		name  string
		bytes dedup.Footprint
	}{
		{"PostgreSQL, with the time of the event", postgres.TimedMarkerBytes},
		{"PostgreSQL, without", postgres.MarkerBytes},
		{"SQLite, with the time of the event", sqlite.TimedMarkerBytes},
		{"SQLite, without", sqlite.MarkerBytes},
		{"MariaDB, with the time of the event", mysql.TimedMarkerBytes},
		{"MariaDB, without", mysql.MarkerBytes},
		{"Redis, in memory", redis.RecordBytes},
		{"stored position", 0},
	}
	if f.bytes > 0 {
		stores = append(stores, struct {
			name  string
			bytes dedup.Footprint
		}{"your own", dedup.Footprint(f.bytes)})
	}
	for _, s := range stores {
		if s.bytes == 0 {
			fmt.Fprintf(table, "%s\t-\ta row for each partition\n", s.name)
			continue
		}
		fmt.Fprintf(table, "%s\t%.0f\t%s\n", s.name, float64(s.bytes), inBytes(dedup.Size(f.rate, window, s.bytes).Bytes))
	}
	if err := table.Flush(); err != nil {
		return runError{err}
	}
	if f.retried > 0 || f.restarts > 0 {
		producer, redelivery := dedup.Duplicates(f.rate, f.retried, f.restarts, f.commit)
		fmt.Fprintf(stdout, "\ncopies to catch a day, about: %s of the producer's retries, %s of redelivery\n", grouped(int64(math.Round(producer))), grouped(int64(math.Round(redelivery))))
	}
	if err := f.horizon.Check(window); err != nil {
		fmt.Fprintf(stdout, "\nThe window is too short: %v\n", err)
		return exitCode(report.ExitDifference)
	}
	return nil
}

// grouped is a number with its thousands apart.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// inBytes is a number of bytes in a unit that people read.
func inBytes(n int64) string {
	f, unit := float64(n), "B"
	for _, u := range []string{"kB", "MB", "GB", "TB", "PB"} {
		if f < 1000 {
			break
		}
		f, unit = f/1000, u
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}
