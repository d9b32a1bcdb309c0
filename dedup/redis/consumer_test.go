package redis_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/redis"
	"github.com/redis/rueidis"
)

// consumerURL names the server for a process that handles one message and stops where
// consumerStop says, until it gets a line.
const (
	consumerURL  = "ONCELINE_REDIS_CONSUMER"
	consumerStop = "ONCELINE_REDIS_CONSUMER_STOP"
)

// consumerLease is short, so that the tests needn't wait long for its end.
const consumerLease = 500 * time.Millisecond

// destination is what effects go to: a counter for each message, which refuses a fence
// that is lower than one it has seen.
const destination = `local seen = tonumber(redis.call('GET', KEYS[1] .. ':fence') or '0')
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('SET', KEYS[1] .. ':fence', ARGV[1])
redis.call('INCR', KEYS[1])
return 1`

func apply(ctx context.Context, client rueidis.Client, id string, fence int64) ([]byte, error) {
	n, err := client.Do(ctx, client.B().Eval().Script(destination).Numkeys(1).Key("effect:"+id).Arg(fmt.Sprint(fence)).Build()).AsInt64()
	if err == nil && n == 0 {
		err = fmt.Errorf("the destination refuses the fence %d", fence)
	}
	return []byte("by " + fmt.Sprint(os.Getpid())), err
}

// consume is what the process does.
func consume() error {
	ctx := context.Background()
	option, err := rueidis.ParseURL(os.Getenv(consumerURL))
	if err != nil {
		return err
	}
	option.DisableCache, option.ForceSingleClient = true, true
	client, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer client.Close()
	s, err := redis.New(ctx, client, redis.Options{})
	if err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	stop := func(where string) {
		if where == os.Getenv(consumerStop) {
			fmt.Println(where)
			in.Scan()
		}
	}
	stop("before claim")
	l := dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: consumerLease})
	outcome, _, err := l.Once(ctx, byID("m"), func(ctx context.Context, fence int64) ([]byte, error) {
		stop("after claim")
		result, err := apply(context.WithoutCancel(ctx), client, "m", fence)
		stop("after effect")
		return result, err
	})
	stop("after record")
	fmt.Println("outcome:", outcome, err)
	return nil
}

// startConsumer runs the process until it stops there.
func startConsumer(t *testing.T, url, where string) (cmd *exec.Cmd, lines *bufio.Scanner, goOn func()) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), consumerURL+"="+url, consumerStop+"="+where)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if lines = bufio.NewScanner(out); !lines.Scan() || lines.Text() != where {
		t.Fatalf("the consumer says %q", lines.Text())
	}
	return cmd, lines, func() {
		if _, err := fmt.Fprintln(stdin); err != nil {
			t.Error(err)
		}
	}
}

// handled handles the message until it may be acked, and returns how often it was
// told that another is at it.
func handled(t *testing.T, l *dedup.Lease, client rueidis.Client, want dedup.Outcome) (waited int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; waited++ {
		outcome, _, err := l.Once(t.Context(), byID("m"), func(ctx context.Context, fence int64) ([]byte, error) {
			return apply(ctx, client, "m", fence)
		})
		if outcome == dedup.InFlight && time.Now().Before(deadline) {
			continue
		}
		if outcome != want {
			t.Errorf("%v: %v; want %v", outcome, err, want)
		}
		return waited
	}
}

// TestCaseCrashPoints: a consumer is killed at each point, and the message comes
// again: never lost, and its effect is repeated only after a crash between the effect
// and its record (mikenelsonjr/Accelerators#13).
func TestCaseCrashPoints(t *testing.T) {
	db := start(t)
	client := connect(t, db)
	l := dedup.NewLease(open(t, client, redis.Options{}), "c", dedup.LeaseOptions{Lease: consumerLease})
	for where, want := range map[string]struct {
		outcome dedup.Outcome
		effects string
		waits   bool
	}{
		"before claim": {dedup.Applied, "1", false},
		"after claim":  {dedup.Applied, "1", true},
		"after effect": {dedup.Applied, "2", true}, // unless the destination knows it by the message's ID
		"after record": {dedup.Duplicate, "1", false},
	} {
		t.Run(where, func(t *testing.T) {
			do(t, client, "FLUSHALL")
			cmd, lines, _ := startConsumer(t, db.URL(), where)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for lines.Scan() {
				t.Errorf("after it was killed the consumer says %q", lines.Text())
			}
			_ = cmd.Wait()
			if waited := handled(t, l, client, want.outcome); waited > 0 != want.waits {
				t.Errorf("was told %d times that another is at it", waited)
			}
			handled(t, l, client, dedup.Duplicate)
			if got := do(t, client, "GET", "effect:m"); got != want.effects {
				t.Errorf("%s effects, want %s", got, want.effects)
			}
		})
	}
}
