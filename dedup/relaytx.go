package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
)

// NewTransactionalRelay returns a relay that sends each message of a topic's outbox
// exactly once to a broker whose transactions can be prepared, fenced and hidden: Kafka.
// Receivers there must read committed messages only, which those of this toolkit do.
//
// A turn publishes its rows in one transaction, prepares it, notes in the store how to
// commit it and which rows are in it, and commits it; then rows and note are removed. A
// process that is killed in between is followed by one that asks the broker to commit
// what is noted, under the identity that the note has: the broker does, or says that it
// has, and the rows are removed; or it says that it has aborted it (its time was over),
// and they are sent again. What was open and is not noted is aborted. So there is no copy
// and no loss, however long the relay is away, as long as the broker or its topic still
// knows of the last transaction: where the topic was deleted meanwhile, its messages are
// held for somebody to decide.
//
// # One at a time
//
// Nobody else may use the transactor's id. One transactional relay works on a topic of an outbox: one that is
// started takes over, and the earlier one ends with [broker.ErrFenced]. No other relay may
// send the topic's messages meanwhile: what it sends isn't noted.
//
// # Cost
//
// One transaction of the broker and two more writes to the store for each turn, so the
// default of Batch is 500, and a turn with less than half of that is followed by a pause
// as long as it took, in which more come together. Workers is 1. The messages of a key may be in one Publish, for
// they are there all or not at all. Window and Margin have no meaning: no ID has to be
// remembered.
//
// The connection stays the caller's. Call [Relay.Close] before it is closed. It panics if
// an argument is missing.
func NewTransactionalRelay(store RelayRecords, topic string, conn broker.Conn, id string, o RelayOptions) *Relay {
	if store == nil || topic == "" || conn == nil || id == "" {
		panic("dedup: NewTransactionalRelay without a store, a topic, a connection or an ID")
	}
	if o.Batch <= 0 {
		o.Batch = 500
	}
	o = o.withDefaults(noPublisher{})
	o.Workers, o.Window, o.Margin = 1, 0, 0
	return &Relay{store: store, topic: topic, to: noPublisher{}, o: o, wake: make(chan struct{}, 1), tx: &relayTx{records: store, conn: conn, id: id, turn: make(oneTurn, 1)}}
}

// Close ends what a relay that [NewTransactionalRelay] made holds of the broker, within
// ctx. It must not run. Others hold nothing.
func (r *Relay) Close(ctx context.Context) error {
	if r.tx == nil {
		return nil
	}
	r.tx.turn.lock()
	defer r.tx.turn.unlock()
	return r.tx.reset(ctx)
}

// relayTx is how a relay sends in transactions. One turn at a time uses it.
type relayTx struct {
	records RelayRecords
	conn    broker.Conn
	id      string
	turn    oneTurn

	term int64             // of this relay; 0: it has never owned the topic
	open broker.Transactor // nil: what was left has to be ended first
}

// oneTurn is a lock of one turn: Run, Drain and Close may be called by several.
type oneTurn chan struct{}

func (o oneTurn) lock()   { o <- struct{}{} }
func (o oneTurn) unlock() { <-o }

// noPublisher stands for the publisher that a transactional relay hasn't.
type noPublisher struct{}

func (noPublisher) Publish(_ context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	return make([]broker.Receipt, len(msgs)), broker.ErrUnsupported
}
func (noPublisher) Limits() broker.Limits       { return broker.Limits{} }
func (noPublisher) As(any) bool                 { return false }
func (noPublisher) Close(context.Context) error { return nil }

// errReplaced ends a relay that another one has taken over from.
func (r *Relay) errReplaced(cause error) error {
	return fmt.Errorf("relay of %s: %w", r.topic, broker.Errorf(broker.ErrFenced, cause, "another transactional relay has taken over"))
}

