package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/onceline/onceline/dedup"
)

// RelayOutbox implements [dedup.OutboxStore]. It locks a row for each lane in a
// transaction that lasts as long as send, so the lanes of a relay that is killed are
// free as soon as the server notices. That transaction holds no other locks meanwhile.
func (s *Store) RelayOutbox(ctx context.Context, turn dedup.OutboxTurn, send func(rows []dedup.OutboxRow) []dedup.OutboxFate) (n int, err error) {
	if err := checkNames(turn.Topic); err != nil {
		return 0, err
	}
	t := outboxTurn{Store: s, OutboxTurn: turn, topic: quoted(turn.Topic), number: rand.Int64()}
	// What is read may not be durable yet (durable.go): the commit of the marks waits
	// until it is.
	t.Guard = t.Guard || !s.logged
	if err := s.makeLanes(ctx, turn.Topic, t.topic); err != nil {
		return 0, fmt.Errorf("dedup/mysql: relay: %w", err)
	}
	if t.Guard {
		marked := 0
		err := s.Transact(ctx, func(tx *sql.Tx) (err error) {
			marked, err = t.mark(ctx, tx)
			return err
		})
		// Whether an unknown commit took place, the next statement finds out.
		if err != nil && !errors.Is(err, dedup.ErrCommitUnknown) {
			return 0, fmt.Errorf("dedup/mysql: relay: %w", err)
		}
		if marked == 0 {
			return 0, nil
		}
	}
	err = s.Transact(ctx, func(tx *sql.Tx) (err error) {
		n, err = t.take(ctx, tx, send)
		return err
	})
	if err != nil {
		return n, fmt.Errorf("dedup/mysql: relay: %w", err)
	}
	return n, nil
}

// makeLanes makes the rows of a topic's lanes, once. Rows that are there aren't made
// again, for that would wait for who has locked them.
func (s *Store) makeLanes(ctx context.Context, topic, literal string) error {
	if _, made := s.lanes.Load(topic); made {
		return nil
	}
	var n int
	if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM onceline_outbox_lane WHERE topic = "+literal).Scan(&n); err != nil {
		return outsideTx(err)
	}
	if n < dedup.OutboxLanes {
		query := []byte("INSERT IGNORE INTO onceline_outbox_lane (topic, lane, upto, since, turn) VALUES ")
		for lane := range dedup.OutboxLanes {
			if lane > 0 {
				query = append(query, ',')
			}
			query = fmt.Appendf(query, "(%s, %d, 0, 0, 0)", literal, lane)
		}
		if err := s.Transact(ctx, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, string(query))
			return err
		}); err != nil {
			return err
		}
	}
	s.lanes.Store(topic, true)
	return nil
}

// outboxTurn is one turn.
type outboxTurn struct {
	*Store
	dedup.OutboxTurn
	topic  string // as SQL
	number int64
	lanes  []int          // whose locks were had
	marked map[int64]bool // the rows that were there when the marks were made
}

// due is the SQL of a row o that may be sent now.
func (t *outboxTurn) due() string {
	return "o.topic = " + t.topic + " AND o.state = 0 AND (o.due IS NULL OR o.due <= " + t.clock() + ")"
}

// find returns the lanes that have rows which may be sent, from First on.
func (t *outboxTurn) find(ctx context.Context, tx *sql.Tx) (lanes []int, err error) {
	err = each(ctx, tx, "SELECT l.lane FROM onceline_outbox_lane l WHERE l.topic = "+t.topic+" AND EXISTS (SELECT 1 FROM onceline_outbox o WHERE "+t.due()+" AND o.lane = l.lane)",
		func(scan func(...any) error) error {
			var lane int
			err := scan(&lane)
			lanes = append(lanes, lane)
			return err
		})
	if len(lanes) == 0 {
		// Nothing waits, or somebody has removed the rows of the lanes: the next turn looks.
		t.Store.lanes.Delete(t.Topic)
	}
	slices.SortFunc(lanes, func(a, b int) int {
		from := func(lane int) int { return (lane + dedup.OutboxLanes - t.First%dedup.OutboxLanes) % dedup.OutboxLanes }
		return cmp.Compare(from(a), from(b))
	})
	return lanes, err
}

