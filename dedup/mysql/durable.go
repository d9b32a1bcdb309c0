package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onceline/onceline/dedup"
)

// A server without a binary log shows a commit before it has flushed it, and a crash
// between the two takes it back (MY-F-390). Who has seen its marker by then mustn't call
// the message a duplicate: it would be acked, and its effect lost. So a claim that has
// seen markers is followed by a commit of something written: the log is flushed in
// order, and what was seen lies before it.

// watched is what the claims of one transaction saw and wrote.
type watched struct{ seen, fresh bool }

const syncText = "INSERT INTO onceline_sync (connection, n) VALUES (connection_id() % 65536, 1) ON DUPLICATE KEY UPDATE n = n + 1"

// watch notes what a claim saw. In a transaction that the caller owns it writes what
// makes the commit wait, unless there are markers to do so.
func (s *Store) watch(ctx context.Context, tx *sql.Tx, claims []dedup.Claim) error {
	if s.logged {
		return nil
	}
	var w watched
	for _, c := range claims {
		w.seen, w.fresh = w.seen || c == dedup.Seen, w.fresh || c == dedup.Fresh
	}
	if of, ok := s.watching.Load(tx); ok {
		sum := of.(*watched)
		sum.seen, sum.fresh = sum.seen || w.seen, sum.fresh || w.fresh
		return nil
	}
	if !w.seen || w.fresh {
		return nil
	}
	if _, err := tx.ExecContext(ctx, syncText); err != nil {
		return fmt.Errorf("dedup/mysql: claim: %w", err)
	}
	return nil
}

// settled makes durable what a transaction saw that has ended with err.
func (s *Store) settled(ctx context.Context, w *watched, err error) error {
	switch {
	case !w.seen, err == nil && w.fresh, errors.Is(err, dedup.ErrLost), errors.Is(err, dedup.ErrCommitUnknown):
		return err
	}
	if failed := s.sync(ctx); failed != nil {
		return fmt.Errorf("%w: mysql: what was seen may not be durable yet: %w", dedup.ErrLost, failed)
	}
	return err
}

// sync returns when everything is durable that could be seen before.
func (s *Store) sync(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err = tx.ExecContext(ctx, syncText); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
