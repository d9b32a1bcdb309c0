package sqlite

import (
	"context"
	"database/sql"
	_ "embed" // the schema
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/onceline/onceline/dedup"
)

//go:embed outbox.sql
var outboxSchema string

var _ dedup.OutboxDriver[*sql.Tx] = (*Store)(nil)

// AddOutbox implements [dedup.OutboxDriver].
func (s *Store) AddOutbox(ctx context.Context, tx *sql.Tx, topic string, rows []dedup.OutboxRow) error {
	now := s.o.Now().UnixMicro()
	for i := range rows {
		r := &rows[i]
		if _, err := tx.ExecContext(ctx, `INSERT INTO onceline_outbox (topic, lane, hash, at, added, id, key, meta, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			topic, r.Lane, r.Hash, r.Time.UnixMicro(), now, []byte(r.ID), []byte(r.Key), r.Meta, some(r.Body)); err != nil {
			return fmt.Errorf("dedup/sqlite: outbox: %w", err)
		}
	}
	return nil
}

// some is b as a blob that isn't NULL.
func some(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// outboxSlack is how long a relay keeps its lanes beyond the time that it may take to
// send.
func outboxSlack(bound time.Duration) time.Duration {
	return min(max(bound/3, time.Second), 5*time.Second)
}

// RelayOutbox implements [dedup.OutboxStore]. A transaction during send would keep
// all writers waiting, so lanes are leased: the first transaction takes them, the
// last one settles the rows of those that are still this turn's. Those of a relay
// that was killed are free when its lease is over: turn.Bound and some seconds.
func (s *Store) RelayOutbox(ctx context.Context, turn dedup.OutboxTurn, send func(rows []dedup.OutboxRow) []dedup.OutboxFate) (int, error) {
	t := outboxTurn{s, turn, rand.Int64()}
	if turn.Owner > 0 {
		t.number = -turn.Owner // what is below 0 holds up no later owner
	}
	var rows []dedup.OutboxRow
	err := s.Transact(ctx, func(tx *sql.Tx) (err error) {
		rows, err = t.take(ctx, tx)
		return err
	})
	// After a commit without answer nobody has the lanes until the lease is over.
	if err != nil || len(rows) == 0 {
		return 0, wrapRelay(err)
	}
	fates := send(rows)
	for attempt := 1; ; attempt++ {
		err = s.Transact(ctx, func(tx *sql.Tx) error { return t.settle(ctx, tx, rows, fates) })
		if err == nil || attempt == 3 || ctx.Err() != nil || s.Fault(err) != dedup.Busy {
			return len(rows), wrapRelay(err)
		}
	}
}

func wrapRelay(err error) error {
	if err != nil {
		return fmt.Errorf("dedup/sqlite: relay: %w", err)
	}
	return nil
}

type outboxTurn struct {
	*Store
	dedup.OutboxTurn
	number int64
}

const (
	// A row that may be sent now.
	outboxDueText = "o.topic = @topic AND o.state = 0 AND (o.due IS NULL OR o.due <= @now)"
	// Lanes with such rows, which nobody has. It is no EXISTS, of which SQLite makes a join
	// that reads all rows of the lane.
	lanesText = `WITH RECURSIVE g (lane) AS (SELECT 0 UNION ALL SELECT lane + 1 FROM g WHERE lane < @lanes - 1)
	SELECT g.lane FROM g WHERE (SELECT 1 FROM onceline_outbox o WHERE ` + outboxDueText + ` AND o.lane = g.lane LIMIT 1)
	AND NOT EXISTS (SELECT 1 FROM onceline_outbox_lane l WHERE l.topic = @topic AND l.lane = g.lane AND l.until > @now AND (@owner = 0 OR l.turn >= 0))
	ORDER BY (g.lane + @lanes - @first) % @lanes LIMIT @limit`
	// Rows that a relay which ended may have sent get the time on them.
	leftoverText = `UPDATE onceline_outbox AS o SET tried = (SELECT l.since FROM onceline_outbox_lane l WHERE l.topic = o.topic AND l.lane = o.lane)
		WHERE o.seq IN (SELECT r.seq FROM onceline_outbox_lane l CROSS JOIN onceline_outbox r ON r.topic = l.topic AND r.lane = l.lane AND r.seq <= l.upto AND r.state = 0 AND r.tried IS NULL
			WHERE l.topic = @topic AND l.lane IN (SELECT value FROM json_each(@lanes)) AND l.upto > 0)`
	// Rows of the lanes of whose key no earlier one is stopped or waits: of each lane the
	// first ones, which the index has in their order, and of those the first.
	readText = `SELECT seq, lane, hash, id, key, meta, body, at, attempts, age FROM (
		SELECT r.*, sum(length(r.body)) OVER (ORDER BY r.seq) - length(r.body) AS before FROM (
			SELECT o.seq, o.lane, o.hash, o.id, o.key, o.meta, o.body, o.at, o.attempts, @now - coalesce(o.tried, @now) AS age
			FROM (SELECT f.seq FROM json_each(@lanes) j CROSS JOIN onceline_outbox f WHERE f.seq IN (
				SELECT o.seq FROM onceline_outbox o WHERE ` + outboxDueText + ` AND o.lane = j.value
				AND (o.hash = 0 OR NOT EXISTS (SELECT 1 FROM onceline_outbox b WHERE b.topic = o.topic AND b.hash = o.hash AND b.seq < o.seq
					AND (b.state <> 0 OR b.due IS NOT NULL) AND (b.state <> 0 AND NOT @pass OR b.state = 0 AND b.due > @now)))
				ORDER BY o.seq LIMIT @limit)
			ORDER BY f.seq LIMIT @limit) c CROSS JOIN onceline_outbox o ON o.seq = c.seq) r)
	WHERE before < @bytes ORDER BY seq`
	leaseText = `INSERT INTO onceline_outbox_lane (topic, lane, upto, since, turn, until) VALUES (@topic, @lane, @upto, @now, @turn, @until)
		ON CONFLICT (topic, lane) DO UPDATE SET upto = excluded.upto, since = excluded.since, turn = excluded.turn, until = excluded.until`
	failedText = `UPDATE onceline_outbox SET state = @state, attempts = attempts + 1, reason = @reason, due = CASE WHEN @state = 0 THEN @now + @delay END,
		tried = CASE WHEN @maybe THEN coalesce(tried, (SELECT since FROM onceline_outbox_lane l WHERE l.topic = @topic AND l.lane = @lane)) ELSE tried END
		WHERE seq = @seq`
	endText = "UPDATE onceline_outbox_lane SET upto = 0, until = 0 WHERE topic = @topic AND turn = @turn"
)

// take leases lanes and returns rows of them.
func (t *outboxTurn) take(ctx context.Context, tx *sql.Tx) ([]dedup.OutboxRow, error) {
	now := t.o.Now()
	named := func(name string, v any) sql.NamedArg { return sql.Named(name, v) }
	topic, clock := named("topic", t.Topic), named("now", now.UnixMicro())
	lanes := []int64{}
	err := each(ctx, tx, func(scan func(...any) error) error {
		var lane int64
		err := scan(&lane)
		lanes = append(lanes, lane)
		return err
	}, lanesText, topic, clock, named("lanes", dedup.OutboxLanes), named("first", t.First), named("limit", t.Lanes), named("owner", t.Owner))
	if err != nil || len(lanes) == 0 {
		return nil, err
	}
	list, err := json.Marshal(lanes)
	if err != nil {
		return nil, err
	}
	in := named("lanes", string(list))
	if _, err := tx.ExecContext(ctx, leftoverText, topic, in); err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE onceline_outbox_lane SET upto = 0 WHERE topic = @topic AND lane IN (SELECT value FROM json_each(@lanes))", topic, in); err != nil {
		return nil, err
	}
	var rows []dedup.OutboxRow
	err = each(ctx, tx, func(scan func(...any) error) error {
		var r dedup.OutboxRow
		var id, key []byte
		var at, age int64
		err := scan(&r.Seq, &r.Lane, &r.Hash, &id, &key, &r.Meta, &r.Body, &at, &r.Attempts, &age)
		r.ID, r.Key, r.Time, r.Age = string(id), string(key), time.UnixMicro(at), max(time.Duration(age)*time.Microsecond, 0)
		rows = append(rows, r)
		return err
	}, readText, topic, clock, in, named("pass", t.Pass), named("limit", t.Rows), named("bytes", t.Bytes))
	if err != nil {
		return nil, err
	}
	upto := map[int]int64{}
	for i := range rows {
		upto[rows[i].Lane] = rows[i].Seq
	}
	until := named("until", now.Add(t.Bound+outboxSlack(t.Bound)).UnixMicro())
	for lane, seq := range upto {
		if _, err := tx.ExecContext(ctx, leaseText, topic, named("lane", lane), named("upto", seq), clock, named("turn", t.number), until); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// settle does with the rows of the lanes that are still the turn's what fates say.
func (t *outboxTurn) settle(ctx context.Context, tx *sql.Tx, rows []dedup.OutboxRow, fates []dedup.OutboxFate) error {
	ours := map[int]bool{}
	err := each(ctx, tx, func(scan func(...any) error) error {
		var lane int
		err := scan(&lane)
		ours[lane] = true
		return err
	}, "SELECT lane FROM onceline_outbox_lane WHERE topic = ? AND turn = ?", t.Topic, t.number)
	if err != nil {
		return err
	}
	for i := range rows {
		f := &fates[i]
		switch {
		case f.State == dedup.OutboxLeft || !ours[rows[i].Lane]:
		case f.State == dedup.OutboxSent:
			_, err = tx.ExecContext(ctx, "DELETE FROM onceline_outbox WHERE seq = ?", rows[i].Seq)
		default:
			_, err = tx.ExecContext(ctx, failedText, sql.Named("state", int(f.State-dedup.OutboxAgain)), sql.Named("reason", strings.ToValidUTF8(f.Reason, "?")),
				sql.Named("now", t.o.Now().UnixMicro()), sql.Named("delay", f.Delay.Microseconds()), sql.Named("maybe", f.Maybe),
				sql.Named("topic", t.Topic), sql.Named("lane", rows[i].Lane), sql.Named("seq", rows[i].Seq))
		}
		if err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, endText, sql.Named("topic", t.Topic), sql.Named("turn", t.number))
	return err
}

func each(ctx context.Context, tx *sql.Tx, f func(scan func(...any) error) error, query string, args ...any) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// OutboxBacklog implements [dedup.OutboxStore].
func (s *Store) OutboxBacklog(ctx context.Context, topic string) (dedup.OutboxBacklog, error) {
	var b dedup.OutboxBacklog
	now := s.o.Now().UnixMicro()
	oldest := now
	err := s.db.QueryRowContext(ctx, `SELECT count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 0 AND attempts > 0), count(*) FILTER (WHERE state = 1),
		count(*) FILTER (WHERE state = 2), coalesce(min(added) FILTER (WHERE state = 0), ?) FROM onceline_outbox WHERE topic = ?`, now, topic).
		Scan(&b.Waiting, &b.Retried, &b.Held, &b.Parked, &oldest)
	if err != nil {
		return b, fmt.Errorf("dedup/sqlite: backlog: %w", err)
	}
	b.Oldest = max(time.Duration(now-oldest)*time.Microsecond, 0)
	return b, nil
}

// NotifyOutbox implements [dedup.OutboxStore]; SQLite has nothing to notify with, so
// relays in other processes find new rows by polling.
func (s *Store) NotifyOutbox(context.Context, string) error { return nil }

// StoppedOutbox implements [dedup.OutboxStore].
func (s *Store) StoppedOutbox(ctx context.Context, topic string, after int64, limit int) (stopped []dedup.StoppedRow, err error) {
	err = s.Transact(ctx, func(tx *sql.Tx) error {
		stopped = nil
		return each(ctx, tx, func(scan func(...any) error) error {
			var r dedup.StoppedRow
			var id, key []byte
			var state, at int64
			err := scan(&r.Seq, &id, &key, &state, &r.Reason, &r.Attempts, &at)
			r.ID, r.Key, r.State, r.Time = string(id), string(key), dedup.OutboxAgain+dedup.OutboxState(state), time.UnixMicro(at)
			stopped = append(stopped, r)
			return err
		}, `SELECT seq, id, key, state, coalesce(reason, ''), attempts, at FROM onceline_outbox
			WHERE topic = ? AND state <> 0 AND seq > ? ORDER BY seq LIMIT ?`, topic, after, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("dedup/sqlite: stopped: %w", err)
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
	err = s.Transact(ctx, func(tx *sql.Tx) error {
		n = 0
		for _, seq := range seqs {
			result, err := tx.ExecContext(ctx, what+" WHERE topic = ? AND state <> 0 AND seq = ?", topic, seq)
			if err != nil {
				return err
			}
			rows, err := result.RowsAffected()
			if err != nil {
				return err
			}
			n += int(rows)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("dedup/sqlite: outbox: %w", err)
	}
	return n, nil
}

// VerifyOutbox implements [dedup.OutboxStore].
func (s *Store) VerifyOutbox(ctx context.Context) error {
	if err := s.Verify(ctx); err != nil {
		return err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", dedup.ErrLost, err)
	}
	defer conn.Close()
	var errs []error
	for table, key := range map[string]string{"onceline_outbox": "seq", "onceline_outbox_lane": "topic,lane"} {
		got, err := primaryKey(ctx, conn, table)
		if err != nil {
			return fmt.Errorf("dedup/sqlite: verify: %w", err)
		}
		if got != key {
			errs = append(errs, fmt.Errorf("%w: sqlite: the primary key of %s is (%s), not (%s): run Migrate on a database without that table", dedup.ErrVerify, table, got, key))
		}
	}
	return errors.Join(errs...)
}
