// Check holds a report of "onceline verify" to what the project promises of it,
// and the README's matrix to the report.
//
//	go run ./.ci/check -report onceline-report/report.json          check
//	go run ./.ci/check -report onceline-report/report.json -write   put the matrix into README.md
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

func main() {
	path := flag.String("report", "onceline-report/report.json", "the report")
	readme := flag.String("readme", "README.md", "the file that holds the matrix")
	write := flag.Bool("write", false, "write the matrix instead of checking it")
	flag.Parse()
	if err := run(*path, *readme, *write); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

func run(path, readme string, write bool) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := validate(raw); err != nil {
		return fmt.Errorf("%s against docs/report.schema.json: %w", path, err)
	}
	r, err := report.ReadJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	if err := promises(r); err != nil {
		return err
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	updated, err := splice(string(text), matrix(r))
	if err != nil {
		return fmt.Errorf("%s: %w", readme, err)
	}
	switch {
	case updated == string(text):
		fmt.Printf("check: %d findings on %d targets as promised, %d of %d mutants killed, README current\n",
			r.Summary.Equal+r.Summary.Deviation, r.Summary.Targets, r.Summary.Killed, r.Summary.Mutants)
		return nil
	case write:
		return os.WriteFile(readme, []byte(updated), 0o644)
	}
	return fmt.Errorf("%s shows another matrix than %s; mend it with: go run ./.ci/check -report %s -write", readme, path, path)
}

func validate(raw []byte) error {
	schema, err := jsonschema.NewCompiler().Compile("docs/report.schema.json")
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	return schema.Validate(v)
}

// promises: every claim has its answer on every target, all as declared or a
// listed deviation; nothing is left out; every mutant is dead.
func promises(r *report.Report) error {
	var errs []error
	asked := len(conformance.Claims())
	for _, t := range r.Targets {
		if t.Error != "" || len(t.Findings) != asked {
			errs = append(errs, fmt.Errorf("%s: %d findings of %d: %s", t.Name, len(t.Findings), asked, t.Error))
		}
		for _, f := range t.Findings {
			if f.Verdict == report.NotApplicable && f.Declared == string(boundary.NotApplicable) {
				continue // both say so
			}
			if !f.Verdict.Passes() {
				errs = append(errs, fmt.Errorf("%s: %s is %s: %s", t.Name, f.Claim, f.Verdict, f.Reason))
			}
		}
		if len(t.Deviations) > 0 && t.Real {
			errs = append(errs, fmt.Errorf("%s is the real broker and lists deviations", t.Name))
		}
	}
	if len(r.Targets) < 13 {
		errs = append(errs, fmt.Errorf("%d targets", len(r.Targets)))
	}
	if s := r.Summary; s.Mutants < 5 || s.Killed != s.Mutants || s.Exit != report.ExitEqual {
		errs = append(errs, fmt.Errorf("%d of %d mutants killed, exit %d", s.Killed, s.Mutants, s.Exit))
	}
	return errors.Join(errs...)
}

// columns is how many targets stand side by side, so that a page can hold them.
const columns = 7

// matrix is the answers as Markdown tables. It holds nothing that differs from
// run to run.
func matrix(r *report.Report) string {
	var tables []string
	for targets := range slices.Chunk(r.Targets, columns) {
		tables = append(tables, table(targets))
	}
	return strings.Join(tables, "\n")
}

func table(targets []report.Target) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, t := range targets {
		fmt.Fprintf(&b, " %s |", t.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(targets)) + "\n| *basis* |")
	for _, t := range targets {
		basis := "modelled"
		if t.Real {
			basis = "measured"
		}
		fmt.Fprintf(&b, " *%s* |", basis)
	}
	b.WriteByte('\n')
	for i, c := range conformance.Claims() {
		fmt.Fprintf(&b, "| `%s` |", c.ID)
		for _, t := range targets {
			f := t.Findings[i]
			switch f.Verdict {
			case report.Deviates:
				fmt.Fprintf(&b, " %s ≈ |", f.Observed)
			case report.NotApplicable:
				b.WriteString(" n/a |")
			default:
				fmt.Fprintf(&b, " %s |", f.Observed)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

const begin, end = "<!-- matrix: go run ./.ci/check -write -->\n", "<!-- end of matrix -->"

func splice(text, matrix string) (string, error) {
	before, rest, ok := strings.Cut(text, begin)
	_, after, also := strings.Cut(rest, end)
	if !ok || !also {
		return "", errors.New("no place for the matrix")
	}
	return before + begin + matrix + end + after, nil
}
