// Package facts asks Google's Pub/Sub emulator, and Google's Go client against that,
// for what the facts in docs/facts.md say and no documentation does. What the emulator
// answers is no measurement of the service; what the client does is one of the client.
package facts_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onceline/onceline/localstack"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"), // which the client's imports start once
		// A Receive of the client leaves this behind, which looks up every ten seconds.
		goleak.IgnoreTopFunction("cloud.google.com/go/pubsub/v2.(*messageIterator).streamKeepAliveHandler"))
}

func startEmulator(t *testing.T) localstack.Emulator {
	t.Helper()
	if os.Getenv("ONCELINE_LOCAL") != "1" {
		t.Skip("runs Google's emulator: needs ONCELINE_LOCAL=1")
	}
	e, err := localstack.StartPubSubEmulator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v", e.Versions())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

func inject(t *testing.T, e localstack.Emulator, f localstack.Fault) *localstack.Injection {
	t.Helper()
	i := e.Inject(f)
	if err := i.Err(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Remove)
	return i
}

// struck requires that a fault struck once, and the server applied what it struck.
func struck(t *testing.T, i *localstack.Injection) {
	t.Helper()
	if i.Hits() != 1 || i.Applied() != 1 {
		t.Errorf("%v: %d hits, %d applied", i.Fault(), i.Hits(), i.Applied())
	}
}

// until polls until ok is true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the test ended")
		}
	}
}
