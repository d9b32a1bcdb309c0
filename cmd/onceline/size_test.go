package main

import (
	"strings"
	"testing"

	"github.com/onceline/onceline/conformance/report"
)

// TestSize: a payments consumer of 2,000 messages a second, 0.05 % of whose publishes
// are sent again, restarted twenty times a day and committing every five seconds, with
// an illustrative 120 bytes per marker.
func TestSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		says []string
	}{
		{[]string{"--window", "24h", "--bytes", "120", "--retried", "0.0005", "--restarts", "20", "--commit-every", "5s"}, 0,
			[]string{"markers  172,800,000, 172,800,000 written and removed a day", "20.7 GB", "86,400 of the producer's retries, 100,000 of redelivery", "Redis, in memory", "PostgreSQL, without", "16.1 GB"}},
		{[]string{"--window", "168h", "--bytes", "120"}, 0, []string{"1,209,600,000, 172,800,000", "145.2 GB"}},
		{[]string{"--producer-retry", "1h", "--redelivery", "96h", "--replay", "71h"}, 0,
			[]string{"horizon  168h0m0s (producer's retries 1h0m0s, redelivery 96h0m0s, replay 71h0m0s)", "window   168h0m0s", "1,209,600,000"}},
		{[]string{"--window", "24h", "--redelivery", "23h", "--replay", "2h"}, report.ExitDifference, []string{"The window is too short", "25h0m0s after the first"}},
	} {
		stdout, stderr, code := onceline(t.Context(), append([]string{"size", "--rate", "2000"}, c.args...)...)
		if code != c.code || stderr != "" {
			t.Errorf("%v: exit %d: %s%s", c.args, code, stdout, stderr)
		}
		for _, s := range c.says {
			if !strings.Contains(stdout, s) {
				t.Errorf("%v doesn't say %q:\n%s", c.args, s, stdout)
			}
		}
	}
	for _, c := range [][]string{{"--window", "1h"}, {"--rate", "-1", "--window", "1h"}, {"--rate", "NaN", "--window", "1h"}, {"--rate", "5"},
		{"--rate", "5", "--window", "-1h"}, {"--rate", "5", "--window", "1h", "--retried", "2"}, {"--rate", "5", "--window", "1h", "--bytes", "-3"}, {"extra"}} {
		if stdout, stderr, code := onceline(t.Context(), append([]string{"size"}, c...)...); code != report.ExitUsage || stdout != "" || stderr == "" {
			t.Errorf("%v: exit %d: %s%s", c, code, stdout, stderr)
		}
	}
	if got := grouped(999) + " " + grouped(1000) + " " + inBytes(999) + " " + inBytes(1500); got != "999 1,000 999.0 B 1.5 kB" {
		t.Error(got)
	}
}