// ready makes this relay the topic's own, ends what the last one has left, and opens the
// transactor. What can't be found out yet is an error, and asked again by the next turn.
func (t *turn) ready() {
	r, x := t.r, t.r.tx
	if x.open != nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.hard, max(r.o.PublishTimeout, 30*time.Second))
	defer cancel()
	if err := x.records.VerifyRelays(ctx); errors.Is(err, ErrVerify) {
		t.closed = err
		return
	} else if err != nil {
		t.err = err
		return
	}
	row, ok, err := x.records.TakeRelay(ctx, r.topic, x.term)
	switch {
	case errors.Is(err, ErrCommitUnknown):
		// It may have the term; the next one is higher in any case. Whether somebody
		// else has taken it since isn't known any more, which the broker's fence says.
		x.term, t.err = 0, err
		return
	case err != nil:
		t.err = err
		return
	case !ok:
		t.closed = r.errReplaced(nil)
		return
	}
	x.term = row.Term
	if row.Token != nil && !t.resolve(ctx, row) {
		return
	}
	if x.open, err = broker.OpenTransactor(ctx, x.conn, x.id); err != nil {
		x.open = nil
		if t.failed(err); errors.Is(err, broker.ErrUnsupported) || errors.Is(err, broker.ErrInvalid) {
			t.closed = fmt.Errorf("relay of %s: %w", r.topic, err)
		}
		return
	}
	if s := x.open.Scope(); !Transactional(s) {
		t.closed = errors.Join(fmt.Errorf("relay of %s: %w", r.topic, broker.Errorf(broker.ErrUnsupported, nil,
			"the broker's transactions (%v) can't be prepared, fenced and hidden: %s", s, s.Note)), x.reset(ctx))
	}
}

// Transactional reports whether transactions of a scope can carry a relay's messages
// exactly once: they can be prepared, and are atomic, hidden until the commit, and fenced.
func Transactional(s broker.Scope) bool {
	return s.Publishes && s.Prepares && s.Atomic && s.Isolated && s.Fences
}

// resolve ends the transaction that the relay before has noted, and reports whether that
// is done.
func (t *turn) resolve(ctx context.Context, row RelayRow) bool {
	r := t.r
	fate := OutboxFate{State: OutboxSent}
	o, err := broker.RecoverTransaction(ctx, r.tx.conn, row.Token, true)
	switch {
	case o.State == broker.Confirmed:
	case o.State == broker.LeaseLost:
		fate.State = OutboxLeft
		r.failed(fmt.Errorf("%d messages are sent again, for nothing of them was committed: %w", len(row.Seqs), err))
	case errors.Is(err, broker.ErrNotFound):
		fate = OutboxFate{State: OutboxHeld, Reason: shorten(fmt.Errorf("nobody knows whether it was committed: %w", err))}
		r.stats.held.Add(uint64(len(row.Seqs)))
		r.failed(fmt.Errorf("%d messages are held: %s", len(row.Seqs), fate.Reason))
	case errors.Is(err, broker.ErrInvalid), errors.Is(err, broker.ErrUnsupported):
		t.closed = fmt.Errorf("relay of %s: what the relay before has prepared: %w", r.topic, err)
		return false
	default:
		t.failed(fmt.Errorf("what became of %d messages of the relay before: %w", len(row.Seqs), err))
		return false
	}
	return t.settled(ctx, fate)
}

// settled does with the rows of what is noted what fate says, and reports whether it did.
func (t *turn) settled(ctx context.Context, fate OutboxFate) bool {
	x := t.r.tx
	ok, err := x.records.SettleRelay(ctx, t.r.topic, x.term, fate)
	switch {
	case err != nil:
		t.err = errors.Join(err, x.reset(ctx))
	case !ok:
		t.closed = t.r.errReplaced(x.reset(ctx))
	}
	return err == nil && ok
}

// failed notes that the broker did nothing, and not by a message's fault.
func (t *turn) failed(err error) {
	t.broken = true
	if t.cause == nil {
		t.cause = err
	}
	if errors.Is(err, broker.ErrClosed) && t.ctx.Err() == nil && t.closed == nil {
		t.closed = fmt.Errorf("relay of %s: %w", t.r.topic, err)
	}
	t.r.failed(err)
}

// reset gives the transactor up. What is prepared stays so; the next turn looks it up.
func (x *relayTx) reset(ctx context.Context) error {
	if x.open == nil {
		return nil
	}
	err := x.open.Close(ctx)
	x.open = nil
	return err
}

