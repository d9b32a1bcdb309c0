package conformance

import (
	"testing"
	"time"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// TestAnchor: only copies that show both that IDs are known within the window and
// that they are forgotten after it tell what a repeat does to it.
func TestAnchor(t *testing.T) {
	for _, c := range []struct {
		soon, early, late, both int
		want                    boundary.Answer // "" for not verifiable
	}{
		{1, 1, 2, 2, boundary.FirstSighting},
		{1, 1, 2, 1, boundary.LastSighting},
		{2, 2, 2, 3, boundary.None},
		{1, 2, 2, 2, ""}, // half a window
		{1, 1, 1, 1, ""}, // a longer one
		{1, 1, 0, 1, ""},
	} {
		b := &Bench{findings: map[boundary.Claim]answer{}, history: newHistory()}
		b.anchor(time.Minute, c.soon, c.early, c.late, c.both)
		got := b.findings[boundary.PublishDedupWindowAnchor]
		if got.observed != c.want || (got.verdict == report.NotVerifiable) != (c.want == "") {
			t.Errorf("%+v: %q, %s: %s", c, got.observed, got.verdict, got.reason)
		}
	}
}
