package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceline/onceline/conformance/report"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := onceline(t.Context(), "diff", "sqs-fifo", "sqs-standard")
	for _, want := range []string{"▼ weaker   publish.dedup.lost-response: once → twice", "From sqs-fifo", "▼ weaker   deliver.order.key: over-redelivery → none",
		"▼ the dedup window: always 5 min → none", "▼ the broker's field for dedup IDs: at most 128 characters → none"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("lacks %q:\n%s", want, stdout)
		}
	}
	if code != 0 || stderr != "" {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if stdout, _, _ = onceline(t.Context(), "diff", "nats", "servicebus-queue", "--format", "markdown"); !strings.Contains(stdout, "| ▼ | the lease of a delivery | no bound, 30 s by default | 5 s to 5 min, 1 min by default | Renewed without a bound. |") {
		t.Error(stdout)
	}
	if stdout, _, _ = onceline(t.Context(), "diff", "nats", "nats"); !strings.Contains(stdout, "no guarantee changes") {
		t.Error(stdout)
	}
}

func TestDiffRequires(t *testing.T) {
	t.Parallel()
	_, stderr, code := onceline(t.Context(), "diff", "sqs-fifo", "sqs-standard", "--require", "publish.dedup.lost-response=once")
	if code != report.ExitDifference || !strings.Contains(stderr, "required, and lost: sqs-standard answers publish.dedup.lost-response with twice") {
		t.Errorf("exit %d, %q", code, stderr)
	}
	if _, stderr, code = onceline(t.Context(), "diff", "sqs-standard", "sqs-fifo", "--require", "publish.dedup.lost-response=once"); code != 0 {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestDiffOfReports(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, observed string) string {
		r := report.Report{Targets: []report.Target{
			{Name: "a", Broker: "a", Kind: report.KindEmulator, Findings: []report.Finding{{Claim: "settle.answer", Hop: 2, Observed: observed, Verdict: report.Equal, Basis: report.Measured}}},
			{Name: name, Broker: "b", Kind: report.KindEmulator},
		}}
		path := filepath.Join(dir, name+".json")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := report.WriteJSON(f, &r); err != nil {
			t.Fatal(err)
		}
		return path
	}
	old, now := write("old", "confirmed"), write("now", "sent")
	stdout, stderr, code := onceline(t.Context(), "diff", old, now, "--format", "json")
	var swaps []swap
	if err := json.Unmarshal([]byte(stdout), &swaps); err != nil || code != 0 {
		t.Fatal(err, code, stderr)
	}
	if len(swaps) != 1 || len(swaps[0].Changes) != 1 || swaps[0].Changes[0].Direction != "weaker" || swaps[0].Changes[0].To.Basis != "measured" {
		t.Errorf("%+v", swaps)
	}
	stdout, _, code = onceline(t.Context(), "diff", old+"#a", now+"#a", "--format", "markdown")
	if code != 0 || !strings.Contains(stdout, "| ▼ weaker | `settle.answer` | confirmed | sent |") {
		t.Error(code, stdout)
	}
	for _, args := range [][]string{
		{"diff", old + "#b", now}, {"diff", "pulsar", "nats"}, {"diff", "nats"},
		{"diff", "nats", "nats", "--format", "xml"}, {"diff", "nats", "nats", "--require", "settle.answer"},
		{"diff", "nats", "nats", "--require", "settle.answer=maybe"}, {"diff", old, "nats"},
	} {
		if stdout, stderr, code := onceline(t.Context(), args...); code != report.ExitUsage || stderr == "" || stdout != "" {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
}

// TestDiffCannotTell: targets that were not reached have no answers, which is no sign
// that nothing changes; nor is a report that can't be read.
func TestDiffCannotTell(t *testing.T) {
	t.Parallel()
	r := report.Report{Targets: []report.Target{
		{Name: "gone", Broker: "a", Kind: report.KindLocal, Error: "connection refused"},
		{Name: "absent", Broker: "a", Kind: report.KindLocal, Absent: "it isn't installed"},
		{Name: "there", Broker: "a", Kind: report.KindLocal, Findings: []report.Finding{
			{Claim: "settle.answer", Hop: 2, Observed: "sent", Verdict: report.Equal, Basis: report.Measured}, {Claim: "settle.stale", Hop: 2, Verdict: report.Failed, Basis: report.Measured}}},
	}}
	path := filepath.Join(t.TempDir(), "report.json")
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(report.WriteJSON(f, &r), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	program := path + ".elf"
	if err := os.WriteFile(program, []byte("\x7fELF\x02\x01"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to string
		code     int
		says     []string
	}{
		{path + "#gone", path + "#gone", 3, []string{"can't be told", "from gone: connection refused; to gone: connection refused"}},
		{path + "#there", path + "#absent", 3, []string{"can't be told", "(to absent: it isn't installed)"}},
		{path, path, 3, []string{"can't be told", "no guarantee changes"}},
		{path + "#there", path + "#there", 0, []string{"no guarantee changes; ", "claims have no answer on either side"}},
		{path + ".none", "nats", 3, []string{"no such file"}},
		{program, "nats", 3, []string{program}},
	} {
		for _, format := range []string{"text", "markdown"} {
			stdout, stderr, code := onceline(t.Context(), "diff", c.from, c.to, "--format", format)
			for _, want := range c.says {
				if code != c.code || !strings.Contains(stdout+stderr, want) {
					t.Errorf("%s %s %s: exit %d, %q: %s%s", c.from, c.to, format, code, want, stdout, stderr)
				}
			}
		}
	}
}
