package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/conformance"
)

func newClaims() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "List the claims: the questions, their answers, and why a user cares",
		Example: `  onceline claims
  onceline claims --json | jq -r '.[].claim'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			if asJSON {
				enc := json.NewEncoder(out)
				enc.SetIndent("", "  ")
				if err := enc.Encode(conformance.Claims()); err != nil {
					return runError{err}
				}
				return nil
			}
			hop := 0
			for _, c := range conformance.Claims() {
				if c.Hop != hop {
					hop = c.Hop
					fmt.Fprintf(out, "Hop %d, %s\n\n", hop, hops[hop])
				}
				fmt.Fprintf(out, "%s\n  %s\n  answers, weakest first: %s\n  %s\n\n", c.ID, c.Question, join(c.Answers), c.Meaning)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return cmd
}

var hops = map[int]string{1: "producer to broker", 2: "broker to consumer", 3: "consumer to effect"}

func join[T ~string](as []T) string {
	s := ""
	for i, a := range as {
		if i > 0 {
			s += ", "
		}
		s += string(a)
	}
	return s
}
