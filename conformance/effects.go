package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// benchStore is a store that a probe has made.
type benchStore struct {
	Store
	address string
	remove  func() error
	guard   Guard
}

// on says of which kind a store is, and in which database.
func (s *benchStore) on() string { return s.Kind + " on " + s.Name }

// openStores makes the target's stores of all kinds that have a claim in one of the
// scenarios, and answers the claims of those that can't be had. own says that a
// process of its own will use them.
func (b *Bench) openStores(ctx context.Context, own bool, scenarios ...string) error {
	for _, kind := range StoreKinds() {
		var ids []boundary.Claim
		for _, scenario := range scenarios {
			if c, ok := Lookup(effectClaim(kind, scenario)); ok {
				ids = append(ids, c.ID)
			}
		}
		if len(ids) == 0 {
			continue
		}
		if kind == Position && !b.Target.Exclusive {
			for _, id := range ids {
				b.conclude(id, answer{verdict: report.NotApplicable, reason: "no consumer owns a sequence of messages here: one that comes again behind a later one would be taken for applied"})
			}
			continue
		}
		why, err := b.openKind(ctx, kind, own)
		if err != nil {
			return err
		}
		if why != "" {
			for _, id := range ids {
				b.conclude(id, answer{verdict: report.NotVerifiable, reason: why})
			}
		}
	}
	return nil
}

// openKind makes the target's stores of a kind that are there, or says why there is none.
func (b *Bench) openKind(ctx context.Context, kind string, own bool) (why string, err error) {
	opened := 0
	for _, s := range b.Target.Stores {
		if s.Kind != kind || s.Spare && opened > 0 {
			continue
		}
		if own && !workersReady.Load() {
			return "the store's process can't be killed or frozen here: the program doesn't call RunIfWorker", nil
		}
		made := benchStore{Store: s}
		made.address, made.remove, err = s.Make(ctx)
		if errors.Is(err, ErrAbsent) {
			if why == "" {
				why = err.Error()
			}
			continue // another of the kind may be there
		}
		if err != nil {
			return "", fmt.Errorf("make the store %s: %w", made.on(), err)
		}
		made.guard, err = s.Open(ctx, made.address)
		b.mu.Lock()
		b.stores = append(b.stores, made)
		b.mu.Unlock()
		if err != nil {
			return "", fmt.Errorf("open the store %s: %w", made.on(), err)
		}
		b.history.Add(report.Store, kind, "", "opened on %s", s.Name)
		opened++
	}
	switch {
	case opened > 0:
		return "", nil
	case why == "":
		why = "the target has no store of this kind"
	}
	return why, nil
}

func (b *Bench) storeSpecs() []storeSpec {
	var specs []storeSpec
	for _, s := range b.stores {
		specs = append(specs, storeSpec{Kind: s.Kind, Name: s.Name, Address: s.address})
	}
	return specs
}

func (b *Bench) closeStores() {
	b.mu.Lock()
	stores := b.stores
	b.mu.Unlock()
	for _, s := range stores {
		if s.guard != nil {
			if err := s.guard.Close(); err != nil {
				b.Note("cleanup: close the store %s: %v", s.on(), err)
			}
		}
		if s.remove != nil {
			if err := s.remove(); err != nil {
				b.Note("cleanup: remove the store %s: %v", s.on(), err)
			}
		}
	}
}

// inHand is how long a consumer keeps a message that a store would have come again.
// Then it never will: the stores' reservations end much sooner.
const inHand = 5 * time.Second

