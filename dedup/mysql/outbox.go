package mysql

import (
	"context"
	"database/sql"
	_ "embed" // the schema
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onceline/onceline/dedup"
)

//go:embed outbox.sql
var outboxSchema string

var _ dedup.OutboxDriver[*sql.Tx] = (*Store)(nil)

// addAtOnce is how many rows one statement adds.
const addAtOnce = 16

// AddOutbox implements [dedup.OutboxDriver]. A topic over 255 bytes is
// [broker.ErrInvalid].
func (s *Store) AddOutbox(ctx context.Context, tx *sql.Tx, topic string, rows []dedup.OutboxRow) error {
	if err := checkNames(topic); err != nil {
		return err
	}
	for len(rows) > 0 {
		n := min(len(rows), addAtOnce)
		one := "(?, ?, ?, ?, " + s.clock() + ", ?, ?, ?, ?)"
		query := "INSERT INTO onceline_outbox (topic, lane, hash, at, added, id, ordering, meta, body) VALUES " + one + strings.Repeat(", "+one, n-1)
		args := make([]any, 0, 8*n)
		for i := range rows[:n] {
			r := &rows[i]
			args = append(args, []byte(topic), r.Lane, r.Hash, r.Time.UnixMicro(), []byte(r.ID), []byte(r.Key), some(r.Meta), some(r.Body))
		}
		if _, err := tx.ExecContext(ctx, query, args...); err != nil {
			return fmt.Errorf("dedup/mysql: outbox: %w", err)
		}
		rows = rows[n:]
	}
	return nil
}

// some is b as a value that isn't NULL.
func some(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// clock is the time in microseconds, as SQL.
func (s *Store) clock() string {
	if s.o.Now != nil {
		return strconv.FormatInt(s.o.Now().UnixMicro(), 10)
	}
	// In UTC: what unix_timestamp makes of a local time is an hour off where the
	// clocks are put back.
	return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
}

// quoted is a text as SQL, whatever bytes it has and the mode of the session is.
func quoted(text string) string { return "x'" + hex.EncodeToString([]byte(text)) + "'" }

// OutboxBacklog implements [dedup.OutboxStore].
func (s *Store) OutboxBacklog(ctx context.Context, topic string) (dedup.OutboxBacklog, error) {
	var b dedup.OutboxBacklog
	var oldest int64
	err := s.db.QueryRowContext(ctx, `SELECT coalesce(sum(state = 0), 0), coalesce(sum(state = 0 AND attempts > 0), 0), coalesce(sum(state = 1), 0),
		coalesce(sum(state = 2), 0), coalesce(`+s.clock()+` - min(CASE WHEN state = 0 THEN added END), 0) FROM onceline_outbox WHERE topic = `+quoted(topic)).
		Scan(&b.Waiting, &b.Retried, &b.Held, &b.Parked, &oldest)
	if err != nil {
		return b, fmt.Errorf("dedup/mysql: backlog: %w", outsideTx(err))
	}
	b.Oldest = max(time.Duration(oldest)*time.Microsecond, 0)
	return b, nil
}

// NotifyOutbox implements [dedup.OutboxStore]. These databases have nothing to notify
// with, so relays in other processes find new rows by polling.
func (s *Store) NotifyOutbox(context.Context, string) error { return nil }

// StoppedOutbox implements [dedup.OutboxStore].
func (s *Store) StoppedOutbox(ctx context.Context, topic string, after int64, limit int) (stopped []dedup.StoppedRow, err error) {
	err = s.Transact(ctx, func(tx *sql.Tx) error {
		stopped = nil
		return each(ctx, tx, fmt.Sprintf(`SELECT seq, id, ordering, state, coalesce(reason, ''), attempts, at FROM onceline_outbox
			WHERE topic = %s AND state <> 0 AND seq > %d ORDER BY seq LIMIT %d`, quoted(topic), after, limit), func(scan func(...any) error) error {
			var r dedup.StoppedRow
			var id, key, reason []byte
			var state, at int64
			err := scan(&r.Seq, &id, &key, &state, &reason, &r.Attempts, &at)
			r.ID, r.Key, r.Reason, r.State, r.Time = string(id), string(key), string(reason), dedup.OutboxAgain+dedup.OutboxState(state), time.UnixMicro(at)
			stopped = append(stopped, r)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("dedup/mysql: stopped: %w", err)
	}
	return stopped, nil
}

// ReleaseOutbox implements [dedup.OutboxStore].
func (s *Store) ReleaseOutbox(ctx context.Context, topic string, seqs ...int64) (int, error) {
	return s.changeStopped(ctx, "UPDATE onceline_outbox SET state = 0, tried = NULL, due = NULL, reason = NULL", topic, seqs)
}

// DropOutbox implements [dedup.OutboxStore].
func (s *Store) DropOutbox(ctx context.Context, topic string, seqs ...int64) (int, error) {
	return s.changeStopped(ctx, "DELETE FROM onceline_outbox", topic, seqs)
}

func (s *Store) changeStopped(ctx context.Context, what, topic string, seqs []int64) (n int, err error) {
	if len(seqs) == 0 {
		return 0, nil
	}
	err = s.Transact(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, what+" WHERE topic = "+quoted(topic)+" AND state <> 0 AND seq IN ("+numbers(seqs)+")")
		if err != nil {
			return err
		}
		rows, err := result.RowsAffected()
		n = int(rows)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("dedup/mysql: outbox: %w", err)
	}
	return n, nil
}

// numbers are integers as a list in SQL.
func numbers[N int | int64](ns []N) string {
	var b []byte
	for i, n := range ns {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(b)
}

// VerifyOutbox implements [dedup.OutboxStore].
func (s *Store) VerifyOutbox(ctx context.Context) error {
	errs := []error{s.Verify(ctx)}
	bad := func(format string, a ...any) {
		errs = append(errs, fmt.Errorf("%w: mysql: %s", dedup.ErrVerify, fmt.Sprintf(format, a...)))
	}
	for _, w := range outboxTables {
		if err := s.verifyTable(ctx, w, bad); err != nil {
			return errors.Join(append(errs, fmt.Errorf("dedup/mysql: verify: %w", outsideTx(err)))...)
		}
	}
	var extra string
	err := s.db.QueryRowContext(ctx, "SELECT coalesce(max(extra), '') FROM information_schema.columns WHERE table_schema = database() AND table_name = 'onceline_outbox' AND column_name = 'seq'").Scan(&extra)
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("dedup/mysql: verify: %w", outsideTx(err)))...)
	}
	if extra != "" && !strings.EqualFold(extra, "auto_increment") || extra == "" && len(errs) == 1 && errs[0] == nil {
		bad("the column seq of onceline_outbox is no AUTO_INCREMENT: nothing gives messages their order; rename the table and call Migrate")
	}
	return errors.Join(errs...)
}
