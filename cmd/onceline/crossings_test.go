package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack"
)

// TestCrossings: the bridge is killed at each step, and the brokers restart under it;
// each message is at the far side once, in the order of its key.
func TestCrossings(t *testing.T) {
	t.Parallel()
	for _, c := range crossings() {
		t.Run(c.name, func(t *testing.T) {
			c.needs(t)
			t.Parallel()
			few := 100
			if c.source.Ordered {
				few = 15 // one at a time
			}
			c.start(t, 3*few, 20)
			began := time.Now()
			far := c.source1
			if far != nil {
				c.killAt(far, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseRequest})
				c.killAt(far, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse})
			}
			if c.to == localstack.KafkaName { // prepared and noted, and committed or not
				c.publish(few)
				c.killAt(far, localstack.Fault{API: "EndTxn", Kind: localstack.LoseRequest})
				c.killAt(far, localstack.Fault{API: "EndTxn", Kind: localstack.LoseResponse})
			}
			c.publish(few)
			c.killAt(c.source0, localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseRequest})
			if !c.noSettleAnswer {
				c.publish(few)
				c.killAt(c.source0, localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseResponse})
			}
			t.Logf("killed %d times in %v", c.killed, time.Since(began))
			c.publish(few)
			p := c.bridge()
			if far != nil {
				if err := far.Restart(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if err := c.source0.Restart(t.Context()); err != nil {
				t.Error(err)
			}
			p.kill(t)
			c.finish()
			t.Logf("%d messages, killed %d times, in %v", c.published, c.killed, time.Since(began))
		})
	}
}

// movedBy is the number of messages in the last line that a bridge printed.
func movedBy(stdout string) (n uint64) {
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	_, _ = fmt.Sscanf(lines[len(lines)-1], "moved %d ", &n)
	return n
}

// works reports whether a bridge or its relay has moved something.
func works(stdout string) bool {
	return movedBy(stdout) > 0 || strings.Contains(stdout, "relay: sent ") && !strings.Contains(stdout[strings.LastIndex(stdout, "moved "):], "relay: sent 0 ")
}

// TestCrossingsAtLength: so many messages as the variable says, killed every two seconds.
func TestCrossingsAtLength(t *testing.T) {
	t.Parallel()
	n, _ := strconv.Atoi(os.Getenv("ONCELINE_BRIDGE"))
	if n == 0 {
		t.Skip("set ONCELINE_BRIDGE to a number of messages, such as 100000")
	}
	only := os.Getenv("ONCELINE_BRIDGE_PAIR")
	for _, c := range crossings() {
		if !strings.Contains(c.name, only) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			c.needs(t)
			c.start(t, n, 200)
			began := time.Now()
			moved, told := uint64(0), time.Now()
			for ended := false; !ended; {
				p := c.bridge("--drain", "--wait", "8s", "--every", "100ms")
				// It is killed while it works, and not while it finds that nothing is left.
				var alarm <-chan time.Time
				for alive := true; alive; {
					select {
					case err := <-p.ended:
						if err != nil {
							t.Fatalf("%v: %s", err, p.stderr)
						}
						alive, ended = false, true
					case <-p.stdout.more:
						if alarm == nil && works(p.stdout.String()) {
							alarm = time.After(time.Duration((0.5 + 3*rand.Float64()) * float64(time.Second)))
						}
					case <-alarm:
						p.kill(t)
						c.killed++
						alive = false
					}
				}
				moved += movedBy(p.stdout.String())
				if time.Since(told) > 10*time.Second {
					told = time.Now()
					t.Logf("%4.0f s: %d moves, killed %d times", time.Since(began).Seconds(), moved, c.killed)
				}
			}
			took := time.Since(began)
			c.check()
			t.Logf("%d messages in %v, %d moves, killed %d times", c.published, took, moved, c.killed)
		})
	}
}
