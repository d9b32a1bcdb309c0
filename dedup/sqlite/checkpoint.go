package sqlite

import (
	"context"
	"database/sql"
	_ "embed" // the schema
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/dedup"
)

//go:embed checkpoint.sql
var checkpointSchema string

var _ dedup.CheckpointDriver[*sql.Tx] = (*Store)(nil)

// TakePipeline implements [dedup.CheckpointDriver].
func (s *Store) TakePipeline(ctx context.Context, tx *sql.Tx, name string) (dedup.PipelineRow, error) {
	p := dedup.PipelineRow{Name: name}
	err := tx.QueryRowContext(ctx, `INSERT INTO onceline_pipeline (name, term) VALUES (?, 1)
		ON CONFLICT (name) DO UPDATE SET term = term + 1 RETURNING term, note`, name).Scan(&p.Term, &p.Note)
	return p, checkpointError(err)
}

// OwnPipeline implements [dedup.CheckpointDriver]. A SQLite database has one writer,
// which keeps the term as it is.
func (s *Store) OwnPipeline(ctx context.Context, tx *sql.Tx, name string, term int64) (bool, error) {
	n, err := affected(tx.ExecContext(ctx, "UPDATE onceline_pipeline SET term = term WHERE name = ? AND term = ?", name, term))
	return n == 1, checkpointError(err)
}

// NotePipeline implements [dedup.CheckpointDriver].
func (s *Store) NotePipeline(ctx context.Context, tx *sql.Tx, name string, note []byte) error {
	n, err := affected(tx.ExecContext(ctx, "UPDATE onceline_pipeline SET note = ? WHERE name = ?", note, name))
	if err == nil && n == 0 {
		err = fmt.Errorf("no pipeline %q", name)
	}
	return checkpointError(err)
}

// Pipelines implements [dedup.CheckpointDriver].
func (s *Store) Pipelines(ctx context.Context, tx *sql.Tx) (all []dedup.PipelineRow, err error) {
	err = each(ctx, tx, func(scan func(...any) error) error {
		var p dedup.PipelineRow
		err := scan(&p.Name, &p.Term, &p.Note)
		all = append(all, p)
		return err
	}, "SELECT name, term, note FROM onceline_pipeline ORDER BY name")
	return all, checkpointError(err)
}

// AddCheckpoint implements [dedup.CheckpointDriver].
func (s *Store) AddCheckpoint(ctx context.Context, tx *sql.Tx, name string, r dedup.CheckpointRow, keep int64) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO onceline_checkpoint (pipeline, number, term, state, note, taken, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
		name, r.Number, r.Term, r.State, r.Note, r.Taken.UnixMicro(), some(r.Data))
	if err == nil {
		_, err = tx.ExecContext(ctx, "DELETE FROM onceline_checkpoint WHERE pipeline = ? AND number <= ?", name, r.Number-keep)
	}
	return checkpointError(err)
}

// MarkCheckpoint implements [dedup.CheckpointDriver].
func (s *Store) MarkCheckpoint(ctx context.Context, tx *sql.Tx, name string, number int64, state dedup.CheckpointState, note string) (bool, error) {
	n, err := affected(tx.ExecContext(ctx, "UPDATE onceline_checkpoint SET state = ?, note = ? WHERE pipeline = ? AND number = ?", state, note, name, number))
	return n == 1, checkpointError(err)
}

// Checkpoints implements [dedup.CheckpointDriver].
func (s *Store) Checkpoints(ctx context.Context, tx *sql.Tx, name string, limit int) (rows []dedup.CheckpointRow, err error) {
	err = each(ctx, tx, func(scan func(...any) error) error {
		var r dedup.CheckpointRow
		var taken int64
		err := scan(&r.Number, &r.Term, &r.State, &r.Note, &taken, &r.Data)
		r.Taken = time.UnixMicro(taken)
		rows = append(rows, r)
		return err
	}, "SELECT number, term, state, note, taken, data FROM onceline_checkpoint WHERE pipeline = ? ORDER BY number DESC LIMIT ?", name, limit)
	return rows, checkpointError(err)
}

// VerifyCheckpoints implements [dedup.CheckpointDriver].
func (s *Store) VerifyCheckpoints(ctx context.Context) error {
	if err := s.Verify(ctx); err != nil {
		return err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", dedup.ErrLost, err)
	}
	defer conn.Close()
	var errs []error
	for table, key := range map[string]string{"onceline_pipeline": "name", "onceline_checkpoint": "pipeline,number"} {
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

func affected(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func checkpointError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("dedup/sqlite: checkpoint: %w", err)
}
