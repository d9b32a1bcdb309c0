package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// checkpoint is how many messages lie between two savepoints of a pipeline. A
// failure undoes and repeats half of that on average; a savepoint costs less than a
// message. With 500 messages in a transaction it stays under the 64 subtransactions
// that PostgreSQL keeps in memory.
const checkpoint = 16

// OncePipelined is [dedup.OnceBatch] for effects that can be queued: queue adds the
// statements of one message to b, with or without callbacks for their results, and
// all statements of a transaction are sent without waiting for the answers.
//
// A message fails if one of its statements does, or a callback returns an error;
// what lies behind it in the pipeline is undone and sent again without it. So queue
// and the callbacks may run more than once for a message, and a callback may run for
// a message that is undone after. Queue must not keep b, and must not queue what
// ends the transaction.
func OncePipelined[M any](ctx context.Context, in *dedup.Inbox[pgx.Tx], msgs []M, key func(M) dedup.Key, queue func(b *pgx.Batch, m M)) ([]dedup.Result, error) {
	b := dedup.Batch{Keys: make([]dedup.Key, len(msgs))}
	for i, m := range msgs {
		b.Keys[i] = key(m)
	}
	return in.Apply(ctx, b, Pipelined(in.Driver(), nil, func(b *pgx.Batch, i int) { queue(b, msgs[i]) }))
}

// AppliedFromPipelined is [dedup.AppliedFrom] for effects that can be queued, as with
// [OncePipelined].
func AppliedFromPipelined[M any](ctx context.Context, p *dedup.Position[pgx.Tx], at dedup.Partition, prev int64, msgs []M, offset func(M) int64, queue func(b *pgx.Batch, m M)) (int64, error) {
	for len(msgs) > 0 && offset(msgs[0]) <= prev {
		msgs = msgs[1:]
	}
	offsets := make([]int64, len(msgs))
	for i, m := range msgs {
		offsets[i] = offset(m)
	}
	return p.Apply(ctx, at, prev, offsets, Pipelined(p.Driver(), dedup.OneLane(len(msgs)), func(b *pgx.Batch, i int) { queue(b, msgs[i]) }))
}

// Pipelined makes [dedup.Effects] of a function that queues the statements of one
// message. D says of an error whether the whole transaction has to be tried again;
// lanes are those of the [dedup.Batch].
func Pipelined(d interface{ Fault(error) dedup.Fault }, lanes []string, queue func(b *pgx.Batch, i int)) dedup.Effects[pgx.Tx] {
	refused := false
	return func(ctx context.Context, tx pgx.Tx, fresh []int, failed []error) error {
		p := &pipeline{ctx: ctx, tx: tx, lanes: lanes, fresh: fresh, failed: failed, queue: queue, fault: d.Fault, stands: -1}
		if refused {
			return p.walk()
		}
		for from := 0; from < len(fresh); {
			next, err := p.send(from)
			if err != nil {
				refused = errors.As(err, new(pgx.ErrPreprocessingBatch))
				return err
			}
			from = next
		}
		return nil
	}
}

// pipeline applies the fresh messages of one transaction.
type pipeline struct {
	ctx    context.Context
	tx     pgx.Tx
	lanes  []string
	fresh  []int
	failed []error
	queue  func(b *pgx.Batch, i int)
	fault  func(error) dedup.Fault
	stands int // the place before which a savepoint stands; -1 for none
}

// step is what one queued statement belongs to: a message, by its place in fresh, or
// the savepoint before a place.
type step struct {
	place     int
	savepoint bool
}

