package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// Tables of markers.
const (
	plainTable = "onceline_marker"
	timedTable = "onceline_marker_timed"
)

// slot is the row that stands for a marker.
func slot(m dedup.Marker) uint16 { return uint16(m.Lock()) }

// list appends what f appends for each marker, with commas between.
func list(b []byte, markers []dedup.Marker, f func(b []byte, m dedup.Marker) []byte) []byte {
	for i, m := range markers {
		if i > 0 {
			b = append(b, ',')
		}
		b = f(b, m)
	}
	return b
}

// literal appends a marker as SQL. It is in the text, for an argument would be a
// round trip more, to prepare the statement.
func literal(b []byte, m dedup.Marker) []byte {
	b = append(b, "x'"...)
	return append(hex.AppendEncode(b, m.Bytes[:]), '\'')
}

// Claim implements [dedup.Driver]. Who owns the transaction commits it before a message
// that was Seen is acked, also if there was nothing else in it: on servers without a
// binary log that is when it is sure to outlive a crash.
func (s *Store) Claim(ctx context.Context, tx *sql.Tx, markers []dedup.Marker, claims []dedup.Claim) error {
	timed := 0
	for timed < len(markers) && !markers[timed].Timed {
		timed++
	}
	if timed > 0 {
		if err := s.claim(ctx, tx, plainTable, markers[:timed], claims[:timed]); err != nil {
			return claimError(err)
		}
	}
	if timed < len(markers) {
		if err := s.claim(ctx, tx, timedTable, markers[timed:], claims[timed:]); err != nil {
			return claimError(err)
		}
	}
	return s.watch(ctx, tx, claims)
}

func claimError(err error) error {
	if number(err) == duplicateKey {
		return fmt.Errorf("%w: mysql: a marker that was not to be seen is there: begin the transaction with ISOLATION LEVEL READ COMMITTED: %w", dedup.ErrVerify, err)
	}
	return fmt.Errorf("dedup/mysql: claim: %w", err)
}

