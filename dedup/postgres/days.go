package postgres

import (
	"context"
	_ "embed" // the schema
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/sqltx"
)

//go:embed schema.sql
var schema string

// lockText keeps those who change tables apart. It doesn't wait: alone does, as long as its
// caller wants, and not as long as a transaction may wait for a lock.
const lockText = "SELECT pg_try_advisory_xact_lock(hashtext('onceline'), hashtext('schema'))"

var errOthers = errors.New("another process is changing the tables, by Migrate or Maintain")

// alone runs f in a transaction beside nobody else who changes tables. It waits for them,
// and for locks of tables that aren't had in time, until ctx ends.
func (c *core) alone(ctx context.Context, f func(q querier) error) error {
	others := func(err error) bool { return errors.Is(err, errOthers) || fault(err) == dedup.Busy }
	return sqltx.Wait(ctx, others, func() error {
		return c.in(ctx, func(q querier) error {
			var had bool
			if err := q.row(ctx, []any{&had}, lockText); err != nil {
				return err
			}
			if !had {
				return errOthers
			}
			return f(q)
		})
	})
}

// day is one partition: the markers from low up to high, without it.
type day struct {
	name      string
	low, high [16]byte
}

// days are the partitions that there are, by time.
type days []day

func (ds days) have(m dedup.Marker) bool {
	i, found := slices.BinarySearchFunc(ds, m.Bytes, func(d day, b [16]byte) int { return slices.Compare(d.low[:], b[:]) })
	if found {
		return true
	}
	return i > 0 && slices.Compare(m.Bytes[:], ds[i-1].high[:]) < 0
}

func (ds *days) same(o *days) bool { return slices.Equal(*ds, *o) }

var rangeBound = regexp.MustCompile(`^FOR VALUES FROM \('([0-9a-f-]{36})'\) TO \('([0-9a-f-]{36})'\)$`)

// loadDays reads the partitions from the catalog. What has other bounds than from
// one marker to another is left out: Verify complains about it.
func (c *core) loadDays(ctx context.Context, q querier) (*days, error) {
	ds := days{}
	err := q.each(ctx, func(scan func(...any) error) error {
		var name, bound string
		if err := scan(&name, &bound); err != nil {
			return err
		}
		if m := rangeBound.FindStringSubmatch(bound); m != nil {
			ds = append(ds, day{name, bytesOf(m[1]), bytesOf(m[2])})
		}
		return nil
	}, c.texts.partitions, c.texts.timed)
	if err != nil {
		return nil, fmt.Errorf("dedup/postgres: partitions: %w", err)
	}
	slices.SortFunc(ds, func(a, b day) int { return slices.Compare(a.low[:], b.low[:]) })
	return &ds, nil
}

func bytesOf(uuid string) (b [16]byte) {
	_, _ = hex.Decode(b[:], []byte(strings.ReplaceAll(uuid, "-", "")))
	return b
}

func textOf(b [16]byte) string { return hex.EncodeToString(b[:]) }

func (c *core) now(ctx context.Context, q querier) (time.Time, error) {
	if c.o.Now != nil {
		return c.o.Now().UTC(), nil
	}
	var s int64
	if err := q.row(ctx, []any{&s}, c.texts.clock); err != nil {
		return time.Time{}, err
	}
	return time.Unix(s, 0).UTC(), nil
}

