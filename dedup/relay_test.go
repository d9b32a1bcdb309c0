package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/internal/bubbletest"
)

// fakeOutbox is a store whose turns go as the test says.
type fakeOutbox struct {
	dedup.OutboxStore // what isn't called
	mu                sync.Mutex
	verify            []error
	turn              func(n int, t dedup.OutboxTurn, send func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error)
	turns             int
	notify            func() error
	notified          int
}

func (f *fakeOutbox) VerifyOutbox(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.verify) == 0 {
		return nil
	}
	err := f.verify[0]
	f.verify = f.verify[1:]
	return err
}

func (f *fakeOutbox) RelayOutbox(_ context.Context, t dedup.OutboxTurn, send func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error) {
	f.mu.Lock()
	n := f.turns
	f.turns++
	f.mu.Unlock()
	return f.turn(n, t, send)
}

func (f *fakeOutbox) NotifyOutbox(context.Context, string) error {
	f.mu.Lock()
	f.notified++
	f.mu.Unlock()
	return f.notify()
}

func (f *fakeOutbox) Transact(_ context.Context, do func(struct{}) error) error {
	return do(struct{}{})
}

func (f *fakeOutbox) AddOutbox(context.Context, struct{}, string, []dedup.OutboxRow) error {
	return nil
}

// fakePublisher answers as the test says.
type fakePublisher struct {
	window time.Duration
	answer func(ctx context.Context, m broker.Message) broker.Receipt
}

func (p *fakePublisher) Publish(ctx context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	receipts := make([]broker.Receipt, len(msgs))
	for i := range msgs {
		receipts[i] = p.answer(ctx, msgs[i])
	}
	return receipts, nil
}

func (p *fakePublisher) Limits() broker.Limits       { return broker.Limits{Window: p.window} }
func (p *fakePublisher) As(any) bool                 { return false }
func (p *fakePublisher) Close(context.Context) error { return nil }

func outboxRow(id string, hash int64) dedup.OutboxRow {
	return dedup.OutboxRow{ID: id, Hash: hash, Meta: []byte{1, 0}, Time: time.Now()}
}

// TestRelayVerdicts: what becomes of a message by the broker's answer.
func TestRelayVerdicts(t *testing.T) {
	no := func(err error) broker.Receipt { return broker.Receipt{Verdict: broker.Refused, Err: err} }
	for name, c := range map[string]struct {
		r     broker.Receipt
		want  dedup.OutboxState
		maybe bool
	}{
		"stored":          {broker.Receipt{Verdict: broker.Stored}, dedup.OutboxSent, false},
		"duplicate":       {broker.Receipt{Verdict: broker.Duplicate}, dedup.OutboxSent, false},
		"accepted":        {broker.Receipt{Verdict: broker.Accepted}, dedup.OutboxSent, false},
		"unknown":         {broker.Receipt{Err: broker.ErrUnknownOutcome}, dedup.OutboxAgain, true},
		"nothing said":    {broker.Receipt{}, dedup.OutboxAgain, true},
		"refused, no why": {broker.Receipt{Verdict: broker.Refused}, dedup.OutboxAgain, false},
		"busy":            {no(broker.ErrBusy), dedup.OutboxAgain, false},
		"unavailable":     {no(broker.Errorf(broker.ErrUnavailable, broker.ErrRefused, "x")), dedup.OutboxAgain, false},
		"no topic":        {no(broker.ErrNotFound), dedup.OutboxAgain, false},
		"no rights":       {no(broker.ErrUnauthorized), dedup.OutboxAgain, false},
		"no queue":        {no(broker.ErrUnroutable), dedup.OutboxAgain, false},
		"too large":       {no(broker.ErrTooLarge), dedup.OutboxParked, false},
		"invalid":         {no(broker.ErrInvalid), dedup.OutboxParked, false},
		"refused":         {no(broker.ErrRefused), dedup.OutboxParked, false},
		"too large?":      {broker.Receipt{Err: broker.ErrTooLarge}, dedup.OutboxAgain, true},
		"window exceeded": {broker.Receipt{Err: broker.ErrWindowExceeded}, dedup.OutboxHeld, true},
	} {
		var fates []dedup.OutboxFate
		store := &fakeOutbox{turn: func(n int, _ dedup.OutboxTurn, send func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error) {
			if n > 0 {
				return 0, nil
			}
			fates = send([]dedup.OutboxRow{outboxRow("m", 7), outboxRow("next", 7), outboxRow("other", 8), {ID: "torn", Meta: []byte{1, 200}}})
			return 4, nil
		}}
		to := &fakePublisher{time.Minute, func(_ context.Context, m broker.Message) broker.Receipt {
			if m.ID == "m" {
				return c.r
			}
			return broker.Receipt{Verdict: broker.Stored}
		}}
		r := dedup.NewRelay(store, "orders", to, dedup.RelayOptions{ErrorHook: func(error) {}})
		if _, err := r.Drain(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		next := dedup.OutboxLeft
		if c.want == dedup.OutboxSent {
			next = dedup.OutboxSent
		}
		if f := fates[0]; f.State != c.want || f.Maybe != c.maybe || (f.Reason == "") != (c.want == dedup.OutboxSent) || (f.Delay > 0) != (c.want == dedup.OutboxAgain) {
			t.Errorf("%s: %+v, want %v", name, f, c.want)
		}
		if fates[1].State != next || fates[2].State != dedup.OutboxSent || fates[3].State != dedup.OutboxParked {
			t.Errorf("%s: the others: %+v", name, fates[1:])
		}
	}
}

// TestRelayIdle: a relay with nothing to do, and one whose store or broker isn't
// there, look now and then.
func TestRelayIdle(t *testing.T) {
	lost := fmt.Errorf("%w: no database", dedup.ErrLost)
	for name, c := range map[string]struct {
		turn      func(send func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error)
		min, max  int // turns in ten minutes of two workers
		wantError error
	}{
		"nothing":  {func(func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error) { return 0, nil }, 1000, 1300, nil},
		"no store": {func(func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error) { return 0, lost }, 40, 120, lost},
		"no broker": {func(send func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error) {
			send([]dedup.OutboxRow{outboxRow("m", 1)})
			return 1, nil
		}, 40, 120, broker.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Run(t, func(t *testing.T) {
				store := &fakeOutbox{verify: []error{lost, lost}, turn: func(_ int, _ dedup.OutboxTurn, send func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error) {
					return c.turn(send)
				}}
				to := &fakePublisher{time.Minute, func(context.Context, broker.Message) broker.Receipt {
					return broker.Receipt{Verdict: broker.Refused, Err: broker.ErrUnavailable}
				}}
				var mu sync.Mutex
				var said []error
				r := dedup.NewRelay(store, "orders", to, dedup.RelayOptions{ErrorHook: func(err error) {
					mu.Lock()
					defer mu.Unlock()
					said = append(said, err)
				}})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if err := r.Run(ctx); err != nil {
					t.Error(err)
				}
				if store.turns < c.min || store.turns > c.max {
					t.Errorf("%d turns, want %d to %d", store.turns, c.min, c.max)
				}
				if len(said) < 2 || !errors.Is(said[0], lost) || c.wantError != nil && !errors.Is(said[len(said)-1], c.wantError) || r.Stats().Errors != uint64(len(said)) {
					t.Errorf("%d errors: %v", len(said), said)
				}
			})
		})
	}
}

