package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/internal/bubbletest"
)

// counted is a store in memory that applies effects as often as it is asked, and
// returns what it is told to.
type counted struct {
	says   []error
	asked  int
	lostAt int // how often it is asked before an answer is lost
	closed int
}

const never = 1 << 30

func (c *counted) Apply(context.Context, broker.Message, broker.Position, func(Step)) error {
	err := c.says[min(c.asked, len(c.says)-1)]
	c.asked++
	return err
}

func (c *counted) LoseAnswer() func() bool                      { return func() bool { return c.asked >= c.lostAt } }
func (c *counted) Effects(context.Context, string) (int, error) { return c.asked, nil }
func (c *counted) Close() error                                 { c.closed++; return nil }

// store is c as a value; removed counts what was removed.
func (c *counted) store(kind, name string, removed *int) Store {
	return Store{Kind: kind, Name: name,
		Make: func(context.Context) (string, func() error, error) {
			return name, func() error { *removed++; return nil }, nil
		},
		Open: func(_ context.Context, address string) (Guard, error) {
			if address != name {
				return nil, fmt.Errorf("address %q", address)
			}
			return c, nil
		}}
}

func missingStore(kind string) Store {
	return Store{Kind: kind, Name: "missing", Make: func(context.Context) (string, func() error, error) {
		return "", nil, fmt.Errorf("%w: install it", ErrAbsent)
	}}
}

func storeBench(target Target) *Bench {
	return &Bench{Target: &target, history: newHistory(), findings: map[boundary.Claim]answer{}}
}

// TestStoresThatAreThere: the stores of a kind that are there are used, but a spare one
// only where no other is; what isn't there, and what the target can't have, is no pass.
func TestStoresThatAreThere(t *testing.T) {
	var removed int
	inbox := &counted{says: []error{nil}}
	spare := inbox.store(Inbox, "spare", &removed)
	spare.Spare = true
	b := storeBench(Target{Stores: []Store{missingStore(Inbox), inbox.store(Inbox, "there", &removed), spare, inbox.store(Inbox, "too", &removed), missingStore(Lease)}})
	if err := b.openStores(t.Context(), false, replayed); err != nil {
		t.Fatal(err)
	}
	if len(b.stores) != 2 || b.stores[0].Name != "there" || b.stores[1].Name != "too" {
		t.Errorf("opened %+v", b.stores)
	}
	for id, want := range map[boundary.Claim]struct {
		verdict report.Verdict
		reason  string
	}{
		boundary.EffectPositionReplay: {report.NotApplicable, "behind a later one"},
		boundary.EffectLeaseReplay:    {report.NotVerifiable, "install it"},
		boundary.EffectCallReplay:     {report.NotVerifiable, "no store of this kind"},
	} {
		if a := b.findings[id]; a.verdict != want.verdict || !strings.Contains(a.reason, want.reason) {
			t.Errorf("%s: %+v", id, a)
		}
	}
	if _, answered := b.findings[boundary.EffectInboxReplay]; answered {
		t.Error("the inbox is there, and its claim is answered before it was asked")
	}
	b.closeStores()
	if inbox.closed != 2 || removed != 2 {
		t.Errorf("closed %d times, removed %d times", inbox.closed, removed)
	}
	b = storeBench(Target{Stores: []Store{missingStore(Inbox), spare}})
	if err := b.openStores(t.Context(), false, replayed); err != nil || len(b.stores) != 1 {
		t.Errorf("a spare one alone: opened %+v, %v", b.stores, err)
	}
	b.closeStores()
}

// TestStoresThatPart: of two stores of a kind the one that isn't as declared answers,
// whichever comes first, and the reason names both.
func TestStoresThatPart(t *testing.T) {
	for _, wrongFirst := range []bool{true, false} {
		var removed int
		fine, wrong := &counted{asked: 1}, &counted{asked: 2}
		stores := []Store{fine.store(Inbox, "fine", &removed), wrong.store(Inbox, "wrong", &removed)}
		if wrongFirst {
			slices.Reverse(stores)
		}
		for _, c := range []struct{ declared, want boundary.Answer }{{boundary.Once, boundary.Twice}, {boundary.Twice, boundary.Once}} {
			b := storeBench(Target{Stores: stores, Boundary: boundary.Boundary{Entries: map[boundary.Claim]boundary.Entry{boundary.EffectInboxReplay: {Declared: c.declared}}}})
			if err := b.openStores(t.Context(), false, replayed); err != nil {
				t.Fatal(err)
			}
			if err := b.answerEffects(t.Context(), replayed, "m", "as told"); err != nil {
				t.Fatal(err)
			}
			if a := b.findings[boundary.EffectInboxReplay]; a.observed != c.want || !strings.Contains(a.reason, "once by inbox on fine") || !strings.Contains(a.reason, "2 times by inbox on wrong") {
				t.Errorf("declared %s: %+v", c.declared, a)
			}
			b.closeStores()
		}
	}
}

