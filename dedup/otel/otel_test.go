package otel_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/otel"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/internal/bubbletest"
)

var errBroken = errors.New("broken")

// TestInbox: outcomes, decisions and durations, from zero on, of two inboxes of one
// consumer together, and still there when one of them is gone.
func TestInbox(t *testing.T) {
	r := newRig(t)
	store := openStore(t, sqlite.Options{Window: time.Hour})
	if _, err := store.Expire(t.Context()); err != nil { // what is older is refused from now on
		t.Fatal(err)
	}
	in := dedup.New(store, "billing", dedup.Options{Took: r.Took(otel.Inbox, "billing")})
	stop := r.Inbox(in)
	r.want(map[string]float64{"duplicates_caught onceline.consumer=billing onceline.guard=inbox": 0,
		"onceline.dedup.messages onceline.outcome=unknown": 0, "onceline.dedup.decisions onceline.reason=poison": 0})
	running := 0.0
	h := dedup.Handler(in, func(ctx context.Context, tx *sql.Tx, d *broker.Delivery) error {
		if running == 0 {
			running = r.value("onceline.dedup.running")
		}
		switch d.ID {
		case "poison":
			return broker.Poison(errBroken)
		case "fails":
			return errBroken
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO effect VALUES (?)", d.ID)
		return err
	}, dedup.KeyFrom(func(d *broker.Delivery) dedup.Key {
		if d.ID == "old" {
			return dedup.Key{ID: d.ID, At: time.Now().Add(-3 * time.Hour)}
		}
		return dedup.Key{ID: d.ID}
	}), dedup.WarnHook(func(string) {}))
	for _, id := range []string{"a", "a", "a", "b", "poison", "fails", "old", "", "late", "5d41402abc4b2a76b9719d911017c592"} {
		at := time.Now()
		if id == "late" {
			at = at.Add(-2 * time.Hour)
		}
		_ = h(t.Context(), &broker.Delivery{Message: broker.Message{ID: id, Body: []byte("hello"), Time: at}})
	}
	other := dedup.New(store, "billing", dedup.Options{Took: r.Took(otel.Inbox, "billing")})
	stopOther := r.Inbox(other)
	ids := []string{"a", "b", "c"}
	if _, err := dedup.OnceBatch(t.Context(), other, ids, func(id string) dedup.Key { return dedup.Key{ID: id} },
		func(context.Context, *sql.Tx, string) error { return nil }); err != nil {
		t.Error(err)
	}
	check := func() {
		t.Helper()
		r.want(map[string]float64{
			"duplicates_caught": 4,
			"onceline.dedup.messages onceline.outcome=applied":                                      5,
			"onceline.dedup.messages onceline.outcome=duplicate":                                    4,
			"onceline.dedup.messages onceline.outcome=failed":                                       2,
			"onceline.dedup.messages onceline.outcome=outside_window":                               1,
			"onceline.dedup.messages onceline.outcome=in_flight":                                    0,
			"onceline.dedup.decisions onceline.decision=ack":                                        6,
			"onceline.dedup.decisions onceline.decision=retry":                                      1,
			"onceline.dedup.decisions onceline.decision=postpone":                                   0,
			"onceline.dedup.decisions onceline.decision=dead_letter onceline.reason=poison":         1,
			"onceline.dedup.decisions onceline.decision=dead_letter onceline.reason=key":            1,
			"onceline.dedup.decisions onceline.decision=dead_letter onceline.reason=outside_window": 1,
			"onceline.dedup.late":        1,
			"onceline.dedup.suspect_ids": 1,
			"onceline.dedup.running":     0,
			"onceline.dedup.duration onceline.consumer=billing onceline.guard=inbox": 10,
		})
	}
	check()
	if s := r.series("onceline.dedup.batch"); s.value != 10 || s.sum != 12 {
		t.Errorf("batches %+v", s)
	}
	if w := r.value("onceline.dedup.window"); w != 3600 || running != 1 {
		t.Errorf("a window of %v s, %v running", w, running)
	}
	stop()
	stop()
	check()
	stopOther()
	check()
	if r.series("onceline.dedup.window") != nil {
		t.Error("a window of what isn't watched")
	}
}

// TestAmbiguous: a commit whose answer is lost, and what is tried again.
func TestAmbiguous(t *testing.T) {
	r := newRig(t)
	in := dedup.New[*sql.Tx](&lossy{Store: openStore(t, sqlite.Options{})}, "c", dedup.Options{Rand: func() float64 { return 0 }})
	defer r.Inbox(in)()
	if outcome, err := in.Once(t.Context(), dedup.Key{ID: "m"}, func(context.Context, *sql.Tx) error { return nil }); outcome != dedup.Applied {
		t.Error(outcome, err)
	}
	r.want(map[string]float64{"onceline.dedup.ambiguous_commits": 1, "onceline.dedup.retries": 1, "onceline.dedup.messages onceline.outcome=applied": 1})
}

// lossy loses the answer to the first commit.
type lossy struct {
	*sqlite.Store
	lost bool
}

func (s *lossy) Transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	err := s.Store.Transact(ctx, f)
	if err == nil && !s.lost {
		s.lost = true
		err = dedup.ErrCommitUnknown
	}
	return err
}