// TestRelayEnds: Run returns what waiting doesn't cure.
func TestRelayEnds(t *testing.T) {
	store := &fakeOutbox{turn: func(_ int, _ dedup.OutboxTurn, send func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error) {
		send([]dedup.OutboxRow{outboxRow("m", 1)})
		return 1, nil
	}}
	to := &fakePublisher{time.Minute, func(context.Context, broker.Message) broker.Receipt {
		return broker.Receipt{Verdict: broker.Refused, Err: broker.ErrClosed}
	}}
	o := dedup.RelayOptions{ErrorHook: func(error) {}}
	if err := dedup.NewRelay(store, "orders", to, o).Run(t.Context()); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("closed publisher: %v", err)
	}
	store.verify = []error{dedup.ErrVerify, dedup.ErrVerify}
	if err := dedup.NewRelay(store, "orders", to, o).Run(t.Context()); !errors.Is(err, dedup.ErrVerify) {
		t.Errorf("store unfit: %v", err)
	}
	if _, err := dedup.NewRelay(store, "orders", to, o).Drain(t.Context()); !errors.Is(err, dedup.ErrVerify) {
		t.Errorf("store unfit: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a relay to nobody")
		}
	}()
	dedup.NewRelay(store, "orders", nil, o)
}

// TestRelayWindow: an attempt is cut before the broker forgets the ID.
func TestRelayWindow(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		store := &fakeOutbox{turn: func(n int, turn dedup.OutboxTurn, send func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error) {
			if n > 0 {
				return 0, nil
			}
			if !turn.Guard {
				t.Error("no guard")
			}
			old := outboxRow("old", 1)
			old.Age = 50 * time.Second
			if f := send([]dedup.OutboxRow{old}); f[0].State != dedup.OutboxAgain || !f[0].Maybe {
				t.Errorf("%+v", f[0])
			}
			return 1, nil
		}}
		var took time.Duration
		to := &fakePublisher{time.Minute, func(ctx context.Context, _ broker.Message) broker.Receipt {
			began := time.Now()
			<-ctx.Done()
			took = time.Since(began)
			return broker.Receipt{Err: ctx.Err()}
		}}
		_, _ = dedup.NewRelay(store, "orders", to, dedup.RelayOptions{PublishTimeout: 30 * time.Second, ErrorHook: func(error) {}}).Drain(t.Context())
		if took != 4*time.Second { // 60 s less 6 s of margin and 50 s that are over
			t.Errorf("the attempt took %v", took)
		}
	})
}

