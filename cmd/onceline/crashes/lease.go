package crashes

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/rueidis"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/redis"
)

// openRedis connects to the server at an address.
func openRedis(address string, w *wires) (rueidis.Client, error) {
	o, err := rueidis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	o.DisableCache, o.ForceSingleClient = true, true
	o.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return w.dial(ctx, "tcp", addr)
	}
	return rueidis.NewClient(o)
}

// hookedLeases stop before the record that an effect is done, and in its writing.
type hookedLeases struct {
	dedup.LeaseDriver
	w     *worker
	wires *wires
}

func (h hookedLeases) Complete(ctx context.Context, rs []*dedup.Reservation) {
	if len(rs) > 0 {
		h.w.commits(h.wires)
	}
	h.LeaseDriver.Complete(ctx, rs)
}

// lease is a lease whose effects take place elsewhere. Whether the destination compares
// their numbers is its own business.
func lease(ctx context.Context, w *worker, _ *database) (*guard, error) {
	lines := newWires(w, "complete")
	client, err := openRedis(w.spec.Address, lines)
	if err != nil {
		return nil, err
	}
	s, err := redis.New(ctx, client, redis.Options{Prefix: w.spec.Cell + ":"})
	if err != nil {
		client.Close()
		return nil, err
	}
	l := dedup.NewLease(hookedLeases{s, w, lines}, "consumer", dedup.LeaseOptions{Lease: storeLease, Attempts: 5, Backoff: quick.Backoff})
	return &guard{handle: dedup.LeaseHandler(l, func(_ context.Context, fence int64, m *broker.Delivery) ([]byte, error) {
		// One that was frozen doesn't look at its lease before it goes on.
		return []byte("done"), w.outside(m.ID, "", fence)
	}, dedup.RetryDelay(retryDelay)), cut: lines.cut, close: func() error { client.Close(); return nil }}, nil
}

// errReserved: somebody else is at it.
var errReserved = errors.New("reserved by another")

// wrongLease is a lease by SET NX, for seconds, that is given back by DEL.
func wrongLease(seconds int, gives bool) func(context.Context, *worker, *database) (*guard, error) {
	return func(_ context.Context, w *worker, _ *database) (*guard, error) {
		lines := newWires(w, "complete")
		client, err := openRedis(w.spec.Address, lines)
		if err != nil {
			return nil, err
		}
		do := func(ctx context.Context, words ...string) (string, error) {
			answer, err := client.Do(ctx, client.B().Arbitrary(words[0]).Args(words[1:]...).Build()).ToString()
			if rueidis.IsRedisNil(err) {
				return "", nil
			}
			return answer, err
		}
		handle := func(ctx context.Context, m *broker.Delivery) error {
			key, until := w.spec.Cell+":"+m.ID, time.Now().Add(time.Duration(seconds)*time.Second)
			got, err := do(ctx, "SET", key, "PROCESSING", "NX", "EX", fmt.Sprint(seconds))
			if err != nil {
				return broker.Postpone(err, retryDelay)
			}
			if got == "" {
				switch state, err := do(ctx, "GET", key); {
				case err != nil:
					return broker.Postpone(err, retryDelay)
				case state == "DONE":
					return nil
				}
				return broker.Postpone(errReserved, retryDelay)
			}
			w.reach(AfterClaim, m.ID)
			if gives && time.Now().After(until) { // too late, so it gives back what it takes for its own
				_, err = do(ctx, "DEL", key)
				return broker.Postpone(errors.Join(errors.New("given back"), err), retryDelay)
			}
			if err = w.outside(m.ID, "", 0); err == nil {
				_, err = do(ctx, "SET", key, "DONE", "EX", "86400")
			}
			return err
		}
		return &guard{handle: handle, cut: lines.cut, close: func() error { client.Close(); return nil }}, nil
	}
}
