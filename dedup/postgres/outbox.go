package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

var (
	_ dedup.OutboxDriver[pgx.Tx]  = (*Store)(nil)
	_ dedup.OutboxDriver[*sql.Tx] = (*SQL)(nil)
)

// AddOutbox implements [dedup.OutboxDriver].
func (s *Store) AddOutbox(ctx context.Context, tx pgx.Tx, topic string, rows []dedup.OutboxRow) error {
	return s.addOutbox(ctx, pgxQuerier{tx}, topic, rows)
}

// AddOutbox implements [dedup.OutboxDriver].
func (s *SQL) AddOutbox(ctx context.Context, tx *sql.Tx, topic string, rows []dedup.OutboxRow) error {
	return s.addOutbox(ctx, sqlQuerier{tx}, topic, rows)
}

func (c *core) addOutbox(ctx context.Context, q querier, topic string, rows []dedup.OutboxRow) error {
	if err := checkTopic(topic); err != nil {
		return err
	}
	for len(rows) > 0 {
		query, n := c.texts.outbox.add, 1
		if len(rows) >= addAtOnce {
			query, n = c.texts.outbox.addMany, addAtOnce
		}
		args := make([]any, 0, 8*n)
		for i := range rows[:n] {
			r := &rows[i]
			body := r.Body
			if body == nil {
				body = []byte{} // nil is NULL
			}
			args = append(args, topic, int64(r.Lane), r.Hash, r.Time.UnixMicro(), []byte(r.ID), []byte(r.Key), r.Meta, body)
		}
		if _, err := q.exec(ctx, query, args...); err != nil {
			return fmt.Errorf("dedup/postgres: outbox: %w", err)
		}
		rows = rows[n:]
	}
	return nil
}

// checkTopic refuses what the database would, in the middle of a transaction.
func checkTopic(topic string) error {
	if strings.IndexByte(topic, 0) >= 0 || strings.ToValidUTF8(topic, "") != topic {
		return broker.Errorf(broker.ErrInvalid, nil, "dedup/postgres: topic %q", topic)
	}
	return nil
}

// clock is the argument that stands for the time: nothing takes the database's.
func (c *core) clock() any {
	if c.o.Now == nil {
		return nil
	}
	return c.o.Now().UnixMicro()
}

// RelayOutbox implements [dedup.OutboxStore]. It holds an advisory lock for each lane
// in a transaction that lasts as long as send, so the lanes of a relay that is killed
// are free as soon as the server notices. That transaction has read, and written
// nothing, so that it holds up no vacuum.
func (c *core) RelayOutbox(ctx context.Context, turn dedup.OutboxTurn, send func(rows []dedup.OutboxRow) []dedup.OutboxFate) (int, error) {
	if err := checkTopic(turn.Topic); err != nil {
		return 0, err
	}
	t := outboxTurn{core: c, OutboxTurn: turn, number: rand.Int64(), lock: c.texts.outbox.lockName + turn.Topic}
	if turn.Guard {
		marked := int64(0)
		err := c.in(ctx, func(q querier) (err error) {
			marked, err = t.mark(ctx, q)
			return err
		})
		// Whether an unknown commit took place, the next statement finds out.
		if err != nil && !errors.Is(err, dedup.ErrCommitUnknown) {
			return 0, fmt.Errorf("dedup/postgres: relay: %w", err)
		}
		if marked == 0 {
			return 0, nil
		}
	}
	n := 0
	err := c.in(ctx, func(q querier) (err error) {
		n, err = t.take(ctx, q, send)
		return err
	})
	if err != nil {
		return n, fmt.Errorf("dedup/postgres: relay: %w", err)
	}
	return n, nil
}

// outboxTurn is one turn.
type outboxTurn struct {
	*core
	dedup.OutboxTurn
	number int64
	lock   string
	lanes  []int64
}

// collect puts the lanes that a query returns into t.lanes.
func (t *outboxTurn) collect(ctx context.Context, q querier, query string, args ...any) error {
	t.lanes = nil
	return q.each(ctx, func(scan func(...any) error) error {
		var lane int64
		err := scan(&lane)
		t.lanes = append(t.lanes, lane)
		return err
	}, query, args...)
}