func TestPosition(t *testing.T) {
	r := newRig(t)
	p := dedup.NewPosition(openStore(t, sqlite.Options{}), "c", dedup.Options{Took: r.Took(otel.Position, "c")})
	defer r.Position(p)()
	apply := func(prev int64, offsets ...int64) error {
		_, err := dedup.AppliedFrom(t.Context(), p, dedup.Partition{Topic: "t", Name: "0"}, prev, offsets, func(o int64) int64 { return o },
			func(context.Context, *sql.Tx, int64) error { return nil })
		return err
	}
	must(t, apply(dedup.Start, 0, 1, 2))
	must(t, apply(2, 2, 3))
	if err := apply(2, 3, 4); !errors.Is(err, dedup.ErrFenced) {
		t.Error(err)
	}
	r.want(map[string]float64{"onceline.dedup.fenced onceline.guard=position": 1, "duplicates_caught": 1, "onceline.dedup.messages onceline.outcome=applied": 4, "onceline.dedup.duration": 3})
	if r.series("onceline.dedup.decisions", "onceline.decision=ack") != nil {
		t.Error("decisions of what has no handler")
	}
}

// TestCalls: calls that crashed, and the list of those that wait for somebody.
func TestCalls(t *testing.T) {
	r := newRig(t)
	store := openStore(t, sqlite.Options{})
	c, err := dedup.NewCalls(store, "psp", dedup.CallOptions{Bound: time.Minute, Took: r.Took(otel.Calls, "psp")})
	must(t, err)
	defer r.Calls(c)()
	r.want(map[string]float64{"onceline.calls.open onceline.consumer=psp": 0, "onceline.calls.open_age": 0, "stuck_processing_records": 0})
	began := time.Now().Add(-time.Hour)
	_, err = store.AddCall(t.Context(), dedup.Call{Consumer: "psp", ID: "crashed", State: dedup.CallStarted, First: began, Changed: began, Due: began.Add(time.Second)})
	must(t, err)
	if age := r.value("onceline.calls.open_age"); age < 3600 || r.value("onceline.calls.open") != 1 {
		t.Errorf("the oldest is %v s old", age)
	}
	for _, id := range []string{"crashed", "open", "paid", "paid"} {
		_, _, _ = c.Once(t.Context(), id, nil, func(context.Context, string) ([]byte, error) {
			if id == "open" {
				return nil, errBroken
			}
			return []byte("receipt"), nil
		})
	}
	r.want(map[string]float64{"onceline.calls.open": 2, "onceline.calls.unresolved": 2, "stuck_processing_records onceline.guard=calls": 1,
		"duplicates_caught": 1, "onceline.dedup.messages onceline.outcome=unknown": 2, "onceline.dedup.window": 7 * 24 * 3600})
}

// leases is a store that has given a key to another.
type leases struct{ window time.Duration }

