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
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

func main() {
	var paths []string
	flag.Func("report", "a report; of several, a later one's targets and soaks replace those of the same name", func(s string) error {
		paths = append(paths, s)
		return nil
	})
	local := flag.Bool("local", false, "the report is of a run with --local")
	write := flag.Bool("write", false, "with -local, write the pages instead of checking them")
	again := flag.Bool("again", false, "print the names of targets that aren't as promised, to be asked once more, and nothing else")
	flag.Parse()
	if len(paths) == 0 {
		paths = []string{"onceline-report/report.json"}
	}
	if err := run(paths, *local, *write, *again); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

func run(paths []string, local, write, again bool) error {
	var r *report.Report
	for _, path := range paths {
		next, err := read(path)
		if err != nil {
			return err
		}
		r = merge(r, next)
	}
	if again {
		for _, name := range broken(r) {
			fmt.Println(name)
		}
		return nil
	}
	if err := promises(r, local); err != nil {
		return err
	}
	if local {
		if err := pages(r, strings.Join(paths, " -report "), write); err != nil {
			return err
		}
	}
	s := r.Summary
	fmt.Printf("check: %d findings on %d targets as promised, %d not verifiable, %d targets not here, %d of %d soaks kept, %d of %d mutants killed\n",
		s.Equal+s.Deviation, s.Targets-s.Absent, s.NotVerifiable, s.Absent, s.SoaksKept, s.Soaks, s.Killed, s.Mutants)
	return nil
}

func read(path string) (*report.Report, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := validate(raw); err != nil {
		return nil, fmt.Errorf("%s against docs/report.schema.json: %w", path, err)
	}
	return report.ReadJSON(bytes.NewReader(raw))
}

// merge puts what was asked once more in the place of what was asked first, and what
// was asked in another run behind it.
func merge(r, next *report.Report) *report.Report {
	if r == nil {
		return next
	}
	r.Targets = replaced(r.Targets, next.Targets, func(t report.Target) string { return t.Name })
	r.Soaks = replaced(r.Soaks, next.Soaks, func(k report.Soak) string { return k.Target + ", " + k.Disturbance })
	r.Databases = replaced(r.Databases, next.Databases, func(d report.Database) string { return d.Name })
	r.Facts = replaced(r.Facts, next.Facts, func(f report.Fact) string { return f.ID })
	slices.SortFunc(r.Facts, func(a, b report.Fact) int { return strings.Compare(a.ID, b.ID) })
	r.Summarise()
	return r
}

// replaced is old with each of next in the place of that of its name, or at the end.
func replaced[T any](old, next []T, name func(T) string) []T {
	for _, n := range next {
		if i := slices.IndexFunc(old, func(o T) bool { return name(o) == name(n) }); i >= 0 {
			old[i] = n
		} else {
			old = append(old, n)
		}
	}
	return old
}

// broken are the names of targets of which an answer isn't as declared, or that
// couldn't be asked, each once.
func broken(r *report.Report) []string {
	var names []string
	for i := range r.Targets {
		t := &r.Targets[i]
		if t.Error != "" || slices.ContainsFunc(t.Findings, func(f report.Finding) bool { return f.Verdict.Fails() }) {
			names = append(names, t.Name)
		}
	}
	for _, k := range r.Soaks {
		if k.Verdict != report.Equal && k.Verdict != report.NotApplicable {
			names = append(names, k.Target)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
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

// unanswerable are the claims that no target has to answer: those that only the
// vendors' words answer, and without real servers those that need a cluster or Redis.
func unanswerable(claim string, local bool) bool {
	switch claim {
	case "publish.scheduled", "publish.region", "deliver.push":
		return true
	case "publish.ack.replicated":
		return !local
	}
	return !local && strings.HasPrefix(claim, "effect.lease.")
}

// promises: every claim has its answer on every target, all as declared or a
// listed deviation, and an answer on some target; nothing is left out; every mutant is
// dead.
func promises(r *report.Report, local bool) error {
	var errs []error
	asked := len(conformance.Claims())
	there, answered := map[string]bool{}, map[string]bool{}
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
			if f.Verdict == report.NotVerifiable && f.Reason != "" {
				continue // it was asked in vain, which is no pass: answered, below, wants it somewhere
			}
			answered[f.Claim] = true
			if !f.Verdict.Passes() {
				errs = append(errs, fmt.Errorf("%s: %s is %s: %s", t.Name, f.Claim, f.Verdict, f.Reason))
			}
		}
		if len(t.Deviations) > 0 && t.Real {
			errs = append(errs, fmt.Errorf("%s is the real broker and lists deviations", t.Name))
		}
	}
	for _, c := range conformance.Claims() {
		if id := string(c.ID); !answered[id] && !unanswerable(id, local) {
			errs = append(errs, fmt.Errorf("%s has no answer on any target", id))
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
	if local && len(r.Soaks) == 0 {
		errs = append(errs, errors.New("no cluster was soaked"))
	}
	for _, k := range r.Soaks {
		if k.Verdict != report.Equal {
			errs = append(errs, fmt.Errorf("%s, %s: %s: %s", k.Target, k.Disturbance, k.Verdict, k.Reason))
		}
	}
	if s := r.Summary; s.Mutants < 5 || s.Killed != s.Mutants || s.Exit != report.ExitEqual {
		errs = append(errs, fmt.Errorf("%d of %d mutants killed, exit %d", s.Killed, s.Mutants, s.Exit))
	}
	return errors.Join(errs...)
}