// claim claims the markers of one table. Only who holds a marker's slot inserts it,
// so what isn't seen then isn't there, and the insert waits for nobody.
func (s *Store) claim(ctx context.Context, tx *sql.Tx, table string, markers []dedup.Marker, claims []dedup.Claim) error {
	slots, err := s.slots(ctx, tx, markers)
	if err != nil {
		return err
	}
	for i := range claims {
		claims[i] = dedup.Held
	}
	if err := s.there(ctx, tx, table, markers, claims); err != nil {
		return err
	}
	fresh := make([]dedup.Marker, 0, len(markers))
	for i, m := range markers {
		if _, had := slices.BinarySearch(slots, slot(m)); had && claims[i] == dedup.Held {
			claims[i] = dedup.Fresh
			fresh = append(fresh, m)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	var query []byte
	if table == plainTable {
		seen := "unix_timestamp()"
		if s.o.Now != nil {
			seen = strconv.FormatInt(s.o.Now().Unix(), 10)
		}
		query = list([]byte("INSERT INTO onceline_marker (marker, seen) VALUES "), fresh, func(b []byte, m dedup.Marker) []byte {
			return append(append(append(literal(append(b, '('), m), ','), seen...), ')')
		})
	} else {
		query = list([]byte("INSERT INTO onceline_marker_timed (marker) VALUES "), fresh, func(b []byte, m dedup.Marker) []byte {
			return append(literal(append(b, '('), m), ')')
		})
	}
	_, err = tx.ExecContext(ctx, string(query))
	return err
}

// slots locks the rows that stand for the markers, and returns those it got, sorted.
func (s *Store) slots(ctx context.Context, tx *sql.Tx, markers []dedup.Marker) ([]uint16, error) {
	query := list([]byte("SELECT slot FROM onceline_slot WHERE slot IN ("), markers, func(b []byte, m dedup.Marker) []byte {
		return strconv.AppendUint(b, uint64(slot(m)), 10)
	})
	got := make([]uint16, 0, len(markers))
	err := each(ctx, tx, string(append(query, ") ORDER BY slot FOR UPDATE SKIP LOCKED"...)), func(scan func(...any) error) error {
		var n uint16
		err := scan(&n)
		got = append(got, n)
		return err
	})
	return got, err
}

// there claims the markers as seen that are in the table, and as outside those that
// may have been. A marker is deleted after the floor has risen, so who doesn't see
// the one sees the other, being one statement.
func (s *Store) there(ctx context.Context, tx *sql.Tx, table string, markers []dedup.Marker, claims []dedup.Claim) error {
	query := list([]byte("SELECT marker, 0 FROM "+table+" WHERE marker IN ("), markers, literal)
	query = append(query, ')')
	if table == timedTable {
		query = append(query, " UNION ALL SELECT marker, 1 FROM onceline_floor"...)
	}
	var key, floor []byte
	err := each(ctx, tx, string(query), func(scan func(...any) error) error {
		var isFloor bool
		if err := scan(&key, &isFloor); err != nil {
			return err
		}
		if isFloor {
			floor = bytes.Clone(key)
			return nil
		}
		if i, ok := slices.BinarySearchFunc(markers, key, func(m dedup.Marker, b []byte) int { return bytes.Compare(m.Bytes[:], b) }); ok {
			claims[i] = dedup.Seen
		}
		return nil
	})
	for i, m := range markers {
		if m.Timed && claims[i] != dedup.Seen && bytes.Compare(m.Bytes[:], floor) < 0 {
			claims[i] = dedup.Outside
		}
	}
	return err
}

func each(ctx context.Context, tx *sql.Tx, query string, f func(scan func(...any) error) error, args ...any) error {
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

// Release implements [dedup.Driver].
func (s *Store) Release(ctx context.Context, tx *sql.Tx, markers []dedup.Marker) error {
	timed := 0
	for timed < len(markers) && !markers[timed].Timed {
		timed++
	}
	for table, part := range map[string][]dedup.Marker{plainTable: markers[:timed], timedTable: markers[timed:]} {
		if len(part) == 0 {
			continue
		}
		query := list([]byte("DELETE FROM "+table+" WHERE marker IN ("), part, literal)
		if _, err := tx.ExecContext(ctx, string(append(query, ')'))); err != nil {
			return fmt.Errorf("dedup/mysql: release: %w", err)
		}
	}
	return nil
}

// maxName is how long the names of a position may be, in bytes.
const maxName = 255

func checkNames(names ...string) error {
	for _, name := range names {
		if len(name) > maxName {
			return broker.Errorf(broker.ErrInvalid, nil, "dedup/mysql: a name of %d bytes, over %d", len(name), maxName)
		}
	}
	return nil
}

// LoadPosition implements [dedup.PositionDriver].
func (s *Store) LoadPosition(ctx context.Context, consumer string, p dedup.Partition) (int64, error) {
	last := dedup.Start
	err := s.db.QueryRowContext(ctx, "SELECT last FROM onceline_position WHERE consumer = ? AND topic = ? AND epoch = ? AND part = ?",
		[]byte(consumer), []byte(p.Topic), []byte(p.Epoch), []byte(p.Name)).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return dedup.Start, nil
	}
	return last, outsideTx(err)
}

// MovePosition implements [dedup.PositionDriver]. Names over 255 bytes are
// [broker.ErrInvalid].
func (s *Store) MovePosition(ctx context.Context, tx *sql.Tx, consumer string, p dedup.Partition, prev, next int64) (bool, error) {
	if err := checkNames(consumer, p.Topic, p.Epoch, p.Name); err != nil {
		return false, err
	}
	names := []any{[]byte(consumer), []byte(p.Topic), []byte(p.Epoch), []byte(p.Name)}
	if prev == dedup.Start {
		_, err := tx.ExecContext(ctx, "INSERT INTO onceline_position (consumer, topic, epoch, part, last) VALUES (?, ?, ?, ?, ?)", append(names, next)...)
		if number(err) == duplicateKey { // which undoes the statement alone
			return false, nil
		}
		return err == nil, err
	}
	result, err := tx.ExecContext(ctx, "UPDATE onceline_position SET last = ? WHERE consumer = ? AND topic = ? AND epoch = ? AND part = ? AND last = ?",
		append(append([]any{next}, names...), prev)...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}
