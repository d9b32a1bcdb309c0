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
	cellWithin    = 90 * time.Second
	restartWithin = 4 * time.Minute
)

// Result is what came out of a cell.
type Result struct {
	Cell
	// NotApplicable says why it wasn't asked.
	NotApplicable string
	// Rounds are what was seen of the message that was disturbed, by round.
	Rounds []Round
	// Others are those whose effect took place more than once, or never, without having
	// been disturbed.
	Others []string
	// Err is why nothing was found out.
	Err error
	// Notes are the last errors that its consumers went on after.
	Notes []string
	Took  time.Duration
}

// Round is what was seen in one round.
type Round struct {
	ID      string
	Effects Seen
	Times   int
	// Listed is true if it was on the list of calls that somebody has to look at, and
	// Meanwhile how often it had taken place then.
	Listed    bool
	Meanwhile Seen
	// Blocked is true if it came again and again, and nobody could apply it.
	Blocked bool
	// Wanted is what the store promises, and OK whether it was so.
	Wanted string
	OK     bool
}

// OK reports whether everything was as the store promises.
func (r *Result) OK() bool {
	return r.NotApplicable != "" || r.Err == nil && len(r.Others) == 0 && len(r.Rounds) == rounds && !slices.ContainsFunc(r.Rounds, func(r Round) bool { return !r.OK })
}

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

// start starts another consumer, and waits until it is ready.
func (r *run) start(ctx context.Context) (*consumer, error) {
	c, err := r.launch(false)
	if err != nil {
		return nil, err
	}
	if _, err = r.until(ctx, func(e event) bool { return e.from == c && e.Event == ready }); err != nil {
		return nil, fmt.Errorf("%s doesn't start: %w", c.name, err)
	}
	return c, nil
}

// launch starts another consumer. single is one that takes one message at a time. Its
// clock is a day ahead of that of the one before it.
func (r *run) launch(single bool) (*consumer, error) {
	spec := consumerSpec{Store: r.Store, Address: r.db.address, Cell: r.name, Broker: r.link.url, Topic: r.link.entity.Topic,
		Subscription: r.link.entity.Subscription, Batch: 8, Day: len(r.consumers)}
	if single {
		spec.Batch = 1
	}
	c, err := startConsumer(fmt.Sprint("consumer ", len(r.consumers)+1), spec, r.events)
	if err != nil {
		return nil, err
	}
	r.consumers = append(r.consumers, c)
	return c, nil
}

