//go:build unix

package redis_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/redis"
)

// TestCaseFrozen: a consumer is stopped beyond its lease and replaced; when it goes on
// it changes neither the record nor, by its fence, the destination
// (riverqueue/river#62).
func TestCaseFrozen(t *testing.T) {
	db := start(t)
	client := connect(t, db)
	l := dedup.NewLease(open(t, client, redis.Options{}), "c", dedup.LeaseOptions{Lease: consumerLease})
	cmd, lines, goOn := startConsumer(t, db.URL(), "after claim")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if waited := handled(t, l, client, dedup.Applied); waited == 0 {
		t.Error("didn't wait for the lease")
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	goOn()
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "outcome: unknown") || !strings.Contains(lines.Text(), "lease lost") || !strings.Contains(lines.Text(), "the destination refuses the fence") {
		t.Errorf("the consumer says %q", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	handled(t, l, client, dedup.Duplicate)
	if got := do(t, client, "GET", "effect:m"); got != "1" {
		t.Errorf("%s effects", got)
	}
}