// keepAt applies the effect of d until the store says something else than that it has to
// come again, until enough, or for as long as a consumer keeps a message.
func (s benchStore) keepAt(ctx context.Context, d *broker.Delivery, enough func() bool) error {
	for deadline := time.Now().Add(inHand); ; {
		err := s.guard.Apply(ctx, d.Message, d.Position, func(Step) {})
		if !errors.Is(err, ErrAgain) || enough != nil && enough() || time.Now().After(deadline) || !sleep(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

// handle is a consumer at work on d: it applies the effect with no store, and by each
// store until that says that the message may be acked or is put aside. A message that
// would come again stays in its hands meanwhile: when it comes is not what is asked.
func (b *Bench) handle(ctx context.Context, d *broker.Delivery, who string) error {
	b.Effect(d.ID, who)
	for _, s := range b.stores {
		err := s.keepAt(ctx, d, nil)
		if err != nil && !errors.Is(err, ErrParked) && !errors.Is(err, ErrAgain) {
			return fmt.Errorf("%s: %q by %s: %w", s.on(), d.ID, who, err)
		}
		b.history.Add(report.Store, s.Kind, d.ID, "%s, asked by %s: %s", s.Name, who, verdict(err))
	}
	return nil
}

// loseAnswers is handle by a consumer that hears no answer to what applies the
// effect. It shows that the effect took place all the same.
func (b *Bench) loseAnswers(ctx context.Context, d *broker.Delivery, who string) error {
	b.Effect(d.ID, who+", which hears no answer")
	for _, s := range b.stores {
		lost := s.guard.LoseAnswer()
		// A database that is slow may have it come again before there is an answer to lose.
		err := s.keepAt(ctx, d, lost)
		if err != nil && !errors.Is(err, ErrParked) && !errors.Is(err, ErrAgain) {
			return fmt.Errorf("%s: %q by %s: %w", s.on(), d.ID, who, err)
		}
		if !lost() {
			return fmt.Errorf("%s: no answer was lost", s.on())
		}
		n, counted := s.guard.Effects(ctx, d.ID)
		if counted != nil {
			return counted
		}
		b.history.Add(report.Store, s.Kind, d.ID, "%s: the answer is lost and the effect is %s; to %s it says: %s", s.Name, applied(n), who, verdict(err))
		if n == 0 {
			return fmt.Errorf("%s: the effect whose answer is lost isn't there", s.on())
		}
	}
	return nil
}

// answerEffects answers the claims of a scenario by how often the effect of its message
// took place: with no store, and where each store's effects are. What says what was
// done.
func (b *Bench) answerEffects(ctx context.Context, scenario, id, what string) error {
	if c, ok := Lookup(effectClaim("", scenario)); ok {
		n := CheckEffects(b.history.Events())[id]
		b.conclude(c.ID, answer{observed: times(n), reason: fmt.Sprintf("%s with no store: %s", applied(n), what)})
	}
	return b.answerStores(ctx, scenario, id, what)
}

// answerStores is answerEffects without the claim that has no store. Of several stores
// of one kind that part, the one that isn't as declared answers.
func (b *Bench) answerStores(ctx context.Context, scenario, id, what string) error {
	type said struct {
		answer
		by []string
	}
	all := map[boundary.Claim]*said{}
	for i := range b.stores {
		s := &b.stores[i]
		c, ok := Lookup(effectClaim(s.Kind, scenario))
		if !ok {
			continue
		}
		n, err := s.guard.Effects(ctx, id)
		if err != nil {
			return fmt.Errorf("count the effects in %s: %w", s.on(), err)
		}
		b.history.Add(report.Store, s.Kind, id, "%s: %s", s.Name, applied(n))
		of := all[c.ID]
		if of == nil {
			of = &said{answer: answer{observed: times(n)}}
			all[c.ID] = of
		}
		if times(n) != b.Target.Boundary.Entries[c.ID].Declared {
			of.observed = times(n)
		}
		of.by = append(of.by, fmt.Sprintf("%s by %s", applied(n), s.on()))
	}
	for c, of := range all {
		of.reason = fmt.Sprintf("%s: %s", strings.Join(of.by, ", "), what)
		b.conclude(c, of.answer)
	}
	return nil
}

// applied says how often an effect took place.
func applied(n int) string {
	switch n {
	case 0:
		return "never applied"
	case 1:
		return "applied once"
	}
	return fmt.Sprintf("applied %d times", n)
}

// conclude records an answer whose reason is of no interest to the probe's other
// claims.
func (b *Bench) conclude(id boundary.Claim, a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.findings[id] = a
}

// concerning is what of a probe's evidence is about a claim: of the stores, and of the
// effects that none guards, the claim's own.
func concerning(id boundary.Claim, e report.Evidence) report.Evidence {
	own := ""
	for _, kind := range StoreKinds() {
		if rest, found := strings.CutPrefix(string(id), string(effectClaim(kind, ""))); found && !strings.Contains(rest, ".") {
			own = kind
		}
	}
	out := report.Evidence{Notes: e.Notes, History: []report.Event{}}
	for _, event := range e.History {
		other := event.Kind != own && slices.Contains(StoreKinds(), event.Kind) || event.Kind == kindEffect && own != ""
		if event.Actor != report.Store || !other {
			out.History = append(out.History, event)
		}
	}
	return out
}
