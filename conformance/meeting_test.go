package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/internal/bubbletest"
)

// What several probes do to the broker is done once for all, when each of them waits
// for it, and beside nothing else.
func TestMeetingDoesOnceForAll(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		m := newMeeting(3)
		var done, busy atomic.Int32
		it := func() error {
			if n := busy.Load(); n > 0 {
				t.Errorf("done while %d are busy", n)
			}
			time.Sleep(time.Second)
			return fmt.Errorf("round %d", done.Add(1))
		}
		var mu sync.Mutex
		var got []string
		var all sync.WaitGroup
		for member := range 3 {
			all.Go(func() {
				defer m.leave()
				for range member + 1 { // one leaves after the first round, one after the second
					busy.Add(1)
					time.Sleep(time.Duration(member) * 10 * time.Second)
					busy.Add(-1)
					err := m.do(t.Context(), it)
					mu.Lock()
					got = append(got, fmt.Sprintf("%d: %v", member, err))
					mu.Unlock()
				}
			})
		}
		all.Wait()
		slices.Sort(got)
		if want := "0: round 1, 1: round 1, 1: round 2, 2: round 1, 2: round 2, 2: round 3"; strings.Join(got, ", ") != want {
			t.Errorf("%q, want %s", got, want)
		}
	})
}

// Who ends, or gives up waiting, keeps nobody waiting. Who waits for the others has
// the next turn at once.
func TestMeetingIsLeft(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		m := newMeeting(3)
		begin := time.Now()
		came := make(chan error, 1)
		go func() { came <- m.do(t.Context(), func() error { return nil }) }()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.do(short, func() error { t.Error("done without the third"); return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("gave up with %v", err)
		}
		if err := m.others(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the third isn't here, and the others are: %v", err)
		}
		go func() {
			time.Sleep(time.Minute)
			m.leave()
		}()
		if err := m.others(t.Context()); err != nil || time.Since(begin) < time.Minute {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		select {
		case err := <-came:
			t.Errorf("done (%v) before the last had come", err)
		default:
		}
		m.leave()
		if err := <-came; err != nil || m.size() != 1 {
			t.Errorf("%v, %d members", err, m.size())
		}
	})
}

// Who waits for the others waits for none of those that do the same.
func TestMeetingHasSeveralLast(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		m := newMeeting(4)
		begin := time.Now()
		var all sync.WaitGroup
		for member := range 4 {
			all.Go(func() {
				defer m.leave()
				time.Sleep(time.Duration(member) * time.Second)
				if member%2 == 0 {
					if err := m.others(t.Context()); err != nil || time.Since(begin) != 3*time.Second {
						t.Errorf("member %d: %v after %v", member, err, time.Since(begin))
					}
					time.Sleep(time.Minute)
				}
				err := m.do(t.Context(), func() error { return nil })
				if err != nil || time.Since(begin) != time.Minute+3*time.Second {
					t.Errorf("member %d: done (%v) after %v", member, err, time.Since(begin))
				}
			})
		}
		all.Wait()
	})
}

// Probes that restart a server do it once together, those that kill it too, whichever
// of its targets they are of, and each answers.
func TestProbesMeet(t *testing.T) {
	target := nowhere()
	start := target.Start
	var restarts, kills, here atomic.Int32
	strike := func(n *atomic.Int32) func(context.Context) error {
		return func(context.Context) error {
			if here.Load() != 6 {
				t.Errorf("%d probes are here", here.Load())
			}
			n.Add(1)
			return nil
		}
	}
	target.Start = func(ctx context.Context) (*Instance, error) {
		i, err := start(ctx)
		i.Restart, i.Kill = strike(&restarts), strike(&kills)
		return i, err
	}
	var probes []Probe
	for n := range 6 {
		need := []Need{NeedKill, NeedRestart}[n%2]
		probes = append(probes, Probe{fmt.Sprint("made-up-", n), claims(boundary.SettleAnswer), need, func(ctx context.Context, b *Bench) error {
			here.Add(1)
			defer here.Add(-1)
			if n < 4 { // two of each kind and target strike last
				if err := b.Others(ctx); err != nil {
					return err
				}
			}
			strike := b.Restart
			if need == NeedKill {
				strike = b.Kill
			}
			if err := strike(ctx); err != nil {
				return err
			}
			b.Answer(boundary.SettleAnswer, boundary.Sent, "seen")
			return nil
		}})
	}
	second := target
	out := runServer(t.Context(), []*Target{&target, &second}, probes, Options{Parallel: 4, Timeout: time.Minute})
	if restarts.Load() != 1 || kills.Load() != 1 {
		t.Errorf("%d restarts, %d kills", restarts.Load(), kills.Load())
	}
	for _, found := range out {
		if len(found.Findings) != len(probes) {
			t.Errorf("%d findings of %d", len(found.Findings), len(probes))
		}
		for _, f := range found.Findings {
			if f.Observed != string(boundary.Sent) {
				t.Errorf("%s: %s %s", f.Claim, f.Verdict, f.Reason)
			}
		}
	}
}