// mark notes which rows the turn is about to send, and returns in how many lanes.
func (t *outboxTurn) mark(ctx context.Context, q querier) (int64, error) {
	x, clock := &t.texts.outbox, t.clock()
	if err := t.collect(ctx, q, x.lanes, t.Topic, clock, t.First, t.lock, t.Lanes); err != nil || len(t.lanes) == 0 {
		return 0, err
	}
	if _, err := q.exec(ctx, x.leftover, t.Topic, arrayOf(t.lanes)); err != nil {
		return 0, err
	}
	return q.exec(ctx, x.mark, t.Topic, clock, t.number, arrayOf(t.lanes), t.Pass, t.Rows)
}

// take sends rows and does with them what send says.
func (t *outboxTurn) take(ctx context.Context, q querier, send func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error) {
	x, clock := &t.texts.outbox, t.clock()
	// A relay that is frozen loses its lanes some time after send should have ended.
	idle := t.Bound + min(max(t.Bound/3, time.Second), 5*time.Second)
	if _, err := q.exec(ctx, fmt.Sprintf("set local idle_in_transaction_session_timeout = %d", idle.Milliseconds())); err != nil {
		return 0, err
	}
	var err error
	if t.Guard {
		err = t.collect(ctx, q, x.locks, t.Topic, arrayOf(t.lanes), t.number, t.lock)
	} else {
		err = t.collect(ctx, q, x.lanes, t.Topic, clock, t.First, t.lock, t.Lanes)
	}
	if err != nil || len(t.lanes) == 0 {
		return 0, err
	}
	// A statement of its own: it must see what those who had the locks before have
	// done.
	var rows []dedup.OutboxRow
	err = q.each(ctx, func(scan func(...any) error) error {
		var r dedup.OutboxRow
		var lane, attempts, at, age int64
		var id, key []byte
		err := scan(&r.Seq, &lane, &r.Hash, &id, &key, &r.Meta, &r.Body, &at, &attempts, &age)
		r.Lane, r.Attempts, r.ID, r.Key = int(lane), int(attempts), string(id), string(key)
		r.Time, r.Age = time.UnixMicro(at), max(time.Duration(age)*time.Microsecond, 0)
		rows = append(rows, r)
		return err
	}, x.read, t.Topic, clock, arrayOf(t.lanes), t.Guard, t.Pass, t.Rows, t.Bytes)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	return len(rows), t.settle(ctx, q, rows, send(rows))
}

func (t *outboxTurn) settle(ctx context.Context, q querier, rows []dedup.OutboxRow, fates []dedup.OutboxFate) error {
	x := &t.texts.outbox
	var sent, seqs, states, delays []int64
	var maybes, reasons []string
	for i := range rows {
		f := &fates[i]
		switch f.State {
		case dedup.OutboxLeft:
		case dedup.OutboxSent:
			sent = append(sent, rows[i].Seq)
		default:
			seqs, states = append(seqs, rows[i].Seq), append(states, int64(f.State-dedup.OutboxAgain))
			delays = append(delays, f.Delay.Microseconds())
			maybes, reasons = append(maybes, strconv.FormatBool(f.Maybe)), append(reasons, quoted(f.Reason))
		}
	}
	if len(sent) > 0 {
		if _, err := q.exec(ctx, x.sent, arrayOf(sent)); err != nil {
			return err
		}
	}
	if len(seqs) > 0 {
		if _, err := q.exec(ctx, x.failed, t.clock(), arrayOf(seqs), arrayOf(states), arrayOf(delays),
			"{"+strings.Join(maybes, ",")+"}", "{"+strings.Join(reasons, ",")+"}"); err != nil {
			return err
		}
	}
	if t.Guard {
		if _, err := q.exec(ctx, x.clear, t.Topic, arrayOf(t.lanes), t.number); err != nil {
			return err
		}
	}
	return nil
}

// arrayOf is numbers as the text of an array.
func arrayOf(ns []int64) string {
	b := []byte{'{'}
	for i, n := range ns {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(append(b, '}'))
}

// quoted is a text as an element of an array's text.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(strings.ToValidUTF8(s, "?")) + `"`
}

