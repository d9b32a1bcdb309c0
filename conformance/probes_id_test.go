package conformance

import (
	"errors"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// TestAnswerIDs: the worst that befell one of the messages is the answer.
func TestAnswerIDs(t *testing.T) {
	ms := []broker.Message{{ID: "a"}, {ID: "b"}, {ID: "c"}}
	errTest := errors.New("refused")
	whole := arrival{copies: 1}
	for _, c := range []struct {
		name    string
		came    []arrival
		refused map[int]error
		want    boundary.Answer
	}{
		{"all once", []arrival{whole, whole, whole}, nil, boundary.KeptAndDeduped},
		{"one twice", []arrival{whole, {copies: 2}, whole}, nil, boundary.KeptNotDeduped},
		{"one refused", []arrival{whole, {copies: 2}, {}}, map[int]error{2: errTest}, boundary.Refused},
		{"one with another ID", []arrival{{copies: 1, id: "x"}, {copies: 2}, {}}, map[int]error{2: errTest}, boundary.Mangled},
		{"one missing", []arrival{{copies: 1, id: "x"}, {}, whole}, nil, boundary.TakenForAnother},
	} {
		b := &Bench{findings: map[boundary.Claim]answer{}, history: newHistory()}
		b.answerIDs(boundary.PublishIDLength, ms, c.came, c.refused, 0, len(ms))
		if got := b.findings[boundary.PublishIDLength]; got.observed != c.want {
			t.Errorf("%s: %q: %s", c.name, got.observed, got.reason)
		}
	}
}

// TestIDsOfTheProbe: the long ones are as long as the contract admits and not longer,
// and no two of either kind are the same.
func TestIDsOfTheProbe(t *testing.T) {
	longest := 0
	seen := map[string]bool{}
	for _, id := range append(longIDs(), awkwardIDs()...) {
		if seen[id] {
			t.Errorf("%q twice", id)
		}
		seen[id], longest = true, max(longest, len(id))
	}
	if longest != broker.MaxID {
		t.Errorf("the longest has %d bytes", longest)
	}
}
