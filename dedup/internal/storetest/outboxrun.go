package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// outboxDown: a broker that isn't there costs waiting, and few messages are touched.
func outboxDown[T any](t *testing.T, s OutboxSetup[T]) {
	to := newShelf(time.Minute)
	down := 30
	to.answer = func(broker.Message) (bool, broker.Receipt) {
		if down--; down >= 0 {
			return false, refused(broker.ErrUnavailable)
		}
		return true, stored
	}
	var texts []string
	for i := range 50 {
		texts = append(texts, fmt.Sprintf("m%d/k%d", i, i%20))
	}
	add(t, s.Driver, "orders", texts...)
	var e errs
	o := instant(&e)
	o.Batch = 10
	o.Backoff = broker.Backoff{Min: time.Millisecond, Max: 2 * time.Millisecond}
	run, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error)
	r := dedup.NewRelay(s.Driver, "orders", to, o)
	go func() { ended <- r.Run(run) }()
	for deadline := time.Now().Add(patience); r.Stats().Sent() < 50; {
		if time.Now().After(deadline) {
			t.Fatalf("%+v: %v", r.Stats(), e.all)
		}
		s.Forward(10 * time.Millisecond)
		pauseFor(time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	alone := 0
	for _, p := range to.publishes[:min(8, len(to.publishes))] {
		if len(p) == 1 {
			alone++
		}
	}
	if alone < 4 || !e.is(broker.ErrUnavailable) {
		t.Errorf("publishes %v, %v", to.publishes, e.all)
	}
	backlog(t, s, "orders", dedup.OutboxBacklog{})
}

// pauseFor gives way to others in a loop that has a deadline.
func pauseFor(d time.Duration) { <-time.After(d) }

// outboxTopics: a relay leaves the rows of other topics alone
// (riverqueue/river#1105).
func outboxTopics[T any](t *testing.T, s OutboxSetup[T]) {
	add(t, s.Driver, "orders", "a/k")
	add(t, s.Driver, "bills", "b/k")
	to := newShelf(0)
	var e errs
	if drain(t, s, to, instant(&e)); to.got() != "a" {
		t.Errorf("stored %s", to.got())
	}
	backlog(t, s, "bills", dedup.OutboxBacklog{Waiting: 1})
	// On a broker without a window, no answer is asked again however late.
	n := 0
	to.answer = func(broker.Message) (bool, broker.Receipt) {
		if n++; n == 1 {
			return true, noAnswer()
		}
		return true, stored
	}
	add(t, s.Driver, "orders", "c/k")
	_, _ = dedup.NewRelay(s.Driver, "orders", to, instant(&e)).Drain(t.Context())
	s.Forward(time.Hour)
	if drain(t, s, to, instant(&e)); to.got() != "a c" || to.copies != 1 {
		t.Errorf("stored %s, %d copies", to.got(), to.copies)
	}
}

// outboxBounds: a turn takes no more rows and bytes than it may.
func outboxBounds[T any](t *testing.T, s OutboxSetup[T]) {
	out := dedup.NewOutbox(s.Driver, "orders", dedup.OutboxOptions{})
	if err := out.InTx(t.Context(), func(tx T) error {
		for i := range 20 {
			if err := out.AddTx(t.Context(), tx, broker.Message{ID: fmt.Sprint(i), Body: make([]byte, 100)}); err != nil {
				return err
			}
		}
		return out.AddTx(t.Context(), tx, broker.Message{ID: "large", Body: make([]byte, 10000)})
	}); err != nil {
		t.Fatal(err)
	}
	for _, guard := range []bool{true, false} {
		for _, c := range []struct{ rows, bytes, most int }{{7, 1 << 20, 7}, {100, 250, 3}, {100, 1, 1}} {
			n, err := s.Driver.RelayOutbox(t.Context(), dedup.OutboxTurn{Topic: "orders", Lanes: dedup.OutboxLanes, Rows: c.rows, Bytes: c.bytes, Bound: time.Second, Guard: guard},
				func(rows []dedup.OutboxRow) []dedup.OutboxFate { return make([]dedup.OutboxFate, len(rows)) })
			if n != c.most || err != nil {
				t.Errorf("%d rows, want %d, %v", n, c.most, err)
			}
		}
	}
	to := newShelf(time.Minute)
	var e errs
	o := instant(&e)
	o.Bytes = 250
	if drain(t, s, to, o); len(to.stored) != 21 {
		t.Errorf("stored %s", to.got())
	}
}

// outboxStop: Run ends when its context does, with what is under way settled; or cut,
// if that takes too long.
func outboxStop[T any](t *testing.T, s OutboxSetup[T]) {
	for _, cut := range []bool{false, true} {
		to := newShelf(time.Minute)
		entered, leave := make(chan struct{}, 10), make(chan struct{})
		to.block = func(ctx context.Context) {
			entered <- struct{}{}
			select {
			case <-leave:
			case <-ctx.Done():
			}
		}
		add(t, s.Driver, "orders", "a/k", "b/k")
		var e errs
		o := instant(&e)
		o.Workers = 1
		if cut {
			o.StopTimeout = time.Millisecond
		}
		run, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- dedup.NewRelay(s.Driver, "orders", to, o).Run(run) }()
		<-entered
		if stop(); !cut {
			close(leave)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("Run doesn't end")
		}
		want := dedup.OutboxBacklog{Waiting: 1} // a was sent, b waits for the next relay
		if cut {
			want = dedup.OutboxBacklog{Waiting: 2, Retried: 1}
		}
		backlog(t, s, "orders", want)
		to.block = nil
		drain(t, s, to, instant(&e))
		if got := to.got(); got != "a b" {
			t.Errorf("stored %s", got)
		}
	}
}