// lock locks lanes, those that nobody has and no more than Lanes, where a condition is
// true of their rows. It reports whether a relay that ended has left something in one.
// Each statement locks as many as are wanted, by the key, for a limit in it would come
// after the locks.
func (t *outboxTurn) lock(ctx context.Context, tx *sql.Tx, lanes []int, condition string) (left bool, err error) {
	for t.lanes = nil; len(lanes) > 0 && len(t.lanes) < t.Lanes; {
		n := min(t.Lanes-len(t.lanes), len(lanes))
		err := each(ctx, tx, fmt.Sprintf("SELECT lane, upto FROM onceline_outbox_lane WHERE topic = %s AND lane IN (%s)%s FOR UPDATE SKIP LOCKED", t.topic, numbers(lanes[:n]), condition),
			func(scan func(...any) error) error {
				var lane int
				var upto int64
				err := scan(&lane, &upto)
				t.lanes = append(t.lanes, lane)
				left = left || upto > 0
				return err
			})
		if err != nil {
			return left, err
		}
		lanes = lanes[n:]
	}
	return left, nil
}

// mark notes which rows the turn is about to send, and returns in how many lanes.
func (t *outboxTurn) mark(ctx context.Context, tx *sql.Tx) (int, error) {
	lanes, err := t.find(ctx, tx)
	if err != nil {
		return 0, err
	}
	left, err := t.lock(ctx, tx, lanes, "")
	if err != nil || len(t.lanes) == 0 {
		return 0, err
	}
	if left {
		// Rows that a relay which ended may have sent get the time on them.
		for _, query := range []string{
			"UPDATE onceline_outbox o JOIN onceline_outbox_lane l ON l.topic = o.topic AND l.lane = o.lane SET o.tried = l.since WHERE l.topic = " + t.topic +
				" AND l.lane IN (" + numbers(t.lanes) + ") AND l.upto > 0 AND o.seq <= l.upto AND o.state = 0 AND o.tried IS NULL",
			"UPDATE onceline_outbox_lane SET upto = 0 WHERE topic = " + t.topic + " AND lane IN (" + numbers(t.lanes) + ")",
		} {
			if _, err := tx.ExecContext(ctx, query); err != nil {
				return 0, err
			}
		}
	}
	rows, err := t.some(ctx, tx, false)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	upto := map[int]int64{}
	t.marked = map[int64]bool{}
	var marked []int
	for i := range rows {
		t.marked[rows[i].Seq] = true
		if _, ok := upto[rows[i].Lane]; !ok {
			marked = append(marked, rows[i].Lane)
		}
		upto[rows[i].Lane] = rows[i].Seq
	}
	var which strings.Builder
	for _, lane := range marked {
		fmt.Fprintf(&which, " WHEN %d THEN %d", lane, upto[lane])
	}
	_, err = tx.ExecContext(ctx, fmt.Sprintf("UPDATE onceline_outbox_lane SET upto = CASE lane%s END, since = %s, turn = %d WHERE topic = %s AND lane IN (%s)",
		which.String(), t.clock(), t.number, t.topic, numbers(marked)))
	return len(marked), err
}