// makeDays makes the partitions from the beginning of the window to Ahead, where
// there is none, and returns their names. It doesn't hold up claims.
//
// It makes none before the oldest that is there: their markers may have been dropped,
// with a shorter window or while the clock was ahead, and copies would be applied.
func (c *core) makeDays(ctx context.Context) (made []string, err error) {
	err = c.alone(ctx, func(q querier) error {
		made = nil
		now, err := c.now(ctx, q)
		if err != nil {
			return err
		}
		ds, err := c.loadDays(ctx, q)
		if err != nil {
			return err
		}
		const length = 24 * time.Hour
		first := now.Add(-c.o.Window).Truncate(length)
		if len(*ds) > 0 {
			if oldest := (dedup.Marker{Bytes: (*ds)[0].low}).Minute(); oldest.After(first) {
				if first = oldest.Truncate(length); first.Before(oldest) {
					first = first.Add(length)
				}
			}
		}
		for at := first; !at.After(now.Add(c.o.Ahead)); at = at.Add(length) {
			d := day{"onceline_marker_timed_" + at.Format("20060102"), dedup.MinuteMarker(at).Bytes, dedup.MinuteMarker(at.Add(length)).Bytes}
			if ds.have(dedup.Marker{Bytes: d.low}) {
				continue
			}
			// To make a partition of the table locks the table; to attach one
			// that is made apart doesn't, for those who insert.
			if _, err := q.exec(ctx, fmt.Sprintf(c.texts.partitionOf, d.name)); err != nil {
				return err
			}
			if _, err := q.exec(ctx, fmt.Sprintf(c.texts.attach, d.name, textOf(d.low), textOf(d.high))); err != nil {
				return err
			}
			made = append(made, d.name)
		}
		return nil
	})
	return made, err
}

// Maintained is what [Store.Maintain] did.
type Maintained struct {
	Made, Dropped []string // partitions
	Deleted       int64    // markers without a time
}

// chunk is how many markers one statement deletes.
const chunk = 5000

// Maintain makes partitions ahead, drops those whose last minute is older than the
// window, and deletes the markers without a time that were written before it. Call
// it from time to time, an hour apart for instance; several at once do no harm. It
// blocks until all is done or ctx ends.
//
// To drop a partition takes a lock for which it waits no longer than DropTimeout,
// as all who claim have to wait behind it; it tries again until it gets it. Each
// chunk of deletes is a transaction of its own.
func (c *core) Maintain(ctx context.Context) (Maintained, error) {
	var m Maintained
	var err error
	if m.Made, err = c.makeDays(ctx); err != nil {
		return m, fmt.Errorf("dedup/postgres: maintain: %w", err)
	}
	if m.Dropped, err = c.dropDays(ctx); err != nil {
		return m, fmt.Errorf("dedup/postgres: maintain: %w", err)
	}
	for {
		var n int64
		err := c.in(ctx, func(q querier) error {
			now, err := c.now(ctx, q)
			if err == nil {
				n, err = q.exec(ctx, c.texts.expire, float64(now.Add(-c.o.Window).Unix()), chunk)
			}
			return err
		})
		if err != nil {
			return m, fmt.Errorf("dedup/postgres: maintain: %w", err)
		}
		if m.Deleted += n; n < chunk {
			return m, nil
		}
	}
}

func (c *core) dropDays(ctx context.Context) (dropped []string, err error) {
	var old []string
	err = c.in(ctx, func(q querier) error {
		old = nil
		now, err := c.now(ctx, q)
		if err != nil {
			return err
		}
		ds, err := c.loadDays(ctx, q)
		if err != nil {
			return err
		}
		floor := dedup.MinuteMarker(now.Add(-c.o.Window)).Bytes
		for _, d := range *ds {
			if slices.Compare(d.high[:], floor[:]) <= 0 {
				old = append(old, d.name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, name := range old {
		if err := c.dropDay(ctx, name); err != nil {
			return dropped, err
		}
		dropped = append(dropped, name)
	}
	return dropped, nil
}

func (c *core) dropDay(ctx context.Context, name string) error {
	for {
		err := c.in(ctx, func(q querier) error {
			// One that another process has dropped, or is dropping, is no error.
			ds, err := c.loadDays(ctx, q)
			if err != nil || !slices.ContainsFunc(*ds, func(d day) bool { return d.name == name }) {
				return err
			}
			if _, err := q.exec(ctx, fmt.Sprintf("set local lock_timeout = %d", max(c.o.DropTimeout.Milliseconds(), 1))); err != nil {
				return err
			}
			_, err = q.exec(ctx, fmt.Sprintf(c.texts.drop, pgx.Identifier{name}.Sanitize()))
			return err
		})
		if err == nil || fault(err) != dedup.Busy {
			return err
		}
		// Long enough for those who had to wait to get through.
		timer := time.NewTimer(c.o.DropTimeout + time.Duration(rand.Int64N(int64(c.o.DropTimeout)*4+1)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
