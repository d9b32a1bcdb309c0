package dedup

import (
	"context"
	"fmt"
	"time"
)

// CheckpointDriver is what a store implements for package pipeline: the checkpoints
// of named pipelines, and which process owns a pipeline. T is its transaction, which
// the caller owns, so that a checkpoint and effects in the same database are
// committed together. All methods are safe for concurrent use, each transaction being
// used by one goroutine at a time.
type CheckpointDriver[T any] interface {
	// Transact is that of [Driver].
	Transact(ctx context.Context, f func(tx T) error) error
	// Fault is that of [Driver].
	Fault(err error) Fault
	// VerifyCheckpoints reports what in the store would lose checkpoints, as an
	// error that is [ErrVerify].
	VerifyCheckpoints(ctx context.Context) error

	// TakePipeline makes the caller the owner of a pipeline, which it makes if there
	// is none of that name, and returns it with the owner's Term: one higher than
	// any before. Whoever owned it before is refused by OwnPipeline from the commit
	// on.
	TakePipeline(ctx context.Context, tx T, name string) (PipelineRow, error)
	// OwnPipeline reports whether the term is still the last one, and keeps it so
	// until tx ends: a TakePipeline waits, within the bounds of Transact.
	OwnPipeline(ctx context.Context, tx T, name string, term int64) (bool, error)
	// NotePipeline sets the pipeline's Note.
	NotePipeline(ctx context.Context, tx T, name string, note []byte) error
	// Pipelines returns all pipelines, by name.
	Pipelines(ctx context.Context, tx T) ([]PipelineRow, error)

	// AddCheckpoint adds a row, whose Number must be new, and removes those whose
	// Number is lower by keep or more.
	AddCheckpoint(ctx context.Context, tx T, name string, row CheckpointRow, keep int64) error
	// MarkCheckpoint sets State and Note of the row with a number, and reports
	// whether it is there.
	MarkCheckpoint(ctx context.Context, tx T, name string, number int64, state CheckpointState, note string) (bool, error)
	// Checkpoints returns the last rows of a pipeline, the newest first.
	Checkpoints(ctx context.Context, tx T, name string, limit int) ([]CheckpointRow, error)
}

// PipelineRow is a pipeline as stores keep it.
type PipelineRow struct {
	Name string
	// Term counts the owners that it has had.
	Term int64
	// Note is what a later owner has to know of this one's sink, in package
	// pipeline's own form; nil at first.
	Note []byte
}

// CheckpointRow is one checkpoint as stores keep it.
type CheckpointRow struct {
	// Number counts a pipeline's checkpoints from 1.
	Number int64
	// Term is that of the owner that took it.
	Term  int64
	State CheckpointState
	// Note says why the state is what it is.
	Note string
	// Taken is when, by the owner's clock, to the microsecond.
	Taken time.Time
	// Data is the rest, in package pipeline's own form, which has a version and a
	// checksum.
	Data []byte
}

// CheckpointState is what became of a checkpoint's output.
type CheckpointState uint8

// The states.
const (
	// CheckpointPrepared: the sink has prepared the output, and has to commit it.
	CheckpointPrepared CheckpointState = iota + 1
	// CheckpointCommitted: the output is there.
	CheckpointCommitted
	// CheckpointLost: the broker had dropped the output before it was committed, and
	// the pipeline went on without it.
	CheckpointLost
	// CheckpointUndone: the same, and the pipeline went back to the one before, to
	// make the output again.
	CheckpointUndone
)

func (s CheckpointState) String() string {
	names := [...]string{"none", "prepared", "committed", "lost", "undone"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("CheckpointState(%d)", uint8(s))
}