// take sends rows and does with them what send says.
func (t *outboxTurn) take(ctx context.Context, tx *sql.Tx, send func([]dedup.OutboxRow) []dedup.OutboxFate) (int, error) {
	if query := t.idle(); query != "" {
		if _, err := tx.ExecContext(ctx, query); err != nil {
			return 0, err
		}
	}
	lanes, condition := t.lanes, ""
	if t.Guard {
		condition = fmt.Sprintf(" AND turn = %d AND upto > 0", t.number)
	} else {
		var err error
		if lanes, err = t.find(ctx, tx); err != nil {
			return 0, err
		}
	}
	if _, err := t.lock(ctx, tx, lanes, condition); err != nil || len(t.lanes) == 0 {
		return 0, err
	}
	// A statement of its own: it sees what those who had the locks before have done.
	rows, err := t.some(ctx, tx, t.Guard)
	if t.Guard {
		rows = t.durable(rows)
	}
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	if rows, err = t.whole(ctx, tx, rows); err != nil {
		return 0, err
	}
	return len(rows), t.settle(ctx, tx, rows, send(rows))
}

// durable returns the rows that were there when the marks were made, without those behind
// one of their key that wasn't.
func (t *outboxTurn) durable(rows []dedup.OutboxRow) []dedup.OutboxRow {
	var late map[int64]bool
	return slices.DeleteFunc(rows, func(r dedup.OutboxRow) bool {
		if t.marked[r.Seq] && !late[r.Hash] {
			return false
		}
		if r.Hash != 0 {
			if late == nil {
				late = map[int64]bool{}
			}
			late[r.Hash] = true
		}
		return true
	})
}

// idle is the statement by which a relay that is frozen loses its lanes some time after
// send should have ended. The next transaction of the session sets its own.
func (t *outboxTurn) idle() string {
	if t.o.IdleTimeout < 0 {
		return ""
	}
	d := t.Bound + min(max(t.Bound/3, time.Second), 5*time.Second)
	seconds := int64((d + time.Second - 1) / time.Second)
	if t.mariadb {
		return fmt.Sprintf("SET SESSION idle_write_transaction_timeout = %d, idle_transaction_timeout = %[1]d", seconds)
	}
	return fmt.Sprintf("SET SESSION wait_timeout = %d", seconds)
}

// some returns rows of the lanes that may be sent, in order and within the turn's
// bounds, without what only senders want; of a turn that is guarded those that are
// marked.
func (t *outboxTurn) some(ctx context.Context, tx *sql.Tx, marked bool) ([]dedup.OutboxRow, error) {
	// As many of each lane as make a turn if all have so many; and if they don't, as
	// many as a turn takes.
	for limit := (t.Rows + len(t.lanes) - 1) / len(t.lanes); ; limit = t.Rows {
		rows, sizes, more, err := t.ofEach(ctx, tx, marked, limit)
		if err != nil {
			return nil, err
		}
		if len(rows) < t.Rows && more && limit < t.Rows {
			continue
		}
		order := make([]int, len(rows))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(rows[a].Seq, rows[b].Seq) })
		var taken []dedup.OutboxRow
		bytes := 0
		for _, i := range order[:min(len(order), t.Rows)] {
			if bytes >= t.Bytes && len(taken) > 0 {
				break
			}
			bytes += sizes[i]
			taken = append(taken, rows[i])
		}
		return taken, nil
	}
}

