package kafka

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
)

// Connections that were lost are made again by calls of Publish and Receive that are
// each shorter than that takes: franz-go makes them for itself, and so does a member of
// a share group.
func TestConnectionByShortCalls(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]Mode{"group": Group, "share": Share} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var slow atomic.Bool
			var dials atomic.Int32
			c, w := cluster(t, 1)
			change := func(o *Options) {
				o.Mode = mode
				o.Client = append(o.Client, kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
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
					return new(net.Dialer).DialContext(ctx, network, address)
				}))
			}
			conn := dial(t, c, change)
			if mode == Share {
				conn = shareConn(t, c, change)
			}
			p, r := openPublisher(t, conn, "t"), openReceiver(t, conn, "t/g")
			publish(t, p, messages(1, 0)...)
			settle(t, r, broker.Ack, receive(t, r, 1)...)
			for _, each := range []struct {
				what string
				call func(ctx context.Context) bool
			}{
				{"publish", func(ctx context.Context) bool {
					rs, _ := p.Publish(ctx, messages(1, 1)...)
					return rs[0].Verdict.OK()
				}},
				{"receive", func(ctx context.Context) bool { // last: Close needs its connection
					ds, _ := r.Receive(ctx, 1)
					return len(ds) > 0
				}},
			} {
				what, call := each.what, each.call
				publish(t, p, messages(1, 2)...)
				slow.Store(true)
				w.cut()
				calls := 0
				for end := time.Now().Add(mustCome); ; calls++ {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					done := call(ctx)
					cancel()
					if done {
						break
					}
					if time.Now().After(end) {
						t.Fatalf("%s: %d calls did nothing; slow dials: %d", what, calls, dials.Load())
					}
				}
				if calls < 2 && what == "publish" || dials.Load() == 0 {
					t.Errorf("%s: done by call %d, slow dials: %d: the test shows nothing", what, calls, dials.Load())
				}
				slow.Store(false)
			}
		})
	}
}
