package report_test

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/onceline/onceline/conformance/report"
)

func soaked(vs ...report.Verdict) *report.Report {
	r := &report.Report{}
	for i, v := range vs {
		r.Soaks = append(r.Soaks, report.Soak{
			Target: "kafka-group-3", Broker: "kafka", Disturbance: "leader killed", Versions: map[string]string{"kafka": "4.2.0"},
			Basis: report.Measured, Verdict: v, Reason: "why <" + string(v) + ">",
			Published: 20000, Stored: 19990 - i, Duplicates: 7, Unresolved: 3, Refused: 11, Unknown: 13, Retried: 17,
			Lost: i, Stranded: 9, Received: 19993, Copies: 2, Redelivered: 5, Confirmed: 19992, Sent: 1, RedeliveredAfterConfirmed: 4,
			GapSeconds: 4.25, Seconds: 21.5, Rate: 931.4, Notes: []string{"4.2 s: node 1 was killed", "a|b"},
		})
	}
	r.Summarise()
	return r
}

func TestSoaksAreShown(t *testing.T) {
	r := soaked(report.Equal, report.Weaker)
	r.Soaks = append(r.Soaks, report.Soak{Target: "rabbitmq-quorum-3", Disturbance: "leader killed", Basis: report.Measured,
		Verdict: report.NotApplicable, Reason: "there is no rabbitmq-server"})
	r.Summarise()
	for _, c := range []struct {
		name string
		text string
		want []string
	}{
		{"markdown", render(t, report.WriteMarkdown, r), []string{
			"## Clusters and kills", "redelivered after confirmed", "longest gap",
			"| `kafka-group-3` | leader killed | ▼ weaker than declared | 1 | 4 | 4.2 s | 9 | 2 | 20000 | 19989 | 7 | 3 | 11 | 13 | 17 | 19993 | 5 | 19992 | 1 | 21.5 s | 931 |",
			"why &lt;weaker&gt;", `4.2 s: node 1 was killed; a\|b`,
			"| `rabbitmq-quorum-3` | leader killed | – not here |  |", "there is no rabbitmq-server"}},
		{"html", render(t, report.WriteHTML, r), []string{
			`<section id="soaks"`, "<td>19989</td>", "<td>931</td>", "why &lt;weaker&gt;", "<li>4.2 s: node 1 was killed</li>", "there is no rabbitmq-server"}},
		{"matrix", render(t, matrixWith(report.MatrixOptions{Width: 400}), r), []string{
			"✓ equal  kafka-group-3 soaked leader killed", "▼ weaker than declared  kafka-group-3 soaked leader killed", "why <weaker>",
			"lost 1, redelivered after confirmed 4, longest gap 4.2 s, stranded 9, copies 2, published 20000, stored 19989, duplicate 7, no receipt 3, refused receipts 11, unknown receipts 13, retried 17, received 19993",
			"– not here  rabbitmq-quorum-3 soaked leader killed", "there is no rabbitmq-server"}},
		{"junit", render(t, report.WriteJUnit, r), []string{
			`<testsuite name="soaks"`, `classname="onceline.kafka-group-3.soak"`, `<failure message="weaker: why &lt;weaker&gt;"`, `<skipped message="not here: there is no rabbitmq-server"`}},
	} {
		for _, want := range c.want {
			if !strings.Contains(c.text, want) {
				t.Errorf("%s lacks %q:\n%s", c.name, want, c.text)
			}
		}
	}
	if err := xml.Unmarshal([]byte(render(t, report.WriteJUnit, r)), new(any)); err != nil {
		t.Error(err)
	}
}

func TestNoSoaksNoSection(t *testing.T) {
	r := &report.Report{}
	r.Summarise()
	for name, text := range map[string]string{
		"markdown": render(t, report.WriteMarkdown, r), "html": render(t, report.WriteHTML, r),
		"matrix": render(t, matrixWith(report.MatrixOptions{}), r), "junit": render(t, report.WriteJUnit, r),
	} {
		if strings.Contains(strings.ToLower(text), "soak") || strings.Contains(text, "Clusters and kills") {
			t.Errorf("%s has a section of soaks", name)
		}
	}
}

func TestSoaksInJSON(t *testing.T) {
	r := soaked(report.Equal, report.NotVerifiable)
	text := render(t, report.WriteJSON, r)
	back, err := report.ReadJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if again := render(t, report.WriteJSON, back); again != text {
		t.Errorf("read and written again it differs:\n%s\n%s", text, again)
	}
	for from, to := range map[string]string{
		`"verdict": "equal"`:   `"verdict": "fine"`,
		`"basis": "measured"`:  `"basis": "guessed"`,
		`"gap_seconds"`:        `"gap"`,
		`"verdict": "not-veri`: `"verdict": "not-a`,
	} {
		changed := strings.Replace(text, from, to, 1)
		if changed == text {
			t.Errorf("%s isn't there", from)
		} else if _, err := report.ReadJSON(strings.NewReader(changed)); err == nil {
			t.Errorf("%s is read", to)
		}
	}
}

// A soak that found a loss turns the run red, and one that could not tell is no pass.
func TestSoaksInTheSummary(t *testing.T) {
	for _, c := range []struct {
		verdicts  []report.Verdict
		ran, kept int
		exit      int
	}{
		{[]report.Verdict{report.Equal, report.Equal}, 2, 2, report.ExitEqual},
		{[]report.Verdict{report.Equal, report.Weaker, report.NotVerifiable}, 3, 1, report.ExitDifference},
		{[]report.Verdict{report.Equal, report.NotVerifiable}, 2, 1, report.ExitUnknown},
		{[]report.Verdict{report.Equal, report.Failed}, 2, 1, report.ExitUnknown},
		{[]report.Verdict{report.Equal, report.NotApplicable}, 1, 1, report.ExitEqual},
		{[]report.Verdict{report.NotApplicable}, 0, 0, report.ExitUnknown},
	} {
		s := soaked(c.verdicts...).Summary
		if s.Soaks != c.ran || s.SoaksKept != c.kept || s.Exit != c.exit {
			t.Errorf("%v: %d of %d kept, exit %d", c.verdicts, s.SoaksKept, s.Soaks, s.Exit)
		}
	}
}
