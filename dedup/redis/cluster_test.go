package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/servertest"
	"github.com/onceline/onceline/dedup/redis"
	"github.com/onceline/onceline/localstack"
	"github.com/redis/rueidis"
)

// TestCluster: what holds on one server holds on three that share the keys.
func TestCluster(t *testing.T) {
	cluster := servertest.RedisCluster(t)
	client := connectCluster(t, cluster, false)
	if len(client.Nodes()) != 3 || client.Mode() != rueidis.ClientModeCluster {
		t.Fatalf("%d nodes, %v", len(client.Nodes()), client.Mode())
	}
	for name, test := range map[string]func(*testing.T, rueidis.Client){
		"Lease": lease, "Takeover": takeover, "Copies": copies, "Spread": spread,
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, client, "FLUSHALL")
			test(t, client)
		})
	}
	t.Run("OneNode", func(t *testing.T) {
		onEach(t, client, "FLUSHALL")
		oneNode(t, connectCluster(t, cluster, true))
	})
	t.Run("NodeDown", func(t *testing.T) { nodeDown(t, cluster, client) })
}

// connectCluster connects to a cluster, or to its first node as if that were all.
func connectCluster(t *testing.T, cluster *localstack.RedisCluster, alone bool) rueidis.Client {
	t.Helper()
	option, err := rueidis.ParseURL(cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	option.DisableCache, option.ForceSingleClient = true, alone
	if alone {
		option.InitAddress = option.InitAddress[:1]
	}
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// spread: a batch goes to all nodes, and each key is applied once.
func spread(t *testing.T, client rueidis.Client) {
	l := dedup.NewLease(open(t, client, redis.Options{}), "c", dedup.LeaseOptions{})
	keys := make([]dedup.Key, 200)
	for i := range keys {
		keys[i] = byID(strconv.Itoa(i))
	}
	effects := 0
	for _, want := range []dedup.Outcome{dedup.Applied, dedup.Duplicate} {
		for i, r := range l.OnceBatch(t.Context(), keys, func(_ context.Context, i int, _ int64) ([]byte, error) {
			effects++
			return []byte(strconv.Itoa(i)), nil
		}) {
			if r.Outcome != want || string(r.Result) != strconv.Itoa(i) {
				t.Errorf("%d: %v, %q: %v", i, r.Outcome, r.Result, r.Err)
			}
		}
	}
	if effects != len(keys) {
		t.Errorf("%d effects", effects)
	}
	total := int64(0)
	for name, node := range client.Nodes() {
		n, err := node.Do(t.Context(), node.B().Dbsize().Build()).AsInt64()
		if err != nil || n < 20 {
			t.Errorf("%s has %d keys, %v", name, n, err)
		}
		total += n
	}
	if total != int64(len(keys)) {
		t.Errorf("%d records", total)
	}
}

// oneNode: a client that takes a node for all there is gets the keys of that node, and
// for the others the answer that they can't be had, never one of another key.
func oneNode(t *testing.T, client rueidis.Client) {
	l := dedup.NewLease(open(t, client, redis.Options{}), "c", dedup.LeaseOptions{Attempts: 1})
	keys := make([]dedup.Key, 60)
	for i := range keys {
		keys[i] = byID(strconv.Itoa(i))
	}
	applied := map[int]bool{}
	for turn, want := range []dedup.Outcome{dedup.Applied, dedup.Duplicate} {
		for i, r := range l.OnceBatch(t.Context(), keys, func(context.Context, int, int64) ([]byte, error) { return nil, nil }) {
			switch {
			case r.Outcome == want && (turn == 0 || applied[i]):
				applied[i] = true
			case r.Outcome == dedup.Unknown && errors.Is(r.Err, dedup.ErrLost) && !applied[i]:
			default:
				t.Errorf("%d: %v: %v", i, r.Outcome, r.Err)
			}
		}
	}
	if len(applied) == 0 || len(applied) == len(keys) {
		t.Errorf("%d of %d are the node's", len(applied), len(keys))
	}
}

// nodeDown: while a node is down, messages whose keys it has wait; when it is back with
// what it had written, each has had its effect once.
func nodeDown(t *testing.T, cluster *localstack.RedisCluster, client rueidis.Client) {
	l := dedup.NewLease(open(t, client, redis.Options{Timeout: time.Second}), "down", dedup.LeaseOptions{Attempts: 100})
	ids := make([]dedup.Key, 30)
	for i := range ids {
		ids[i] = byID(fmt.Sprint("m", i))
	}
	effects := make([]int, len(ids))
	for _, want := range []dedup.Outcome{dedup.Applied, dedup.Duplicate} {
		for i, r := range l.OnceBatch(t.Context(), ids, func(_ context.Context, i int, _ int64) ([]byte, error) {
			if effects[i]++; i == len(ids)/2 { // after its effect, and before the records
				if err := cluster.Nodes()[0].Kill(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}
			return nil, nil
		}) {
			if r.Outcome != want {
				t.Errorf("%d: %v: %v", i, r.Outcome, r.Err)
			}
		}
	}
	for i, n := range effects {
		if n != 1 {
			t.Errorf("%d effects of %d", n, i)
		}
	}
	if err := cluster.Await(t.Context()); err != nil {
		t.Error(err)
	}
}
