package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckCommand: the file's anomalies, its exit codes, and what is no history.
func TestCheckCommand(t *testing.T) {
	const lines = `{"at":1,"kind":"publish","id":"a"}
{"at":2,"kind":"receipt","id":"a","verdict":"Stored"}
{"at":3,"kind":"publish","id":"b"}
{"at":4,"kind":"receipt","id":"b","verdict":"Stored"}
{"at":5,"kind":"delivery","id":"b","attempt":1}
{"at":6,"kind":"delivery","id":"b","attempt":1}
`
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		says []string
	}{
		{"check " + path, 1, []string{`doubled (1): it came again`, `"b": delivered at 5.000 s, 6.000 s, given back 0 times (events 5, 6)`, "Not decided", "2 messages published, 2 promised", ": doubled 1."}},
		{"check --drained " + path, 1, []string{`lost (1)`, `"a": Stored at 2.000 s`, ": lost 1, doubled 1."}},
		{"check --drained --ignore lost,doubled " + path, 0, []string{"no anomaly"}},
		{"check --json --ignore doubled " + path, 0, []string{`"anomalies": []`, `"deliveries": 2`}},
		{"check --ignore nothing " + path, 2, []string{"there is no such kind"}},
		{"check " + path + ".absent", 3, []string{"no such file"}},
		{"check " + os.Args[0], 3, []string{"not a history"}},
		{"check", 2, []string{"accepts 1 arg"}},
	} {
		var out, errs strings.Builder
		code := run(t.Context(), strings.Fields(c.args), &out, &errs)
		for _, want := range c.says {
			if !strings.Contains(out.String()+errs.String(), want) {
				t.Errorf("%s: no %q in\n%s%s", c.args, want, out.String(), errs.String())
			}
		}
		if code != c.code {
			t.Errorf("%s: exit %d, want %d", c.args, code, c.code)
		}
	}
}
