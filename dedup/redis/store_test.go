package redis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/redis"
	"github.com/redis/rueidis"
)

// reserve reserves one key.
func reserve(t *testing.T, l *dedup.Lease, id string, want dedup.Claim) *dedup.Reservation {
	t.Helper()
	r := l.Reserve(t.Context(), byID(id))[0]
	if r.Err != nil || r.Claim != want {
		t.Errorf("%s: %v, %v; want %v", id, r.Claim, r.Err, want)
	}
	return &r
}

// TestLease: what a record goes through, by two holders.
func TestLease(t *testing.T) { lease(t, connect(t, start(t))) }

func lease(t *testing.T, client rueidis.Client) {
	s := open(t, client, redis.Options{Window: time.Hour})
	l := dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: time.Minute})
	ctx := t.Context()
	result := append([]byte("answer\x00\xff\r\n"), bytes.Repeat([]byte{0}, 1000)...)
	for _, id := range []string{"a", "", "b"} {
		k := byID("timed")
		if id == "" {
			k.At = time.Now() // another record than the one without a time
		} else {
			k.ID = id
		}
		first := l.Reserve(ctx, k)[0]
		if first.Claim != dedup.Fresh || first.Fence <= 0 || first.TakenOver || time.Until(first.Until) > time.Minute || time.Until(first.Until) < 50*time.Second {
			t.Errorf("%+v", first)
		}
		second := l.Reserve(ctx, k)[0]
		if second.Claim != dedup.Held || time.Until(second.Until) > time.Minute+time.Millisecond || time.Until(second.Until) < 50*time.Second {
			t.Errorf("%+v", second)
		}
		// A stranger changes nothing.
		for name, err := range map[string]error{"extend": l.Extend(ctx, &second), "complete": l.Complete(ctx, &second), "release": l.Release(ctx, &second)} {
			if !errors.Is(err, broker.ErrLeaseLost) {
				t.Errorf("%s by a stranger: %v", name, err)
			}
		}
		if err := l.Extend(ctx, &first); err != nil {
			t.Error(err)
		}
		if err := errors.Join(l.Release(ctx, &first), l.Release(ctx, &first)); err != nil {
			t.Error(err)
		}
		if err := l.Extend(ctx, &first); !errors.Is(err, broker.ErrLeaseLost) {
			t.Errorf("extend after release: %v", err)
		}
		third := l.Reserve(ctx, k)[0]
		if third.Claim != dedup.Fresh || third.Fence <= first.Fence || third.TakenOver {
			t.Errorf("%+v after %+v", third, first)
		}
		if err := l.Complete(ctx, &first); !errors.Is(err, broker.ErrLeaseLost) {
			t.Errorf("complete by the first: %v", err)
		}
		third.Result = result
		if err := errors.Join(l.Complete(ctx, &third), l.Complete(ctx, &third)); err != nil {
			t.Error(err)
		}
		for name, err := range map[string]error{"extend": l.Extend(ctx, &third), "release": l.Release(ctx, &third), "first": l.Release(ctx, &first)} {
			if !errors.Is(err, broker.ErrLeaseLost) {
				t.Errorf("%s of what is done: %v", name, err)
			}
		}
		if last := l.Reserve(ctx, k)[0]; last.Claim != dedup.Seen || !bytes.Equal(last.Result, result) {
			t.Errorf("%+v", last)
		}
	}
	var keys []string
	for _, node := range client.Nodes() {
		some, err := node.Do(ctx, node.B().Keys().Pattern("*").Build()).AsStrSlice()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, some...)
	}
	if len(keys) != 3 {
		t.Fatalf("%q", keys)
	}
	for _, key := range keys {
		ttl, err := client.Do(ctx, client.B().Pttl().Key(key).Build()).AsInt64()
		if err != nil || ttl > time.Hour.Milliseconds() || ttl < time.Hour.Milliseconds()-60000 {
			t.Errorf("%s is kept for %d ms, %v", key, ttl, err)
		}
	}
	// What another program has written there is no record.
	do(t, client, "SET", keys[0], "PROCESSING")
	onEach(t, client, "SCRIPT", "FLUSH") // as after a restart without it
	failed := 0
	for _, r := range l.Reserve(ctx, byID("a"), byID("b"), dedup.Key{ID: "timed", At: time.Now()}) {
		if r.Err != nil {
			failed++
		} else if r.Claim != dedup.Seen {
			t.Errorf("%+v", r)
		}
	}
	if failed != 1 {
		t.Errorf("%d of 3 failed, want the one that isn't a record", failed)
	}
}

// TestTakeover: the key of a holder that is gone is had when its lease ends, and the
// holder changes nothing then; a record that the server lost is written all the same.
func TestTakeover(t *testing.T) { takeover(t, connect(t, start(t))) }

