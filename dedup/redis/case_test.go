package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/redis"
)

// TestCaseWindowIsFixed: the window of a message that is done runs from its record;
// copies that come don't prolong it (nats-io/nats-server#7302), and after it the first
// copy that comes is the first of a new one, of which the next is a duplicate
// (agentscope-ai/agentscope-java#3175).
func TestCaseWindowIsFixed(t *testing.T) {
	client := connect(t, start(t))
	const window = 400 * time.Millisecond
	s := open(t, client, redis.Options{Window: window})
	l := dedup.NewLease(s, "c", dedup.LeaseOptions{})
	effects := 0
	once := func() dedup.Outcome {
		outcome, _, err := l.Once(t.Context(), byID("m"), func(context.Context, int64) ([]byte, error) { effects++; return nil, nil })
		if !outcome.OK() {
			t.Fatalf("%v: %v", outcome, err)
		}
		return outcome
	}
	began := time.Now()
	once()
	done := time.Now()
	for once() == dedup.Duplicate {
		if time.Since(done) > 20*time.Second {
			t.Fatal("the copies prolong the window")
		}
	}
	if took := time.Since(began); took < window || effects != 2 {
		t.Errorf("the window ended after %v, %d effects", took, effects)
	}
	if outcome := once(); outcome != dedup.Duplicate && time.Since(began) < 2*window {
		t.Errorf("then %v", outcome)
	}
}

// TestCaseDeadHolder: of five keys whose holder died, who takes them over one at a time
// gets all, once their leases have ended, and is told (ThreeDotsLabs/watermill-redisstream#24).
func TestCaseDeadHolder(t *testing.T) {
	client := connect(t, start(t))
	s := open(t, client, redis.Options{})
	keys := []dedup.Key{byID("1"), byID("2"), byID("3"), byID("4"), byID("5")}
	for _, r := range dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: 100 * time.Millisecond}).Reserve(t.Context(), keys...) {
		if r.Claim != dedup.Fresh {
			t.Fatalf("%+v", r)
		}
	}
	l := dedup.NewLease(s, "c", dedup.LeaseOptions{MaxBatch: 1})
	ran := map[int]int{}
	for deadline := time.Now().Add(20 * time.Second); len(ran) < len(keys); {
		for _, r := range l.OnceBatch(t.Context(), keys, func(_ context.Context, i int, _ int64) ([]byte, error) { ran[i]++; return nil, nil }) {
			if !r.Outcome.OK() && r.Outcome != dedup.InFlight || time.Now().After(deadline) {
				t.Fatalf("%+v", r)
			}
		}
	}
	for i, n := range ran {
		if n != 1 {
			t.Errorf("%d effects of %s", n, keys[i].ID)
		}
	}
	for _, r := range l.Reserve(t.Context(), keys...) {
		if r.Claim != dedup.Seen {
			t.Errorf("%+v", r)
		}
	}
}
