// Package sqltx runs the transactions of stores that use database/sql, in the way
// that dedup.Driver asks for.
package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/dedup"
)

// Engine is what differs between databases.
type Engine struct {
	DB      *sql.DB
	Options *sql.TxOptions
	// Begun, where not nil, runs first in each transaction.
	Begun func(ctx context.Context, tx *sql.Tx) error
	// Ended, where not empty, is the statement that undoes on the connection what Begun
	// changed. A connection that may still be in the transaction, or doesn't take it,
	// is closed.
	Ended string
	// Refused reports whether the error of a commit says that nothing was
	// committed, rather than that nobody knows.
	Refused func(err error) bool
	// Dead reports whether the error of a roll-back says that the connection is
	// gone.
	Dead func(err error) bool
	// CommitTimeout bounds a commit.
	CommitTimeout time.Duration
}

// Transact is dedup.Driver's.
func (e *Engine) Transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	conn, err := e.DB.Conn(ctx)
	if err != nil {
		return lost("connect", err)
	}
	defer conn.Close()
	// database/sql rolls back when the context of a transaction ends, also in the
	// middle of its commit. So this one ends with ctx only until it has begun.
	txCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	release := context.AfterFunc(ctx, cancel)
	tx, err := conn.BeginTx(txCtx, e.Options)
	if err != nil {
		release()
		return lost("begin", err)
	}
	if !release() {
		_ = tx.Rollback()
		return lost("begin", context.Cause(ctx))
	}
	ended, clean := false, false
	defer func() {
		if !ended { // f panicked, or ended the goroutine
			clean = tx.Rollback() == nil
		}
		e.restore(ctx, conn, clean)
	}()
	if e.Begun != nil {
		if err = e.Begun(ctx, tx); err != nil {
			err = lost("begin", err)
		}
	}
	if err == nil {
		err = f(tx)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		ended = true
		rollback := tx.Rollback()
		if clean = rollback == nil; rollback != nil && !errors.Is(rollback, sql.ErrTxDone) && e.Dead(rollback) {
			return fmt.Errorf("%w: %w", dedup.ErrLost, err)
		}
		return err
	}
	timer := time.AfterFunc(e.CommitTimeout, cancel)
	defer timer.Stop()
	ended = true
	switch err = tx.Commit(); {
	case err == nil:
		clean = true
		return nil
	case e.Refused(err):
		// The connection may still be in the transaction, which database/sql
		// takes for ended.
		_, rollback := conn.ExecContext(txCtx, "ROLLBACK")
		clean = rollback == nil
		return err
	}
	_, rollback := conn.ExecContext(txCtx, "ROLLBACK")
	clean = rollback == nil
	return fmt.Errorf("%w: %w", dedup.ErrCommitUnknown, err)
}

// restoreTimeout bounds what is done with a connection behind a transaction.
const restoreTimeout = 5 * time.Second

// restore makes the connection fit for others, or closes it.
func (e *Engine) restore(ctx context.Context, conn *sql.Conn, clean bool) {
	if e.Ended == "" {
		return
	}
	if clean {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
		defer cancel()
		if _, err := conn.ExecContext(ctx, e.Ended); err == nil {
			return
		}
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

func lost(what string, err error) error { return fmt.Errorf("%w: %s: %w", dedup.ErrLost, what, err) }
