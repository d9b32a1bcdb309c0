// Check holds a report of "onceline verify" to what the project promises of it, and
// the pages that are made from a report to the report of a run on real brokers.
//
//	go run ./.ci/check -report DIR/report.json                  the embedded brokers
//	go run ./.ci/check -report DIR/report.json -local           with --local: the pages too
//	go run ./.ci/check -report DIR/report.json -local -write    put what the run found into the pages
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

func main() {
	path := flag.String("report", "onceline-report/report.json", "the report")
	local := flag.Bool("local", false, "the report is of a run with --local")
	write := flag.Bool("write", false, "with -local, write the pages instead of checking them")
	flag.Parse()
	if err := run(*path, *local, *write); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

func run(path string, local, write bool) error {
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
	if err := promises(r, local); err != nil {
		return err
	}
	if local {
		if err := pages(r, path, write); err != nil {
			return err
		}
	}
	s := r.Summary
	fmt.Printf("check: %d findings on %d targets as promised, %d not verifiable, %d targets not here, %d of %d mutants killed\n",
		s.Equal+s.Deviation, s.Targets-s.Absent, s.NotVerifiable, s.Absent, s.Killed, s.Mutants)
	return nil
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

// required are the targets of a run with --local that may not be absent where the
// project's own checks run.
var required = []string{
	"kafka-group-local", "kafka-share-local", "kafka-group-3", "kafka-share-3",
	"rabbitmq-classic-local", "rabbitmq-quorum-local", "rabbitmq-stream-local", "rabbitmq-quorum-3", "rabbitmq-stream-3",
	"nats-memory", "nats-workqueue", "nats-3", "pubsub-emulator", "pubsub-emulator-exactly-once",
	"elasticmq-standard", "elasticmq-fifo",
}

// promises: every claim has its answer on every target, all as declared or a
// listed deviation; nothing is left out; every mutant is dead.
func promises(r *report.Report, local bool) error {
	var errs []error
	asked := len(conformance.Claims())
	there := map[string]bool{}
	embedded := 0
	for _, t := range r.Targets {
		if t.Kind == report.KindEmulator {
			embedded++
		}
		if t.Absent != "" {
			fmt.Printf("check: %s is not here: %s\n", t.Name, t.Absent)
			continue
		}
		there[t.Name] = true
		if t.Error != "" || len(t.Findings) != asked {
			errs = append(errs, fmt.Errorf("%s: %d findings of %d: %s", t.Name, len(t.Findings), asked, t.Error))
		}
		for _, f := range t.Findings {
			if f.Verdict == report.NotApplicable && f.Declared == string(boundary.NotApplicable) {
				continue // both say so
			}
			if f.Verdict == report.NotVerifiable && t.Kind == report.KindLocal && !t.Real {
				continue // somebody else's emulator may not have what it takes
			}
			if !f.Verdict.Passes() {
				errs = append(errs, fmt.Errorf("%s: %s is %s: %s", t.Name, f.Claim, f.Verdict, f.Reason))
			}
		}
		if len(t.Deviations) > 0 && t.Real {
			errs = append(errs, fmt.Errorf("%s is the real broker and lists deviations", t.Name))
		}
	}
	if embedded < 15 {
		errs = append(errs, fmt.Errorf("%d embedded targets", embedded))
	}
	if local {
		for _, name := range required {
			if !there[name] {
				errs = append(errs, fmt.Errorf("%s was not asked", name))
			}
		}
	}
	if s := r.Summary; s.Mutants < 5 || s.Killed != s.Mutants || s.Exit != report.ExitEqual {
		errs = append(errs, fmt.Errorf("%d of %d mutants killed, exit %d", s.Killed, s.Mutants, s.Exit))
	}
	return errors.Join(errs...)
}
