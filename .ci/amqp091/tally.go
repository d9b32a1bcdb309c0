package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// tally counts results, and keeps those that are not as expected.
type tally struct {
	mu                               sync.Mutex
	passed, skipped, failed, retried int
	wrong                            []error
}

// is notes an error.
func (t *tally) is(err error) {
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.wrong = append(t.wrong, err)
	}
}

// known holds the table to the suite: what it lists must be there.
func (t *tally) known(tests []string) {
	for _, e := range table {
		if !slices.Contains(tests, e.test) {
			t.is(fmt.Errorf("%s is in the table and not in the suite", e.test))
		}
	}
}

// tries is how often a flaky test may run until it passes.
const tries = 3

// job runs tests and counts their results. Those that fail and are known to be
// flaky run again, and those that end otherwise than expected on a real server, once:
// it may have been late.
func (t *tally) job(ctx context.Context, s *suite, j job, b *broker) {
	for try := 1; ; try++ {
		got, err := s.test(ctx, b, j.tests)
		if err != nil {
			t.is(fmt.Errorf("on %s: %w", j.column, err))
			return
		}
		if e, _ := lookup(j.tests[0]); e.want[j.column] != flaky {
			if missed := j.missed(got); j.column == onReal && len(missed) > 0 {
				fmt.Printf("     once more: %s\n", strings.Join(missed, ", "))
				again, err := s.test(ctx, b, missed)
				if err != nil {
					t.is(fmt.Errorf("on %s: %w", j.column, err))
					return
				}
				maps.Copy(got, again)
				t.again(len(missed))
			}
			t.count(j, got)
			return
		} else if got[e.test].outcome == pass || try == tries {
			t.flaky(j, e, got, try)
			return
		}
		fmt.Printf("     %s is flaky and failed at try %d of %d\n", j.tests[0], try, tries)
	}
}

// missed returns the tests of a job that didn't end as expected.
func (j job) missed(got map[string]result) []string {
	var names []string
	for _, test := range j.tests {
		if e, _ := lookup(test); got[test].outcome != e.want[j.column] {
			names = append(names, test)
		}
	}
	return names
}

func (t *tally) again(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retried += n
}

// count compares results with what is expected.
func (t *tally) count(j job, got map[string]result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	as, failed := len(t.wrong), 0
	for _, test := range j.tests {
		e, listed := lookup(test)
		want, r := e.want[j.column], got[test]
		switch {
		case r.outcome != want:
			t.deviates(j.column, test, want, r)
			continue
		case want != pass && !strings.Contains(r.output, e.says):
			t.wrong = append(t.wrong, fmt.Errorf("on %s, %s: %s as expected, and it doesn't say %q", j.column, test, want, e.says))
			os.Stdout.WriteString(r.output)
			continue
		case want == skip:
			t.skipped++
		case want == fail:
			t.failed++
			failed++
		default:
			t.passed++
		}
		if listed {
			fmt.Printf("     %s: %s on %s, as expected: %s\n", test, want, j.column, e.why)
		}
	}
	// A run fails as a whole also by what it finds at its end, leaked goroutines.
	if all := got[""]; as == len(t.wrong) && (all.outcome == fail) != (failed > 0) {
		t.wrong = append(t.wrong, fmt.Errorf("on %s each of %d tests is as expected, and together: %s", j.column, len(j.tests), all.outcome))
		os.Stdout.WriteString(all.output)
	}
}

// flaky counts the last result of a test that is known to be flaky.
func (t *tally) flaky(j job, e expectation, got map[string]result, try int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := got[e.test]
	switch {
	case r.outcome == pass && got[""].outcome != pass:
		t.wrong = append(t.wrong, fmt.Errorf("on %s, %s passes and its process fails", j.column, e.test))
		os.Stdout.WriteString(got[""].output)
		return
	case r.outcome != pass:
		t.deviates(j.column, e.test, flaky, r)
		return
	case try > 1:
		t.retried++
	}
	t.passed++
	fmt.Printf("     %s: pass on %s at try %d of %d, known to be flaky: %s\n", e.test, j.column, try, tries, e.why)
}

func (t *tally) deviates(c column, test string, want outcome, r result) {
	t.wrong = append(t.wrong, fmt.Errorf("on %s, %s: %s, expected %s", c, test, cmp.Or(r.outcome, "no result"), want))
	os.Stdout.WriteString(r.output)
}