// send sends the messages from a place on, with savepoints between. It returns the
// place from which to go on: the end, or that of the savepoint to which a failure has
// taken it back.
//
// An error is for the transaction: Busy or Lost, or one of pgx, which prepares and
// encodes all statements before it sends any, doesn't say which of them it couldn't,
// and may close the connection. The next attempt then walks.
func (p *pipeline) send(from int) (next int, err error) {
	b := &pgx.Batch{}
	var steps []step
	for at := from; at < len(p.fresh); at++ {
		if (at-from)%checkpoint == 0 && at != p.stands {
			b.Queue("savepoint onceline_" + strconv.Itoa(at))
			steps = append(steps, step{at, true})
		}
		i := p.fresh[at]
		if p.failed[i] != nil {
			continue
		}
		before := b.Len()
		if p.failed[i] = contain(func() error { p.queue(b, i); return nil }); p.failed[i] != nil {
			b.QueuedQueries = b.QueuedQueries[:before]
			dedup.HoldBack(p.lanes, p.fresh, p.failed)
			continue
		}
		for range b.Len() - before {
			steps = append(steps, step{at, false})
		}
	}
	at, failure := p.read(b, steps)
	switch {
	case failure == nil:
		return len(p.fresh), nil
	case p.ctx.Err() != nil:
		return 0, p.ctx.Err()
	case at < 0, p.stands < 0, p.fault(failure) != dedup.Permanent, errors.Is(failure, dedup.ErrLost), p.tx.Conn().IsClosed():
		return 0, failure
	}
	p.failed[p.fresh[at]] = failure
	dedup.HoldBack(p.lanes, p.fresh, p.failed)
	// By Exec: a pipeline would prepare it in a transaction that takes nothing.
	if _, err := p.tx.Exec(p.ctx, "rollback to savepoint onceline_"+strconv.Itoa(p.stands)); err != nil {
		return 0, fmt.Errorf("dedup/postgres: roll back to savepoint: %w", err)
	}
	return p.stands, nil
}

// read sends the batch and reads its results, and notes which savepoint stands before
// the first failure. It returns that failure and the place of its message, -1 if it
// is none's.
func (p *pipeline) read(b *pgx.Batch, steps []step) (at int, failure error) {
	if b.Len() == 0 {
		return -1, nil
	}
	results := p.tx.SendBatch(p.ctx, b)
	at = -1
	for n, q := range b.QueuedQueries {
		var err error
		if q.Fn != nil {
			err = contain(func() error { return q.Fn(results) })
		} else {
			_, err = results.Exec()
		}
		if err == nil {
			if steps[n].savepoint {
				p.stands = steps[n].place
			}
			continue
		}
		failure = err
		var e pgx.ErrPreprocessingBatch
		if !steps[n].savepoint && !errors.As(err, &e) {
			at = steps[n].place
		}
		for _, rest := range b.QueuedQueries[n:] {
			rest.Fn = nil // what comes behind is undone: nobody wants to hear of it
		}
		break
	}
	if err := results.Close(); failure == nil && err != nil {
		failure = err
	}
	return at, failure
}

// walk applies the messages one statement after the other.
func (p *pipeline) walk() error {
	q := pgxQuerier{p.tx}
	for at, i := range p.fresh {
		if p.failed[i] != nil {
			continue
		}
		if err := savepoint(p.ctx, q, at > 0 && p.stands >= 0); err != nil {
			return err
		}
		p.stands = at
		b := &pgx.Batch{}
		failure := contain(func() error { p.queue(b, i); return nil })
		for _, query := range b.QueuedQueries {
			if failure != nil {
				break
			}
			if query.Fn != nil {
				failure = contain(func() error { return query.Fn(&walked{p.ctx, p.tx, query}) })
			} else {
				_, failure = p.tx.Exec(p.ctx, query.SQL, query.Arguments...)
			}
		}
		switch {
		case failure == nil:
			continue
		case p.ctx.Err() != nil:
			return p.ctx.Err()
		case p.fault(failure) != dedup.Permanent, errors.Is(failure, dedup.ErrLost), p.tx.Conn().IsClosed():
			return failure
		}
		p.failed[i] = failure
		dedup.HoldBack(p.lanes, p.fresh, p.failed)
		if err := restore(p.ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// walked answers a callback for one statement that wasn't sent yet.
type walked struct {
	ctx   context.Context
	tx    pgx.Tx
	query *pgx.QueuedQuery
}

func (w *walked) Exec() (pgconn.CommandTag, error) {
	return w.tx.Exec(w.ctx, w.query.SQL, w.query.Arguments...)
}
func (w *walked) Query() (pgx.Rows, error) {
	return w.tx.Query(w.ctx, w.query.SQL, w.query.Arguments...)
}
func (w *walked) QueryRow() pgx.Row {
	return w.tx.QueryRow(w.ctx, w.query.SQL, w.query.Arguments...)
}
func (w *walked) Close() error { return nil }
func (w *walked) Tx() pgx.Tx   { return nil }

// contain runs f and makes an error of its panic.
func contain(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &broker.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}