func takeover(t *testing.T, client rueidis.Client) {
	s := open(t, client, redis.Options{})
	short := dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: 100 * time.Millisecond})
	long := dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: time.Minute})
	zombie := reserve(t, short, "a", dedup.Fresh)
	var next dedup.Reservation
	for deadline := time.Now().Add(20 * time.Second); ; {
		if next = long.Reserve(t.Context(), byID("a"))[0]; next.Claim == dedup.Fresh {
			break
		}
		if next.Claim != dedup.Held || time.Now().After(deadline) {
			t.Fatalf("%+v", next)
		}
	}
	if time.Now().Before(zombie.Until) || !next.TakenOver || next.Fence <= zombie.Fence {
		t.Errorf("%+v after %+v", next, zombie)
	}
	if err := short.Complete(t.Context(), zombie); !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("the zombie completes: %v", err)
	}
	if err := short.Release(t.Context(), zombie); !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("the zombie releases: %v", err)
	}
	if err := long.Complete(t.Context(), &next); err != nil {
		t.Error(err)
	}
	reserve(t, short, "a", dedup.Seen)

	// By Once, which tells its effect and its caller.
	reserve(t, short, "told", dedup.Fresh)
	for deadline := time.Now().Add(20 * time.Second); ; {
		told := false
		r := long.OnceBatch(t.Context(), []dedup.Key{byID("told")}, func(ctx context.Context, _ int, _ int64) ([]byte, error) {
			told = dedup.TakenOver(ctx)
			return nil, nil
		})[0]
		if r.Outcome == dedup.Applied {
			if !r.TakenOver || !told {
				t.Errorf("%+v, the effect was told: %v", r, told)
			}
			break
		}
		if r.Outcome != dedup.InFlight || time.Now().After(deadline) {
			t.Fatalf("%+v", r)
		}
	}

	lost := reserve(t, long, "lost", dedup.Fresh)
	onEach(t, client, "FLUSHALL") // as after a failover
	if err := long.Extend(t.Context(), lost); !errors.Is(err, broker.ErrLeaseLost) {
		t.Errorf("extend of what is lost: %v", err)
	}
	if err := long.Complete(t.Context(), lost); err != nil {
		t.Error(err)
	}
	reserve(t, long, "lost", dedup.Seen)
}

// TestCopies: many holders at once; each message has its effect once, and one of a
// hundred who ask for the same key at the same time gets it (idempot-dev/idempot-js#182,
// Particular/NServiceBus#4086).
func TestCopies(t *testing.T) { copies(t, connect(t, start(t))) }

func copies(t *testing.T, client rueidis.Client) {
	l := dedup.NewLease(open(t, client, redis.Options{}), "c", dedup.LeaseOptions{})
	var fresh atomic.Int64
	var wg sync.WaitGroup
	barrier := make(chan struct{})
	for range 100 {
		wg.Go(func() {
			<-barrier
			if r := l.Reserve(t.Context(), byID("one")); r[0].Claim == dedup.Fresh {
				fresh.Add(1)
			} else if r[0].Claim != dedup.Held {
				t.Errorf("%+v", r[0])
			}
		})
	}
	close(barrier)
	wg.Wait()
	if fresh.Load() != 1 {
		t.Errorf("%d have it", fresh.Load())
	}

	const n = 300
	var effects [n]atomic.Int64
	keys := make([]dedup.Key, n)
	for i := range keys {
		keys[i] = byID(fmt.Sprint("m", i))
	}
	for range 8 {
		wg.Go(func() {
			for open := true; open; {
				open = false
				for _, r := range l.OnceBatch(t.Context(), keys, func(_ context.Context, i int, _ int64) ([]byte, error) {
					effects[i].Add(1)
					return nil, nil
				}) {
					if open = open || !r.Outcome.OK(); r.Outcome != dedup.InFlight && !r.Outcome.OK() {
						t.Errorf("%v: %v", r.Outcome, r.Err)
					}
				}
			}
		})
	}
	wg.Wait()
	for i := range effects {
		if effects[i].Load() != 1 {
			t.Errorf("%d effects of %d", effects[i].Load(), i)
		}
	}
}

