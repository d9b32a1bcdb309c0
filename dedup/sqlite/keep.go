package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/onceline/onceline/dedup"
)

// chunk is how many markers one transaction deletes, so that effects don't wait long
// for it.
const chunk = 2000

// Expire deletes the markers that are older than the window: those with a time by
// it, the others by when they were written. Messages with a time before the window
// are refused as OutsideWindow from then on. It returns how many it deleted, in many
// short transactions, between which effects go on. Call it from time to time, an
// hour apart for instance; several at once do no harm.
func (s *Store) Expire(ctx context.Context) (int64, error) {
	before := s.o.Now().Add(-s.o.Window)
	floor := dedup.MinuteMarker(before)
	var total int64
	for _, q := range []struct {
		query string
		arg   any
	}{
		{"DELETE FROM onceline_marker_timed WHERE key IN (SELECT key FROM onceline_marker_timed WHERE key < ? LIMIT ?)", floor.Bytes[:]},
		{"DELETE FROM onceline_marker WHERE key IN (SELECT key FROM onceline_marker WHERE seen < ? LIMIT ?)", before.Unix()},
	} {
		for {
			var n int64
			err := s.Transact(ctx, func(tx *sql.Tx) error {
				// The floor rises before the first marker below it goes.
				if _, err := tx.ExecContext(ctx, "UPDATE onceline_floor SET key = ?1 WHERE key < ?1", floor.Bytes[:]); err != nil {
					return err
				}
				result, err := tx.ExecContext(ctx, q.query, q.arg, chunk)
				if err == nil {
					n, err = result.RowsAffected()
				}
				return err
			})
			if err != nil {
				return total, fmt.Errorf("dedup/sqlite: expire: %w", err)
			}
			if total += n; n < chunk {
				break
			}
		}
	}
	return total, nil
}

// Verify reports what in the database would let an effect happen twice or be lost,
// with what to change, as an error that is [dedup.ErrVerify]; nil if there is
// nothing. Open and New call it.
func (s *Store) Verify(ctx context.Context) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", dedup.ErrLost, err)
	}
	defer conn.Close()
	var journal string
	var synchronous, readOnly int
	for query, into := range map[string]any{"PRAGMA journal_mode": &journal, "PRAGMA synchronous": &synchronous, "PRAGMA query_only": &readOnly} {
		if err := conn.QueryRowContext(ctx, query).Scan(into); err != nil {
			return fmt.Errorf("dedup/sqlite: verify: %s: %w", query, err)
		}
	}
	var errs []error
	bad := func(format string, a ...any) {
		errs = append(errs, fmt.Errorf("%w: sqlite: %s", dedup.ErrVerify, fmt.Sprintf(format, a...)))
	}
	if journal = strings.ToLower(journal); journal == "off" || journal == "memory" {
		bad("journal_mode is %s: a crash can leave half a transaction; use WAL", journal)
	}
	if synchronous < 2 {
		bad("synchronous is %d: a crash can lose what was committed and acked; use FULL (2)", synchronous)
	}
	if readOnly != 0 {
		bad("query_only is set: nothing can be written")
	}
	for table, key := range map[string]string{"onceline_marker": "key", "onceline_marker_timed": "key", "onceline_position": "consumer,topic,epoch,partition", "onceline_call": "key"} {
		got, err := primaryKey(ctx, conn, table)
		if err != nil {
			return fmt.Errorf("dedup/sqlite: verify: %w", err)
		}
		if got != key {
			bad("the primary key of %s is (%s), not (%s): copies would be applied; run Migrate on a database without that table", table, got, key)
		}
	}
	return errors.Join(errs...)
}

func primaryKey(ctx context.Context, conn *sql.Conn, table string) (string, error) {
	rows, err := conn.QueryContext(ctx, "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", table)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return "", err
		}
		names = append(names, name)
	}
	return strings.Join(names, ","), rows.Err()
}