// transact sends rows in one transaction, or none of them, and writes their fates.
func (t *turn) transact(rows []OutboxRow) {
	t.decode(rows)
	if len(t.todo) == 0 {
		return
	}
	t.wave = append(t.wave[:0], t.todo...)
	for _, i := range t.wave {
		t.batch = append(t.batch, t.msgs[i])
	}
	ctx, cancel := context.WithTimeout(t.hard, t.r.o.PublishTimeout)
	defer cancel()
	// What ends it isn't cut with what is sent.
	end, done := outlive(ctx, settleTimeout)
	defer done()
	tx, err := t.r.tx.open.Begin(ctx)
	if err != nil {
		t.undo(end, nil, err)
		return
	}
	start := time.Now()
	receipts, err := tx.Publish(ctx, t.r.topic, t.batch...)
	t.r.stats.publishes.Add(1)
	if t.r.o.Published != nil {
		told := t.retried()
		told.Took = time.Since(start)
		t.r.o.Published(told)
	}
	if err != nil {
		t.refused(end, tx, receipts, err)
		return
	}
	token, err := tx.Prepare(ctx)
	if err != nil {
		t.undo(end, tx, err)
		return
	}
	if t.note(end, tx, token) {
		t.commit(ctx, end, tx)
	}
}

// note writes down what is prepared, and reports whether it did.
func (t *turn) note(ctx context.Context, tx broker.Transaction, token []byte) bool {
	x := t.r.tx
	seqs := make([]int64, len(t.wave))
	for j, i := range t.wave {
		seqs[j] = t.rows[i].Seq
	}
	ok, err := x.records.PrepareRelay(ctx, t.r.topic, x.term, token, seqs)
	if err == nil && ok {
		return true
	}
	// If it is written down after all, the next turn learns that nothing was committed.
	abortErr := tx.Abort(ctx)
	if err != nil {
		t.err = errors.Join(err, abortErr, x.reset(ctx))
	} else {
		t.closed = t.r.errReplaced(errors.Join(abortErr, x.reset(ctx)))
	}
	return false
}

// commit commits what is noted. Where no answer comes, the rows stay, and the next turn
// asks by the note.
func (t *turn) commit(ctx, end context.Context, tx broker.Transaction) {
	x := t.r.tx
	o, err := tx.Commit(ctx)
	for o.State == broker.Unknown && errors.Is(err, broker.ErrUnknownOutcome) && ctx.Err() == nil {
		o, err = tx.Resolve(ctx)
	}
	if o.State == broker.Confirmed {
		// The turn's own end removes rows of lanes that it still has, and no note. Before
		// both are gone no other transaction may begin under the same identity.
		if t.settled(end, OutboxFate{State: OutboxSent}) {
			for _, i := range t.wave {
				t.fates[i].State = OutboxSent
			}
		}
		t.sent += len(t.wave)
		t.r.stats.verdicts[broker.Stored].Add(uint64(len(t.wave)))
		return
	}
	if o.State != broker.LeaseLost {
		t.r.stats.verdicts[broker.Unknown].Add(uint64(len(t.wave)))
	}
	t.failed(errors.Join(fmt.Errorf("the commit of %d messages: %w", len(t.wave), err), x.reset(end)))
}

// refused parks the messages that the broker never takes; the others are sent without
// them.
func (t *turn) refused(ctx context.Context, tx broker.Transaction, receipts []broker.Receipt, err error) {
	own := 0
	for j, i := range t.wave {
		if j < len(receipts) && receipts[j].Verdict == broker.Refused && final(receipts[j].Err) {
			t.stop(i, OutboxParked, receipts[j].Err)
			own++
		}
	}
	if own == 0 {
		t.undo(ctx, tx, err)
		return
	}
	if abortErr := tx.Abort(ctx); abortErr != nil {
		t.r.failed(errors.Join(fmt.Errorf("abort: %w", abortErr), t.r.tx.reset(ctx)))
	}
}

// undo ends a transaction in which something failed: nothing of it is there.
func (t *turn) undo(ctx context.Context, tx broker.Transaction, err error) {
	if tx != nil {
		err = errors.Join(err, tx.Abort(ctx))
	}
	for _, i := range t.wave {
		t.fates[i] = OutboxFate{State: OutboxAgain, Delay: t.r.delay(t.rows[i].Attempts + 1), Reason: shorten(err)}
		if d := t.fates[i].Delay; t.soon == 0 || d < t.soon {
			t.soon = d
		}
	}
	t.r.stats.verdicts[broker.Refused].Add(uint64(len(t.wave)))
	t.failed(errors.Join(fmt.Errorf("%d messages to be sent again: %w", len(t.wave), err), t.r.tx.reset(ctx)))
}
