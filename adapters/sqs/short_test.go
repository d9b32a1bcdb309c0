package sqs

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
)

// Connections that were lost are made again by calls of Publish and Receive that are
// each shorter than that takes: net/http goes on dialling when a request has left.
func TestConnectionByShortCalls(t *testing.T) {
	t.Parallel()
	for what, call := range map[string]func(ctx context.Context, p broker.Publisher, r broker.Receiver) bool{
		"publish": func(ctx context.Context, p broker.Publisher, _ broker.Receiver) bool {
			rs, _ := p.Publish(ctx, message("b"))
			return rs[0].Verdict.OK()
		},
		"receive": func(ctx context.Context, _ broker.Publisher, r broker.Receiver) bool {
			ds, _ := r.Receive(ctx, 1)
			return len(ds) > 0
		},
	} {
		var slow atomic.Bool
		var dials atomic.Int32
		var transport *http.Transport
		c := dialShared(t, WithTransport(func(rt http.RoundTripper) http.RoundTripper {
			transport = rt.(*http.Transport)
			dial := transport.DialContext
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
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
				return dial(ctx, network, address)
			}
			return rt
		}))
		e := entity(t)
		ensure(t, c, e)
		p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)
		publish(t, p, message("a"))
		ack(t, *receiveOne(t, r))
		publish(t, p, message("c"))
		slow.Store(true)
		transport.CloseIdleConnections()
		calls := 0
		for end := time.Now().Add(mustCome); ; calls++ {
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
			done := call(ctx, p, r)
			cancel()
			if done {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d calls did nothing; slow dials: %d", what, calls, dials.Load())
			}
		}
		if calls < 2 && what == "publish" || dials.Load() == 0 { // a pull is let go a while after its context
			t.Errorf("%s: done by call %d, slow dials: %d: the test shows nothing", what, calls, dials.Load())
		}
	}
}
