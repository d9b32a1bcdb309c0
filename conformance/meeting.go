package conformance

import (
	"context"
	"sync"
)

// meeting is of probes that do one thing to the broker they share which all of them
// need and each would notice: restart it, say. They run beside each other, and it is
// done once for all, when each of them waits for it or has ended. To start a server
// again is most of what such a probe takes. A nil meeting is of one probe.
type meeting struct {
	mu      sync.Mutex
	members int // that haven't ended
	waiting int // of them, in do
	last    int // of them, in others
	round   *round
	alone   chan struct{} // closed and replaced when nobody but the last is left
}

// round is one time that it is done.
type round struct {
	begun bool
	turn  chan struct{} // has one token, for the member that does it
	done  chan struct{} // closed after err is set
	err   error
}

func newMeeting(members int) *meeting {
	return &meeting{members: members, round: newRound(), alone: make(chan struct{})}
}

func newRound() *round { return &round{turn: make(chan struct{}, 1), done: make(chan struct{})} }

// size is how many members may have to be waited for, with the one that asks.
func (m *meeting) size() int {
	if m == nil {
		return 1
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.members
}

// changed lets the last members go on if all others wait, or one begin if all do. m.mu
// is held.
func (m *meeting) changed() {
	switch {
	case m.last > 0 && m.waiting+m.last == m.members:
		m.last = 0
		close(m.alone)
		m.alone = make(chan struct{})
	case m.waiting > 0 && m.waiting == m.members && !m.round.begun:
		m.round.begun = true
		m.round.turn <- struct{}{}
	}
}

// do waits until all members call it, and returns what came of it as one of them does
// it. Nothing is done before the end of ctx that isn't under way then.
func (m *meeting) do(ctx context.Context, it func() error) error {
	if m == nil {
		return it()
	}
	m.mu.Lock()
	r := m.round
	m.waiting++
	m.changed()
	m.mu.Unlock()
	select {
	case <-r.turn:
		return m.finish(r, it)
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	m.mu.Lock()
	if !r.begun {
		m.waiting--
		m.changed()
		m.mu.Unlock()
		return context.Cause(ctx)
	}
	m.mu.Unlock()
	select { // the turn may be this member's, and the others wait
	case <-r.turn:
		return m.finish(r, it)
	case <-r.done:
		return r.err
	}
}

func (m *meeting) finish(r *round, it func() error) error {
	r.err = it()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting, m.round = 0, newRound()
	m.changed()
	close(r.done)
	return r.err
}

// others waits until all other members wait, in do or in others: then it is done as
// soon as those that waited here have called do.
func (m *meeting) others(ctx context.Context) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	alone := m.alone
	m.last++
	m.changed()
	m.mu.Unlock()
	select {
	case <-alone:
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.alone == alone { // else it was let go on
		m.last--
		m.changed()
	}
	return context.Cause(ctx)
}

// leave is called by a member that has ended.
func (m *meeting) leave() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members--
	m.changed()
}
