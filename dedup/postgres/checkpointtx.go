package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup"
)

// TakePipeline implements [dedup.CheckpointDriver].
func (s *Store) TakePipeline(ctx context.Context, tx pgx.Tx, name string) (dedup.PipelineRow, error) {
	return s.takePipeline(ctx, pgxQuerier{tx}, name)
}

// OwnPipeline implements [dedup.CheckpointDriver].
func (s *Store) OwnPipeline(ctx context.Context, tx pgx.Tx, name string, term int64) (bool, error) {
	return s.ownPipeline(ctx, pgxQuerier{tx}, name, term)
}

// NotePipeline implements [dedup.CheckpointDriver].
func (s *Store) NotePipeline(ctx context.Context, tx pgx.Tx, name string, note []byte) error {
	return s.notePipeline(ctx, pgxQuerier{tx}, name, note)
}

// Pipelines implements [dedup.CheckpointDriver].
func (s *Store) Pipelines(ctx context.Context, tx pgx.Tx) ([]dedup.PipelineRow, error) {
	return s.pipelines(ctx, pgxQuerier{tx})
}

// AddCheckpoint implements [dedup.CheckpointDriver].
func (s *Store) AddCheckpoint(ctx context.Context, tx pgx.Tx, name string, row dedup.CheckpointRow, keep int64) error {
	return s.addCheckpoint(ctx, pgxQuerier{tx}, name, row, keep)
}

// MarkCheckpoint implements [dedup.CheckpointDriver].
func (s *Store) MarkCheckpoint(ctx context.Context, tx pgx.Tx, name string, number int64, state dedup.CheckpointState, note string) (bool, error) {
	return s.markCheckpoint(ctx, pgxQuerier{tx}, name, number, state, note)
}

// Checkpoints implements [dedup.CheckpointDriver].
func (s *Store) Checkpoints(ctx context.Context, tx pgx.Tx, name string, limit int) ([]dedup.CheckpointRow, error) {
	return s.checkpoints(ctx, pgxQuerier{tx}, name, limit)
}

// TakePipeline implements [dedup.CheckpointDriver].
func (s *SQL) TakePipeline(ctx context.Context, tx *sql.Tx, name string) (dedup.PipelineRow, error) {
	return s.takePipeline(ctx, sqlQuerier{tx}, name)
}

// OwnPipeline implements [dedup.CheckpointDriver].
func (s *SQL) OwnPipeline(ctx context.Context, tx *sql.Tx, name string, term int64) (bool, error) {
	return s.ownPipeline(ctx, sqlQuerier{tx}, name, term)
}

// NotePipeline implements [dedup.CheckpointDriver].
func (s *SQL) NotePipeline(ctx context.Context, tx *sql.Tx, name string, note []byte) error {
	return s.notePipeline(ctx, sqlQuerier{tx}, name, note)
}

// Pipelines implements [dedup.CheckpointDriver].
func (s *SQL) Pipelines(ctx context.Context, tx *sql.Tx) ([]dedup.PipelineRow, error) {
	return s.pipelines(ctx, sqlQuerier{tx})
}

// AddCheckpoint implements [dedup.CheckpointDriver].
func (s *SQL) AddCheckpoint(ctx context.Context, tx *sql.Tx, name string, row dedup.CheckpointRow, keep int64) error {
	return s.addCheckpoint(ctx, sqlQuerier{tx}, name, row, keep)
}

// MarkCheckpoint implements [dedup.CheckpointDriver].
func (s *SQL) MarkCheckpoint(ctx context.Context, tx *sql.Tx, name string, number int64, state dedup.CheckpointState, note string) (bool, error) {
	return s.markCheckpoint(ctx, sqlQuerier{tx}, name, number, state, note)
}

// Checkpoints implements [dedup.CheckpointDriver].
func (s *SQL) Checkpoints(ctx context.Context, tx *sql.Tx, name string, limit int) ([]dedup.CheckpointRow, error) {
	return s.checkpoints(ctx, sqlQuerier{tx}, name, limit)
}
