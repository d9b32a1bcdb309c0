package rabbitmq

import (
	"context"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
)

// session is one life of a line.
type session struct {
	line  *line
	conn  *amqp.Connection
	wire  *wire // nil for a client of the caller's own
	cause error // why it ended; of the line's goroutine

	mu     sync.Mutex
	closes chan struct{} // closed when the node takes publishes again; nil while it does
}

func newSession(l *line, c *amqp.Connection, w *wire) *session {
	return &session{line: l, conn: c, wire: w}
}

// watch follows the session to its end.
func (s *session) watch() {
	closes := s.conn.NotifyClose(make(chan *amqp.Error, 1))
	var blocks chan amqp.Blocking
	var end <-chan struct{}
	if s.line.foreign {
		// The client outlives this line, and its listeners can't be taken back:
		// one that nobody reads would hold up its reader.
		end = s.line.life.Done()
	} else {
		blocks = s.conn.NotifyBlocked(make(chan amqp.Blocking, 8))
	}
	for {
		select {
		case e := <-closes:
			s.over(e)
			return
		case <-end:
			s.over(nil)
			return
		case b, open := <-blocks:
			if !open {
				blocks = nil
				continue
			}
			s.block(b.Active)
		}
	}
}

func (s *session) over(e *amqp.Error) {
	s.cause = errSessionOver
	if e != nil {
		s.cause = broker.Errorf(kindOf(e), e, "rabbitmq: connection")
	}
	s.block(false)
}

func (s *session) block(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case on && s.closes == nil:
		s.closes = make(chan struct{})
	case !on && s.closes != nil:
		close(s.closes)
		s.closes = nil
	}
}

// blocked returns a channel that is closed when the node takes publishes again,
// or nil if it does.
func (s *session) blocked() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closes
}

// channel opens a channel.
func (s *session) channel(ctx context.Context) (*amqp.Channel, error) {
	return await(ctx, s.line, s.conn.Channel, func(ch *amqp.Channel) { _ = ch.Close() })
}

// await calls f, which knows no context, and waits for it no longer than ctx. A
// result that comes later goes to late, if it is no error. The line waits for the
// goroutine.
func await[T any](ctx context.Context, l *line, f func() (T, error), late func(T)) (T, error) {
	type result struct {
		v   T
		err error
	}
	results := make(chan result)
	begun := l.tasks.Go(func() {
		v, err := f()
		select {
		case results <- result{v, err}:
		case <-ctx.Done():
			if err == nil && late != nil {
				late(v)
			}
		}
	})
	var zero T
	if !begun {
		return zero, errLineClosed
	}
	select {
	case r := <-results:
		return r.v, r.err
	case <-ctx.Done():
		return zero, context.Cause(ctx)
	}
}
