package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// OutboxSetup is a store whose outbox is to be tested, empty.
type OutboxSetup[T any] struct {
	Driver dedup.OutboxDriver[T]
	// Forward moves the store's clock.
	Forward func(d time.Duration)
	// Leased: the lanes of a relay that ended stay its own until turn.Bound is over.
	Leased bool
}

// RunOutbox runs all behaviours of an outbox, each on a setup of its own.
func RunOutbox[T any](t *testing.T, setup func(t *testing.T) OutboxSetup[T]) {
	for _, b := range []struct {
		name string
		test func(*testing.T, OutboxSetup[T])
	}{
		{"Sent", outboxSent[T]},
		{"Order", outboxOrder[T]},
		{"Parked", outboxParked[T]},
		{"Pass", outboxPass[T]},
		{"FailedThenParked", outboxFailedThenParked[T]},
		{"Held", outboxHeld[T]},
		{"OldButNeverTried", outboxOld[T]},
		{"RelayGone", outboxRelayGone[T]},
		{"Down", outboxDown[T]},
		{"Topics", outboxTopics[T]},
		{"Bounds", outboxBounds[T]},
		{"Stop", outboxStop[T]},
		{"Wake", outboxWake[T]},
		{"Writers", outboxWriters[T]},
	} {
		t.Run(b.name, func(t *testing.T) { b.test(t, setup(t)) })
	}
}

// shelf is a broker that remembers IDs for ever, and takes each message as answer
// says.
type shelf struct {
	mu        sync.Mutex
	window    time.Duration
	answer    func(m broker.Message) (stored bool, r broker.Receipt)
	block     func(ctx context.Context) // before anything is stored
	stored    []broker.Message          // in order, copies left out
	copies    int
	ids       map[string]bool
	publishes [][]string
}

func newShelf(window time.Duration) *shelf { return &shelf{window: window, ids: map[string]bool{}} }

var stored = broker.Receipt{Verdict: broker.Stored}

func refused(err error) broker.Receipt { return broker.Receipt{Verdict: broker.Refused, Err: err} }

func noAnswer() broker.Receipt {
	return broker.Receipt{Err: fmt.Errorf("answer lost: %w", broker.ErrUnknownOutcome)}
}

func (s *shelf) Publish(ctx context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	if s.block != nil {
		s.block(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	var first error
	receipts := make([]broker.Receipt, len(msgs))
	for i, m := range msgs {
		ids = append(ids, m.ID)
		keep, r := true, stored
		if ctx.Err() != nil {
			keep, r = false, broker.Receipt{Err: ctx.Err()}
		} else if s.answer != nil {
			keep, r = s.answer(m)
		}
		if keep && s.ids[m.ID] {
			s.copies++
			if r.Verdict == broker.Stored {
				r.Verdict = broker.Duplicate
			}
		} else if keep {
			s.ids[m.ID] = true
			m.Body = slices.Clone(m.Body)
			s.stored = append(s.stored, m)
		}
		if receipts[i] = r; first == nil {
			first = r.Err
		}
	}
	s.publishes = append(s.publishes, ids)
	return receipts, first
}

func (s *shelf) Limits() broker.Limits           { return broker.Limits{Window: s.window} }
func (s *shelf) As(any) bool                     { return false }
func (s *shelf) Close(ctx context.Context) error { return nil }

// got returns the IDs stored, in order.
func (s *shelf) got() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, m := range s.stored {
		ids = append(ids, m.ID)
	}
	return strings.Join(ids, " ")
}

// set changes the answers.
func (s *shelf) set(answer func(m broker.Message) (bool, broker.Receipt)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// errs collects what goes to an ErrorHook.
type errs struct {
	mu  sync.Mutex
	all []error
}

func (e *errs) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, err)
}

func (e *errs) is(kind error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.all, func(err error) bool { return errors.Is(err, kind) })
}

// instant are options that don't wait.
func instant(e *errs) dedup.RelayOptions {
	return dedup.RelayOptions{Backoff: broker.Backoff{Min: time.Microsecond, Max: time.Microsecond}, ErrorHook: e.add, Poll: 5 * time.Millisecond}
}

// msgs makes messages of "id/key".
func msgs(texts ...string) []broker.Message {
	ms := make([]broker.Message, len(texts))
	for i, text := range texts {
		id, key, _ := strings.Cut(text, "/")
		ms[i] = broker.Message{ID: id, Key: key, Body: []byte("body of " + id)}
	}
	return ms
}

func add[T any](t *testing.T, d dedup.OutboxDriver[T], topic string, texts ...string) {
	t.Helper()
	out := dedup.NewOutbox(d, topic, dedup.OutboxOptions{})
	if err := out.InTx(t.Context(), func(tx T) error { return out.AddTx(t.Context(), tx, msgs(texts...)...) }); err != nil {
		t.Fatal(err)
	}
}

