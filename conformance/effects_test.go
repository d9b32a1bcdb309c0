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
)

// counted is a store in memory that applies effects as often as it is asked, and
// returns what it is told to.
type counted struct {
	says   []error
	asked  int
	lost   bool
	closed int
}

func (c *counted) Apply(context.Context, broker.Message, broker.Position, func(Step)) error {
	err := c.says[min(c.asked, len(c.says)-1)]
	c.asked++
	return err
}

func (c *counted) LoseAnswer() func() bool                      { return func() bool { return c.lost } }
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

// TestStoresThatAreThere: the first store of a kind that is there is used; what isn't
// there, and what the target can't have, is no pass.
func TestStoresThatAreThere(t *testing.T) {
	var removed int
	inbox := &counted{says: []error{nil}}
	b := storeBench(Target{Stores: []Store{missingStore(Inbox), inbox.store(Inbox, "there", &removed), missingStore(Lease)}})
	if err := b.openStores(t.Context(), false, replayed); err != nil {
		t.Fatal(err)
	}
	if len(b.stores) != 1 || b.stores[0].Name != "there" {
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
	if inbox.closed != 1 || removed != 1 {
		t.Errorf("closed %d times, removed %d times", inbox.closed, removed)
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

// TestAnAnswerThatWasNotLost ends the probe: it would tell nothing.
func TestAnAnswerThatWasNotLost(t *testing.T) {
	for _, lost := range []bool{false, true} {
		var removed int
		store := &counted{says: []error{ErrAgain}, lost: lost}
		b := storeBench(Target{Stores: []Store{store.store(Inbox, "there", &removed)}})
		if err := b.openStores(t.Context(), false, commitUnknown); err != nil {
			t.Fatal(err)
		}
		err := b.loseAnswers(t.Context(), &broker.Delivery{Message: broker.Message{ID: "m"}}, "the consumer")
		if (err == nil) != lost {
			t.Errorf("lost %v: %v", lost, err)
		}
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