// retire lets a consumer end by itself.
func (r *run) retire(ctx context.Context, c *consumer) error {
	c.leave()
	for !r.gone[c] {
		if _, err := r.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// killed kills a consumer and takes in what it had said before.
func (r *run) killed(ctx context.Context, c *consumer) error {
	c.kill()
	r.gone[c] = true // that it ends is no news
	for {
		e, err := r.next(ctx)
		if err != nil {
			return err
		}
		if e.from == c && e.Event == ended {
			break
		}
	}
	return r.look(ctx)
}

// look finds what one that can't tell has applied by a stored position: it doesn't come
// to who goes on from there.
func (r *run) look(ctx context.Context) error {
	if r.store.kind != positionKind {
		return nil
	}
	effects, err := r.db.own.effects(ctx, r.name)
	for id := range effects {
		r.acked[id] = true
	}
	return err
}

// drain waits until all that was handled has been acked, or nothing comes any more:
// some acks got no answer, or their consumer was killed before it could tell of it.
func (r *run) drain(ctx context.Context) error {
	for {
		open := false
		for id := range r.handled {
			open = open || !r.acked[id]
		}
		if !open {
			return nil
		}
		quiet, cancel := context.WithTimeoutCause(ctx, 2*brokerLease, errQuiet)
		e, err := r.next(quiet)
		cancel()
		switch {
		case errors.Is(err, errQuiet):
			return nil
		case err != nil:
			return err
		case e.Event == handled && e.Parked:
			if err := r.decide(ctx); err != nil {
				return err
			}
		}
	}
}

var errQuiet = errors.New("nothing comes")

// end makes sure that nothing is left.
func (r *run) end() error {
	for _, c := range r.consumers {
		c.kill()
	}
	for _, c := range r.consumers {
		for open := true; open; {
			select {
			case <-c.done:
				open = false
			case <-r.events:
			}
		}
	}
	if r.link == nil {
		return nil
	}
	return r.link.close()
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
		e, err := r.next(ctx)
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
		case e.Event == handled && !e.OK && r.store.Wrong && r.again[e.ID] > 10 && time.Since(r.since[e.ID]) > 2*brokerLease:
			r.blocked(e.ID)
		}
	}
	return nil
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

// disturb does to a consumer, which is at the point, what the cell is about.
func (r *run) disturb(ctx context.Context, n int, e event, ids []string) error {
	var err error
	switch r.Disturbance {
	case Kill:
		if err = r.killed(ctx, e.from); err == nil {
			r.main, err = r.start(ctx)
		}
		return err
	case Freeze:
		return r.freeze(ctx, n, e, ids)
	case CutStore:
		e.from.tell(command{Seq: e.Seq, Do: cutOff})
		return nil
	case CutBroker:
		if r.link.emulator.Disconnect() == 0 {
			return errors.New("no connection to the broker was cut")
		}
	case Restart:
		if err := r.db.restart(ctx); err != nil {
			return err
		}
	}
	e.from.tell(command{Seq: e.Seq, Do: goOn})
	return nil
}

// freeze stops a consumer until another has taken over, and lets it go on then.
func (r *run) freeze(ctx context.Context, n int, e event, ids []string) error {
	zombie := e.from
	delete(r.told, zombie.name+" "+e.ID) // that it failed before is no news
	zombie.freeze()
	if err := zombie.frozen(ctx); err != nil {
		return err
	}
	r.frozen = true
	other, err := r.launch(true)
	if err != nil {
		return err
	}
	// In each second round the other one stops behind the effect, to be killed there.
	killed := n%2 == 1
	if killed {
		other.tell(command{Trigger: &trigger{ID: e.ID, Point: AfterCommit, Round: n}})
	}
	busy := 0
	r.other, r.held = other, false
	defer func() { r.other = nil }()
	for !r.held && !r.isOver(ids) && busy < 3 {
		o, err := r.next(ctx)
		if err != nil {
			return fmt.Errorf("taking over: %w; not handled: %s", err, strings.Join(r.missing(ids), ", "))
		}
		if o.from != other {
			continue // what it had said before
		}
		if o.Event == handled && o.Parked || r.locks(o) {
			busy++
		}
		if o.Event == settled {
			if err := r.look(ctx); err != nil {
				return err
			}
		}
	}
	zombie.thaw()
	zombie.tell(command{Seq: e.Seq, Do: goOn})
	for r.Point != AfterAck && !r.told[zombie.name+" "+e.ID] {
		if _, err := r.next(ctx); err != nil {
			return fmt.Errorf("the one that was frozen goes on: %w", err)
		}
	}
	if err := r.retire(ctx, zombie); err != nil {
		return err
	}
	r.frozen = false
	r.main = other
	if r.held {
		if err := r.killed(ctx, other); err != nil {
			return err
		}
	} else if r.store.kind == positionKind { // the next round wants batches
		if err := r.retire(ctx, other); err != nil {
			return err
		}
	} else {
		return nil
	}
	r.main, err = r.start(ctx)
	return err
}

// locks reports whether a consumer was kept out by one that is frozen in a transaction
// of SQLite, which has one writer.
func (r *run) locks(e event) bool {
	return r.store.Server == "" && (e.Event == handled && !e.OK || e.Event == note) && strings.Contains(e.Note, "SQLITE_BUSY")
}

// decide does what the people do who have the list of calls that nobody knows the end
// of: they ask the provider.
func (r *run) decide(ctx context.Context) error {
	if r.frozen {
		return nil
	}
	_, err := r.calls.Reconcile(ctx, func(_ context.Context, c dedup.Call) (dedup.Answer, []byte, string, error) {
		n := r.outside[c.ID]
		r.listed[c.ID] = seen(n)
		if n > 0 {
			return dedup.TookPlace, []byte("done"), "asked the provider", nil
		}
		return dedup.DidNot, nil, "asked the provider", nil
	})
	return err
}

// judge counts effects where they took place.
func (r *run) judge(ctx context.Context, result *Result) error {
	effects := r.outside
	if r.store.kind == inboxKind || r.store.kind == positionKind {
		var err error
		if effects, err = r.db.own.effects(ctx, r.name); err != nil {
			return fmt.Errorf("count the effects: %w", err)
		}
	}
	disturbed := map[string]bool{}
	for i := range r.rounds {
		o := &r.rounds[i]
		disturbed[o.ID] = true
		o.Times = effects[o.ID]
		o.Effects = seen(o.Times)
		o.Meanwhile, o.Listed = r.listed[o.ID], r.listed[o.ID] != ""
		w := want(r.store, r.Cell, i)
		o.Wanted = w.String()
		o.OK = slices.Contains(w.effects, o.Effects) && !o.Blocked &&
			(w.listed == nil || *w.listed == o.Listed) && (!o.Listed || w.meanwhile == "" || w.meanwhile == o.Meanwhile)
	}
	for i := range Messages {
		id := fmt.Sprintf("%s-%03d", r.name, i)
		if n := effects[id]; n != 1 && !disturbed[id] {
			result.Others = append(result.Others, fmt.Sprintf("%s %d times", id, n))
		}
		if _, listed := r.listed[id]; listed && !disturbed[id] {
			result.Others = append(result.Others, id+" listed")
		}
	}
	for id := range effects {
		if !strings.HasPrefix(id, r.name+"-") {
			result.Others = append(result.Others, "an effect of "+id+", which nobody published")
		}
	}
	return nil
}
