package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/redis"
)

// TestVerify: a server that may evict is refused, with what to change.
func TestVerify(t *testing.T) {
	client := connect(t, start(t))
	for _, policy := range []string{"allkeys-lru", "volatile-ttl", "volatile-lru", "allkeys-random"} {
		do(t, client, "CONFIG", "SET", "maxmemory-policy", policy)
		if _, err := redis.New(t.Context(), client, redis.Options{}); !errors.Is(err, dedup.ErrVerify) || !strings.Contains(err.Error(), "maxmemory-policy is "+policy) || !strings.Contains(err.Error(), "noeviction") {
			t.Errorf("%s: %v", policy, err)
		}
	}
	do(t, client, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	s := open(t, client, redis.Options{})
	do(t, client, "CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
	if err := s.Verify(t.Context()); !errors.Is(err, dedup.ErrVerify) {
		t.Errorf("changed meanwhile: %v", err)
	}
}

func TestOptions(t *testing.T) {
	if _, err := redis.New(t.Context(), nil, redis.Options{}); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
	client := connect(t, start(t))
	for _, o := range []redis.Options{
		{Window: -1}, {Timeout: -1}, {Prefix: "a{b}:"}, {Window: time.Hour, Horizon: dedup.Horizon{Redelivery: 2 * time.Hour}},
	} {
		if _, err := redis.New(t.Context(), client, o); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := redis.New(ctx, client, redis.Options{}); !errors.Is(err, dedup.ErrLost) {
		t.Errorf("ended context: %v", err)
	}
}

// TestFull: a server that is full lets nobody in, and keeps what it has (RED-F-05).
func TestFull(t *testing.T) {
	client := connect(t, start(t))
	l := dedup.NewLease(open(t, client, redis.Options{}), "c", dedup.LeaseOptions{Attempts: 2})
	effect := func(context.Context, int64) ([]byte, error) { return nil, nil }
	if outcome, _, err := l.Once(t.Context(), byID("before"), effect); outcome != dedup.Applied {
		t.Fatal(outcome, err)
	}
	do(t, client, "CONFIG", "SET", "maxmemory", "1")
	outcome, _, err := l.Once(t.Context(), byID("full"), func(context.Context, int64) ([]byte, error) {
		t.Error("ran without a reservation")
		return nil, nil
	})
	if outcome != dedup.Unknown || !errors.Is(err, broker.ErrBusy) {
		t.Errorf("%v: %v", outcome, err)
	}
	do(t, client, "CONFIG", "SET", "maxmemory", "0")
	for id, want := range map[string]dedup.Outcome{"before": dedup.Duplicate, "full": dedup.Applied} {
		if outcome, _, err := l.Once(t.Context(), byID(id), effect); outcome != want {
			t.Errorf("%s: %v: %v", id, outcome, err)
		}
	}
}

// TestEvicted shows what the refusal is for: a server that evicts takes records of
// what is done, and lets their copies in (RED-F-04).
func TestEvicted(t *testing.T) {
	client := connect(t, start(t))
	s := open(t, client, redis.Options{})
	l := dedup.NewLease(s, "c", dedup.LeaseOptions{})
	var keys []dedup.Key
	for i := range 1000 {
		keys = append(keys, byID(fmt.Sprint("m", i)))
	}
	apply := func() (applied int) {
		for _, r := range l.OnceBatch(t.Context(), keys, func(context.Context, int, int64) ([]byte, error) { return nil, nil }) {
			if r.Outcome == dedup.Applied {
				applied++
			} else if r.Outcome != dedup.Duplicate {
				t.Errorf("%v: %v", r.Outcome, r.Err)
			}
		}
		return applied
	}
	if n := apply(); n != len(keys) {
		t.Fatalf("%d applied", n)
	}
	if n := apply(); n != 0 {
		t.Fatalf("%d applied again", n)
	}
	do(t, client, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	do(t, client, "CONFIG", "SET", "maxmemory", "1")
	do(t, client, "CONFIG", "SET", "maxmemory", "0")
	if err := s.Verify(t.Context()); !errors.Is(err, dedup.ErrVerify) {
		t.Errorf("verify: %v", err)
	}
	if n := apply(); n == 0 {
		t.Error("the anomaly doesn't show: nothing was evicted")
	}
}
