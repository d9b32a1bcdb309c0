package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
)

//go:generate go run . reference ../../docs

// newReference makes the pages of the documentation that say what is declared.
func newReference() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:    "reference DIR",
		Short:  "Write the claims, the mutants and the declared boundaries as Markdown",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return writeReference(args[0], check)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "say what isn't current instead of writing it")
	return cmd
}

// writeReference writes claims.md, mutants.md and boundaries/BROKER.md into dir, or checks
// that they are there as they would be written.
func writeReference(dir string, check bool) error {
	pages := map[string]string{"claims.md": claimsPage(), "mutants.md": mutantsPage()}
	// A real server's target has a section where its configuration is declared apart.
	seen := map[string]bool{}
	for _, t := range targets.Declared() {
		name := filepath.Join("boundaries", t.Broker+".md")
		if seen[t.Boundary.Of] {
			continue
		}
		seen[t.Boundary.Of] = true
		if pages[name] == "" {
			pages[name] = boundaryHead(t.Broker)
		}
		pages[name] += boundarySection(t)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		path := filepath.Join(dir, name)
		if check {
			if old, err := os.ReadFile(path); err != nil || string(old) != pages[name] {
				errs = append(errs, fmt.Errorf("%s isn't current: go generate ./cmd/onceline", path))
			}
			continue
		}
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(pages[name]), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return runError{err}
	}
	return nil
}

const generated = "<!-- Made by go generate ./cmd/onceline from the code; change that instead. -->\n\n"

func claimsPage() string {
	var b bytes.Buffer
	b.WriteString(generated + "# The claims\n\nWhat the suite asks of every broker: one question each, with all answers it can have, the weakest first. [The boundaries](boundaries/) say what each adapter declares.\n")
	hop := 0
	for _, c := range conformance.Claims() {
		if c.Hop != hop {
			hop = c.Hop
			fmt.Fprintf(&b, "\n## Hop %d, %s\n\n| claim | question | answers | why it matters |\n|---|---|---|---|\n", hop, hops[hop])
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.ID, inCell(c.Question), join(c.Answers), inCell(c.Meaning))
	}
	return b.String()
}

// mutantsPage lists what is broken on purpose, a table for each target.
func mutantsPage() string {
	var b bytes.Buffer
	broken := targets.Mutants()
	n := 0
	for _, t := range broken {
		n += len(t.Mutants)
	}
	fmt.Fprintf(&b, `%s# The mutants

A suite that passes a wrong adapter proves nothing of a right one. Here are %d adapters that are wrong in one way each, a way in which one can be written by mistake, with [the claim](claims.md) that has to find it out and what is then observed. `+"`go run ./cmd/onceline mutants`"+` tries all of them, beside each adapter itself, and fails unless all are killed.
`, generated, n)
	for _, t := range broken {
		what := fmt.Sprintf("What breaks the adapter of %s, in a way that its broker invites; tried on the embedded target of this name.", t.Broker)
		if t.Broker == "memory" {
			what = "What breaks any adapter, for it is against the contract; tried on the reference implementation, and on an adapter of your own with `conformance.RunMutants`."
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| mutant | layer | what it does wrong | killed by | observed |\n|---|---|---|---|---|\n", t.Name, what)
		for _, m := range t.Mutants {
			fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` | %s |\n", m.Name, m.Layer, inCell(m.Does), m.Claim, m.Answer)
		}
	}
	return b.String()
}

func boundaryHead(product string) string {
	return fmt.Sprintf("%s# Where exactly-once ends: %s\n\nWhat the adapter declares of the real broker, what the vendor documents where that differs, the facts it rests on ([facts.md](../facts.md)), and what an application should do about it. [What the answers mean](../claims.md); [where a run differed](../divergence.md). `go run ./cmd/onceline verify --broker %s` measures it.\n", generated, product, product)
}

func boundarySection(t conformance.Target) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "\n## %s\n\n%s.\n", t.Name, strings.TrimSuffix(t.Boundary.Of, "."))
	entries(&b, t.Boundary.Entries)
	limits(&b, t.Boundary.Limits)
	for _, e := range t.Boundary.Earlier {
		fmt.Fprintf(&b, "\n### %s before %s\n\n%s. What differs:\n", t.Name, e.Before, strings.TrimSuffix(e.Of, "."))
		entries(&b, e.Entries)
		limits(&b, e.Limits)
	}
	return b.String()
}

// entries writes a table in the catalogue's order.
func entries(b *bytes.Buffer, es map[boundary.Claim]boundary.Entry) {
	b.WriteString("\n| claim | declared | documented | facts | what to know |\n|---|---|---|---|---|\n")
	for _, c := range conformance.Claims() {
		e, ok := es[c.ID]
		if !ok {
			continue
		}
		documented := ""
		if e.Documented != e.Declared {
			documented = string(e.Documented)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", c.ID, e.Declared, documented, inCell(strings.Join(e.Sources, ", ")), inCell(e.Note))
	}
}

// limits writes the table of what a broker takes.
func limits(b *bytes.Buffer, ls map[boundary.LimitName]boundary.Limit) {
	if len(ls) == 0 {
		return
	}
	b.WriteString("\n| limit | | facts | what to know |\n|---|---|---|---|\n")
	for _, n := range boundary.LimitNames() {
		if l, ok := ls[n]; ok {
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", limitWords[n], n.Text(l), inCell(strings.Join(l.Sources, ", ")), inCell(l.Note))
		}
	}
}

// inCell keeps text inside a table's cell.
func inCell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;", ">", "&gt;").Replace(s)
}
