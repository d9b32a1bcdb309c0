package ratios

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/redis/rueidis"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/redis"
	"github.com/onceline/onceline/localstack"
)

func redisGroup(o *Options) group {
	beside := func(fsync string, times int) func(context.Context, *redisBench) (sample, error) {
		return func(ctx context.Context, x *redisBench) (sample, error) {
			if err := x.client.Do(ctx, x.client.B().ConfigSet().ParameterValue().ParameterValue("appendfsync", fsync).Build()).Error(); err != nil {
				return sample{}, err
			}
			return pairs(ctx, o.Pairs, 1, x.singles(200), x.batches(100, times))
		}
	}
	return &groupOf[*redisBench]{"Redis", func(ctx context.Context, o *Options) (*redisBench, error) { return newRedisBench(ctx) },
		[]measurement[*redisBench]{
			{Promise{Name: "redis.pipelined", What: "lease, batches of 100, beside one message at a time; appendfsync everysec", Bound: 10, Unit: "×"}, beside("everysec", 20)},
			{Promise{Name: "redis.pipelined-always", What: "the same with appendfsync always, by which a crash loses nothing that was answered", Bound: 10, Unit: "×"}, beside("always", 20)},
		}}
}

// redisBench is a server and a store on it.
type redisBench struct {
	server *localstack.Database
	client rueidis.Client
	l      *dedup.Lease
	next   int
}

func newRedisBench(ctx context.Context) (x *redisBench, err error) {
	x = new(redisBench)
	if x.server, err = localstack.StartRedis(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.close())
		}
	}()
	option, err := rueidis.ParseURL(x.server.URL())
	if err != nil {
		return x, err
	}
	option.DisableCache, option.ForceSingleClient = true, true
	proxied, err := rueidis.NewClient(option)
	if err != nil {
		return x, err
	}
	said, err := proxied.Do(ctx, proxied.B().ConfigGet().Parameter("port").Build()).AsStrMap()
	proxied.Close()
	if err != nil {
		return x, err
	}
	option.InitAddress = []string{net.JoinHostPort("127.0.0.1", said["port"])} // past the proxy
	if x.client, err = rueidis.NewClient(option); err != nil {
		return x, err
	}
	s, err := redis.New(ctx, x.client, redis.Options{})
	if err != nil {
		return x, err
	}
	x.l = dedup.NewLease(s, "c", dedup.LeaseOptions{})
	return x, nil
}

func (x *redisBench) close() error {
	if x.client != nil {
		x.client.Close()
	}
	return x.server.Close(context.Background())
}

func (x *redisBench) keys(n int) []dedup.Key {
	keys := make([]dedup.Key, n)
	for i := range keys {
		x.next++
		keys[i] = key(x.next)
	}
	return keys
}

func (x *redisBench) singles(n int) way {
	return way{n, func(ctx context.Context) error {
		for _, k := range x.keys(n) {
			outcome, _, err := x.l.Once(ctx, k, func(context.Context, int64) ([]byte, error) { return nil, nil })
			if outcome != dedup.Applied {
				return fmt.Errorf("a message is %v: %w", outcome, err)
			}
		}
		return nil
	}}
}

func (x *redisBench) batches(size, times int) way {
	return way{size * times, func(ctx context.Context) error {
		for range times {
			for _, r := range x.l.OnceBatch(ctx, x.keys(size), func(context.Context, int, int64) ([]byte, error) { return nil, nil }) {
				if r.Outcome != dedup.Applied {
					return fmt.Errorf("a message is %v: %w", r.Outcome, r.Err)
				}
			}
		}
		return nil
	}}
}