func (l leases) Window() time.Duration { return l.window }
func (l leases) Reserve(_ context.Context, rs []*dedup.Reservation, lease time.Duration) {
	for _, r := range rs {
		r.Claim, r.Until, r.TakenOver = dedup.Fresh, time.Now().Add(lease), true
	}
}
func (l leases) Extend(context.Context, []*dedup.Reservation, time.Duration) {}
func (l leases) Complete(_ context.Context, rs []*dedup.Reservation) {
	for _, r := range rs {
		r.Err = broker.ErrLeaseLost
	}
}
func (l leases) Release(context.Context, []*dedup.Reservation) {}

func TestLease(t *testing.T) {
	r := newRig(t)
	l := dedup.NewLease(leases{time.Minute}, "mail", dedup.LeaseOptions{Took: r.Took(otel.Lease, "mail")})
	defer r.Lease(l)()
	if outcome, _, err := l.Once(t.Context(), dedup.Key{ID: "m"}, func(context.Context, int64) ([]byte, error) { return nil, nil }); outcome != dedup.Unknown {
		t.Error(outcome, err)
	}
	r.want(map[string]float64{"stuck_processing_records onceline.guard=lease": 1, "onceline.dedup.lease_lost": 1, "onceline.dedup.suspected_duplicates": 1, "onceline.dedup.window": 60})
}

// TestDuplicatesApplied: what an audit of the effects finds, by a real query. A store
// that doesn't answer is counted, and takes no count back.
func TestDuplicatesApplied(t *testing.T) {
	r := newRig(t)
	store := openStore(t, sqlite.Options{})
	fails := error(nil)
	stop := r.DuplicatesApplied("billing", func(ctx context.Context) (n int64, err error) {
		if fails != nil {
			return 0, fails
		}
		return n, store.DB().QueryRowContext(ctx, "SELECT count(*) - count(DISTINCT key) FROM effect").Scan(&n)
	})
	apply := func(key string) {
		t.Helper()
		must(t, store.Transact(t.Context(), func(tx *sql.Tx) error {
			_, err := tx.Exec("INSERT INTO effect VALUES (?)", key)
			return err
		}))
	}
	apply("a")
	apply("b")
	r.want(map[string]float64{"duplicate_processing onceline.consumer=billing": 0, "onceline.dedup.query_errors": 0})
	apply("a")
	r.want(map[string]float64{"duplicate_processing": 1})
	fails = errBroken
	r.want(map[string]float64{"duplicate_processing": 1})
	fails = nil
	must(t, store.Transact(t.Context(), func(tx *sql.Tx) error { _, err := tx.Exec("DELETE FROM effect"); return err }))
	r.want(map[string]float64{"duplicate_processing": 1, "onceline.dedup.query_errors": 1})
	if len(r.errs) != 1 || !errors.Is(r.errs[0], errBroken) {
		t.Errorf("the hook got %v", r.errs)
	}
	stop()
	if r.series("duplicate_processing") != nil {
		t.Error("it goes on")
	}
}

// slowly is an outbox that doesn't answer.
type slowly struct{}

func (slowly) OutboxBacklog(ctx context.Context, _ string) (dedup.OutboxBacklog, error) {
	<-ctx.Done()
	return dedup.OutboxBacklog{}, context.Cause(ctx)
}

// TestSlowStore: stores that don't answer hold up a collection for no more than the
// bound, all together, and take nothing else with them.
func TestSlowStore(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 5 {
			defer r.Outbox(fmt.Sprint("topic ", i), slowly{})()
		}
		r.Rebalances("s")
		start := time.Now()
		if all := r.collect(); len(all) < 4 {
			t.Errorf("%+v", all)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("collected in %v", took)
		}
		if r.series("onceline.outbox.lag") != nil {
			t.Error("a lag that nobody knows")
		}
	})
}

// TestTookIsCheap: a call that is told of costs no allocation here.
func TestTookIsCheap(t *testing.T) {
	r := newRig(t)
	took, published := r.Took(otel.Inbox, "c"), r.Published("t")
	if n := testing.AllocsPerRun(100, func() { took(10, time.Millisecond) }); n > 0 {
		t.Errorf("%v allocations for a call", n)
	}
	if n := testing.AllocsPerRun(100, func() { published(dedup.RelayPublish{Messages: 3, Took: time.Second, Retried: 1}) }); n > 0 {
		t.Errorf("%v allocations for a Publish", n)
	}
}