// TestHandle: a store that would have a message come again is asked again; one that
// puts it aside isn't; an error of another kind ends the probe.
func TestHandle(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		says  []error
		asked int
		want  error
	}{
		{[]error{nil}, 1, nil},
		{[]error{ErrAgain, fmt.Errorf("in other hands: %w", ErrAgain), nil}, 3, nil},
		{[]error{ErrParked}, 1, nil},
		{[]error{ErrAgain, broken}, 2, broken},
	} {
		var removed int
		store := &counted{says: c.says}
		b := storeBench(Target{Stores: []Store{store.store(Inbox, "there", &removed)}})
		if err := b.openStores(t.Context(), false, replayed); err != nil {
			t.Fatal(err)
		}
		err := b.handle(t.Context(), &broker.Delivery{Message: broker.Message{ID: "m"}}, "the consumer")
		if !errors.Is(err, c.want) || store.asked != c.asked {
			t.Errorf("%v: asked %d times, %v", c.says, store.asked, err)
		}
		if err := b.answerEffects(t.Context(), replayed, "m", "as told"); err != nil {
			t.Fatal(err)
		}
		if a := b.findings[boundary.EffectInboxReplay]; a.observed != times(c.asked) {
			t.Errorf("%v: %+v", c.says, a)
		}
		if a := b.findings[boundary.EffectReplay]; a.observed != boundary.Once {
			t.Errorf("with no store: %+v", a)
		}
	}
}

// TestWriteRow: a database that is busy for a moment is asked again, and the row counts
// once.
func TestWriteRow(t *testing.T) {
	var removed int
	store := &counted{says: []error{ErrAgain, nil}}
	b := storeBench(Target{Stores: []Store{store.store(Inbox, "there", &removed)}})
	if err := b.openStores(t.Context(), false, replayed); err != nil {
		t.Fatal(err)
	}
	p := &txnPlay{}
	err := b.writeRow(t.Context(), p, broker.Delivery{Message: broker.Message{ID: "m"}}, "the consumer")
	if err != nil || store.asked != 2 || len(p.rows) != 1 {
		t.Errorf("%v, asked %d times, %d rows", err, store.asked, len(p.rows))
	}
}

// TestAnAnswerThatWasNotLost ends the probe: it would tell nothing. One that is lost only
// when the message has come again, for a slow database, will do.
func TestAnAnswerThatWasNotLost(t *testing.T) {
	for lostAt, want := range map[int]bool{0: true, 3: true, never: false} {
		bubbletest.Run(t, func(t *testing.T) {
			var removed int
			store := &counted{says: []error{ErrAgain}, lostAt: lostAt}
			b := storeBench(Target{Stores: []Store{store.store(Inbox, "there", &removed)}})
			if err := b.openStores(t.Context(), false, commitUnknown); err != nil {
				t.Fatal(err)
			}
			err := b.loseAnswers(t.Context(), &broker.Delivery{Message: broker.Message{ID: "m"}}, "the consumer")
			if (err == nil) != want {
				t.Errorf("lost at %d, asked %d times: %v", lostAt, store.asked, err)
			}
		})
	}
}

// TestConcerning: the evidence of a claim doesn't have what other stores did.
func TestConcerning(t *testing.T) {
	var all report.Evidence
	for _, kind := range append(StoreKinds(), kindEffect, "wait") {
		all.History = append(all.History, report.Event{Actor: report.Store, Kind: kind, ID: "m"})
	}
	all.History = append(all.History, report.Event{Actor: report.Consumer, Kind: kindDelivery, ID: "m"})
	for id, want := range map[boundary.Claim][]string{
		boundary.EffectZombie:               {kindEffect, "wait", kindDelivery},
		boundary.EffectLeaseZombie:          {Lease, "wait", kindDelivery},
		boundary.EffectLeaseFencedZombie:    {LeaseFenced, "wait", kindDelivery},
		boundary.EffectCallKeyedCrashBefore: {CallKeyed, "wait", kindDelivery},
		boundary.DeliverRedeliverCrash:      {kindEffect, "wait", kindDelivery},
	} {
		var got []string
		for _, e := range concerning(id, all).History {
			got = append(got, e.Kind)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
}