// outboxWake: a relay that polls once an hour sends at once what it is woken for.
func outboxWake[T any](t *testing.T, s OutboxSetup[T]) {
	to := newShelf(time.Minute)
	var e errs
	r := dedup.NewRelay(s.Driver, "orders", to, dedup.RelayOptions{Poll: time.Hour, ErrorHook: e.add})
	out := dedup.NewOutbox(s.Driver, "orders", dedup.OutboxOptions{Wake: r.Wake})
	run, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error)
	go func() { ended <- r.Run(run) }()
	for i := range 20 {
		if err := out.InTx(t.Context(), func(tx T) error { return out.AddTx(t.Context(), tx, broker.Message{Key: "k"}) }); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(patience); r.Stats().Sent() <= uint64(i); pauseFor(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("message %d isn't sent: %v", i, e.all)
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := out.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// outboxWriters: eight writers, some of whose transactions are rolled back, and two
// relays at once on a broker that loses answers and requests and pushes back. What
// was committed is what is stored, in the order of each key.
func outboxWriters[T any](t *testing.T, s OutboxSetup[T]) {
	const writers, each = 8, 25
	to := newShelf(time.Minute)
	random := rand.New(rand.NewPCG(1, 2))
	to.answer = func(broker.Message) (bool, broker.Receipt) { // under the shelf's lock
		switch random.IntN(12) {
		case 0:
			return true, noAnswer()
		case 1:
			return false, noAnswer()
		case 2:
			return false, refused(broker.ErrBusy)
		}
		return true, stored
	}
	ctx := t.Context()
	var e errs
	o := instant(&e)
	o.Batch = 20
	relays := []*dedup.Relay{dedup.NewRelay(s.Driver, "orders", to, o), dedup.NewRelay(s.Driver, "orders", to, o)}
	run, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	for _, r := range relays {
		running.Go(func() {
			if err := r.Run(run); err != nil {
				t.Error(err)
			}
		})
	}
	keys := make([]sync.Mutex, 5) // what an order's row is to those who write
	next := make([]int, len(keys))
	var mu sync.Mutex
	committed := map[string]bool{}
	out := dedup.NewOutbox(s.Driver, "orders", dedup.OutboxOptions{Wake: relays[0].Wake, Others: true})
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 3))
			for range each {
				k := random.IntN(len(keys))
				undo := random.IntN(5) == 0
				keys[k].Lock()
				id := fmt.Sprintf("%d-%04d", k, next[k])
				undone := errors.New("undone")
				err := out.InTx(ctx, func(tx T) error {
					if err := out.AddTx(ctx, tx, broker.Message{ID: id, Key: fmt.Sprint(k)}, broker.Message{ID: id + "u"}); err != nil {
						return err
					}
					if undo {
						return undone
					}
					return nil
				})
				if err == nil {
					next[k]++
					mu.Lock()
					committed[id], committed[id+"u"] = true, true
					mu.Unlock()
				} else if !errors.Is(err, undone) {
					t.Error(err)
				}
				keys[k].Unlock()
			}
		})
	}
	writing.Wait()
	for deadline := time.Now().Add(2 * patience); ; pauseFor(5 * time.Millisecond) {
		b, err := s.Driver.OutboxBacklog(ctx, "orders")
		if err != nil {
			t.Fatal(err)
		}
		if b.Waiting+b.Held+b.Parked == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("backlog %v", b)
		}
		s.Forward(time.Millisecond)
	}
	stop()
	running.Wait()
	if err := out.Close(ctx); err != nil {
		t.Error(err)
	}
	last := map[string]string{}
	for _, m := range to.stored {
		if !committed[m.ID] {
			t.Errorf("%s was never committed", m.ID)
		}
		delete(committed, m.ID)
		if m.Key != "" {
			if m.ID <= last[m.Key] {
				t.Errorf("key %s: %s after %s", m.Key, m.ID, last[m.Key])
			}
			last[m.Key] = m.ID
		}
	}
	if len(committed) > 0 {
		t.Errorf("%d of them were lost", len(committed))
	}
	a, b := relays[0].Stats(), relays[1].Stats()
	if a.Sent() == 0 || b.Sent() == 0 || a.Unknown+b.Unknown == 0 || to.copies == 0 {
		t.Errorf("%+v, %+v, %d copies", a, b, to.copies)
	}
}
