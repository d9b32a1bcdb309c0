package nats

import (
	"context"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
)

// A connection that was lost is made again while calls of Publish and Receive come that
// are each shorter than that takes: nats.go makes it for itself.
func TestConnectionByShortCalls(t *testing.T) {
	c, _, p, r := ends(t)
	publish(t, p, message("a"))
	ack(t, *receiveOne(t, r))
	for what, call := range map[string]func(ctx context.Context) bool{
		"publish": func(ctx context.Context) bool {
			rs, _ := p.Publish(ctx, message("b"))
			return rs[0].Verdict.OK()
		},
		"receive": func(ctx context.Context) bool {
			ds, _ := r.Receive(ctx, 1)
			return len(ds) > 0
		},
	} {
		publish(t, p, message("c"+what))
		nc := client(t, c)
		before := nc.Stats().Reconnects
		if err := nc.ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		until(t, what+": the connection is lost", func() bool { return nc.Status() == natsgo.RECONNECTING || nc.Stats().Reconnects > before })
		calls := 0
		for end := time.Now().Add(mustCome); ; calls++ {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			done := call(ctx)
			cancel()
			if done {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d calls did nothing", what, calls)
			}
		}
		if nc.Stats().Reconnects == before {
			t.Errorf("%s: done by call %d, over a connection that wasn't lost", what, calls)
		}
	}
}
