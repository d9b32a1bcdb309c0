package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/onceline/onceline/dedup"
)

// core is what the stores for pgx and for database/sql share.
type core struct {
	o     Options
	texts texts
	// in runs f in a transaction like those of effects.
	in   func(ctx context.Context, f func(querier) error) error
	days atomic.Pointer[days] // as last seen
}

func (c *core) configure(o Options, asText bool) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	c.o, c.texts = o, newTexts(o, asText)
	return nil
}

// Window is how long markers are kept.
func (c *core) Window() time.Duration { return c.o.Window }

// claim claims markers, which are sorted: those without a time first.
func (c *core) claim(ctx context.Context, q querier, markers []dedup.Marker, claims []dedup.Claim) error {
	timed := 0
	for timed < len(markers) && !markers[timed].Timed {
		timed++
	}
	if timed > 0 {
		if err := c.claimFrom(ctx, q, &c.texts.plainTable, markers[:timed], claims[:timed]); err != nil {
			return err
		}
	}
	if timed == len(markers) {
		return nil
	}
	markers, claims = markers[timed:], claims[timed:]
	kept, err := c.kept(ctx, q, markers, claims)
	if err != nil {
		return err
	}
	if len(kept) == 0 {
		return nil
	}
	some := make([]dedup.Marker, len(kept))
	for i, at := range kept {
		some[i] = markers[at]
	}
	got := make([]dedup.Claim, len(kept))
	if err := c.claimFrom(ctx, q, &c.texts.timedTable, some, got); err != nil {
		var e *pgconn.PgError
		if errors.As(err, &e) && e.Code == checkViolation {
			c.days.Store(nil)
			return fmt.Errorf("%w: %w", errStale, err)
		}
		return err
	}
	for i, at := range kept {
		claims[at] = got[i]
	}
	return nil
}

// kept returns the indexes of the timed markers for whose time there is a partition,
// and claims the others as outside. What isn't in the partitions as last seen is
// looked up in those that are there now, so that no message is refused for a
// partition that was made meanwhile.
func (c *core) kept(ctx context.Context, q querier, markers []dedup.Marker, claims []dedup.Claim) ([]int, error) {
	for known := c.days.Load(); ; {
		kept, outside := make([]int, 0, len(markers)), 0
		for i, m := range markers {
			if known != nil && known.have(m) {
				kept = append(kept, i)
			} else {
				claims[i] = dedup.Outside
				outside++
			}
		}
		if outside == 0 {
			return kept, nil
		}
		now, err := c.loadDays(ctx, q)
		if err != nil {
			return nil, err
		}
		if c.days.Store(now); known != nil && known.same(now) {
			return kept, nil
		}
		known = now
	}
}

func (c *core) claimFrom(ctx context.Context, q querier, t *tableTexts, markers []dedup.Marker, claims []dedup.Claim) error {
	fresh := 0
	if len(markers) == 1 {
		n, err := q.exec(ctx, t.one, q.keyOf(markers[0]), markers[0].Lock())
		if err != nil {
			return fmt.Errorf("dedup/postgres: claim: %w", err)
		}
		claims[0] = dedup.Held
		if n == 1 {
			claims[0], fresh = dedup.Fresh, 1
		}
	} else {
		for i := range claims {
			claims[i] = dedup.Held
		}
		err := q.keys(ctx, func(key [16]byte) {
			if i, ok := find(markers, key); ok {
				claims[i] = dedup.Fresh
				fresh++
			}
		}, t.claim, q.keysOf(markers), q.locksOf(markers))
		if err != nil {
			return fmt.Errorf("dedup/postgres: claim: %w", err)
		}
	}
	if fresh == len(markers) {
		return nil
	}
	serial := false
	err := q.keys(ctx, func(key [16]byte) {
		serial = serial || key == [16]byte{}
		if i, ok := find(markers, key); ok && claims[i] == dedup.Held {
			claims[i] = dedup.Seen
		}
	}, t.there, q.keysOf(markers))
	switch {
	case err != nil:
		return fmt.Errorf("dedup/postgres: claim: %w", err)
	case serial:
		return fmt.Errorf("%w: postgres: a transaction at a higher isolation level than READ COMMITTED reports copies as errors; begin it with ISOLATION LEVEL READ COMMITTED", dedup.ErrVerify)
	}
	return nil
}

// find returns where key is in the markers of one table, which are sorted.
func find(markers []dedup.Marker, key [16]byte) (int, bool) {
	return slices.BinarySearchFunc(markers, key, func(m dedup.Marker, b [16]byte) int { return bytes.Compare(m.Bytes[:], b[:]) })
}

func (c *core) release(ctx context.Context, q querier, markers []dedup.Marker) error {
	timed := 0
	for timed < len(markers) && !markers[timed].Timed {
		timed++
	}
	for _, part := range []struct {
		query   string
		markers []dedup.Marker
	}{{c.texts.plainTable.release, markers[:timed]}, {c.texts.timedTable.release, markers[timed:]}} {
		if len(part.markers) == 0 {
			continue
		}
		if _, err := q.exec(ctx, part.query, q.keysOf(part.markers)); err != nil {
			return fmt.Errorf("dedup/postgres: release: %w", err)
		}
	}
	return nil
}

func savepoint(ctx context.Context, q querier, again bool) error {
	query := "savepoint onceline"
	if again { // in one message, and so in one round trip
		query = "release savepoint onceline; savepoint onceline"
	}
	if _, err := q.exec(ctx, query); err != nil {
		return fmt.Errorf("dedup/postgres: savepoint: %w", err)
	}
	return nil
}

func restore(ctx context.Context, q querier) error {
	if _, err := q.exec(ctx, "rollback to savepoint onceline"); err != nil {
		return fmt.Errorf("dedup/postgres: roll back to savepoint: %w", err)
	}
	return nil
}

func (c *core) movePosition(ctx context.Context, q querier, consumer string, p dedup.Partition, prev, next int64) (bool, error) {
	var n int64
	var err error
	if prev == dedup.Start {
		n, err = q.exec(ctx, c.texts.place, consumer, p.Topic, p.Epoch, p.Name, next)
	} else {
		n, err = q.exec(ctx, c.texts.move, consumer, p.Topic, p.Epoch, p.Name, next, prev)
	}
	return n == 1, err
}

// Migrate makes the tables that are missing, and today's partitions. Several
// processes may call it at once: each waits for those before it, and for transactions
// that use the tables, until ctx ends.
func (c *core) Migrate(ctx context.Context) error {
	err := c.alone(ctx, func(q querier) error {
		// A schema that is there needs no right to make one.
		var there bool
		if err := q.row(ctx, []any{&there}, "SELECT count(*) > 0 FROM pg_namespace WHERE nspname = $1", c.o.Schema); err != nil {
			return err
		}
		text := strings.ReplaceAll(schema+outboxSchema+checkpointSchema+relaySchema, "{schema}", c.texts.schema)
		if !there {
			text = "CREATE SCHEMA " + c.texts.schema + ";\n" + text
		}
		_, err := q.exec(ctx, text)
		return err
	})
	if err == nil {
		_, err = c.makeDays(ctx)
	}
	if err != nil {
		return fmt.Errorf("dedup/postgres: migrate: %w", err)
	}
	return nil
}