// OutboxBacklog implements [dedup.OutboxStore].
func (c *core) OutboxBacklog(ctx context.Context, topic string) (b dedup.OutboxBacklog, err error) {
	err = c.in(ctx, func(q querier) error {
		var oldest int64
		err := q.row(ctx, []any{&b.Waiting, &b.Retried, &b.Held, &b.Parked, &oldest}, c.texts.outbox.backlog, topic, c.clock())
		b.Oldest = max(time.Duration(oldest)*time.Microsecond, 0)
		return err
	})
	if err != nil {
		return b, fmt.Errorf("dedup/postgres: backlog: %w", err)
	}
	return b, nil
}

// StoppedOutbox implements [dedup.OutboxStore].
func (c *core) StoppedOutbox(ctx context.Context, topic string, after int64, limit int) ([]dedup.StoppedRow, error) {
	var rows []dedup.StoppedRow
	err := c.in(ctx, func(q querier) error {
		rows = nil
		return q.each(ctx, func(scan func(...any) error) error {
			var r dedup.StoppedRow
			var id, key []byte
			var state, attempts, at int64
			err := scan(&r.Seq, &id, &key, &state, &r.Reason, &attempts, &at)
			r.ID, r.Key, r.State, r.Attempts, r.Time = string(id), string(key), dedup.OutboxAgain+dedup.OutboxState(state), int(attempts), time.UnixMicro(at)
			rows = append(rows, r)
			return err
		}, c.texts.outbox.stopped, topic, after, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("dedup/postgres: stopped: %w", err)
	}
	return rows, nil
}

// ReleaseOutbox implements [dedup.OutboxStore].
func (c *core) ReleaseOutbox(ctx context.Context, topic string, seqs ...int64) (int, error) {
	return c.change(ctx, c.texts.outbox.release, topic, seqs)
}

// DropOutbox implements [dedup.OutboxStore].
func (c *core) DropOutbox(ctx context.Context, topic string, seqs ...int64) (int, error) {
	return c.change(ctx, c.texts.outbox.drop, topic, seqs)
}

func (c *core) change(ctx context.Context, query, topic string, seqs []int64) (int, error) {
	var n int64
	err := c.in(ctx, func(q querier) (err error) {
		n, err = q.exec(ctx, query, topic, arrayOf(seqs))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("dedup/postgres: outbox: %w", err)
	}
	return int(n), nil
}

// outboxChannel is what NOTIFY uses, for all outboxes of a database.
const outboxChannel = "onceline_outbox"

// payloadOf tells the topics of a database apart, whatever their length.
func payloadOf(schema, topic string) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s%s", len(schema), schema, topic)
	return strconv.FormatUint(h.Sum64(), 36)
}

// NotifyOutbox implements [dedup.OutboxStore] by NOTIFY.
func (c *core) NotifyOutbox(ctx context.Context, topic string) error {
	return c.in(ctx, func(q querier) error {
		return q.each(ctx, func(func(...any) error) error { return nil }, c.texts.outbox.notify, payloadOf(c.o.Schema, topic))
	})
}

// VerifyOutbox implements [dedup.OutboxStore]. Migrate makes the tables.
func (c *core) VerifyOutbox(ctx context.Context) error {
	var errs []error
	err := c.in(ctx, func(q querier) error {
		errs = nil
		bad := func(format string, a ...any) {
			errs = append(errs, fmt.Errorf("%w: postgres: %s", dedup.ErrVerify, fmt.Sprintf(format, a...)))
		}
		if err := verifySettings(ctx, q, bad); err != nil {
			return err
		}
		for _, t := range []table{{"onceline_outbox", "r", "seq", "SELECT,INSERT,UPDATE,DELETE"}, {"onceline_outbox_lane", "r", "topic,lane", "SELECT,INSERT,UPDATE"}} {
			if err := c.verifyTable(ctx, q, t, bad); err != nil {
				return err
			}
		}
		if len(errs) > 0 {
			return nil
		}
		var cache int64
		name := c.texts.schema + ".onceline_outbox"
		if err := q.row(ctx, []any{&cache}, c.texts.outbox.sequence, name); err != nil {
			return err
		}
		if cache != 1 {
			bad("the sequence of %s hands out %d numbers at a time: sessions would write in another order than their numbers'; ALTER TABLE %s ALTER COLUMN seq SET CACHE 1", name, cache, name)
		}
		return nil
	})
	if err != nil {
		errs = append(errs, fmt.Errorf("dedup/postgres: verify: %w", err))
	}
	return errors.Join(errs...)
}
