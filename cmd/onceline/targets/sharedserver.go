package targets

import (
	"context"
	"errors"
	"sync"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
)

// sharedServer is one that several targets run on: the first that is started starts it,
// and the last that is closed stops it.
type sharedServer[E localstack.Emulator] struct {
	name  string
	start func(ctx context.Context) (E, error)

	mu     sync.Mutex
	users  int
	server E
	failed error // one that doesn't start isn't tried by every target
}

// runs makes a target one on this server. instance is how the target sees it; what it
// has opened when it fails, it closes.
func (s *sharedServer[E]) runs(t conformance.Target, instance func(context.Context, E) (*conformance.Instance, error)) conformance.Target {
	t.Server = s.name
	t.Start = func(ctx context.Context) (*conformance.Instance, error) {
		e, err := s.enter(ctx)
		if err != nil {
			return nil, absent(err)
		}
		i, err := instance(ctx, e)
		if err != nil {
			return nil, errors.Join(err, s.leave(context.WithoutCancel(ctx)))
		}
		i.Close = s.leave
		return i, nil
	}
	return t
}

// enter returns the server, and starts it if nobody has.
func (s *sharedServer[E]) enter(ctx context.Context) (E, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 && s.failed == nil {
		s.server, s.failed = s.start(ctx)
	}
	if s.failed != nil {
		return s.server, s.failed
	}
	s.users++
	return s.server, nil
}

// leave stops the server behind its last target.
func (s *sharedServer[E]) leave(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	return s.server.Close(ctx)
}
