package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
)

// turn is one turn of a relay and how it went.
type turn struct {
	r     *Relay
	ctx   context.Context // ends when no further wave is to be sent
	hard  context.Context // cuts what is under way
	began time.Time       // when the rows were handed out
	until time.Time       // no wave begins after this

	rows  []OutboxRow
	msgs  []broker.Message
	fates []OutboxFate
	todo  []int          // rows that aren't done, in order
	stuck map[int64]bool // hashes whose later rows have to wait

	wave  []int
	batch []broker.Message

	sent, stopped int
	soon          time.Duration // when to try again, if some are
	broken        bool          // the broker took nothing, and not by the messages' fault
	cause         error         // the first error of the broker
	closed        error
	err           error // of the store
}

// turn takes a turn.
func (r *Relay) turn(ctx, hard context.Context, first int) *turn {
	t := &turn{r: r, ctx: ctx, hard: hard}
	length := r.o.PublishTimeout / 2
	if r.o.Window > 0 {
		length = min(length, r.o.Window/4) // there is time for all that is tried first
	}
	bound := length + r.o.PublishTimeout // the last wave's Publish included
	take := OutboxTurn{Topic: r.topic, First: first, Lanes: max(OutboxLanes/(2*r.o.Workers), 1),
		Rows: r.o.Batch, Bytes: r.o.Bytes, Bound: bound, Guard: r.o.Window > 0, Pass: r.o.Pass}
	if r.failures.Load() > 0 {
		take.Rows = 1
	}
	// What was sent is settled also when the sending was cut.
	store, end := outlive(hard, settleTimeout)
	defer end()
	if r.tx != nil {
		r.tx.turn.lock()
		defer r.tx.turn.unlock()
		t.ready()
		take.Lanes, take.Bound, take.Owner = OutboxLanes, r.o.PublishTimeout+settleTimeout, r.tx.term
	}
	if t.err == nil && t.closed == nil && !t.broken {
		_, err := r.store.RelayOutbox(store, take, func(rows []OutboxRow) []OutboxFate {
			t.began = time.Now()
			t.until = t.began.Add(length)
			if r.tx != nil {
				t.transact(rows)
			} else {
				t.send(rows)
			}
			return t.fates
		})
		t.err = errors.Join(t.err, err)
	}
	switch {
	case t.sent > 0:
		r.failures.Store(0)
		t.broken = false
	case t.broken:
		r.failures.Add(1)
	}
	return t
}

// settleTimeout is how long a store may take to settle a turn that was cut.
const settleTimeout = 5 * time.Second

// outlive returns a context that ends so long after ctx, or at the call of end.
func outlive(ctx context.Context, by time.Duration) (_ context.Context, end func()) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		pause(longer, by, nil)
		cancel()
	})
	return longer, func() { cancel(); stop() }
}

// send sends rows in waves and writes their fates.
func (t *turn) send(rows []OutboxRow) {
	t.decode(rows)
	for len(t.todo) > 0 && !t.broken && t.closed == nil && t.ctx.Err() == nil && time.Now().Before(t.until) {
		t.pick()
		if len(t.wave) > 0 {
			t.publish()
		}
	}
}

// decode makes messages of rows.
func (t *turn) decode(rows []OutboxRow) {
	t.rows, t.fates, t.msgs = rows, make([]OutboxFate, len(rows)), make([]broker.Message, len(rows))
	t.stuck, t.todo = map[int64]bool{}, make([]int, 0, len(rows))
	for i := range rows {
		m, err := rows[i].message()
		if t.msgs[i] = m; err != nil {
			t.stop(i, OutboxParked, err)
			continue
		}
		t.todo = append(t.todo, i)
	}
}

// pick puts the first row of each key that may go on into the wave, and holds those
// whose time is over.
func (t *turn) pick() {
	t.wave = t.wave[:0]
	rest := t.todo[:0]
	var taken map[int64]bool
	for _, i := range t.todo {
		hash := t.rows[i].Hash
		switch {
		case hash != 0 && t.stuck[hash]: // it stays in the outbox
		case hash != 0 && taken[hash]:
			rest = append(rest, i)
		case t.late(i):
			t.stop(i, OutboxHeld, broker.Errorf(broker.ErrWindowExceeded, nil, "the broker may have stored it %v ago, and remembers its ID for %v less %v",
				t.age(i).Round(time.Millisecond), t.r.o.Window, t.r.o.Margin))
		default:
			if hash != 0 {
				if taken == nil {
					taken = map[int64]bool{}
				}
				taken[hash] = true
			}
			t.wave = append(t.wave, i)
		}
	}
	t.todo = rest
}

// age is how long ago the broker may first have stored row i.
func (t *turn) age(i int) time.Duration { return t.rows[i].Age + time.Since(t.began) }

// room is how long row i may still be tried.
func (t *turn) room(i int) time.Duration { return t.r.o.Window - t.r.o.Margin - t.age(i) }

// late reports whether there is no time for row i any more that would be worth an
// attempt. One that is tried for the first time always has some: the waves of a turn
// begin in a quarter of the window, and Margin is no more than half of it.
func (t *turn) late(i int) bool {
	return t.r.o.Window > 0 && t.room(i) < min(t.r.o.Window/20, time.Second)
}

