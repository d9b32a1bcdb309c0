package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// diffFlags are the flags of diff.
type diffFlags struct {
	require []string
	format  string
}

func newDiff() *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff FROM TO",
		Short: "Say what changes for an application that swaps one broker for another",
		Long: `Compare the guarantees of two targets, claim by claim: which get weaker, which
stronger, and what an application must know of the new answer.

FROM and TO are each a target's name, as "onceline targets" lists it (then what the
adapter declares is compared), or a target in a report.json of "onceline verify",
written FILE#TARGET (then what was observed). Two files without a target compare all
targets that both have, so that two runs can be held against each other.

Exit codes: 0 it is told; 1 TO lacks something that --require names; 2 a wrong command line; 3 it
can't be told, for nothing was observed of a target, or a report can't be read.`,
		Example: `  onceline diff sqs-fifo nats
  onceline diff kafka-group pubsub-exactly-once --require publish.dedup.lost-response=once
  onceline diff old/report.json new/report.json
  onceline diff nats onceline-report/report.json#nats-3 --format markdown`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], args[1])
		},
		ValidArgsFunction: cobra.FixedCompletions(targetNames(), cobra.ShellCompDirectiveDefault),
	}
	cmd.Flags().StringArrayVar(&f.require, "require", nil, "CLAIM=ANSWER that TO must give, or a stronger one")
	cmd.Flags().StringVar(&f.format, "format", "text", "text, markdown or json")
	return cmd
}

// swap is one pair that is compared.
type swap struct {
	From    string               `json:"from"`
	To      string               `json:"to"`
	FromOf  string               `json:"from_of"`
	ToOf    string               `json:"to_of"`
	Changes []conformance.Change `json:"changes"`
	// Limits are the declared ones that change; none where a side is a report's.
	Limits  []conformance.LimitChange `json:"limits"`
	Missing []string                  `json:"missing"` // requirements that To doesn't meet
	// Unanswered are the claims of which neither side says anything.
	Unanswered []boundary.Claim `json:"unanswered"`
	// CannotTell says, where a side has no answer at all, why.
	CannotTell string `json:"cannot_tell,omitempty"`
}

func (f *diffFlags) run(_ context.Context, stdout, stderr io.Writer, from, to string) error {
	show, ok := map[string]func(io.Writer, []swap) error{"text": diffText, "markdown": diffMarkdown, "json": diffJSON}[f.format]
	if !ok {
		return fmt.Errorf("--format %q: it is text, markdown or json", f.format)
	}
	required, err := f.requirements()
	if err != nil {
		return err
	}
	pairs, err := pairs(from, to)
	if err != nil {
		return err
	}
	swaps := make([]swap, 0, len(pairs))
	var missing []string
	untold := false
	for _, p := range pairs {
		s := swap{From: p[0].Name, To: p[1].Name, FromOf: p[0].Of, ToOf: p[1].Of, Changes: conformance.Swap(p[0], p[1]), Limits: conformance.SwapLimits(p[0], p[1]), Missing: []string{}, Unanswered: conformance.Unanswered(p[0], p[1])}
		s.CannotTell = cannotTell(p)
		untold = untold || s.CannotTell != ""
		for _, r := range required {
			if why, met := r.Met(p[1]); !met {
				s.Missing = append(s.Missing, why)
			}
		}
		missing = append(missing, s.Missing...)
		swaps = append(swaps, s)
	}
	if err := show(stdout, swaps); err != nil {
		return runError{err}
	}
	for _, why := range missing {
		fmt.Fprintln(stderr, "onceline: required, and lost: "+why)
	}
	if len(missing) > 0 {
		return exitCode(report.ExitDifference)
	}
	if untold {
		return exitCode(report.ExitUnknown)
	}
	return nil
}

// cannotTell says which side of a pair has no answers, and why.
func cannotTell(p [2]conformance.Guarantees) string {
	var sides []string
	for i, g := range p {
		if g.Unanswered != "" {
			sides = append(sides, fmt.Sprintf("%s %s: %s", []string{"from", "to"}[i], g.Name, g.Unanswered))
		}
	}
	if len(sides) == 0 {
		return ""
	}
	return "it can't be told what changes: nothing was observed (" + strings.Join(sides, "; ") + ")"
}

func (f *diffFlags) requirements() ([]conformance.Requirement, error) {
	var rs []conformance.Requirement
	for _, s := range f.require {
		id, answer, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--require %q: it is CLAIM=ANSWER", s)
		}
		r, err := conformance.NewRequirement(boundary.Claim(id), boundary.Answer(answer))
		if err != nil {
			return nil, fmt.Errorf("--require %w", err)
		}
		rs = append(rs, r)
	}
	return rs, nil
}