// TestFaults: records outlive the server's crash, connections that are cut at any
// time cost no more than another attempt, and a server that doesn't answer no more
// than the bound.
func TestFaults(t *testing.T) {
	db := start(t)
	s := open(t, connect(t, db), redis.Options{Timeout: 500 * time.Millisecond})
	l := dedup.NewLease(s, "c", dedup.LeaseOptions{Attempts: 20})
	effects := map[string]int{}
	for i, fault := range []func(){
		func() {},
		func() { db.Disconnect() },
		func() {
			if err := db.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		},
		func() {
			if err := db.Restart(t.Context()); err != nil {
				t.Error(err)
			}
		},
	} {
		id := fmt.Sprint("m", i)
		for _, want := range []dedup.Outcome{dedup.Applied, dedup.Duplicate} {
			outcome, result, err := l.Once(t.Context(), byID(id), func(context.Context, int64) ([]byte, error) {
				effects[id]++
				fault() // after the effect, before its record
				return []byte(id), nil
			})
			if outcome != want || string(result) != id || err != nil {
				t.Errorf("%s: %v, %q: %v; want %v", id, outcome, result, err, want)
			}
			fault() // after the record
		}
		if effects[id] != 1 {
			t.Errorf("%d effects of %s", effects[id], id)
		}
	}
	db.Freeze()
	impatient := dedup.NewLease(s, "c", dedup.LeaseOptions{Attempts: 2})
	began := time.Now()
	outcome, _, err := impatient.Once(t.Context(), byID("frozen"), func(context.Context, int64) ([]byte, error) {
		t.Error("ran without a reservation")
		return nil, nil
	})
	if outcome != dedup.Unknown || !errors.Is(err, dedup.ErrLost) || time.Since(began) > 15*time.Second {
		t.Errorf("%v after %v: %v", outcome, time.Since(began), err)
	}
	db.Thaw()
	for _, want := range []dedup.Outcome{dedup.Applied, dedup.Duplicate} {
		outcome, _, err := l.Once(t.Context(), byID("thawed"), func(context.Context, int64) ([]byte, error) { return nil, nil })
		if outcome != want {
			t.Errorf("%v: %v", outcome, err)
		}
	}
}

// TestDoubt: that a holder was gone without a word isn't forgotten when the next one
// gives the key back, nor what a holder gives back that can't say whether its effect
// took place.
func TestDoubt(t *testing.T) {
	client := connect(t, start(t))
	s := open(t, client, redis.Options{})
	short := dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: 50 * time.Millisecond})
	long := dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: time.Minute})
	reserve(t, short, "a", dedup.Fresh)
	var next dedup.Reservation
	for deadline := time.Now().Add(20 * time.Second); next.Claim != dedup.Fresh; next = long.Reserve(t.Context(), byID("a"))[0] {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", next)
		}
	}
	again := func(doubt bool) {
		t.Helper()
		if !next.TakenOver {
			t.Errorf("%+v: nobody knows of the first", next)
		}
		next.TakenOver = doubt
		if err := errors.Join(long.Release(t.Context(), &next), long.Release(t.Context(), &next)); err != nil {
			t.Error(err)
		}
		if err := long.Extend(t.Context(), &next); !errors.Is(err, broker.ErrLeaseLost) {
			t.Errorf("extend after release: %v", err)
		}
		fence := next.Fence
		if next = long.Reserve(t.Context(), byID("a"))[0]; next.Claim != dedup.Fresh || next.Fence <= fence {
			t.Errorf("%+v", next)
		}
	}
	again(true)
	again(true)
	again(false) // who has found out
	if next.TakenOver {
		t.Errorf("%+v: it was found out", next)
	}
	if err := long.Complete(t.Context(), &next); err != nil {
		t.Error(err)
	}
	reserve(t, long, "a", dedup.Seen)
}

// TestLeaseOverWindow: a record lasts as long as its lease, also where the window is
// shorter.
func TestLeaseOverWindow(t *testing.T) {
	client := connect(t, start(t))
	s := open(t, client, redis.Options{Window: 50 * time.Millisecond})
	l := dedup.NewLease(s, "c", dedup.LeaseOptions{Lease: time.Minute})
	r := reserve(t, l, "a", dedup.Fresh)
	if err := l.Extend(t.Context(), r); err != nil {
		t.Error(err)
	}
	keys, err := client.Do(t.Context(), client.B().Keys().Pattern("*").Build()).AsStrSlice()
	if err != nil || len(keys) != 1 {
		t.Fatalf("%q, %v", keys, err)
	}
	ttl, err := client.Do(t.Context(), client.B().Pttl().Key(keys[0]).Build()).AsInt64()
	if err != nil || ttl < 50_000 {
		t.Errorf("kept for %d ms, %v", ttl, err)
	}
	reserve(t, l, "a", dedup.Held)
	if err := l.Release(t.Context(), r); err != nil {
		t.Error(err)
	}
}

// TestFullMeanwhile: a server that became full while an effect ran takes no record of it; who
// asked is told that the effect took place.
func TestFullMeanwhile(t *testing.T) {
	client := connect(t, start(t))
	l := dedup.NewLease(open(t, client, redis.Options{}), "c", dedup.LeaseOptions{Attempts: 2})
	outcome, result, err := l.Once(t.Context(), byID("a"), func(context.Context, int64) ([]byte, error) {
		do(t, client, "CONFIG", "SET", "maxmemory", "1")
		return []byte("paid"), nil
	})
	if outcome != dedup.Unknown || !errors.Is(err, dedup.ErrCommitUnknown) || !errors.Is(err, broker.ErrBusy) || string(result) != "paid" {
		t.Errorf("%v, %q: %v", outcome, result, err)
	}
	do(t, client, "CONFIG", "SET", "maxmemory", "0")
	if r := l.Reserve(t.Context(), byID("a"))[0]; r.Claim != dedup.Held {
		t.Errorf("%+v", r)
	}
}
