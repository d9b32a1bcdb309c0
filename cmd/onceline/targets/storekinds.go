package targets

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/dedup"
)

type inbox struct {
	*dedup.Inbox[*sql.Tx]
	d *database
}

func newInbox(d *database) (sqlKind, error) {
	return inbox{dedup.New[*sql.Tx](d, d.consumer, dedup.Options{}), d}, nil
}

func (in inbox) losing() *atomic.Bool { return in.d.lose }

func (in inbox) apply(ctx context.Context, m message, step func(conformance.Step)) error {
	step(conformance.Claimed)
	outcome, err := in.Once(ctx, dedup.Key{ID: m.ID}, func(ctx context.Context, tx *sql.Tx) error {
		step(conformance.Begun)
		_, err := tx.ExecContext(ctx, in.d.insert, m.ID)
		return err
	})
	if outcome == dedup.Applied {
		step(conformance.Applied)
	}
	return answer(outcome, err)
}

type position struct {
	*dedup.Position[*sql.Tx]
	d *database
}

func newPosition(d *database) (sqlKind, error) {
	return position{dedup.NewPosition[*sql.Tx](d, d.consumer, dedup.Options{}), d}, nil
}

func (p position) losing() *atomic.Bool { return p.d.lose }

// apply goes on from the position that is stored, once more if somebody moved it.
func (p position) apply(ctx context.Context, m message, step func(conformance.Step)) error {
	at := dedup.Partition{Topic: "probe", Name: m.at.Partition}
	offset := int64(m.at.Offset)
	prev, err := p.Load(ctx, at)
	if err != nil {
		return fmt.Errorf("%w: %w", conformance.ErrAgain, err)
	}
	step(conformance.Claimed)
	for range 2 {
		_, err = dedup.AppliedFrom(ctx, p.Position, at, prev, []message{m}, func(message) int64 { return offset },
			func(ctx context.Context, tx *sql.Tx, m message) error {
				step(conformance.Begun)
				_, err := tx.ExecContext(ctx, p.d.insert, m.ID)
				return err
			})
		if !errors.Is(err, dedup.ErrFenced) {
			break
		}
		if prev, err = p.Load(ctx, at); err != nil {
			break
		}
	}
	switch {
	case errors.Is(err, dedup.ErrFenced), errors.Is(err, dedup.ErrLost), errors.Is(err, dedup.ErrCommitUnknown):
		return fmt.Errorf("%w: %w", conformance.ErrAgain, err)
	case err == nil && prev < offset:
		step(conformance.Applied)
	}
	return err
}

// calls are to a provider of which a call is a row in a table, in a transaction of its
// own.
type calls struct {
	*dedup.Calls
	d     *database
	keyed bool
	lose  *atomic.Bool
}

// callBound is how long one call may take, with the record of its beginning: for as long
// again another consumer takes it for under way.
const callBound = 500 * time.Millisecond

// newCalls opens calls to a provider that keeps keys for that long.
func newCalls(idempotent time.Duration) func(*database) (sqlKind, error) {
	return func(d *database) (sqlKind, error) {
		c, err := dedup.NewCalls(d.calls, d.consumer, dedup.CallOptions{Bound: callBound, Idempotent: idempotent})
		return calls{c, d, idempotent > 0, new(atomic.Bool)}, err
	}
}

func (c calls) losing() *atomic.Bool { return c.lose }

func (c calls) apply(ctx context.Context, m message, step func(conformance.Step)) error {
	outcome, _, err := c.Once(ctx, m.ID, m.Body, func(_ context.Context, key string) ([]byte, error) {
		step(conformance.Claimed)
		step(conformance.Begun)
		// A consumer that froze here doesn't look at its time before it goes on.
		sent := sql.NullString{String: key, Valid: c.keyed}
		if _, err := c.d.db.ExecContext(context.WithoutCancel(ctx), c.d.call, m.ID, sent); err != nil {
			return nil, dedup.NotDone(err)
		}
		if c.lose.Swap(false) {
			return nil, errors.New("the answer was lost by the probe")
		}
		step(conformance.Applied)
		return []byte("done"), nil
	})
	return answer(outcome, err)
}
