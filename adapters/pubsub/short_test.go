package pubsub

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
)

// A connection that was lost is made again by calls of Publish and Receive that are
// each shorter than that takes: gRPC makes it for itself.
func TestConnectionByShortCalls(t *testing.T) {
	var slow atomic.Bool
	var dials atomic.Int32
	var mu sync.Mutex
	var conns []net.Conn
	x := endsWith(t, []Option{ClientOptions(option.WithGRPCDialOption(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		if slow.Load() {
			dials.Add(1)
			wait := time.NewTimer(150 * time.Millisecond)
			defer wait.Stop()
			select {
			case <-wait.C:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, c)
		}
		return c, err
	})))})
	publish(t, x.pub, message("a"))
	ack(t, x.rcv, receiveAll(t, x.rcv, 1)...)
	for what, call := range map[string]func(ctx context.Context) bool{
		"publish": func(ctx context.Context) bool {
			rs, _ := x.pub.Publish(ctx, message("b"))
			return rs[0].Verdict.OK()
		},
		"receive": func(ctx context.Context) bool {
			ds, _ := x.rcv.Receive(ctx, 1)
			return len(ds) > 0
		},
	} {
		publish(t, x.pub, message("c"))
		slow.Store(true)
		mu.Lock()
		for _, c := range conns {
			_ = c.Close() // it may be closed
		}
		mu.Unlock()
		calls := 0
		for end := time.Now().Add(mustCome); ; calls++ {
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
			done := call(ctx)
			cancel()
			if done {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d calls did nothing; slow dials: %d", what, calls, dials.Load())
			}
		}
		if calls < 2 || dials.Load() == 0 {
			t.Errorf("%s: done by call %d, slow dials: %d: the test shows nothing", what, calls, dials.Load())
		}
		slow.Store(false)
	}
}
