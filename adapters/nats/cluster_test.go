package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/onceline/onceline/broker"
)

// cluster starts three servers.
func cluster(t *testing.T) []*server.Server {
	t.Helper()
	for try := 1; ; try++ {
		servers := startCluster(t)
		for begun := time.Now(); time.Since(begun) < mustCome/2; time.Sleep(5 * time.Millisecond) {
			if slices.ContainsFunc(servers, (*server.Server).JetStreamIsLeader) {
				return servers
			}
		}
		for _, s := range servers {
			s.Shutdown()
		}
		if try == 3 {
			t.Fatal("no leader, three times")
		}
		t.Log("no leader: somebody else may have got a port of the routes")
	}
}

// startCluster starts three servers that know each other by their ports, which were free
// a moment before.
func startCluster(t *testing.T) []*server.Server {
	t.Helper()
	var routes []*url.URL
	var free []net.Listener // until the servers take their ports, or two might have one
	ports := make([]int, 3)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = l.Addr().(*net.TCPAddr).Port
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		free = append(free, l)
	}
	servers := make([]*server.Server, 3)
	for i := range servers {
		o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
			ServerName: fmt.Sprintf("node%d", i), Routes: routes}
		o.Cluster.Name, o.Cluster.Host, o.Cluster.Port = "cluster", "127.0.0.1", ports[i]
		var err error
		if servers[i], err = server.NewServer(o); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range free {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range servers {
		s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	}
	return servers
}

// The leader of a replicated stream goes while messages flow both ways: after
// retries with the same IDs each message is stored once, and all are acked.
func TestLeaderLost(t *testing.T) {
	t.Parallel()
	servers := cluster(t)
	var hosts []string
	for _, s := range servers {
		hosts = append(hosts, s.Addr().String())
	}
	c := dialTo(t, "nats://"+strings.Join(hosts, ","), Replicas(3))
	e := entity(t)
	until(t, "the stream", func() bool { return c.Ensure(t.Context(), e) == nil })
	p, r := publisherOf(t, c, e.Topic), receiverOf(t, c, e.Subscription)

	const batches, size = 60, 20
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	came := make(chan map[string]bool, 1)
	var count atomic.Int64
	go func() {
		ids := map[string]bool{}
		defer func() { came <- ids }()
		for ctx.Err() == nil {
			ds, err := r.Receive(ctx, 50)
			if err != nil {
				continue // what doesn't heal ends with ctx, and the count tells
			}
			s := make([]broker.Settlement, len(ds))
			for i := range ds {
				ids[ds[i].ID] = true
				s[i].Delivery = &ds[i]
			}
			count.Store(int64(len(ids)))
			// An answer can be lost with the leader, and nobody says so. What
			// isn't acked comes again after its lease.
			try, done := context.WithTimeout(ctx, 500*time.Millisecond)
			_ = r.Settle(try, s)
			done()
		}
	}()
	stream, _, _ := splitSubscription(e.Subscription)
	for b := range batches {
		if b == batches/2 {
			s, err := connOf(t, c).js.Stream(ctx, stream)
			if err != nil {
				t.Fatal(err)
			}
			for _, node := range servers {
				if node.Name() == s.CachedInfo().Cluster.Leader {
					node.Shutdown()
				}
			}
		}
		ms := messages(size, fmt.Sprintf("b%d-", b))
		until(t, "the batch to be stored", func() bool {
			try, done := context.WithTimeout(ctx, 2*time.Second)
			defer done()
			_, err := p.Publish(try, ms...)
			if err != nil && !errors.Is(err, broker.ErrUnavailable) && !errors.Is(err, broker.ErrUnknownOutcome) {
				t.Errorf("not an error to retry: %v", err)
			}
			return err == nil
		})
	}
	// A new leader may not know yet what is pending: it has to have come, too.
	until(t, "all to be acked", func() bool {
		if count.Load() < batches*size {
			return false
		}
		k, err := connOf(t, c).js.Consumer(ctx, stream, "billing")
		return err == nil && k.CachedInfo().NumPending == 0 && k.CachedInfo().NumAckPending == 0
	})
	cancel()
	if ids := <-came; len(ids) != batches*size {
		t.Errorf("%d of %d came", len(ids), batches*size)
	}
	if n := stored(t, c, e.Topic); n != batches*size {
		t.Errorf("%d stored, want %d", n, batches*size)
	}
}
