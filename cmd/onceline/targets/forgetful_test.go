package targets_test

import (
	"context"
	"strings"
	"testing"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/internal/bubbletest"
)

// TestABrokerThatForgetsAll: of one whose restart leaves not even the topics, as with
// streams in memory, the claims about restarts are answered still.
func TestABrokerThatForgetsAll(t *testing.T) {
	t.Parallel()
	want := map[string]boundary.Answer{
		string(boundary.PublishAckDurable):         boundary.Lost,
		string(boundary.PublishDedupBrokerRestart): boundary.Lost,
		string(boundary.SettleFinal):               boundary.Final,
	}
	target := targets.Memory()
	target.Private = func(context.Context) (*conformance.Instance, error) {
		clock := memory.NewClock()
		b := memory.New(memory.WithClock(clock))
		another := func(context.Context) error {
			b.Close()
			b = memory.New(memory.WithClock(clock))
			return nil
		}
		return &conformance.Instance{Restart: another, Kill: another, Advance: clock.Advance, Now: clock.Now,
			Open:  func(context.Context) (broker.Conn, error) { return b.Conn(), nil },
			Close: func(context.Context) error { b.Close(); return nil }}, nil
	}
	var o conformance.Options
	for claim := range want {
		o.Claims = append(o.Claims, claim)
	}
	bubbletest.Run(t, func(t *testing.T) {
		r, err := conformance.Run(t.Context(), target, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Targets[0].Findings) != len(want) {
			t.Fatalf("%d findings: %s", len(r.Targets[0].Findings), r.Targets[0].Error)
		}
		for _, f := range r.Targets[0].Findings {
			if f.Observed != string(want[f.Claim]) || !strings.Contains(f.Reason, "topic") {
				t.Errorf("%s: %s %q: %s", f.Claim, f.Verdict, f.Observed, f.Reason)
			}
		}
	})
}