// ofEach returns up to limit rows of each lane, and whether one may have more. A lane
// is read in its own part of the statement, in the order of the index, so that it takes
// no longer where a million wait; the planner, which knows little of a table that was
// filled a moment ago, is held to that index, and to the one of what stops a key.
func (t *outboxTurn) ofEach(ctx context.Context, tx *sql.Tx, marked bool, limit int) (rows []dedup.OutboxRow, sizes []int, more bool, err error) {
	clock := t.clock()
	var query strings.Builder
	for i, lane := range t.lanes {
		if i > 0 {
			query.WriteString(" UNION ALL ")
		}
		join := "LEFT JOIN"
		if marked {
			join = "JOIN"
		}
		stopped := "b.state <> 0 OR "
		if t.Pass {
			stopped = ""
		}
		fmt.Fprintf(&query, `(SELECT o.seq, o.lane, o.hash, o.attempts, %s - coalesce(o.tried, l.since, %[1]s), length(o.body) FROM onceline_outbox o FORCE INDEX (onceline_outbox_waiting)
			%s onceline_outbox_lane l ON l.topic = o.topic AND l.lane = o.lane AND l.upto >= o.seq WHERE %s AND o.lane = %d
			AND (o.hash = 0 OR NOT EXISTS (SELECT 1 FROM onceline_outbox b FORCE INDEX (onceline_outbox_blocks) WHERE b.topic = o.topic AND b.blocks = o.hash AND b.seq < o.seq AND (%sb.state = 0 AND b.due > %[1]s)))
			ORDER BY o.seq LIMIT %[6]d)`, clock, join, t.due(), lane, stopped, limit)
	}
	counts := map[int]int{}
	err = each(ctx, tx, query.String(), func(scan func(...any) error) error {
		var r dedup.OutboxRow
		var age int64
		var size int
		err := scan(&r.Seq, &r.Lane, &r.Hash, &r.Attempts, &age, &size)
		r.Age = max(time.Duration(age)*time.Microsecond, 0)
		rows, sizes = append(rows, r), append(sizes, size)
		counts[r.Lane]++
		more = more || counts[r.Lane] == limit
		return err
	})
	return rows, sizes, more, err
}

// whole reads what there is else of rows, which are in order.
func (t *outboxTurn) whole(ctx context.Context, tx *sql.Tx, rows []dedup.OutboxRow) ([]dedup.OutboxRow, error) {
	seqs := make([]int64, len(rows))
	for i := range rows {
		seqs[i] = rows[i].Seq
	}
	n := 0
	err := each(ctx, tx, "SELECT seq, id, ordering, meta, body, at FROM onceline_outbox WHERE seq IN ("+numbers(seqs)+") ORDER BY seq", func(scan func(...any) error) error {
		var seq, at int64
		var id, key, meta, body []byte
		if err := scan(&seq, &id, &key, &meta, &body, &at); err != nil {
			return err
		}
		if n >= len(rows) || rows[n].Seq != seq {
			return fmt.Errorf("row %d isn't the one that was read before", seq)
		}
		r := &rows[n]
		r.ID, r.Key, r.Meta, r.Body, r.Time = string(id), string(key), meta, body, time.UnixMicro(at)
		n++
		return nil
	})
	if err == nil && n != len(rows) {
		err = fmt.Errorf("%d of %d rows are gone, although their lanes are locked", len(rows)-n, len(rows))
	}
	return rows, err
}

func (t *outboxTurn) settle(ctx context.Context, tx *sql.Tx, rows []dedup.OutboxRow, fates []dedup.OutboxFate) error {
	var sent []int64
	for i := range rows {
		f, seq := &fates[i], rows[i].Seq
		switch f.State {
		case dedup.OutboxLeft:
		case dedup.OutboxSent:
			sent = append(sent, seq)
		default:
			due, tried := "NULL", "tried"
			if f.State == dedup.OutboxAgain {
				due = fmt.Sprintf("%s + %d", t.clock(), f.Delay.Microseconds())
			}
			if f.Maybe {
				tried = fmt.Sprintf("coalesce(tried, (SELECT l.since FROM onceline_outbox_lane l WHERE l.topic = %s AND l.lane = %d AND l.upto >= %d))", t.topic, rows[i].Lane, seq)
			}
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE onceline_outbox SET state = %d, attempts = attempts + 1, reason = %s, due = %s, tried = %s WHERE seq = %d",
				f.State-dedup.OutboxAgain, quoted(f.Reason), due, tried, seq)); err != nil {
				return err
			}
		}
	}
	if len(sent) > 0 {
		if _, err := tx.ExecContext(ctx, "DELETE FROM onceline_outbox WHERE seq IN ("+numbers(sent)+")"); err != nil {
			return err
		}
	}
	if !t.Guard {
		return nil
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE onceline_outbox_lane SET upto = 0 WHERE topic = %s AND lane IN (%s) AND turn = %d", t.topic, numbers(t.lanes), t.number))
	return err
}
