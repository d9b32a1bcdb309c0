package conformance

import (
	"testing"
	"time"

	"github.com/onceline/onceline/broker/boundary"
)

func TestWhen(t *testing.T) {
	lease := &Bench{Target: &Target{Lease: 10 * time.Second, Patience: time.Second}}
	session := &Bench{Target: &Target{Session: 10 * time.Second, Patience: time.Second}}
	for _, c := range []struct {
		b     *Bench
		after time.Duration
		want  boundary.Answer
	}{
		{lease, 0, boundary.AtOnce},
		{lease, 7 * time.Second, boundary.AtOnce},
		{lease, 8 * time.Second, boundary.AfterLease}, // a lease is counted from before the hand-over
		{lease, 13 * time.Second, boundary.AfterLease},
		{lease, 14 * time.Second, boundary.Late},
		{session, 7 * time.Second, boundary.AtOnce},
		{session, 10 * time.Second, boundary.AfterSession},
		{session, 15 * time.Second, boundary.Late},
	} {
		if got := c.b.when(c.after, c.b.Target.Lease); got != c.want {
			t.Errorf("%s with %s: %s, want %s", c.after, c.b.bounds(c.b.Target.Lease), got, c.want)
		}
	}
}
