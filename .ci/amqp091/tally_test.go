package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAskedAgain: a test that fails on a real server once is asked again, alone, and
// counts by that; one that fails twice is wrong.
func TestAskedAgain(t *testing.T) {
	const script = `#!/bin/sh
for last; do :; done
echo "$last" >>asked
case "$last" in
*TestSound*) printf '\026=== RUN   TestSound\n\026--- PASS: TestSound (0.00s)\n' ;;
esac
if [ -e late ]; then
	printf '\026=== RUN   TestLate\n\026--- PASS: TestLate (0.00s)\n'
	result=PASS code=0
else
	printf '\026=== RUN   TestLate\n\026--- FAIL: TestLate (0.00s)\n'
	result=FAIL code=1
fi
case "$last" in
*TestBroken*)
	printf '\026=== RUN   TestBroken\n\026--- FAIL: TestBroken (0.00s)\n'
	result=FAIL code=1
	;;
esac
touch late
printf '\026%s\n' $result
exit $code
`
	for _, c := range []struct {
		tests, again, wrong string
		passed              int
	}{
		{"TestSound TestLate", "^(TestLate)$", "", 2},
		{"TestSound TestLate TestBroken", "^(TestLate|TestBroken)$", "TestBroken: fail, expected pass", 2},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		var got tally
		got.job(t.Context(), &suite{dir: dir, env: os.Environ()}, job{onReal, strings.Fields(c.tests)}, &broker{patience: time.Minute})
		var wrong []string
		for _, err := range got.wrong {
			wrong = append(wrong, err.Error())
		}
		if said := strings.Join(wrong, "\n"); (c.wrong == "") != (said == "") || !strings.Contains(said, c.wrong) || len(wrong) > 1 || got.passed != c.passed || got.retried == 0 {
			t.Errorf("%s: %d passed, %d again, wrong: %s", c.tests, got.passed, got.retried, said)
		}
		asked, err := os.ReadFile(filepath.Join(dir, "asked"))
		if lines := strings.Split(strings.TrimSpace(string(asked)), "\n"); err != nil || len(lines) != 2 || lines[1] != "-test.run="+c.again {
			t.Errorf("asked %q, %v", lines, err)
		}
	}
}
