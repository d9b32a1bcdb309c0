package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// TestMultiplicity: what a pipeline's outputs show, by how often they are there and by
// their numbers.
func TestMultiplicity(t *testing.T) {
	for _, c := range []struct {
		seen map[string][]string
		want boundary.Answer
		says string
	}{
		{map[string][]string{"a": {"1"}, "b": {"2"}, "c": {"3"}}, boundary.Once, "each of 3 messages"},
		{map[string][]string{"a": {"1"}, "c": {"3"}}, boundary.Lost, `no output is there of 1: ["b"]`},
		{map[string][]string{"a": {"1"}, "b": {"2", "2"}, "c": {"3"}}, boundary.Twice, `of 1 is there more than once: ["b"]`},
		{map[string][]string{"a": {"1"}, "b": {"2"}, "c": {"4"}}, boundary.Twice, `counted too high`},
		{map[string][]string{"a": {"1"}, "b": {"2"}, "c": {"2"}}, boundary.Lost, `counted too low`},
		{map[string][]string{"a": {"1"}, "b": {"garbled"}, "c": {"3"}}, boundary.Lost, `"b as number garbled"`},
		{map[string][]string{"a": {"1", "1"}, "c": {"3"}}, boundary.Lost, `["b"]`}, // the worse of the two
	} {
		p := &piped{sent: []broker.Message{{ID: "a"}, {ID: "b"}, {ID: "c"}}, seen: c.seen}
		if got, why := p.multiplicity(); got != c.want || !strings.Contains(why, c.says) {
			t.Errorf("%v: %s: %s", c.seen, got, why)
		}
	}
}

// TestALossIsTold: a loss that isn't logged as an error, or isn't counted, isn't told.
func TestALossIsTold(t *testing.T) {
	lost := fmt.Errorf("%w: checkpoint 2", ErrOutputLost)
	counted := map[string]float64{metricLosses: 1, metricAbortRate: 0.5}
	for _, c := range []struct {
		err     error
		log     string
		metrics map[string]float64
		told    bool
		says    string
	}{
		{lost, "level=ERROR", counted, true, metricAbortRate + " 0.5"},
		{lost, "", counted, false, "logged no error"},
		{lost, "level=ERROR", map[string]float64{metricLosses: 1}, false, "didn't count it"},
		{lost, "level=ERROR", map[string]float64{metricAbortRate: 1}, false, "didn't count it"},
	} {
		r := &running{err: c.err, logs: &loud{}, metrics: c.metrics}
		r.logs.text.WriteString(c.log)
		told, why, err := (&piped{}).judge(r)
		if err != nil || told != c.told || !strings.Contains(why, c.says) {
			t.Errorf("%v, logged %q, %v: %v, %s, %v", c.err, c.log, c.metrics, told, why, err)
		}
	}
	other := errors.New("the disk is full")
	if _, _, err := (&piped{}).judge(&running{err: other, logs: &loud{}}); !errors.Is(err, other) {
		t.Errorf("ended by something else: %v", err)
	}
}

// TestATargetWithoutPipelines: nothing is answered where there is no store for
// checkpoints, and that is no pass.
func TestATargetWithoutPipelines(t *testing.T) {
	r, err := Run(t.Context(), nowhere(), Options{Claims: []string{"checkpoint.*", "pipeline.*"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Targets[0].Findings) != 4 {
		t.Fatalf("%d findings", len(r.Targets[0].Findings))
	}
	for _, f := range r.Targets[0].Findings {
		if f.Verdict != report.NotVerifiable || !strings.Contains(f.Reason, "no store for checkpoints") {
			t.Errorf("%s: %s: %s", f.Claim, f.Verdict, f.Reason)
		}
	}
}

// TestAWorkerKnowsItsPipelines: a process that wasn't told of the store says so.
func TestAWorkerKnowsItsPipelines(t *testing.T) {
	ran := &Pipelines{Run: func(context.Context, Pipeline) error { return nil }}
	stores := []Store{{Kind: Inbox, Name: "there"}, {Kind: Checkpoints, Name: "there", Pipelines: ran}}
	if got, err := pipelinesIn(stores, "there"); err != nil || got != ran {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := pipelinesIn(stores, "elsewhere"); err == nil || !strings.Contains(err.Error(), "elsewhere") {
		t.Errorf("an unknown store: %v", err)
	}
}
