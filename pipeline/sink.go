package pipeline

import (
	"context"
	"fmt"
	"time"
)

// Sink takes a pipeline's output in two phases. It is for those who write a sink of
// their own; [Transactional], [Database] and [Outbox] make the three that there are.
// T is the store's transaction.
//
// A pipeline calls it by one goroutine: Check once; then, for each begin, Recover of
// the last checkpoint's token if that isn't known to be committed, Open, and for each
// checkpoint Write, as often as there is output, Prepare, Record and Commit; Abort in
// place of the last three, or of the rest, if something went wrong; Close at last,
// also after an Open that failed.
type Sink[T any] interface {
	// Kind names the form of the tokens. A record of another kind is refused.
	Kind() string
	// InStore says that Record writes the output into the store.
	InStore() bool
	// Check refuses with ErrBudget, before anything else, if what the sink
	// prepares doesn't live as long as it may take until it is committed.
	Check(need time.Duration) error
	// Recover commits what a token stands for. It may be called for one that is
	// committed already, also long ago, as long as the checkpoint is the newest.
	// FateOpen, with an error, says that it couldn't find out, and is tried again.
	Recover(ctx context.Context, token []byte) (Fate, error)
	// Open makes the sink ready for output. Nobody who opened it before can commit
	// anything any more, and what he left open is aborted. Before is what an earlier Open returned as its note, nil if there
	// was none; the note is kept before anything is written.
	Open(ctx context.Context, before []byte) (note []byte, err error)
	// Write adds messages to the checkpoint's output. It may keep them. It needn't
	// wait until they are written, and may return the error of an earlier Write.
	Write(ctx context.Context, msgs []Output) error
	// Prepare ends the checkpoint's output and returns the token by which it is
	// committed, nil if there is nothing to be committed. All of the output is then
	// where no crash takes it from, and nobody sees it.
	Prepare(ctx context.Context) (token []byte, err error)
	// Record writes what belongs there into the transaction of the checkpoint's
	// record. It is called again when that is tried again.
	Record(ctx context.Context, tx T) error
	// Commit makes what Prepare prepared visible, once the record is committed. Any
	// fate but FateCommitted ends with Close, and a Recover of the token. It isn't
	// called for a checkpoint without output.
	Commit(ctx context.Context) (Fate, error)
	// Abort drops the checkpoint's output.
	Abort(ctx context.Context) error
	// Close ends the sink's connections. It aborts what isn't prepared, and leaves
	// what is.
	Close(ctx context.Context) error
}

// Fate is what became of what a sink had prepared.
type Fate uint8

// The fates.
const (
	// FateOpen: it isn't known yet.
	FateOpen Fate = iota
	// FateCommitted: it is there.
	FateCommitted
	// FateAborted: it surely isn't there, and never will be.
	FateAborted
	// FateGone: the broker doesn't know it any more. It may have been committed.
	FateGone
)

func (f Fate) String() string {
	names := [...]string{"open", "committed", "aborted", "gone"}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("Fate(%d)", uint8(f))
}
