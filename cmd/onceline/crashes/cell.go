package crashes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// cellWithin bounds a cell, which waits for nothing for ever; restartWithin those that
// wait for each other.
const (
	cellWithin    = 3 * time.Minute
	restartWithin = 5 * time.Minute
)

// run is a cell that runs.
type run struct {
	Cell
	name  string // of the cell, in a database that others share
	store *Store
	db    *server
	link  *link
	calls *dedup.Calls

	events    chan event
	consumers []*consumer
	gone      map[*consumer]bool
	main      *consumer

	acked   map[string]bool
	handled map[string]*consumer // who said last of a message that it may be acked
	told    map[string]bool      // of a consumer and a message: what it made of it
	outside map[string]int       // effects that took place elsewhere
	keys    map[string]bool
	fences  map[string]int64
	again   map[string]int // how often a message came and couldn't be applied
	since   map[string]time.Time
	listed  map[string]Seen
	other   *consumer // who takes over from one that is frozen
	held    bool      // and is at its point
	frozen  bool      // nobody decides about a call that somebody may be at
	notes   []string
	rounds  []Round
}

// runCell runs one on a server.
func runCell(ctx context.Context, c Cell, name string, s *server) *Result {
	began := time.Now()
	result := &Result{Cell: c}
	within := cellWithin
	if c.Disturbance == Restart {
		within = restartWithin
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not done within %v", within))
	defer cancel()
	if c.Disturbance == Restart {
		defer s.leave(ctx)
	}
	store, _ := storeNamed(c.Store)
	r := &run{Cell: c, name: name, store: store, db: s, events: make(chan event, 1000), gone: map[*consumer]bool{},
		acked: map[string]bool{}, handled: map[string]*consumer{}, told: map[string]bool{}, outside: map[string]int{}, keys: map[string]bool{}, fences: map[string]int64{},
		again: map[string]int{}, since: map[string]time.Time{}, listed: map[string]Seen{}}
	var err error
	if r.store.Server == "" { // one that is frozen holds up all others on its file
		if r.db, err = startServer(ctx, "", nil); err != nil {
			result.Err = err
			return result
		}
		defer func() { result.Err = errors.Join(result.Err, r.db.close()) }()
	}
	err = errors.Join(r.all(ctx), r.end())
	if err == nil {
		err = r.judge(ctx, result)
	}
	result.Err, result.Rounds, result.Notes, result.Took = err, r.rounds, r.notes, time.Since(began)
	return result
}

func (r *run) all(ctx context.Context) (err error) {
	if r.link, err = startLink(ctx, r.Broker, r.store.kind == positionKind); err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	if r.store.kind == callKind {
		if r.calls, err = dedup.NewCalls(r.db.own.calls, r.name, callOptions(r.store.helped)); err != nil {
			return err
		}
	}
	for round := range rounds {
		if r.main == nil {
			if r.main, err = r.start(ctx); err != nil {
				return err
			}
		}
		if err := r.round(ctx, round); err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	if err := r.drain(ctx); err != nil {
		return fmt.Errorf("drain: %w", err)
	}
	return r.retire(ctx, r.main)
}

// next takes one event and does what is to be done about any.
func (r *run) next(ctx context.Context) (event, error) {
	var e event
	select {
	case e = <-r.events:
	case <-ctx.Done():
		return e, context.Cause(ctx)
	}
	switch e.Event {
	case effect:
		answer := done
		if !r.takes(e) {
			answer = refused
		}
		e.from.tell(command{Seq: e.Seq, Do: answer})
	case settled:
		for _, id := range e.IDs {
			r.acked[id] = true
		}
	case handled:
		r.told[e.from.name+" "+e.ID] = true
		if e.OK {
			r.handled[e.ID] = e.from
			break
		}
		if r.again[e.ID] == 0 {
			r.since[e.ID] = time.Now()
		}
		r.again[e.ID]++
		r.noted(e.from.name + ": " + e.ID + ": " + e.Note)
	case at:
		r.held = r.held || e.from == r.other
	case note:
		r.noted(e.from.name + ": " + e.Note)
	case failed:
		return e, fmt.Errorf("%s: %s", e.from.name, e.Note)
	case ended:
		if !r.gone[e.from] && e.Note != "" {
			return e, fmt.Errorf("%s ended: %s", e.from.name, e.Note)
		}
		r.gone[e.from] = true
	}
	return e, nil
}

// nextBefore is next, with errQuiet if nothing comes before the time.
func (r *run) nextBefore(ctx context.Context, t time.Time) (event, error) {
	quiet, cancel := context.WithDeadlineCause(ctx, t, errQuiet)
	defer cancel()
	return r.next(quiet)
}

var errQuiet = errors.New("nothing comes")

func (r *run) noted(text string) {
	if r.notes = append(r.notes, text); len(r.notes) > 20 {
		r.notes = r.notes[1:]
	}
}

// until takes events until one is as asked.
func (r *run) until(ctx context.Context, is func(event) bool) (event, error) {
	for {
		e, err := r.next(ctx)
		if err != nil || is(e) {
			return e, err
		}
	}
}

// takes is the other side of an effect: it takes one, as often as it is asked to unless
// it is one that helps, and reports whether it did.
func (r *run) takes(e event) bool {
	if r.store.helped && e.Key != "" {
		if r.keys[e.Key] {
			return true // it gets the first one's answer
		}
		r.keys[e.Key] = true
	}
	if r.store.helped && e.Fence != 0 {
		if e.Fence < r.fences[e.ID] {
			return false
		}
		r.fences[e.ID] = e.Fence
	}
	r.outside[e.ID]++
	return true
}

// round publishes a part of the messages, disturbs one of them, and waits for all.
func (r *run) round(ctx context.Context, n int) error {
	from, to := n*Messages/rounds, (n+1)*Messages/rounds
	var ids []string
	var msgs []broker.Message
	for i := from; i < to; i++ {
		id := fmt.Sprintf("%s-%03d", r.name, i)
		ids = append(ids, id)
		msgs = append(msgs, broker.Message{ID: id, Body: []byte(id)})
	}
	t := &trigger{ID: ids[len(ids)/3], Point: r.Point, Round: n}
	r.main.tell(command{Trigger: t})
	if err := r.link.publish(ctx, msgs); err != nil {
		return err
	}
	disturbed := false
	for !disturbed || !r.isOver(ids) {
		e, err := r.nextBefore(ctx, time.Now().Add(2*brokerLease))
		if errors.Is(err, errQuiet) { // a database may end the commit of one that was killed after the look at it
			if err := r.look(ctx); err != nil {
				r.noted("look: " + err.Error()) // it is looked again, as long as the cell may take
			}
			continue
		}
		if err != nil {
			if missing := r.missing(ids); len(missing) > 0 {
				return fmt.Errorf("%w; not handled: %s", err, strings.Join(missing, ", "))
			}
			if !disturbed {
				return fmt.Errorf("%w; nobody came by the point", err)
			}
			return err
		}
		switch {
		case e.Event == at || e.Event == passing:
			if disturbed { // the one that took over comes late
				e.from.tell(command{Seq: e.Seq, Do: goOn})
				continue
			}
			disturbed = true
			r.rounds = append(r.rounds, Round{ID: e.ID})
			if err := r.disturb(ctx, n, e, ids); err != nil {
				return err
			}
		case e.Event == handled && e.Parked:
			if err := r.decide(ctx); err != nil {
				return err
			}
		case r.isBlocked(e):
			r.blocked(e.ID)
		}
	}
	return nil
}

// isBlocked reports whether a message of a wrong store comes again and again, and is
// never handled.
func (r *run) isBlocked(e event) bool {
	return e.Event == handled && !e.OK && r.store.Wrong && r.again[e.ID] > 10 && time.Since(r.since[e.ID]) > 2*brokerLease
}

// blocked gives a message of a wrong store up.
func (r *run) blocked(id string) {
	r.acked[id] = true
	for i := range r.rounds {
		if r.rounds[i].ID == id {
			r.rounds[i].Blocked = true
		}
	}
}

func (r *run) isOver(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !r.acked[id] && r.handled[id] == nil })
}

func (r *run) missing(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return r.acked[id] || r.handled[id] != nil })
}
