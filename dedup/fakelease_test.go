package dedup_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// fakeLeases is a lease store in memory, whose calls can be made to go wrong.
type fakeLeases struct {
	mu      sync.Mutex
	records map[dedup.Marker]fakeLease
	fence   int64
	// broken, where not nil, says what becomes of a call: an error before anything
	// is done, or after it.
	broken func(call string) (before, after error)
	calls  map[string]int
}

type fakeLease struct {
	state  byte // h, t, f, u, d
	token  [8]byte
	until  time.Time
	result []byte
}

func newFakeLeases() *fakeLeases {
	return &fakeLeases{records: map[dedup.Marker]fakeLease{}, calls: map[string]int{}}
}

func (s *fakeLeases) each(ctx context.Context, call string, rs []*dedup.Reservation, f func(r *dedup.Reservation, l fakeLease, there bool) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[call]++
	var before, after error
	if s.broken != nil {
		before, after = s.broken(call)
	}
	if err := ctx.Err(); err != nil {
		before = fmt.Errorf("%w: %w", dedup.ErrLost, err)
	}
	for _, r := range rs {
		if r.Err = before; before != nil {
			continue
		}
		l, there := s.records[r.Marker]
		if r.Err = f(r, l, there); after != nil {
			r.Err = after
		}
	}
}

func (s *fakeLeases) Reserve(ctx context.Context, rs []*dedup.Reservation, lease time.Duration) {
	s.each(ctx, "reserve", rs, func(r *dedup.Reservation, l fakeLease, there bool) error {
		held := l.state == 'h' || l.state == 't'
		switch {
		case l.state == 'd':
			r.Claim, r.Result = dedup.Seen, l.result
			return nil
		case held && l.token != r.Token && time.Now().Before(l.until):
			r.Claim, r.Until = dedup.Held, l.until
			return nil
		}
		state := byte('h')
		if held && l.token != r.Token || l.state == 't' || l.state == 'u' {
			state = 't'
		}
		s.fence++
		r.Claim, r.Fence, r.TakenOver, r.Until = dedup.Fresh, s.fence, state == 't', time.Now().Add(lease)
		s.records[r.Marker] = fakeLease{state: state, token: r.Token, until: r.Until}
		return nil
	})
}

func (s *fakeLeases) own(l fakeLease, r *dedup.Reservation, states string) error {
	for _, state := range []byte(states) {
		if l.state == state && l.token == r.Token {
			return nil
		}
	}
	return broker.ErrLeaseLost
}

func (s *fakeLeases) Extend(ctx context.Context, rs []*dedup.Reservation, lease time.Duration) {
	s.each(ctx, "extend", rs, func(r *dedup.Reservation, l fakeLease, there bool) error {
		if err := s.own(l, r, "ht"); err != nil {
			return err
		}
		l.until = time.Now().Add(lease)
		r.Until = l.until
		s.records[r.Marker] = l
		return nil
	})
}

func (s *fakeLeases) Complete(ctx context.Context, rs []*dedup.Reservation) {
	s.each(ctx, "complete", rs, func(r *dedup.Reservation, l fakeLease, there bool) error {
		if err := s.own(l, r, "htd"); err != nil && there {
			return err
		}
		s.records[r.Marker] = fakeLease{state: 'd', token: r.Token, result: r.Result}
		return nil
	})
}

func (s *fakeLeases) Release(ctx context.Context, rs []*dedup.Reservation) {
	s.each(ctx, "release", rs, func(r *dedup.Reservation, l fakeLease, there bool) error {
		if err := s.own(l, r, "htfu"); err != nil {
			return err
		}
		state := byte('f')
		if r.TakenOver {
			state = 'u'
		}
		s.records[r.Marker] = fakeLease{state: state, token: r.Token}
		return nil
	})
}
