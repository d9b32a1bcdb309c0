package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

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
// verdict, and not tried any more (alexfrmn/murmur#142).
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
