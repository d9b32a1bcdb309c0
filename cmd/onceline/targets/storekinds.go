package targets

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/dedup"
)

// message is what a store is asked about.
type message struct {
	broker.Message
	at broker.Position
}

// Apply implements [conformance.Guard].
func (g *sqliteGuard) Apply(ctx context.Context, m broker.Message, at broker.Position, step func(conformance.Step)) error {
	return g.apply(ctx, message{m, at}, step)
}

type inbox struct{ *dedup.Inbox[*sql.Tx] }

func newInbox(l *losing) (guarded, error) {
	return inbox{dedup.New[*sql.Tx](l, "probe", dedup.Options{})}, nil
}

func (in inbox) apply(ctx context.Context, m message, step func(conformance.Step)) error {
	step(conformance.Claimed)
	outcome, err := in.Once(ctx, dedup.Key{ID: m.ID}, func(ctx context.Context, tx *sql.Tx) error {
		step(conformance.Begun)
		return insert(ctx, tx, m.ID)
	})
	if outcome == dedup.Applied {
		step(conformance.Applied)
	}
	return answer(outcome, err)
}

type position struct{ *dedup.Position[*sql.Tx] }

func newPosition(l *losing) (guarded, error) {
	return position{dedup.NewPosition[*sql.Tx](l, "probe", dedup.Options{})}, nil
}

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
				return insert(ctx, tx, m.ID)
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
	store *losing
	keyed bool
}

// callBound is how long one call may take: how long another consumer waits until it
// takes it for ended, half of it.
const callBound = 150 * time.Millisecond

// newCalls opens calls to a provider that keeps keys for that long.
func newCalls(idempotent time.Duration) func(*losing) (guarded, error) {
	return func(l *losing) (guarded, error) {
		c, err := dedup.NewCalls(l.Store, "probe", dedup.CallOptions{Bound: callBound, Idempotent: idempotent})
		return &calls{c, l, idempotent > 0}, err
	}
}

func (c *calls) apply(ctx context.Context, m message, step func(conformance.Step)) error {
	outcome, _, err := c.Once(ctx, m.ID, m.Body, func(_ context.Context, key string) ([]byte, error) {
		step(conformance.Claimed)
		step(conformance.Begun)
		// A consumer that froze here doesn't look at its time before it goes on.
		if err := c.call(context.WithoutCancel(ctx), m.ID, key); err != nil {
			return nil, dedup.NotDone(err)
		}
		if c.store.lose.Swap(false) {
			return nil, errors.New("the answer was lost by the probe")
		}
		step(conformance.Applied)
		return []byte("done"), nil
	})
	return answer(outcome, err)
}

// call is what the provider does.
func (c *calls) call(ctx context.Context, id, key string) error {
	sent := sql.NullString{String: key, Valid: c.keyed}
	_, err := c.store.DB().ExecContext(ctx, "INSERT INTO effect (id, key) VALUES (?, ?) ON CONFLICT DO NOTHING", id, sent)
	return err
}
