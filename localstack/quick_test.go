package localstack_test

import (
	"context"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack"
)

// All emulators are up in under 100 ms. The best of five counts: what else the
// machine does is not theirs.
func TestStartIsQuick(t *testing.T) {
	best := time.Hour
	for range 5 {
		start := time.Now()
		s, err := localstack.Start(t.Context())
		took := time.Since(start)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		best = min(best, took)
	}
	if best > 100*time.Millisecond {
		t.Errorf("started in %s at best", best)
	}
	t.Logf("started in %s at best", best)
}