// pairs are what is compared with what.
func pairs(from, to string) ([][2]conformance.Guarantees, error) {
	as, err := guarantees(from)
	if err != nil {
		return nil, err
	}
	bs, err := guarantees(to)
	if err != nil {
		return nil, err
	}
	if len(as) == 1 && len(bs) == 1 {
		return [][2]conformance.Guarantees{{as[0], bs[0]}}, nil
	}
	var out [][2]conformance.Guarantees
	for _, a := range as {
		if i := slices.IndexFunc(bs, func(b conformance.Guarantees) bool { return b.Name == a.Name }); i >= 0 {
			out = append(out, [2]conformance.Guarantees{a, bs[i]})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s and %s have no target in common: name one with FILE#TARGET", from, to)
	}
	return out, nil
}

// guarantees reads what stands on one side of the command line.
func guarantees(arg string) ([]conformance.Guarantees, error) {
	for _, t := range targets.Known() {
		if t.Name == arg {
			return []conformance.Guarantees{conformance.Declared(t.Name, t.Boundary)}, nil
		}
	}
	file, name, one := strings.Cut(arg, "#")
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(arg, "/\\#.") {
		return nil, fmt.Errorf("%q is no target and no file; the targets are: %s", arg, strings.Join(targetNames(), ", "))
	}
	if err != nil {
		return nil, runError{err}
	}
	r, err := report.ReadJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, runError{fmt.Errorf("%s: %w", file, err)}
	}
	var out []conformance.Guarantees
	var names []string
	for i := range r.Targets {
		names = append(names, r.Targets[i].Name)
		if !one || r.Targets[i].Name == name {
			out = append(out, conformance.Observed(&r.Targets[i]))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no target %q; it has: %s", file, name, strings.Join(names, ", "))
	}
	return out, nil
}

func targetNames() []string {
	var names []string
	for _, t := range targets.Known() {
		names = append(names, t.Name)
	}
	return names
}

func diffJSON(w io.Writer, swaps []swap) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(swaps)
}

// count says how many changes go each way.
func (s *swap) count() string {
	n := map[conformance.Direction]int{}
	for _, c := range s.Changes {
		n[c.Direction]++
	}
	if s.CannotTell != "" {
		return s.CannotTell
	}
	rest := ""
	if k := len(s.Unanswered); k == 1 {
		rest = "; 1 claim has no answer on either side"
	} else if k > 1 {
		rest = fmt.Sprintf("; %d claims have no answer on either side", k)
	}
	if len(s.Changes) == 0 {
		return "no guarantee changes" + rest
	}
	var parts []string
	for _, d := range []conformance.Direction{conformance.Weaker, conformance.Other, conformance.Untold, conformance.Stronger} {
		if n[d] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[d], d))
		}
	}
	return strings.Join(parts, ", ") + rest
}

func told(g conformance.Guarantee) string {
	if g.Answer == "" {
		return "not told"
	}
	return string(g.Answer)
}

func diffText(w io.Writer, swaps []swap) error {
	var b bytes.Buffer
	for i, s := range swaps {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "From %s (%s)\nto   %s (%s)\n%s\n", s.From, s.FromOf, s.To, s.ToOf, s.count())
		for _, c := range s.Changes {
			fmt.Fprintf(&b, "\n%s %-8s %s: %s → %s\n", symbols[c.Direction], c.Direction, c.Claim, told(c.From), told(c.To))
			fmt.Fprintf(&b, "    %s\n", c.Question)
			if c.Direction != conformance.Stronger {
				fmt.Fprintf(&b, "    %s\n", c.Meaning)
			}
			if c.To.Note != "" {
				fmt.Fprintf(&b, "    On %s: %s\n", s.To, c.To.Note)
			}
		}
		for i, l := range s.Limits {
			if i == 0 {
				b.WriteString("\nLimits\n")
			}
			fmt.Fprintf(&b, "\n%s %s: %s → %s\n", symbols[narrowing(l)], limitWords[l.Limit], l.Limit.Text(l.From), l.Limit.Text(l.To))
			if l.To.Note != "" {
				fmt.Fprintf(&b, "    On %s: %s\n", s.To, l.To.Note)
			}
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// narrowing is the direction of a limit's change.
func narrowing(l conformance.LimitChange) conformance.Direction {
	if l.Narrower {
		return conformance.Weaker
	}
	return conformance.Stronger
}

var limitWords = map[boundary.LimitName]string{
	boundary.LimitBody:   "a message's body",
	boundary.LimitID:     "the broker's field for dedup IDs",
	boundary.LimitWindow: "the dedup window",
	boundary.LimitLease:  "the lease of a delivery",
	boundary.LimitDelay:  "the delay of a nack",
}

var symbols = map[conformance.Direction]string{conformance.Weaker: "▼", conformance.Stronger: "▲", conformance.Other: "≠", conformance.Untold: "?"}

func diffMarkdown(w io.Writer, swaps []swap) error {
	var b bytes.Buffer
	for _, s := range swaps {
		fmt.Fprintf(&b, "## From %s to %s\n\n%s. From: %s. To: %s.\n\n", s.From, s.To, s.count(), s.FromOf, s.ToOf)
		if len(s.Changes) > 0 {
			changesTable(&b, &s)
		}
		if len(s.Limits) > 0 {
			limitsTable(&b, &s)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func changesTable(b *bytes.Buffer, s *swap) {
	fmt.Fprintf(b, "| | claim | %s | %s | what to know |\n|---|---|---|---|---|\n", s.From, s.To)
	for _, c := range s.Changes {
		know := c.To.Note
		if c.Direction == conformance.Weaker {
			know = strings.TrimSpace(c.Meaning + " " + know)
		}
		fmt.Fprintf(b, "| %s %s | `%s` | %s | %s | %s |\n", symbols[c.Direction], c.Direction, c.Claim, told(c.From), told(c.To), strings.ReplaceAll(know, "|", `\|`))
	}
	b.WriteByte('\n')
}

func limitsTable(b *bytes.Buffer, s *swap) {
	fmt.Fprintf(b, "| | limit | %s | %s | what to know |\n|---|---|---|---|---|\n", s.From, s.To)
	for _, l := range s.Limits {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", symbols[narrowing(l)], limitWords[l.Limit], l.Limit.Text(l.From), l.Limit.Text(l.To), inCell(l.To.Note))
	}
	b.WriteByte('\n')
}
