package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/history"
	"github.com/onceline/onceline/conformance/report"
)

func newCheck() *cobra.Command {
	var c checking
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Look for anomalies in a recorded history of messages",
		Long: `Read what happened to messages, and print what was lost, doubled, out of order,
applied more than once, or contradicts its receipt or outcome. FILE is "-" for the
standard input.

A history is JSON: {"schema": 1, "drained": true, "events": [...]}, or one event on
a line, with --drained if consumers went on until nothing more came. Without that
nothing is called lost. An event has "at" (seconds), "kind" (publish, receipt,
delivery, settle, outcome, effect, or any other, which is passed over) and "id"; the
more of the other fields it has, the more is checked: docs/histories.md.

Exit codes: 0 no anomaly was found; 1 some were; 2 a wrong command line, or a finding that the report
doesn't have; 3 the file can't be read, or is no history.`,
		Example: `  onceline check history.json
  onceline check --drained --ignore doubled,stored-twice events.jsonl
  onceline check --finding nats/settle.final onceline-report/report.json
  onceline check --json - < history.json | jq '.anomalies[].id'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(args[0], cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&c.drained, "drained", false, "everything that could still come had come when the history ends")
	cmd.Flags().StringSliceVar(&c.ignore, "ignore", nil, "kinds of anomaly that are expected: "+join(history.Kinds()))
	cmd.Flags().StringVar(&c.finding, "finding", "", "FILE is a report.json of verify: TARGET/CLAIM whose history is checked")
	cmd.Flags().BoolVar(&c.asJSON, "json", false, "print the result as JSON")
	cmd.Flags().IntVar(&c.most, "most", 10, "how many messages of each kind are printed; 0 for all")
	return cmd
}

// checking are the flags of check.
type checking struct {
	drained, asJSON bool
	finding         string
	ignore          []string
	most            int
}

func (c *checking) run(path string, in io.Reader, out io.Writer) error {
	for _, k := range c.ignore {
		if !slices.Contains(history.Kinds(), history.Kind(k)) {
			return fmt.Errorf("--ignore %s: %w: there is no such kind; there are: %s", k, broker.ErrInvalid, join(history.Kinds()))
		}
	}
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return runError{err}
		}
		defer f.Close()
		in = f
	}
	h, err := c.read(in)
	if errors.Is(err, errNoFinding) {
		return fmt.Errorf("--finding: %s: %w", path, err)
	}
	if err != nil {
		return runError{fmt.Errorf("%s: %w", path, err)}
	}
	r := history.Check(h)
	r.Anomalies = slices.DeleteFunc(r.Anomalies, func(a history.Anomaly) bool { return slices.Contains(c.ignore, string(a.Kind)) })
	if c.asJSON {
		if r.Anomalies == nil {
			r.Anomalies = []history.Anomaly{}
		}
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(r); err != nil {
			return runError{err}
		}
	} else {
		c.print(out, &r)
	}
	if len(r.Anomalies) > 0 {
		return exitCode(report.ExitDifference)
	}
	return nil
}

// errNoFinding is of a --finding that the report doesn't have.
var errNoFinding = errors.New("there is no finding")

// read reads a history, or that of one finding of a report.
func (c *checking) read(in io.Reader) (history.History, error) {
	if c.finding == "" {
		return history.Read(in, c.drained)
	}
	r, err := report.ReadJSON(in)
	if err != nil {
		return history.History{}, err
	}
	target, claim, _ := strings.Cut(c.finding, "/")
	for _, t := range r.Targets {
		for _, f := range t.Findings {
			if t.Name == target && f.Claim == claim {
				h := history.History{Schema: history.Schema, Drained: c.drained, Events: f.Evidence.History}
				return h, h.Valid()
			}
		}
	}
	return history.History{}, fmt.Errorf("%w %q: it is TARGET/CLAIM", errNoFinding, c.finding)
}

func (c *checking) print(out io.Writer, r *history.Result) {
	for _, k := range history.Kinds() {
		n := r.Count(k)
		if n == 0 {
			continue
		}
		fmt.Fprintf(out, "%s (%d): %s\n", k, n, k.Meaning())
		printed := 0
		for i := range r.Anomalies {
			a := &r.Anomalies[i]
			if a.Kind != k {
				continue
			}
			if printed++; c.most > 0 && printed > c.most {
				fmt.Fprintf(out, "  and %d more\n", n-c.most)
				break
			}
			id := fmt.Sprintf("%q", a.ID)
			if a.Copy != "" {
				id += fmt.Sprintf(", copy %q", a.Copy)
			}
			fmt.Fprintf(out, "  %s: %s (%s)\n", id, a.Text, places(a.Events))
		}
		fmt.Fprintln(out)
	}
	for _, u := range r.Undecided {
		fmt.Fprintf(out, "Not decided: %s.\n", u)
	}
	fmt.Fprintf(out, "%s published, %d promised by a receipt, %d of unknown outcome (%d of them came), %s, %s: %s.\n",
		counted(r.Messages, "message", "messages"), r.Promised, r.Unknown, r.Recovered, counted(r.Deliveries, "delivery", "deliveries"), counted(r.Effects, "effect", "effects"), r)
}

// counted is a number of things.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// places says where in the history something stands, counted from 1 as a reader of
// the file does.
func places(events []int) string {
	var s []string
	for i, e := range events {
		if i == 5 {
			s = append(s, "…")
			break
		}
		s = append(s, fmt.Sprint(e+1))
	}
	if len(events) == 1 {
		return "event " + s[0]
	}
	return "events " + strings.Join(s, ", ")
}
