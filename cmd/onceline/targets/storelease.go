package targets

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/redis"
)

// probeLease is how long a store's reservation holds in a probe: how long the next
// consumer waits after a crash.
const probeLease = 400 * time.Millisecond

// leaseStores are those in Redis; nil for no server.
func leaseStores(server *storeServer) []conformance.Store {
	var stores []conformance.Store
	for _, kind := range []string{conformance.Lease, conformance.LeaseFenced} {
		stores = append(stores, conformance.Store{Kind: kind, Name: "redis", Make: server.make,
			Open: func(ctx context.Context, address string) (conformance.Guard, error) {
				return openLease(ctx, address, kind == conformance.LeaseFenced)
			}})
	}
	return stores
}

// lease is a lease whose effects take place in the same Redis, by commands of their
// own.
type lease struct {
	*dedup.Lease
	*losingLease
	client rueidis.Client
	prefix string
	fenced bool
}

func openLease(ctx context.Context, address string, fenced bool) (conformance.Guard, error) {
	u, name, err := nameIn(address)
	if err != nil {
		return nil, err
	}
	// A consumer that was frozen for longer than a client waits for its own ping would
	// find the connection closed, and not do what it was about to.
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{u.Host}, DisableCache: true, ForceSingleClient: true,
		ConnWriteTimeout: time.Minute, Dialer: net.Dialer{Timeout: 5 * time.Second, KeepAlive: -1}})
	if err != nil {
		return nil, err
	}
	prefix := name + ":"
	store, err := redis.New(ctx, client, redis.Options{Prefix: prefix, Window: time.Hour})
	if err != nil {
		client.Close()
		return nil, err
	}
	l := &losingLease{LeaseDriver: store}
	return &lease{dedup.NewLease(l, "probe", dedup.LeaseOptions{Lease: probeLease}), l, client, prefix, fenced}, nil
}

// Apply implements [conformance.Guard].
func (l *lease) Apply(ctx context.Context, m broker.Message, _ broker.Position, step func(conformance.Step)) error {
	outcome, _, err := l.Once(ctx, dedup.Key{ID: m.ID}, func(_ context.Context, fence int64) ([]byte, error) {
		step(conformance.Claimed)
		step(conformance.Begun)
		// A consumer that froze here doesn't look at its lease before it goes on.
		if err := l.destination(context.WithoutCancel(ctx), m.ID, fence); err != nil {
			return nil, err
		}
		step(conformance.Applied)
		return []byte("done"), nil
	})
	return answer(outcome, err)
}

// applyFenced is a destination that remembers the highest fencing number of a message
// and refuses lower ones.
const applyFenced = `local highest = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < highest then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('INCR', KEYS[2])
return 1`

// destination is where the effect takes place.
func (l *lease) destination(ctx context.Context, id string, fence int64) error {
	if !l.fenced {
		return l.client.Do(ctx, l.client.B().Incr().Key(l.effects(id)).Build()).Error()
	}
	taken, err := l.client.Do(ctx, l.client.B().Eval().Script(applyFenced).Numkeys(2).
		Key("{"+l.effects(id)+"}fence", l.effects(id)).Arg(fmt.Sprint(fence)).Build()).AsInt64()
	if err == nil && taken == 0 {
		err = fmt.Errorf("%w: the destination refuses the fencing number %d", broker.ErrLeaseLost, fence)
	}
	return err
}

func (l *lease) effects(id string) string { return l.prefix + "effects:" + id }

// Effects implements [conformance.Guard].
func (l *lease) Effects(ctx context.Context, id string) (int, error) {
	n, err := l.client.Do(ctx, l.client.B().Get().Key(l.effects(id)).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return 0, nil
	}
	return int(n), err
}

// Close implements [conformance.Guard].
func (l *lease) Close() error {
	l.client.Close()
	return nil
}

// losingLease can lose the answer to a record that was written.
type losingLease struct {
	dedup.LeaseDriver
	lose atomic.Bool
}

// LoseAnswer implements [conformance.Guard].
func (l *losingLease) LoseAnswer() func() bool { return arm(&l.lose) }

func (l *losingLease) Complete(ctx context.Context, rs []*dedup.Reservation) {
	l.LeaseDriver.Complete(ctx, rs)
	if len(rs) > 0 && rs[0].Err == nil && l.lose.Swap(false) {
		rs[0].Err = fmt.Errorf("%w: by the probe", dedup.ErrLost)
	}
}