// TestRelaySlowTurn: what a slow turn leaves no time for isn't held, for it was never
// tried.
func TestRelaySlowTurn(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		var fates []dedup.OutboxFate
		store := &fakeOutbox{turn: func(n int, turn dedup.OutboxTurn, send func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error) {
			if n > 0 {
				return 0, nil
			}
			late := outboxRow("late", 2)
			late.Age = time.Hour
			fates = send([]dedup.OutboxRow{outboxRow("1", 1), outboxRow("2", 1), outboxRow("3", 1), late})
			return len(fates), nil
		}}
		to := &fakePublisher{2 * time.Second, func(context.Context, broker.Message) broker.Receipt {
			time.Sleep(1790 * time.Millisecond) // the margin is 200 ms
			return broker.Receipt{Verdict: broker.Stored}
		}}
		_, _ = dedup.NewRelay(store, "orders", to, dedup.RelayOptions{ErrorHook: func(error) {}}).Drain(t.Context())
		var states []dedup.OutboxState
		for _, f := range fates {
			states = append(states, f.State)
		}
		if want := []dedup.OutboxState{dedup.OutboxSent, dedup.OutboxLeft, dedup.OutboxLeft, dedup.OutboxHeld}; !slices.Equal(states, want) {
			t.Errorf("%v, want %v", states, want)
		}
	})
}

// TestRelayWokenInATurn: a wake that another worker takes, which finds the lanes in the
// hands of a turn that has looked already, isn't lost.
func TestRelayWokenInATurn(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		looked := make(chan struct{})
		store := &fakeOutbox{turn: func(n int, _ dedup.OutboxTurn, send func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error) {
			if n == 0 {
				<-looked
			}
			return 0, nil
		}}
		r := dedup.NewRelay(store, "orders", &fakePublisher{}, dedup.RelayOptions{Workers: 2, Poll: time.Hour})
		run, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(run) }()
		synctest.Wait()
		r.Wake()
		synctest.Wait()
		before := store.turns
		close(looked)
		synctest.Wait()
		if before != 3 || store.turns != 4 {
			t.Errorf("%d turns, then %d: what came after the first had looked waits for the poll", before, store.turns)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestOutboxNotifyLost: a lost connection isn't the end of telling others.
func TestOutboxNotifyLost(t *testing.T) {
	for lost, failures := range map[int]int{0: 0, 2: 0, 100: 1} {
		bubbletest.Run(t, func(t *testing.T) {
			tries, failed := 0, 0
			store := &fakeOutbox{notify: func() error {
				if tries++; tries <= lost {
					return fmt.Errorf("%w: cut", []error{dedup.ErrLost, dedup.ErrCommitUnknown}[tries%2])
				}
				return nil
			}}
			out := dedup.NewOutbox[struct{}](store, "orders", dedup.OutboxOptions{Others: true, ErrorHook: func(error) { failed++ }})
			out.Notify()
			synctest.Wait()
			if failed != failures || tries != min(lost+1, 3) {
				t.Errorf("%d lost: %d tries, %d failures told", lost, tries, failed)
			}
			if err := out.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestOutboxNotify: what many call at once others are told once or twice.
func TestOutboxNotify(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		store := &fakeOutbox{notify: func() error { time.Sleep(10 * time.Millisecond); return broker.ErrUnavailable }}
		woken, failed := 0, 0
		out := dedup.NewOutbox[struct{}](store, "orders", dedup.OutboxOptions{Others: true, Wake: func() { woken++ }, ErrorHook: func(err error) {
			if failed++; !errors.Is(err, broker.ErrUnavailable) {
				t.Error(err)
			}
		}})
		for range 1000 {
			if err := out.InTx(t.Context(), func(struct{}) error { return nil }); err != nil {
				t.Error(err)
			}
		}
		undone := errors.New("undone")
		if err := out.InTx(t.Context(), func(struct{}) error { return undone }); !errors.Is(err, undone) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if woken != 1000 || store.notified < 1 || store.notified > 2 || failed != store.notified {
			t.Errorf("%d woken, %d told, %d failed", woken, store.notified, failed)
		}
		before := store.notified
		out.Notify()
		synctest.Wait()
		if err := out.Close(t.Context()); err != nil || store.notified != before+1 {
			t.Errorf("%v, %d told", err, store.notified)
		}
		out.Notify()
		time.Sleep(time.Second)
		synctest.Wait()
		if err := out.Close(t.Context()); err != nil || store.notified != before+1 {
			t.Errorf("closed: %v, %d told", err, store.notified)
		}
	})
}
