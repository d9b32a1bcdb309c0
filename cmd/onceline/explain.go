package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
)

func newExplain() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain BROKER",
		Short: "Say one broker's boundary in words, with the sources",
		Long: `Say what the adapter declares of the real broker: for each claim the answer, what
the vendor documents, the IDs of the facts it rests on (docs/facts.md), and what an
application should do about it. "onceline verify" measures the same.`,
		Example: `  onceline explain nats
  onceline explain kafka-share --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.FixedCompletions(targets.Names(targets.Known()), cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			ts, err := targets.Select(targets.Embedded(), args)
			if err != nil { // by its name, one on a real server
				ts, err = targets.Select(targets.Known(), args)
			}
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				m := map[string]boundary.Boundary{}
				for _, t := range ts {
					m[t.Name] = t.Boundary
				}
				if err := enc.Encode(m); err != nil {
					return runError{err}
				}
				return nil
			}
			for i, t := range ts {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				explain(cmd.OutOrStdout(), t)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func explain(w io.Writer, t conformance.Target) {
	fmt.Fprintf(w, "%s: %s\n", t.Name, t.Boundary.Of)
	hop := 0
	for _, c := range conformance.Claims() {
		e, ok := t.Boundary.Entries[c.ID]
		if !ok {
			continue
		}
		if c.Hop != hop {
			hop = c.Hop
			fmt.Fprintf(w, "\nHop %d, %s\n", hop, hops[hop])
		}
		fmt.Fprintf(w, "\n  %s\n    %s: %s\n", c.Question, c.ID, e.Declared)
		if e.Documented != "" && e.Documented != e.Declared {
			fmt.Fprintf(w, "    the vendor documents: %s\n", e.Documented)
		}
		if e.Note != "" {
			fmt.Fprintf(w, "    %s\n", e.Note)
		}
		if len(e.Sources) > 0 {
			fmt.Fprintf(w, "    sources: %s\n", strings.Join(e.Sources, ", "))
		}
	}
	fmt.Fprint(w, "\nLimits\n\n")
	for _, n := range boundary.LimitNames() {
		l, ok := t.Boundary.Limits[n]
		if !ok {
			continue
		}
		fmt.Fprintf(w, "  %s: %s\n", limitWords[n], n.Text(l))
		if l.Note != "" {
			fmt.Fprintf(w, "    %s\n", l.Note)
		}
		if len(l.Sources) > 0 {
			fmt.Fprintf(w, "    sources: %s\n", strings.Join(l.Sources, ", "))
		}
	}
}
