package dedup_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/storetest"
)

// fakeCalls is a store of calls in memory.
type fakeCalls struct {
	mu    sync.Mutex
	calls map[dedup.Marker]dedup.Call
	fail  error // of each change, if not nil
	took  bool  // the next change takes place, and its answer is lost
	// added, where not nil, is called when AddCall has done its work.
	added func()
}

func newFakeCalls() *fakeCalls { return &fakeCalls{calls: map[dedup.Marker]dedup.Call{}} }

func (s *fakeCalls) AddCall(_ context.Context, c dedup.Call) (dedup.Call, error) {
	m, err := c.Marker()
	if err != nil {
		return c, err
	}
	if s.added != nil {
		defer s.added()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if stored, ok := s.calls[m]; ok {
		return stored, nil
	}
	c.Version = 1
	s.calls[m] = c
	return c, nil
}

func (s *fakeCalls) LoadCall(_ context.Context, consumer, id string) (dedup.Call, error) {
	m, err := dedup.Key{Consumer: consumer, ID: id}.Marker()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[m], err
}

func (s *fakeCalls) ChangeCall(ctx context.Context, c dedup.Call) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	m, err := c.Marker()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return false, s.fail
	}
	if err != nil || s.calls[m].Version != c.Version {
		return false, err
	}
	c.Version++
	s.calls[m] = c
	if s.took {
		s.took = false
		return false, dedup.ErrCommitUnknown
	}
	return true, nil
}

func (s *fakeCalls) OpenCalls(_ context.Context, consumer string, due time.Time, after dedup.Marker, limit int) ([]dedup.Call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ms []dedup.Marker
	for m, c := range s.calls {
		if c.Consumer == consumer && m.Compare(after) > 0 && (c.State == dedup.CallUnresolved || c.State == dedup.CallStarted && !c.Due.After(due)) {
			ms = append(ms, m)
		}
	}
	slices.SortFunc(ms, dedup.Marker.Compare)
	var calls []dedup.Call
	for _, m := range ms[:min(limit, len(ms))] {
		calls = append(calls, s.calls[m])
	}
	return calls, nil
}

func (s *fakeCalls) ExpireCalls(_ context.Context, consumer string, before time.Time) (n int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m, c := range s.calls {
		if c.Consumer == consumer && (c.State == dedup.CallDone || c.State == dedup.CallFree) && c.Changed.Before(before) {
			delete(s.calls, m)
			n++
		}
	}
	return n, nil
}

func (s *fakeCalls) Fault(error) dedup.Fault { return dedup.Permanent }

func TestFakeCalls(t *testing.T) {
	storetest.RunCalls(t, func(t *testing.T) dedup.CallDriver { return newFakeCalls() })
}
