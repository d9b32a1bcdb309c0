package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"

	"github.com/onceline/onceline/dedup"
)

// Claim implements [dedup.Driver]. It writes before it reads, so that a transaction
// which was not begun as a writer becomes one without having seen an older state.
func (s *Store) Claim(ctx context.Context, tx *sql.Tx, markers []dedup.Marker, claims []dedup.Claim) error {
	seen := s.o.Now().Unix()
	plain, timed := tx.StmtContext(ctx, s.insert), (*sql.Stmt)(nil)
	defer plain.Close()
	var floor []byte
	for i := range markers {
		m := &markers[i]
		var result sql.Result
		var err error
		if m.Timed {
			if timed == nil {
				timed = tx.StmtContext(ctx, s.insertTimed)
				defer timed.Close()
			}
			result, err = timed.ExecContext(ctx, m.Bytes[:])
		} else {
			result, err = plain.ExecContext(ctx, m.Bytes[:], seen)
		}
		if err != nil {
			return fmt.Errorf("dedup/sqlite: claim: %w", err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return fmt.Errorf("dedup/sqlite: claim: %w", err)
		}
		claims[i] = dedup.Seen
		if n == 1 {
			claims[i] = dedup.Fresh
		} else if m.Timed {
			if floor == nil {
				if err := tx.QueryRowContext(ctx, "SELECT key FROM onceline_floor").Scan(&floor); err != nil {
					return fmt.Errorf("dedup/sqlite: claim: %w", err)
				}
			}
			if bytes.Compare(m.Bytes[:], floor) < 0 {
				claims[i] = dedup.Outside
			}
		}
	}
	return nil
}

// Release implements [dedup.Driver].
func (s *Store) Release(ctx context.Context, tx *sql.Tx, markers []dedup.Marker) error {
	for i := range markers {
		query := "DELETE FROM onceline_marker WHERE key = ?"
		if markers[i].Timed {
			query = "DELETE FROM onceline_marker_timed WHERE key = ?"
		}
		if _, err := tx.ExecContext(ctx, query, markers[i].Bytes[:]); err != nil {
			return fmt.Errorf("dedup/sqlite: release: %w", err)
		}
	}
	return nil
}

// LoadPosition implements [dedup.PositionDriver].
func (s *Store) LoadPosition(ctx context.Context, consumer string, p dedup.Partition) (int64, error) {
	last := dedup.Start
	err := s.db.QueryRowContext(ctx, "SELECT last FROM onceline_position WHERE consumer = ? AND topic = ? AND epoch = ? AND partition = ?",
		consumer, p.Topic, p.Epoch, p.Name).Scan(&last)
	if err != nil && err != sql.ErrNoRows {
		return 0, err
	}
	return last, nil
}

// MovePosition implements [dedup.PositionDriver].
func (s *Store) MovePosition(ctx context.Context, tx *sql.Tx, consumer string, p dedup.Partition, prev, next int64) (bool, error) {
	var result sql.Result
	var err error
	if prev == dedup.Start {
		result, err = tx.ExecContext(ctx, "INSERT INTO onceline_position (consumer, topic, epoch, partition, last) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
			consumer, p.Topic, p.Epoch, p.Name, next)
	} else {
		move := tx.StmtContext(ctx, s.move)
		defer move.Close()
		result, err = move.ExecContext(ctx, next, consumer, p.Topic, p.Epoch, p.Name, prev)
	}
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}
