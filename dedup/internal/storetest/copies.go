package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
)

// inFlight: a copy of a message that is being applied isn't applied, and doesn't
// wait where the store can tell; afterwards it depends on how the first ended.
func inFlight[T any](t *testing.T, s Setup[T]) {
	if !s.Concurrent {
		t.Log("one writer at a time: a copy waits, and is a Duplicate (Copies)")
		return
	}
	ctx, in := t.Context(), dedup.New[T](s.Driver, "c", quick)
	for _, commits := range []bool{true, false} {
		id := map[bool]string{true: "committed", false: "rolled-back"}[commits]
		holding, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := in.Once(ctx, byID(id), func(ctx context.Context, tx T) error {
				err := s.Effect(ctx, tx, id)
				close(holding)
				<-end
				if !commits {
					err = errors.New("rolled back")
				}
				return err
			})
			done <- err
		}()
		<-holding
		began := time.Now()
		outcome, err := in.Once(ctx, byID(id), s.effect(id))
		is(t, outcome, err, dedup.InFlight, dedup.ErrInFlight)
		results, err := dedup.OnceBatch(ctx, in, []string{"before-" + id, id, "x-" + id}, byID, s.Effect)
		outcomes(t, results, dedup.Applied, dedup.InFlight, dedup.Applied)
		if !errors.Is(err, dedup.ErrInFlight) {
			t.Error(err)
		}
		if waited := time.Since(began); waited > 5*time.Second {
			t.Errorf("waited %v for the other copy", waited)
		}
		close(end)
		if err := <-done; (err == nil) != commits {
			t.Errorf("the first copy: %v", err)
		}
		outcome, err = in.Once(ctx, byID(id), s.effect(id))
		is(t, outcome, err, map[bool]dedup.Outcome{true: dedup.Duplicate, false: dedup.Applied}[commits], nil)
		got, err := s.Ledger(ctx)
		if err != nil || got[id] != 1 {
			t.Errorf("%d effects of %s, want 1 (%v)", got[id], id, err)
		}
	}
}

// consumers is how many handle the same messages at the same time.
const consumers = 8

// together runs f for each consumer, started by a barrier.
func together(f func(consumer int)) {
	var wg sync.WaitGroup
	barrier := make(chan struct{})
	for c := range consumers {
		wg.Go(func() { <-barrier; f(c) })
	}
	close(barrier)
	wg.Wait()
}

// copies: each of many messages is handled by all consumers at the same time until
// it may be acked (Particular/NServiceBus#4086).
func copies[T any](t *testing.T, s Setup[T]) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	in := dedup.New[T](s.Driver, "c", dedup.Options{Attempts: 20})
	ids := series("m", 25)
	applied := [consumers]int{}
	together(func(c int) {
		for _, i := range rand.Perm(len(ids)) {
			for {
				outcome, err := in.Once(ctx, byID(ids[i]), s.effect(ids[i]))
				if outcome == dedup.Applied {
					applied[c]++
				}
				if outcome.OK() {
					break
				}
				if outcome != dedup.InFlight {
					t.Errorf("%s: %v: %v", ids[i], outcome, err)
					return
				}
				pauseFor(time.Millisecond) // as a consumer that gives it back
			}
		}
	})
	total := 0
	for _, n := range applied {
		total += n
	}
	if total != len(ids) {
		t.Errorf("%d were applied, want %d", total, len(ids))
	}
	s.ledger(t, each(ids...))
}

// pairsEnv says how many messages [pairs] handles; a few hundred without it.
const pairsEnv = "ONCELINE_PAIRS"

// pairs: each of many messages is handled by two consumers, and by eight, at the same
// time, in batches that begin at a barrier, until each may be acked.
func pairs[T any](t *testing.T, s Setup[T]) {
	messages := 400
	if text := os.Getenv(pairsEnv); text != "" {
		var err error
		if messages, err = strconv.Atoi(text); err != nil || messages <= 0 {
			t.Fatalf("%s is %q", pairsEnv, text)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(messages)*20*time.Millisecond)
	defer cancel()
	var all []string
	for _, n := range []int{2, 8} {
		in := dedup.New[T](s.Driver, fmt.Sprint("of ", n), dedup.Options{Attempts: 20})
		ids := series(fmt.Sprint("pairs-", n), messages)
		all = append(all, ids...)
		for from := 0; from < messages && ctx.Err() == nil; from += 100 {
			barrier := make(chan struct{})
			var wg sync.WaitGroup
			for range n {
				todo := slices.Clone(ids[from:min(from+100, messages)])
				rand.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
				wg.Go(func() {
					for <-barrier; len(todo) > 0; {
						results, err := dedup.OnceBatch(ctx, in, todo, byID, s.Effect)
						var open []string
						for i, r := range results {
							if r.Outcome == dedup.InFlight {
								open = append(open, todo[i])
							} else if !r.Outcome.OK() {
								t.Errorf("%s: %v: %v", todo[i], r.Outcome, err)
								return
							}
						}
						if len(open) == len(todo) { // all are in other hands
							pauseFor(time.Millisecond)
						}
						todo = open
					}
				})
			}
			close(barrier)
			wg.Wait()
		}
		st := in.Stats()
		if st.Applied != uint64(messages) || st.Duplicate != uint64(messages*(n-1)) {
			t.Errorf("%d consumers: %+v", n, st)
		}
		t.Logf("%d messages, %d consumers: %+v", messages, n, st)
	}
	s.ledger(t, each(all...))
}

// copiesInBatches: the same in batches, in another order by each consumer, some
// effects failing the first time.
func copiesInBatches[T any](t *testing.T, s Setup[T]) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	in := dedup.New[T](s.Driver, "c", dedup.Options{MaxBatch: 20, Attempts: 20})
	ids := series("m", 60)
	together(func(c int) {
		failedOnce := map[string]bool{}
		todo := append([]string(nil), ids...)
		for len(todo) > 0 {
			rand.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
			results, err := dedup.OnceBatch(ctx, in, todo, byID, func(ctx context.Context, tx T, id string) error {
				if rand.IntN(10) == 0 && !failedOnce[id] {
					failedOnce[id] = true
					return errors.Join(s.Effect(ctx, tx, id), errors.New("first try"))
				}
				return s.Effect(ctx, tx, id)
			})
			var open []string
			for i, r := range results {
				switch r.Outcome {
				case dedup.Applied, dedup.Duplicate:
				case dedup.InFlight, dedup.Failed:
					open = append(open, todo[i])
				default:
					t.Errorf("%s: %v: %v", todo[i], r.Outcome, err)
					return
				}
			}
			if len(open) == len(todo) { // all are in other hands
				pauseFor(time.Millisecond)
			}
			todo = open
		}
	})
	s.ledger(t, each(ids...))
}