// drain drains until nothing is left that can be sent.
func drain[T any](t *testing.T, s OutboxSetup[T], to *shelf, o dedup.RelayOptions) *dedup.Relay {
	t.Helper()
	r := dedup.NewRelay(s.Driver, "orders", to, o)
	for deadline := time.Now().Add(patience); ; {
		n, err := r.Drain(t.Context())
		if n == 0 && err == nil {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("never drained: %v", err)
		}
		s.Forward(time.Millisecond)
	}
}

func backlog[T any](t *testing.T, s OutboxSetup[T], topic string, want dedup.OutboxBacklog) {
	t.Helper()
	b, err := s.Driver.OutboxBacklog(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if b.Oldest = 0; b != want {
		t.Errorf("backlog of %s: %v, want %v", topic, b, want)
	}
}

func outboxSent[T any](t *testing.T, s OutboxSetup[T]) {
	ctx := t.Context()
	if err := s.Driver.VerifyOutbox(ctx); err != nil {
		t.Fatal(err)
	}
	out := dedup.NewOutbox(s.Driver, "orders", dedup.OutboxOptions{})
	given := []broker.Message{
		{ID: "a", Key: "k\xff", Copy: "c", Body: []byte("x\x00y"), Time: time.UnixMilli(1234567890123),
			Headers: broker.Headers{{Key: "h", Value: "\x00\xff"}, {Key: "h", Value: ""}, {Key: "é", Value: "2"}}},
		{}, // a random ID, no body
	}
	undone := errors.New("undone")
	for _, err := range []error{undone, nil} {
		if got := out.InTx(ctx, func(tx T) error {
			if err := out.AddTx(ctx, tx, given...); err != nil {
				return err
			}
			return err
		}); !errors.Is(got, err) {
			t.Fatal(got)
		}
	}
	many := make([]broker.Message, 40)
	for i := range many {
		many[i] = broker.Message{ID: fmt.Sprintf("m%02d", i), Key: "many"}
	}
	if err := out.InTx(ctx, func(tx T) error { return out.AddTx(ctx, tx, many...) }); err != nil {
		t.Fatal(err)
	}
	backlog(t, s, "orders", dedup.OutboxBacklog{Waiting: 42})
	for _, bad := range []broker.Message{{ID: strings.Repeat("x", broker.MaxID+1)}, {Key: "\x00"}, {Headers: broker.Headers{{Key: "Onceline-ID"}}}, {Headers: broker.Headers{{}}}} {
		if err := out.InTx(ctx, func(tx T) error { return out.AddTx(ctx, tx, broker.Message{ID: "never"}, bad) }); !errors.Is(err, broker.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	to := newShelf(time.Minute)
	var e errs
	r := drain(t, s, to, instant(&e))
	if len(to.stored) != 42 || len(e.all) > 0 || r.Stats().Stored != 42 || r.Stats().Sent() != 42 {
		t.Fatalf("%d stored, %v, %+v", len(to.stored), e.all, r.Stats())
	}
	byID := map[string]broker.Message{}
	var order []string
	for _, m := range to.stored {
		if byID[m.ID] = m; m.Key == "many" {
			order = append(order, m.ID)
		}
	}
	if !slices.IsSorted(order) || len(order) != 40 {
		t.Errorf("order %v", order)
	}
	for _, want := range given {
		got, ok := byID[want.ID]
		if !ok || want.ID == "" || got.Key != want.Key || got.Copy != want.Copy || string(got.Body) != string(want.Body) || !slices.Equal(got.Headers, want.Headers) || !got.Time.Equal(want.Time.Truncate(time.Microsecond)) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	backlog(t, s, "orders", dedup.OutboxBacklog{})
}

// outboxOrder: what has no answer is sent again with the same ID, and nothing of its
// key overtakes it.
func outboxOrder[T any](t *testing.T, s OutboxSetup[T]) {
	to := newShelf(time.Minute)
	seen := map[string]int{}
	to.answer = func(m broker.Message) (bool, broker.Receipt) {
		seen[m.ID]++
		switch {
		case m.ID == "2" && seen[m.ID] == 1:
			return true, noAnswer() // stored, and the answer lost
		case m.ID == "3" && seen[m.ID] == 1:
			return false, noAnswer()
		case m.ID == "4" && seen[m.ID] < 3:
			return false, refused(broker.ErrBusy)
		case m.ID == "5":
			return true, broker.Receipt{Verdict: broker.Accepted}
		}
		return true, stored
	}
	add(t, s.Driver, "orders", "1/k", "2/k", "3/k", "4/k", "5/k", "x", "y")
	var e errs
	r := drain(t, s, to, instant(&e))
	var keyed []string
	for _, m := range to.stored {
		if m.Key == "k" {
			keyed = append(keyed, m.ID)
		}
	}
	if strings.Join(keyed, " ") != "1 2 3 4 5" || len(to.stored) != 7 || to.copies != 1 {
		t.Errorf("stored %s, %d copies", to.got(), to.copies)
	}
	if st := r.Stats(); st.Unknown != 2 || st.Refused != 2 || st.Duplicate != 1 || st.Accepted != 1 || st.Sent() != 7 {
		t.Errorf("%+v", st)
	}
	for _, p := range to.publishes {
		n := 0
		for _, id := range p {
			if strings.Contains("12345", id) {
				n++
			}
		}
		if n > 1 {
			t.Errorf("%d messages of one key in a publish: %v", n, p)
		}
	}
	backlog(t, s, "orders", dedup.OutboxBacklog{})
}

func poison(ids ...string) func(m broker.Message) (bool, broker.Receipt) {
	return func(m broker.Message) (bool, broker.Receipt) {
		if slices.Contains(ids, m.ID) {
			return false, refused(broker.Errorf(broker.ErrTooLarge, nil, "over \"{the}\\ limit'\x00\xff"))
		}
		return true, stored
	}
}

// outboxParked: a message that the broker never takes keeps its key, and nothing
// else.
func outboxParked[T any](t *testing.T, s OutboxSetup[T]) {
	to := newShelf(time.Minute)
	to.answer = poison("a2", "x")
	add(t, s.Driver, "orders", "a1/a", "a2/a", "a3/a", "b1/b", "b2/b", "x", "y")
	var e errs
	r := drain(t, s, to, instant(&e))
	got := strings.Fields(to.got())
	if slices.Sort(got); strings.Join(got, " ") != "a1 b1 b2 y" || !e.is(broker.ErrTooLarge) {
		t.Errorf("stored %v, %v", got, e.all)
	}
	backlog(t, s, "orders", dedup.OutboxBacklog{Waiting: 1, Parked: 2})
	rows, err := s.Driver.StoppedOutbox(t.Context(), "orders", 0, 10)
	if err != nil || len(rows) != 2 || rows[0].ID != "a2" || rows[0].Key != "a" || rows[0].State != dedup.OutboxParked || !strings.Contains(rows[0].Reason, `over "{the}\ limit'`) || rows[0].Attempts != 1 {
		t.Fatalf("%+v, %v", rows, err)
	}
	if next, err := s.Driver.StoppedOutbox(t.Context(), "orders", rows[0].Seq, 1); err != nil || len(next) != 1 || next[0] != rows[1] {
		t.Errorf("%+v, %v", next, err)
	}
	if r.Stats().Parked != 2 {
		t.Errorf("%+v", r.Stats())
	}
	// Another topic's is nobody's business here.
	if n, err := s.Driver.DropOutbox(t.Context(), "other", rows[0].Seq); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := s.Driver.DropOutbox(t.Context(), "orders", rows[1].Seq, rows[1].Seq+1000); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	to.set(nil) // the broker was given a higher limit
	if n, err := s.Driver.ReleaseOutbox(t.Context(), "orders", rows[0].Seq); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	drain(t, s, to, instant(&e))
	if !strings.HasSuffix(to.got(), "a2 a3") {
		t.Errorf("stored %s", to.got())
	}
	backlog(t, s, "orders", dedup.OutboxBacklog{})
}

func outboxPass[T any](t *testing.T, s OutboxSetup[T]) {
	to := newShelf(time.Minute)
	to.answer = poison("a1")
	add(t, s.Driver, "orders", "a1/a", "a2/a")
	var e errs
	o := instant(&e)
	o.Pass = true
	drain(t, s, to, o)
	if to.got() != "a2" {
		t.Errorf("stored %s", to.got())
	}
	backlog(t, s, "orders", dedup.OutboxBacklog{Parked: 1})
}

// outboxFailedThenParked: a message that failed before is parked by the final
// verdict, and not tried any more.
func outboxFailedThenParked[T any](t *testing.T, s OutboxSetup[T]) {
	to, n := newShelf(time.Minute), 0
	to.answer = func(broker.Message) (bool, broker.Receipt) {
		if n++; n < 3 {
			return false, refused(broker.ErrBusy)
		}
		return false, refused(broker.ErrTooLarge)
	}
	add(t, s.Driver, "orders", "a/a")
	var e errs
	drain(t, s, to, instant(&e))
	drain(t, s, to, instant(&e))
	rows, err := s.Driver.StoppedOutbox(t.Context(), "orders", 0, 10)
	if err != nil || len(rows) != 1 || rows[0].Attempts != 3 || rows[0].State != dedup.OutboxParked || n != 3 {
		t.Errorf("%+v, %v, %d attempts", rows, err, n)
	}
}

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
			_, _ = s.Driver.RelayOutbox(t.Context(), dedup.OutboxTurn{Topic: "orders", Lanes: dedup.OutboxLanes, Rows: 10, Bytes: 1 << 20, Bound: time.Second, Guard: true}, func(rows []dedup.OutboxRow) []dedup.OutboxFate {
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

// outboxTopics: a relay leaves the rows of other topics alone.
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
	const writers, each = 8, 40
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
