package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckCommand: the file's anomalies, its exit codes, and what is no history.
func TestCheckCommand(t *testing.T) {
	t.Parallel()
	const lines = `{"at":1,"kind":"publish","id":"a"}
{"at":2,"kind":"receipt","id":"a","verdict":"Stored"}
{"at":3,"kind":"publish","id":"b"}
{"at":4,"kind":"receipt","id":"b","verdict":"Stored"}
{"at":5,"kind":"delivery","id":"b","attempt":1}
{"at":6,"kind":"delivery","id":"b","attempt":1}
`
	path := filepath.Join(t.TempDir(), "history.jsonl")
	one := path + ".one"
	if err := os.WriteFile(one, []byte(`{"at":1,"kind":"publish","id":"a"}
{"at":2,"kind":"delivery","id":"a"}
{"at":3,"kind":"delivery","id":"x"}
{"at":4,"kind":"effect","id":"a"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	program := path + ".elf"
	if err := os.WriteFile(program, []byte("\x7fELF\x02\x01"), 0o600); err != nil {
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
		{"check " + one, 1, []string{"(event 3)", "1 message published", "2 deliveries, 1 effect: unexpected 1."}},
		{"check --ignore nothing " + path, 2, []string{"there is no such kind"}},
		{"check " + path + ".absent", 3, []string{"no such file"}},
		{"check " + program, 3, []string{"not a history"}},
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

// TestCheckOfAReport: what a probe records is a history that can be checked.
func TestCheckOfAReport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, stderr, code := onceline(t.Context(), "verify", "--broker", "memory", "--broker", "nats", "--claim", "effect.crash-after-effect", "--claim", "settle.answer", "--claim", "settle.durable", "--out", dir); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	file := filepath.Join(dir, "report.json")
	for _, c := range []struct {
		finding string
		code    int
		says    string
	}{
		{"memory/effect.crash-after-effect", 1, "effect-twice (1)"},
		{"memory/settle.answer", 0, "2 messages published, 2 promised by a receipt, 0 of unknown outcome (0 of them came), 2 deliveries, 0 effects: no anomaly"},
		{"nats/settle.durable", 0, "no anomaly"}, // of messages that it holds beside what it records
		{"memory/settle.nothing", 2, `there is no finding "memory/settle.nothing"`},
	} {
		stdout, stderr, code := onceline(t.Context(), "check", "--drained", "--finding", c.finding, file)
		if code != c.code || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("%s: exit %d: %s%s", c.finding, code, stdout, stderr)
		}
	}
}
