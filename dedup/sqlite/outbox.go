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
	"sync"
	"time"

	"github.com/onceline/onceline/dedup"
)

//go:embed outbox.sql
var outboxSchema string

var _ dedup.OutboxDriver[*sql.Tx] = (*Store)(nil)

// AddOutbox implements [dedup.OutboxDriver].
func (s *Store) AddOutbox(ctx context.Context, tx *sql.Tx, topic string, rows []dedup.OutboxRow) error {
	now := s.o.Now().UnixMicro()
	add := tx.StmtContext(ctx, s.add)
	defer add.Close()
	for i := range rows {
		r := &rows[i]
		if _, err := add.ExecContext(ctx, topic, r.Lane, r.Hash, r.Time.UnixMicro(), now, []byte(r.ID), []byte(r.Key), r.Meta, some(r.Body)); err != nil {
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
	if err := s.relay.prepare(ctx, s.db); err != nil {
		return 0, wrapRelay(err)
	}
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
	addText = "INSERT INTO onceline_outbox (topic, lane, hash, at, added, id, key, meta, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
	// A row that may be sent now.
	outboxDueText = "o.topic = @topic AND o.state = 0 AND (o.due IS NULL OR o.due <= @now)"
	// Lanes with such rows, which nobody has. It goes from one lane with rows to the next,
	// and doesn't look at those that are empty. It is no EXISTS, of which SQLite makes a
	// join that reads all rows of the lane.
	lanesText = `WITH RECURSIVE g (lane) AS (SELECT min(lane) FROM onceline_outbox WHERE topic = @topic AND state = 0
		UNION ALL SELECT (SELECT min(n.lane) FROM onceline_outbox n WHERE n.topic = @topic AND n.state = 0 AND n.lane > g.lane) FROM g WHERE g.lane IS NOT NULL)
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
	clearText = "UPDATE onceline_outbox_lane SET upto = 0 WHERE topic = @topic AND lane IN (SELECT value FROM json_each(@lanes))"
	ownText   = "SELECT lane FROM onceline_outbox_lane WHERE topic = @topic AND turn = @turn"
	sentText  = "DELETE FROM onceline_outbox WHERE seq = ?"
	endText   = "UPDATE onceline_outbox_lane SET upto = 0, until = 0 WHERE topic = @topic AND turn = @turn"
)

// relayStatements are what a turn of a relay sends, prepared at the first one: a store
// whose outbox nobody relays doesn't need them.
type relayStatements struct {
	mu                                                          sync.Mutex
	lanes, leftover, clear, read, lease, own, sent, failed, end *sql.Stmt
}

func (r *relayStatements) all() []*sql.Stmt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return []*sql.Stmt{r.lanes, r.leftover, r.clear, r.read, r.lease, r.own, r.sent, r.failed, r.end}
}

func (r *relayStatements) prepare(ctx context.Context, db *sql.DB) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&r.lanes, lanesText}, {&r.leftover, leftoverText}, {&r.clear, clearText}, {&r.read, readText}, {&r.lease, leaseText},
		{&r.own, ownText}, {&r.sent, sentText}, {&r.failed, failedText}, {&r.end, endText},
	} {
		if *s.stmt == nil {
			var err error
			if *s.stmt, err = db.PrepareContext(ctx, s.text); err != nil {
				*s.stmt = nil
				return err
			}
		}
	}
	return nil
}

// take leases lanes and returns rows of them.
func (t *outboxTurn) take(ctx context.Context, tx *sql.Tx) ([]dedup.OutboxRow, error) {
	now := t.o.Now()
	named := func(name string, v any) sql.NamedArg { return sql.Named(name, v) }
	topic, clock := named("topic", t.Topic), named("now", now.UnixMicro())
	lanes := []int64{}
	free, err := tx.StmtContext(ctx, t.relay.lanes).
		QueryContext(ctx, topic, clock, named("lanes", dedup.OutboxLanes), named("first", t.First), named("limit", t.Lanes), named("owner", t.Owner))
	err = eachOf(free, err, func(scan func(...any) error) error {
		var lane int64
		err := scan(&lane)
		lanes = append(lanes, lane)
		return err
	})
	if err != nil || len(lanes) == 0 {
		return nil, err
	}
	list, err := json.Marshal(lanes)
	if err != nil {
		return nil, err
	}
	in := named("lanes", string(list))
	for _, stmt := range []*sql.Stmt{t.relay.leftover, t.relay.clear} {
		if _, err := tx.StmtContext(ctx, stmt).ExecContext(ctx, topic, in); err != nil {
			return nil, err
		}
	}
	var rows []dedup.OutboxRow
	read, err := tx.StmtContext(ctx, t.relay.read).QueryContext(ctx, topic, clock, in, named("pass", t.Pass), named("limit", t.Rows), named("bytes", t.Bytes))
	err = eachOf(read, err, func(scan func(...any) error) error {
		var r dedup.OutboxRow
		var id, key []byte
		var at, age int64
		err := scan(&r.Seq, &r.Lane, &r.Hash, &id, &key, &r.Meta, &r.Body, &at, &r.Attempts, &age)
		r.ID, r.Key, r.Time, r.Age = string(id), string(key), time.UnixMicro(at), max(time.Duration(age)*time.Microsecond, 0)
		rows = append(rows, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	upto := map[int]int64{}
	for i := range rows {
		upto[rows[i].Lane] = rows[i].Seq
	}
	until := named("until", now.Add(t.Bound+outboxSlack(t.Bound)).UnixMicro())
	lease := tx.StmtContext(ctx, t.relay.lease)
	for lane, seq := range upto {
		if _, err := lease.ExecContext(ctx, topic, named("lane", lane), named("upto", seq), clock, named("turn", t.number), until); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// settle does with the rows of the lanes that are still the turn's what fates say.
func (t *outboxTurn) settle(ctx context.Context, tx *sql.Tx, rows []dedup.OutboxRow, fates []dedup.OutboxFate) error {
	ours := map[int]bool{}
	topic, turn := sql.Named("topic", t.Topic), sql.Named("turn", t.number)
	own, err := tx.StmtContext(ctx, t.relay.own).QueryContext(ctx, topic, turn)
	err = eachOf(own, err, func(scan func(...any) error) error {
		var lane int
		err := scan(&lane)
		ours[lane] = true
		return err
	})
	if err != nil {
		return err
	}
	sent, failed := tx.StmtContext(ctx, t.relay.sent), (*sql.Stmt)(nil)
	for i := range rows {
		f := &fates[i]
		switch {
		case f.State == dedup.OutboxLeft || !ours[rows[i].Lane]:
		case f.State == dedup.OutboxSent:
			_, err = sent.ExecContext(ctx, rows[i].Seq)
		default:
			if failed == nil {
				failed = tx.StmtContext(ctx, t.relay.failed)
			}
			_, err = failed.ExecContext(ctx, sql.Named("state", int(f.State-dedup.OutboxAgain)), sql.Named("reason", strings.ToValidUTF8(f.Reason, "?")),
				sql.Named("now", t.o.Now().UnixMicro()), sql.Named("delay", f.Delay.Microseconds()), sql.Named("maybe", f.Maybe),
				topic, sql.Named("lane", rows[i].Lane), sql.Named("seq", rows[i].Seq))
		}
		if err != nil {
			return err
		}
	}
	_, err = tx.StmtContext(ctx, t.relay.end).ExecContext(ctx, topic, turn)
	return err
}

// each calls f for each row of a query's answer.
func each(ctx context.Context, tx *sql.Tx, f func(scan func(...any) error) error, query string, args ...any) error {
	rows, err := tx.QueryContext(ctx, query, args...)
	return eachOf(rows, err, f)
}

// eachOf calls f for each row of an answer.
func eachOf(rows *sql.Rows, err error, f func(scan func(...any) error) error) error {
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