// stop takes row i out of the outbox's flow.
func (t *turn) stop(i int, state OutboxState, reason error) {
	t.fates[i] = OutboxFate{State: state, Reason: shorten(reason)}
	t.stopped++
	if state == OutboxHeld {
		t.r.stats.held.Add(1)
	} else {
		t.r.stats.parked.Add(1)
	}
	if hash := t.rows[i].Hash; hash != 0 && !t.r.o.Pass {
		t.stuck[hash] = true
	}
	t.r.failed(fmt.Errorf("message %q is %v: %w", t.rows[i].ID, state, reason))
}

// shorten is an error as a text that a store keeps.
func shorten(err error) string {
	s := err.Error()
	if len(s) > 500 {
		s = s[:500] + "…"
	}
	b := make([]rune, 0, len(s))
	for _, c := range s { // also makes it valid UTF-8
		if c != 0 {
			b = append(b, c)
		}
	}
	return string(b)
}

// publish sends the wave and judges the receipts.
func (t *turn) publish() {
	timeout := t.r.o.PublishTimeout
	t.batch = t.batch[:0]
	for _, i := range t.wave {
		if t.r.o.Window > 0 {
			timeout = min(timeout, t.room(i))
		}
		t.batch = append(t.batch, t.msgs[i])
	}
	var told RelayPublish
	if t.r.o.Published != nil {
		told = t.retried()
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.hard, timeout)
	receipts, err := t.r.to.Publish(ctx, t.batch...)
	cancel()
	t.r.stats.publishes.Add(1)
	if t.r.o.Published != nil {
		told.Took = time.Since(start)
		t.r.o.Published(told)
	}
	good, again := 0, 0
	for j, i := range t.wave {
		receipt := broker.Receipt{Err: err}
		if j < len(receipts) {
			receipt = receipts[j]
		}
		switch t.judge(i, receipt) {
		case OutboxSent:
			good++
		case OutboxAgain:
			again++
		}
	}
	t.sent += good
	if t.broken = again > 0 && good == 0; again > 0 {
		t.r.failed(fmt.Errorf("%d of %d messages to be sent again: %w", again, len(t.wave), t.cause))
	}
}

// firstAge is how long a row may be in its first turn's hands before it is sent; one
// that is older, and was never settled, is of a relay that crashed.
const firstAge = time.Second

// retried says how many of the wave were tried before, and how old the oldest is.
func (t *turn) retried() RelayPublish {
	p := RelayPublish{Messages: len(t.wave)}
	for _, i := range t.wave {
		row := &t.rows[i]
		if row.Attempts == 0 && row.Age < firstAge {
			continue
		}
		age := t.age(i)
		if t.r.o.Window <= 0 {
			age = time.Since(row.Time)
		}
		p.Retried, p.RetryAge = p.Retried+1, max(p.RetryAge, age)
	}
	return p
}

// judge writes the fate of row i.
func (t *turn) judge(i int, receipt broker.Receipt) OutboxState {
	f, hash := &t.fates[i], t.rows[i].Hash
	if receipt.Err == nil && !receipt.Verdict.OK() {
		receipt.Err = broker.ErrUnknownOutcome
	}
	switch {
	case receipt.Verdict.OK():
		t.r.stats.verdicts[receipt.Verdict].Add(1)
		f.State = OutboxSent
		return f.State
	case errors.Is(receipt.Err, broker.ErrWindowExceeded):
		t.stop(i, OutboxHeld, receipt.Err)
		f.Maybe = true
		return f.State
	case receipt.Verdict == broker.Refused && final(receipt.Err):
		t.stop(i, OutboxParked, receipt.Err)
		return f.State
	}
	if t.cause == nil {
		t.cause = receipt.Err
	}
	if errors.Is(receipt.Err, broker.ErrClosed) && t.ctx.Err() == nil && t.closed == nil {
		t.closed = fmt.Errorf("relay of %s: %w", t.r.topic, receipt.Err)
	}
	*f = OutboxFate{State: OutboxAgain, Maybe: receipt.Verdict != broker.Refused, Delay: t.r.delay(t.rows[i].Attempts + 1), Reason: shorten(receipt.Err)}
	if f.Maybe {
		t.r.stats.verdicts[broker.Unknown].Add(1)
	} else {
		t.r.stats.verdicts[broker.Refused].Add(1)
	}
	if t.soon == 0 || f.Delay < t.soon {
		t.soon = f.Delay
	}
	if hash != 0 {
		t.stuck[hash] = true
	}
	return f.State
}

// final reports whether a refusal is the message's own fault, so that it would be
// refused again.
func final(err error) bool {
	for _, passing := range []error{broker.ErrUnavailable, broker.ErrBusy, broker.ErrClosed, broker.ErrUnauthorized, broker.ErrNotFound, broker.ErrUnroutable,
		context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, passing) {
			return false
		}
	}
	for _, own := range []error{broker.ErrInvalid, broker.ErrTooLarge, broker.ErrUnsupported, broker.ErrConflict, broker.ErrRefused} {
		if errors.Is(err, own) {
			return true
		}
	}
	return false
}
