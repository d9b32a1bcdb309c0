package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/storetest"
)

// fakeStore is a store in memory whose transactions run side by side, as those of a
// database with row locks. It aborts a transaction at a refused statement.
type fakeStore struct {
	mu        sync.Mutex
	cond      *sync.Cond
	markers   map[dedup.Marker]bool
	held      map[dedup.Marker]*fakeTx
	floor     dedup.Marker
	ledger    []string
	positions map[string]int64
	moving    map[string]*fakeTx
}

type fakeTx struct {
	markers   []dedup.Marker
	ledger    []string
	positions map[string]int64
	saved     int // rows of the ledger at the savepoint
	aborted   bool
	held      []dedup.Marker
	moving    []string
}

var errRefused, errAborted = errors.New("refused"), errors.New("transaction is aborted")

func newFakeStore() *fakeStore {
	s := &fakeStore{markers: map[dedup.Marker]bool{}, held: map[dedup.Marker]*fakeTx{}, positions: map[string]int64{}, moving: map[string]*fakeTx{}}
	s.cond = sync.NewCond(&s.mu)
	return s
}

func (s *fakeStore) Transact(ctx context.Context, f func(tx *fakeTx) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: begin: %w", dedup.ErrLost, err)
	}
	tx := &fakeTx{positions: map[string]int64{}}
	defer func() { // a roll-back, if nothing was committed
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, m := range tx.held {
			delete(s.held, m)
		}
		for _, p := range tx.moving {
			delete(s.moving, p)
		}
		s.cond.Broadcast()
	}()
	if err := f(tx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if tx.aborted {
		return errAborted
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range tx.markers {
		s.markers[m] = true
	}
	s.ledger = append(s.ledger, tx.ledger...)
	maps.Copy(s.positions, tx.positions)
	return nil
}

func (s *fakeStore) Claim(ctx context.Context, tx *fakeTx, markers []dedup.Marker, claims []dedup.Claim) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tx.aborted {
		return errAborted
	}
	for i, m := range markers {
		if i > 0 && markers[i-1].Compare(m) >= 0 {
			return fmt.Errorf("markers %d and %d are not sorted", i-1, i)
		}
		switch {
		case m.Timed && m.Compare(s.floor) < 0:
			claims[i] = dedup.Outside
		case s.markers[m] || slices.Contains(tx.markers, m):
			claims[i] = dedup.Seen
		case s.held[m] != nil && s.held[m] != tx:
			claims[i] = dedup.Held
		default:
			claims[i] = dedup.Fresh
			s.held[m] = tx
			tx.held = append(tx.held, m)
			tx.markers = append(tx.markers, m)
		}
	}
	return nil
}

func (s *fakeStore) Release(ctx context.Context, tx *fakeTx, markers []dedup.Marker) error {
	if tx.aborted {
		return errAborted
	}
	tx.markers = slices.DeleteFunc(tx.markers, func(m dedup.Marker) bool { return slices.Contains(markers, m) })
	return nil
}

func (s *fakeStore) Savepoint(ctx context.Context, tx *fakeTx, again bool) error {
	if tx.aborted {
		return errAborted
	}
	tx.saved = len(tx.ledger)
	return nil
}

func (s *fakeStore) Restore(ctx context.Context, tx *fakeTx) error {
	tx.ledger, tx.aborted = tx.ledger[:tx.saved], false
	return nil
}

func (s *fakeStore) Fault(err error) dedup.Fault { return dedup.Permanent }

func (s *fakeStore) LoadPosition(ctx context.Context, consumer string, p dedup.Partition) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.positions[fmt.Sprint(consumer, p)]; ok {
		return last, nil
	}
	return dedup.Start, nil
}

func (s *fakeStore) MovePosition(ctx context.Context, tx *fakeTx, consumer string, p dedup.Partition, prev, next int64) (bool, error) {
	name := fmt.Sprint(consumer, p)
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.moving[name] != nil && s.moving[name] != tx {
		s.cond.Wait()
	}
	last, ok := tx.positions[name]
	if !ok {
		if last, ok = s.positions[name]; !ok {
			last = dedup.Start
		}
	}
	if last != prev {
		return false, nil
	}
	if s.moving[name] == nil {
		s.moving[name] = tx
		tx.moving = append(tx.moving, name)
	}
	tx.positions[name] = next
	return true, nil
}

func (s *fakeStore) effect(ctx context.Context, tx *fakeTx, id string) error {
	if tx.aborted {
		return errAborted
	}
	tx.ledger = append(tx.ledger, id)
	return nil
}

func (s *fakeStore) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := map[string]int{}
	for _, id := range s.ledger {
		got[id]++
	}
	return got
}

// TestFakeStore: the behaviours of every store, on one that needs nothing and in
// which transactions run side by side.
func TestFakeStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Setup[*fakeTx] {
		s := newFakeStore()
		return storetest.Setup[*fakeTx]{
			Driver: s,
			Effect: s.effect,
			Bad: func(ctx context.Context, tx *fakeTx) error {
				tx.aborted = true
				return errRefused
			},
			Ledger:     func(context.Context) (map[string]int, error) { return s.counts(), nil },
			Aborts:     true,
			Concurrent: true,
		}
	})
}
