package targets

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
)

// made is a server that does nothing but end.
type made struct {
	localstack.Emulator
	closed *int
}

func (m made) Close(context.Context) error { *m.closed++; return nil }

func TestSharedServer(t *testing.T) {
	started, closed := 0, 0
	s := &sharedServer[made]{name: "one", start: func(context.Context) (made, error) {
		started++
		return made{closed: &closed}, nil
	}}
	var ts []conformance.Target
	for n := range 3 {
		ts = append(ts, s.runs(conformance.Target{Name: fmt.Sprint(n)}, func(context.Context, made) (*conformance.Instance, error) {
			if n == 2 {
				return nil, errors.New("no")
			}
			return &conformance.Instance{}, nil
		}))
	}
	for round := 1; round <= 2; round++ { // who comes after the last finds a new one
		var is [3]*conformance.Instance
		var all sync.WaitGroup
		for n := range ts {
			all.Go(func() {
				var err error
				if is[n], err = ts[n].Start(t.Context()); (err != nil) != (n == 2) || ts[n].Server != "one" {
					t.Errorf("target %d on %q: %v", n, ts[n].Server, err)
				}
			})
		}
		all.Wait()
		if started < round || closed != started-1 {
			t.Errorf("round %d: %d started, %d closed", round, started, closed)
		}
		for n := range 2 {
			if closed >= started {
				t.Errorf("it is closed before target %d", n)
			}
			if err := is[n].Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if closed != started {
			t.Errorf("%d started, %d closed", started, closed)
		}
	}
}

// What can't be started is tried once, and every target says why.
func TestSharedServerThatDoesNotStart(t *testing.T) {
	started := 0
	s := &sharedServer[made]{name: "one", start: func(context.Context) (made, error) {
		started++
		return made{}, fmt.Errorf("%w: install it", localstack.ErrNotInstalled)
	}}
	for range 2 {
		target := s.runs(conformance.Target{}, nil)
		if _, err := target.Start(t.Context()); !errors.Is(err, conformance.ErrAbsent) || err.Error() != "install it" {
			t.Errorf("%v", err)
		}
	}
	if started != 1 {
		t.Errorf("tried %d times", started)
	}
}
