package storetest

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// outboxHeld: what the broker may have stored so long ago that it has forgotten the
// ID isn't sent a second time, unless somebody says so.
func outboxHeld[T any](t *testing.T, s OutboxSetup[T]) {
	to := newShelf(time.Minute)
	to.answer = func(m broker.Message) (bool, broker.Receipt) {
		switch m.ID {
		case "lost":
			return true, noAnswer()
		case "busy":
			return false, refused(broker.ErrBusy)
		}
		return true, stored
	}
	add(t, s.Driver, "orders", "lost/a", "next/a", "busy/b", "c/c")
	var e errs
	o := instant(&e)
	o.Backoff = broker.Backoff{Min: 5 * time.Second, Max: 5 * time.Second}
	r := dedup.NewRelay(s.Driver, "orders", to, o)
	for range 3 {
		_, _ = r.Drain(t.Context())
	}
	// 50 s are within the window, less its margin of 6 s.
	s.Forward(50 * time.Second)
	if _, _ = r.Drain(t.Context()); to.copies != 1 {
		t.Fatalf("%d copies", to.copies)
	}
	s.Forward(10 * time.Second)
	to.set(nil) // the broker answers now
	drain(t, s, to, o)
	if to.copies != 1 || !e.is(broker.ErrWindowExceeded) {
		t.Errorf("%d copies, %v", to.copies, e.all)
	}
	// What was surely not stored may be sent however late.
	if got := strings.Fields(to.got()); !slices.Contains(got, "busy") || slices.Contains(got, "next") {
		t.Errorf("stored %v", got)
	}
	backlog(t, s, "orders", dedup.OutboxBacklog{Waiting: 1, Held: 1})
	rows, err := s.Driver.StoppedOutbox(t.Context(), "orders", 0, 10)
	if err != nil || len(rows) != 1 || rows[0].ID != "lost" || rows[0].State != dedup.OutboxHeld || !strings.Contains(rows[0].Reason, "window") {
		t.Fatalf("%+v, %v", rows, err)
	}
	if n, err := s.Driver.ReleaseOutbox(t.Context(), "orders", rows[0].Seq); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	drain(t, s, to, o)
	if to.copies != 2 || !strings.HasSuffix(to.got(), "next") {
		t.Errorf("%d copies, stored %s", to.copies, to.got())
	}
	backlog(t, s, "orders", dedup.OutboxBacklog{})
}

// outboxOld: a relay that wasn't there for longer than the window holds nothing, for
// it hadn't tried anything.
func outboxOld[T any](t *testing.T, s OutboxSetup[T]) {
	add(t, s.Driver, "orders", "a/a", "b/a")
	s.Forward(time.Hour)
	b, err := s.Driver.OutboxBacklog(t.Context(), "orders")
	if err != nil || b.Oldest < 59*time.Minute || b.Waiting != 2 {
		t.Errorf("%v, %v", b, err)
	}
	to := newShelf(time.Minute)
	var e errs
	if drain(t, s, to, instant(&e)); to.got() != "a b" {
		t.Errorf("stored %s, %v", to.got(), e.all)
	}
}

// outboxRelayGone: of what a relay that was killed has sent, the next one knows that
// it may have been, and since when.
func outboxRelayGone[T any](t *testing.T, s OutboxSetup[T]) {
	for _, c := range []struct {
		after time.Duration
		held  int64
	}{{20 * time.Second, 0}, {70 * time.Second, 2}} {
		to := newShelf(time.Minute)
		add(t, s.Driver, "orders", "a/a", "b/b")
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = s.Driver.RelayOutbox(t.Context(), dedup.OutboxTurn{Topic: "orders", Lanes: dedup.OutboxLanes, Rows: 10, Bytes: 1 << 20, Bound: 10 * time.Second, Guard: true}, func(rows []dedup.OutboxRow) []dedup.OutboxFate {
				for _, r := range rows {
					if r.Age < 0 || r.Age > 5*time.Second {
						t.Errorf("%s was first tried %v ago", r.ID, r.Age)
					}
					_, _ = to.Publish(t.Context(), broker.Message{ID: r.ID, Key: r.Key})
				}
				runtime.Goexit()
				return nil
			})
		}()
		<-gone
		add(t, s.Driver, "orders", "c/c")
		var e errs
		o := instant(&e)
		if s.Leased {
			if _, err := dedup.NewRelay(s.Driver, "orders", to, o).Drain(t.Context()); err != nil || to.copies > 0 {
				t.Errorf("%v, %d copies while the lanes are leased", err, to.copies)
			}
		}
		s.Forward(c.after)
		drain(t, s, to, o)
		if want := 2 - int(c.held); to.copies != want || !strings.HasSuffix(to.got(), "c") {
			t.Errorf("after %v: %d copies, want %d; stored %s", c.after, to.copies, want, to.got())
		}
		backlog(t, s, "orders", dedup.OutboxBacklog{Held: c.held})
	}
}

// outboxStalled: a relay that stalls in Publish keeps its rows, or loses them to
// another one once its time is over; then it has nothing to say any more
// (xavierjohn/Trellis#644).
func outboxStalled[T any](t *testing.T, s OutboxSetup[T]) {
	add(t, s.Driver, "orders", "a/a", "b/a")
	entered, leave := make(chan struct{}), make(chan struct{})
	ended := make(chan error)
	go func() {
		_, err := s.Driver.RelayOutbox(t.Context(), dedup.OutboxTurn{Topic: "orders", Lanes: dedup.OutboxLanes, Rows: 10, Bytes: 1 << 20, Bound: 10 * time.Second, Guard: true}, func(rows []dedup.OutboxRow) []dedup.OutboxFate {
			close(entered)
			<-leave
			fates := make([]dedup.OutboxFate, len(rows))
			for i := range fates {
				fates[i] = dedup.OutboxFate{State: dedup.OutboxParked, Maybe: true, Reason: "stalled"}
			}
			return fates
		})
		ended <- err
	}()
	<-entered
	to := newShelf(time.Minute)
	var e errs
	if drain(t, s, to, instant(&e)); to.got() != "" {
		t.Errorf("another relay sent %s", to.got())
	}
	if !s.Leased {
		close(leave)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		backlog(t, s, "orders", dedup.OutboxBacklog{Parked: 2})
		return
	}
	s.Forward(20 * time.Second)
	to.answer = func(m broker.Message) (bool, broker.Receipt) {
		if m.ID == "b" {
			return false, refused(broker.ErrBusy)
		}
		return true, stored
	}
	if _, err := dedup.NewRelay(s.Driver, "orders", to, dedup.RelayOptions{Backoff: broker.Backoff{Min: time.Hour, Max: time.Hour}, ErrorHook: e.add}).Drain(t.Context()); err != nil || to.got() != "a" {
		t.Errorf("sent %s, %v", to.got(), err)
	}
	close(leave)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	backlog(t, s, "orders", dedup.OutboxBacklog{Waiting: 1, Retried: 1})
}
