//go:build unix

package postgres_test

import (
	"syscall"
	"testing"
)

// TestConsumerFrozen: a consumer is stopped in the middle for longer than its session
// lives, another one takes over, and then the first goes on.
func TestConsumerFrozen(t *testing.T) {
	t.Parallel()
	db := start(t)
	p := connect(t, db, 1)
	for round := range 5 {
		_, schema := open(t, p, consumerOptions(""))
		frozen := startConsumer(t, db.URL(), schema)
		for effectsOnce(t, p, schema) == 0 { // so that it is in the middle
		}
		if err := frozen.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		before := effectsOnce(t, p, schema)
		if !startConsumer(t, db.URL(), schema).ends() {
			t.Error("the one that took over was not done")
		}
		if n := effectsOnce(t, p, schema); n != len(consumed) {
			t.Errorf("%d messages have effects, want %d", n, len(consumed))
		}
		if err := frozen.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if !frozen.ends() {
			t.Error("the one that was frozen was not done")
		}
		effectsOnce(t, p, schema)
		t.Logf("round %d: frozen after %d of %d", round, before, len(consumed))
	}
}
