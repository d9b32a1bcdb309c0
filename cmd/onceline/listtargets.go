package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
)

func newTargets() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "targets",
		Short: "List what can be asked: embedded, on real servers, by Compose",
		Long: `List the names that "onceline verify --broker", "explain" and "diff" take, by what
brings them up: nothing (embedded), --local, --compose. What --local needs and this
machine lacks shows when it is started.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []listed
			for _, from := range []struct {
				flag string
				ts   []conformance.Target
			}{{"", targets.Embedded()}, {"--local", targets.Local(nil)}, {"--compose", targets.Compose()}} {
				for _, t := range from.ts {
					all = append(all, listed{t.Name, t.Broker, from.flag, t.Boundary.Of})
				}
			}
			out := cmd.OutOrStdout()
			if asJSON {
				enc := json.NewEncoder(out)
				enc.SetIndent("", "  ")
				return enc.Encode(all)
			}
			w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tBROKER\tFLAG\tDECLARED OF")
			for _, l := range all {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", l.Name, l.Broker, l.Flag, l.Of)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

// listed is a target in the list.
type listed struct {
	Name   string `json:"name"`
	Broker string `json:"broker"`
	Flag   string `json:"flag"` // of verify; empty for what is embedded
	Of     string `json:"of"`
}
