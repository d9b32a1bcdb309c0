package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/internal/bubbletest"
)

var errBroken = errors.New("broken")

// entity is what the tests publish to and receive from.
var entity = broker.Entity{Topic: "orders", Subscription: "orders/billing", DeadLetter: "dead", Lease: 10 * time.Second}

// rig is a broker with a subscription, in a synctest bubble.
type rig struct {
	b    *memory.Broker
	conn broker.Conn
	pub  broker.Publisher
	rcv  broker.Receiver
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{b: memory.New()}
	r.conn = r.b.Conn()
	ctx := t.Context()
	var err error
	if err = r.conn.Ensure(ctx, entity); err != nil {
		t.Fatal(err)
	}
	if err = r.conn.Ensure(ctx, broker.Entity{Topic: "dead", Subscription: "dead/look"}); err != nil {
		t.Fatal(err)
	}
	if r.pub, err = r.conn.OpenPublisher(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	if r.rcv, err = r.conn.OpenReceiver(ctx, "orders/billing"); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) close(t *testing.T) {
	t.Helper()
	if err := r.conn.Close(context.Background()); err != nil {
		t.Error(err)
	}
	r.b.Close()
}

func (r *rig) publish(t *testing.T, msgs ...broker.Message) {
	t.Helper()
	if _, err := r.pub.Publish(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
}

// dead returns IDs and reasons of the dead letters, and waits until there are n.
func (r *rig) dead(t *testing.T, n int) map[string]string {
	t.Helper()
	rcv, err := r.conn.OpenReceiver(t.Context(), "dead/look")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for len(got) < n {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		ds, err := rcv.Receive(ctx, 10)
		cancel()
		if err != nil {
			t.Fatalf("%d dead letters of %d: %v", len(got), n, err)
		}
		for i := range ds {
			got[ds[i].ID] = ds[i].Headers.Get("onceline-dead-letter-reason")
		}
	}
	return got
}

// scripted is a fakeStore whose transactions begin with what the script says.
type scripted struct {
	*fakeStore
	mu     sync.Mutex
	script []error // of Transact, nil for none
}

func (s *scripted) Transact(ctx context.Context, f func(tx *fakeTx) error) error {
	s.mu.Lock()
	var err error
	if len(s.script) > 0 {
		err, s.script = s.script[0], s.script[1:]
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.fakeStore.Transact(ctx, f)
}

// TestHandler: each outcome becomes what Consume is told, and no trouble of the store
// counts as an attempt of the message; one that is in flight comes again
// (MassTransit/MassTransit#4857).
func TestHandler(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close(t)
		store := &scripted{fakeStore: newFakeStore()}
		store.floor = dedup.MinuteMarker(time.Now().Add(-time.Hour))
		in := dedup.New[*fakeTx](store, "billing", dedup.Options{Attempts: 1})
		other := dedup.New[*fakeTx](store, "billing", dedup.Options{})
		if _, err := other.Once(t.Context(), dedup.Key{ID: "dup"}, func(ctx context.Context, tx *fakeTx) error { return store.effect(ctx, tx, "dup") }); err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		holding := make(chan struct{})
		go func() { // another copy of "held", for three seconds
			_, _ = other.Once(t.Context(), dedup.Key{ID: "held"}, func(ctx context.Context, tx *fakeTx) error {
				close(holding)
				<-release
				return store.effect(ctx, tx, "held")
			})
		}()
		<-holding
		store.script = []error{dedup.ErrLost, dedup.ErrCommitUnknown, fmt.Errorf("no such table")}
		for _, id := range []string{"ok", "dup", "held", "poison", "fails", "old", "no-key"} {
			r.publish(t, broker.Message{ID: id})
		}
		time.AfterFunc(3*time.Second, func() { close(release) })
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		runs := map[string]int{}
		handler := dedup.Handler(in, func(ctx context.Context, tx *fakeTx, d *broker.Delivery) error {
			mu.Lock()
			runs[d.ID]++
			mu.Unlock()
			switch d.ID {
			case "poison":
				return broker.Poison(errBroken)
			case "fails":
				return errBroken
			}
			return store.effect(ctx, tx, d.ID)
		}, dedup.KeyFrom(func(d *broker.Delivery) dedup.Key {
			switch d.ID {
			case "old":
				return dedup.Key{ID: d.ID, At: time.Now().Add(-2 * time.Hour)}
			case "no-key":
				return dedup.Key{}
			}
			return dedup.Key{ID: d.ID}
		}))
		ended := make(chan error, 1)
		go func() {
			ended <- broker.Consume(ctx, r.rcv, handler, broker.ConsumeOptions{Workers: 1, MaxAttempts: 2, Backoff: broker.Backoff{Min: time.Second, Max: time.Second}, ErrorHook: func(error) {}})
		}()
		dead := r.dead(t, 4)
		time.Sleep(10 * time.Second)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for id, reason := range map[string]string{"poison": "broken", "fails": "broken", "old": "outside of the time", "no-key": "without an ID"} {
			if !strings.Contains(dead[id], reason) {
				t.Errorf("%s is dead by %q, want %q", id, dead[id], reason)
			}
		}
		if len(dead) != 4 || runs["fails"] != 2 || runs["poison"] != 1 || runs["dup"] != 0 || runs["old"] != 0 || runs["held"] != 0 {
			t.Errorf("dead %v, runs %v", dead, runs)
		}
		counts := store.counts()
		for _, id := range []string{"ok", "dup", "held"} {
			if counts[id] != 1 {
				t.Errorf("%d effects of %s", counts[id], id)
			}
		}
		if st := in.Stats(); st.Ambiguous != 1 || st.Unknown != 3 || st.InFlight < 1 {
			t.Errorf("stats %+v", st)
		}
		// Nothing is left: all was acked or is dead.
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if ds, err := r.rcv.Receive(ctx, 10); len(ds) > 0 {
			t.Errorf("%d are left, %v", len(ds), err)
		}
	})
}

// TestAckFails: the effect is applied and the ack fails; the message comes again, is
// a duplicate, and is acked (kalaspuff/tomodachi#2074).
func TestAckFails(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close(t)
		store := newFakeStore()
		in := dedup.New[*fakeTx](store, "billing", dedup.Options{})
		r.publish(t, broker.Message{ID: "a"})
		effect := func(ctx context.Context, tx *fakeTx, d *broker.Delivery) error { return store.effect(ctx, tx, d.ID) }
		first := true
		rcv := &faultyReceiver{Receiver: r.rcv, settle: func(s []broker.Settlement) bool {
			defer func() { first = false }()
			return !first
		}}
		ds, err := rcv.Receive(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		results, settled, err := dedup.HandleBatch(t.Context(), in, rcv, ds, effect)
		if !errors.Is(err, broker.ErrLeaseLost) || results[0].Outcome != dedup.Applied || settled[0].Outcome.State != broker.LeaseLost {
			t.Errorf("%v, %v, %v", results, settled, err)
		}
		if ds, err = rcv.Receive(t.Context(), 10); err != nil { // after its lease
			t.Fatal(err)
		}
		results, settled, err = dedup.HandleBatch(t.Context(), in, rcv, ds, effect)
		if err != nil || results[0].Outcome != dedup.Duplicate || settled[0].Action != broker.Ack || settled[0].Outcome.State != broker.Confirmed {
			t.Errorf("again: %v, %v, %v", results, settled, err)
		}
		if n := store.counts()["a"]; n != 1 {
			t.Errorf("%d effects", n)
		}
		// A resubmit from a dead-letter entity is another copy for the broker, and
		// the same message for the store.
		r.publish(t, broker.Message{ID: "a", Copy: "resubmit-1"})
		if ds, err = rcv.Receive(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		results, _, err = dedup.HandleBatch(t.Context(), in, rcv, ds, effect)
		if err != nil || results[0].Outcome != dedup.Duplicate {
			t.Errorf("resubmitted: %v, %v", results, err)
		}
	})
}

// faultyReceiver refuses to settle when settle returns false.
type faultyReceiver struct {
	broker.Receiver
	settle func(s []broker.Settlement) bool
}

func (r *faultyReceiver) Settle(ctx context.Context, s []broker.Settlement) error {
	if r.settle(s) {
		return r.Receiver.Settle(ctx, s)
	}
	for i := range s {
		s[i].Outcome = broker.Outcome{State: broker.LeaseLost, Err: broker.ErrLeaseLost}
	}
	return broker.ErrLeaseLost
}

// TestHandleBatch: a batch of deliveries with every outcome, in which a key's later
// messages wait for its earlier ones.
func TestHandleBatch(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		r := newRig(t)
		defer r.close(t)
		store := newFakeStore()
		in := dedup.New[*fakeTx](store, "billing", dedup.Options{})
		for _, m := range []broker.Message{{ID: "1", Key: "k"}, {ID: "2", Key: "k"}, {ID: "3"}, {ID: "4", Key: "k"}, {ID: "5"}, {ID: "6", Key: "other"}} {
			r.publish(t, m)
		}
		bad := true
		effect := func(ctx context.Context, tx *fakeTx, d *broker.Delivery) error {
			if d.ID == "2" && bad || d.ID == "5" {
				return errBroken
			}
			return store.effect(ctx, tx, d.ID)
		}
		deadly := dedup.DeadLetterWhen(func(d *broker.Delivery, err error) (string, bool) { return err.Error(), d.ID == "5" })
		handled := map[string][]string{}
		for round := range 2 {
			var ds []broker.Delivery
			want := []int{6, 2}[round]
			for len(ds) < want {
				more, err := r.rcv.Receive(t.Context(), 10)
				if err != nil {
					t.Fatal(err)
				}
				ds = append(ds, more...)
			}
			results, settled, err := dedup.HandleBatch(t.Context(), in, r.rcv, ds, effect, deadly, dedup.RetryDelay(2*time.Second))
			if err != nil {
				t.Error(err)
			}
			for i, d := range ds {
				handled[d.ID] = append(handled[d.ID], fmt.Sprint(results[i].Outcome, ", ", settled[i].Action, " ", settled[i].Delay))
			}
			bad = false
		}
		for id, want := range map[string][]string{
			"1": {"applied, Ack 0s"}, "2": {"failed, Nack 2s", "applied, Ack 0s"}, "3": {"applied, Ack 0s"},
			"4": {"in flight, Nack 2s", "applied, Ack 0s"}, "5": {"failed, DeadLetter 0s"}, "6": {"applied, Ack 0s"},
		} {
			if !slices.Equal(handled[id], want) {
				t.Errorf("%s: %q, want %q", id, handled[id], want)
			}
		}
		if dead := r.dead(t, 1); dead["5"] != "broken" {
			t.Errorf("dead: %v", dead)
		}
		if ledger := store.ledger; slices.Index(ledger, "2") > slices.Index(ledger, "4") || len(ledger) != 5 {
			t.Errorf("applied in the order %v", ledger)
		}
		if _, _, err := dedup.HandleBatch(t.Context(), in, r.rcv, nil, effect); err != nil {
			t.Errorf("an empty batch: %v", err)
		}
	})
}
