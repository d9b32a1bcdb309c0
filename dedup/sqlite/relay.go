package sqlite

import (
	"context"
	"database/sql"
	_ "embed" // the schema
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/onceline/onceline/dedup"
)

//go:embed relay.sql
var relaySchema string

var _ dedup.RelayRecords = (*Store)(nil)

// TakeRelay implements [dedup.RelayRecords].
func (s *Store) TakeRelay(ctx context.Context, topic string, was int64) (row dedup.RelayRow, ok bool, err error) {
	err = s.Transact(ctx, func(tx *sql.Tx) error {
		row = dedup.RelayRow{}
		var seqs sql.NullString
		err := tx.QueryRowContext(ctx, `INSERT INTO onceline_outbox_relay (topic, term) VALUES (@topic, 1)
			ON CONFLICT (topic) DO UPDATE SET term = term + 1 WHERE @was IN (0, term) RETURNING term, token, seqs`,
			sql.Named("topic", topic), sql.Named("was", was)).Scan(&row.Term, &row.Token, &seqs)
		if ok = err == nil; errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err == nil && row.Token != nil {
			err = json.Unmarshal([]byte(seqs.String), &row.Seqs)
		}
		return err
	})
	return row, ok && err == nil, wrapRelay(err)
}

// PrepareRelay implements [dedup.RelayRecords].
func (s *Store) PrepareRelay(ctx context.Context, topic string, term int64, token []byte, seqs []int64) (ok bool, err error) {
	list, err := json.Marshal(seqs)
	if err != nil {
		return false, err
	}
	err = s.Transact(ctx, func(tx *sql.Tx) error {
		n, err := affected(tx.ExecContext(ctx, "UPDATE onceline_outbox_relay SET token = ?, seqs = ? WHERE topic = ? AND term = ?", some(token), string(list), topic, term))
		ok = n == 1
		return err
	})
	return ok && err == nil, wrapRelay(err)
}

// SettleRelay implements [dedup.RelayRecords].
func (s *Store) SettleRelay(ctx context.Context, topic string, term int64, fate dedup.OutboxFate) (ok bool, err error) {
	err = s.Transact(ctx, func(tx *sql.Tx) error {
		ok = false
		var list sql.NullString
		err := tx.QueryRowContext(ctx, "SELECT seqs FROM onceline_outbox_relay WHERE topic = ? AND term = ?", topic, term).Scan(&list)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		const these = " WHERE topic = @topic AND seq IN (SELECT value FROM json_each(@list))"
		rows := []any{sql.Named("topic", topic), sql.Named("list", list.String), sql.Named("reason", strings.ToValidUTF8(fate.Reason, "?"))}
		if err == nil && list.Valid {
			switch fate.State {
			case dedup.OutboxSent:
				_, err = tx.ExecContext(ctx, "DELETE FROM onceline_outbox"+these, rows...)
			case dedup.OutboxHeld:
				_, err = tx.ExecContext(ctx, "UPDATE onceline_outbox SET state = 1, attempts = attempts + 1, due = NULL, reason = @reason"+these+" AND state = 0", rows...)
			case dedup.OutboxLeft:
			default:
				err = fmt.Errorf("a prepared transaction's rows can't be %v", fate.State)
			}
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, "UPDATE onceline_outbox_relay SET token = NULL, seqs = NULL WHERE topic = ?", topic)
		}
		ok = true
		return err
	})
	return ok && err == nil, wrapRelay(err)
}

// VerifyRelays implements [dedup.RelayRecords].
func (s *Store) VerifyRelays(ctx context.Context) error {
	if err := s.VerifyOutbox(ctx); err != nil {
		return err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", dedup.ErrLost, err)
	}
	defer conn.Close()
	got, err := primaryKey(ctx, conn, "onceline_outbox_relay")
	switch {
	case err != nil:
		return fmt.Errorf("dedup/sqlite: verify: %w", err)
	case got != "topic":
		return fmt.Errorf("%w: sqlite: the primary key of onceline_outbox_relay is (%s), not (topic): run Migrate on a database without that table", dedup.ErrVerify, got)
	}
	return nil
}
