package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/sqltx"
)

var errOthers = errors.New("another process is changing the tables, by Migrate")

// Migrate makes the tables that are missing. Several processes may call it at once: each
// waits for those before it, and for transactions that use the tables, until ctx ends.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.migrate(ctx); err != nil {
		return fmt.Errorf("dedup/mysql: migrate: %w", outsideTx(err))
	}
	return nil
}

func (s *Store) migrate(ctx context.Context) (err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	others := func(err error) bool { return errors.Is(err, errOthers) || s.Fault(err) == dedup.Busy }
	// The server waits no longer than a second at a time: the driver's readTimeout may be
	// short, and the end of ctx closes the connection.
	if err := sqltx.Wait(ctx, others, func() error {
		var had sql.NullBool
		if err := conn.QueryRowContext(ctx, "SELECT get_lock('onceline schema', 1)").Scan(&had); err != nil {
			return err
		}
		if !had.Bool {
			return errOthers
		}
		return nil
	}); err != nil {
		return err
	}
	defer func() {
		if _, unlock := conn.ExecContext(context.WithoutCancel(ctx), "SELECT release_lock('onceline schema')"); err == nil {
			err = unlock
		}
	}()
	for query := range strings.SplitSeq(schema+outboxSchema, ";\n") {
		if strings.TrimSpace(query) == "" {
			continue
		}
		if err := sqltx.Wait(ctx, others, func() error {
			_, err := conn.ExecContext(ctx, query)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// chunk is how many markers one transaction deletes, so that effects don't wait long
// for it.
const chunk = 2000

// Expire deletes the markers that are older than the window: those with a time by
// it, the others by when they were written. Messages with a time before the window
// are refused as OutsideWindow from then on. It returns how many it deleted, in many
// short transactions. Call it from time to time, an hour apart for instance; several
// at once do no harm.
func (s *Store) Expire(ctx context.Context) (int64, error) {
	now := time.Time{}
	if s.o.Now != nil {
		now = s.o.Now()
	} else {
		var seconds int64
		if err := s.db.QueryRowContext(ctx, "SELECT unix_timestamp()").Scan(&seconds); err != nil {
			return 0, fmt.Errorf("dedup/mysql: expire: %w", outsideTx(err))
		}
		now = time.Unix(seconds, 0)
	}
	before := now.Add(-s.o.Window)
	floor := string(literal(nil, dedup.MinuteMarker(before)))
	var total int64
	for _, query := range []string{
		"DELETE FROM onceline_marker_timed WHERE marker < " + floor + " ORDER BY marker LIMIT " + strconv.Itoa(chunk),
		"DELETE FROM onceline_marker WHERE seen < " + strconv.FormatInt(max(before.Unix(), 0), 10) + " ORDER BY seen LIMIT " + strconv.Itoa(chunk),
	} {
		for busy := 0; ; {
			var n int64
			err := s.Transact(ctx, func(tx *sql.Tx) error {
				// The floor rises before the first marker below it goes.
				if _, err := tx.ExecContext(ctx, "UPDATE onceline_floor SET marker = "+floor+" WHERE marker < "+floor); err != nil {
					return err
				}
				result, err := tx.ExecContext(ctx, query)
				if err == nil {
					n, err = result.RowsAffected()
				}
				return err
			})
			if err != nil && s.Fault(err) == dedup.Busy && busy < 10 {
				busy++ // beside a claim of a marker that it deletes
				continue
			}
			if err != nil {
				return total, fmt.Errorf("dedup/mysql: expire: %w", err)
			}
			if total += n; n < chunk {
				break
			}
		}
	}
	return total, nil
}

// Verify reports what in the database would let an effect happen twice or be lost,
// each with what to change, as an error that is [dedup.ErrVerify]; nil if there is
// nothing: the version, the tables, their engine, keys and rows, the user's rights on them,
// and the settings by which a crash could take back what was committed. Call it at the start, and let a
// refusal end the program.
func (s *Store) Verify(ctx context.Context) error {
	var errs []error
	bad := func(format string, a ...any) {
		errs = append(errs, fmt.Errorf("%w: mysql: %s", dedup.ErrVerify, fmt.Sprintf(format, a...)))
	}
	if !s.recent() {
		bad("the version %s is older than MySQL 8.0 or MariaDB 10.6: it doesn't skip rows that are locked", s.version)
	}
	var flush, pages, readOnly, log, syncLog string
	if err := s.db.QueryRowContext(ctx, "SELECT @@global.innodb_flush_log_at_trx_commit, @@global.innodb_doublewrite, @@global.read_only, @@global.log_bin, @@global.sync_binlog").
		Scan(&flush, &pages, &readOnly, &log, &syncLog); err != nil {
		return fmt.Errorf("dedup/mysql: verify: %w", outsideTx(err))
	}
	verifyLog(log, syncLog, bad)
	if flush != "1" {
		bad("innodb_flush_log_at_trx_commit is %s: a crash loses effects whose messages were acked; set it to 1", flush)
	}
	if off(pages) {
		bad("innodb_doublewrite is off: a crash can corrupt the tables; set it to on")
	}
	if !off(readOnly) {
		bad("the server is read only: use the one that takes writes")
	}
	for _, w := range markerTables {
		if err := s.verifyTable(ctx, w, bad); err != nil {
			return fmt.Errorf("dedup/mysql: verify: %w", outsideTx(err))
		}
	}
	if len(errs) == 0 {
		for table, want := range map[string]int{"onceline_slot": 1 << 16, "onceline_floor": 1} {
			var n int
			if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil {
				return fmt.Errorf("dedup/mysql: verify: %w", outsideTx(err))
			}
			if n != want {
				bad("%s has %d rows, not %d: messages would stay in flight for ever; call Migrate", table, n, want)
			}
		}
	}
	return errors.Join(errs...)
}

// verifyLog checks the settings of the binary log, by which a crash of the machine decides
// which commits stand (MY-F-391).
func verifyLog(log, sync string, bad func(string, ...any)) {
	if !off(log) && sync != "1" {
		bad("sync_binlog is %s while the binary log is on: a crash of the machine takes back effects whose messages were acked; set it to 1", sync)
	}
}

func off(value string) bool { return value == "0" || strings.EqualFold(value, "OFF") }

func (s *Store) verifyTable(ctx context.Context, w wanted, bad func(string, ...any)) error {
	// First, for the catalog shows no table to who has no right on it.
	if ok, err := s.verifyRights(ctx, w, bad); !ok && number(err) != noTable {
		return err
	}
	table, key := w.table, w.key
	var engine sql.NullString
	err := s.db.QueryRowContext(ctx, "SELECT engine FROM information_schema.tables WHERE table_schema = database() AND table_name = ?", table).Scan(&engine)
	if errors.Is(err, sql.ErrNoRows) {
		bad("%s is missing; call Migrate", table)
		return nil
	}
	if err != nil {
		return err
	}
	if !strings.EqualFold(engine.String, "InnoDB") {
		bad("%s is kept by %s, which has no transactions that hold; ALTER TABLE %s ENGINE = InnoDB", table, engine.String, table)
	}
	var got sql.NullString
	err = s.db.QueryRowContext(ctx, `SELECT group_concat(column_name ORDER BY ordinal_position) FROM information_schema.key_column_usage
		WHERE table_schema = database() AND table_name = ? AND constraint_name = 'PRIMARY'`, table).Scan(&got)
	if err == nil && got.String != key {
		bad("the primary key of %s is (%s), not (%s): copies would be applied; rename the table and call Migrate", table, got.String, key)
	}
	return err
}

// recent reports whether the version is one that this package is made for.
func (s *Store) recent() bool {
	var major, minor int
	if _, err := fmt.Sscanf(s.version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	if s.mariadb {
		return major > 10 || major == 10 && minor >= 6
	}
	return major >= 8
}
