package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/onceline/onceline/dedup"
)

var _ dedup.RelayRecords = (*Store)(nil)

// TakeRelay implements [dedup.RelayRecords]. What it returns is durable when it does, also
// on a server that shows commits before they are: its own commit comes behind them.
func (s *Store) TakeRelay(ctx context.Context, topic string, was int64) (row dedup.RelayRow, ok bool, err error) {
	if err := checkNames(topic); err != nil {
		return row, false, err
	}
	err = s.Transact(ctx, func(tx *sql.Tx) error {
		row, ok = dedup.RelayRow{}, false
		// It locks the row, made or found, so that nobody else takes the topic meanwhile.
		if _, err := tx.ExecContext(ctx, "INSERT INTO onceline_outbox_relay (topic, term) VALUES ("+quoted(topic)+", 0) ON DUPLICATE KEY UPDATE term = term"); err != nil {
			return err
		}
		last, err := lockRelay(ctx, tx, topic)
		if err != nil || was != 0 && last.Term != was {
			return err
		}
		row, ok = last, true
		row.Term++
		_, err = tx.ExecContext(ctx, fmt.Sprintf("UPDATE onceline_outbox_relay SET term = %d WHERE topic = %s", row.Term, quoted(topic)))
		return err
	})
	return row, ok && err == nil, relayError(err)
}

// lockRelay reads what is kept of a topic's relay, the zero if it is nothing, and keeps
// others from changing it until the transaction ends.
func lockRelay(ctx context.Context, tx *sql.Tx, topic string) (row dedup.RelayRow, err error) {
	var list []byte
	err = tx.QueryRowContext(ctx, "SELECT term, token, seqs FROM onceline_outbox_relay WHERE topic = "+quoted(topic)+" FOR UPDATE").Scan(&row.Term, &row.Token, &list)
	if errors.Is(err, sql.ErrNoRows) {
		return dedup.RelayRow{}, nil
	}
	if err != nil || row.Token == nil || len(list) == 0 {
		return row, err
	}
	for text := range strings.SplitSeq(string(list), ",") {
		seq, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return row, fmt.Errorf("the rows of what is prepared: %w", err)
		}
		row.Seqs = append(row.Seqs, seq)
	}
	return row, nil
}

// PrepareRelay implements [dedup.RelayRecords].
func (s *Store) PrepareRelay(ctx context.Context, topic string, term int64, token []byte, seqs []int64) (ok bool, err error) {
	err = s.Transact(ctx, func(tx *sql.Tx) error {
		row, err := lockRelay(ctx, tx, topic)
		if ok = row.Term == term; err != nil || !ok {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE onceline_outbox_relay SET token = ?, seqs = ? WHERE topic = ?", some(token), []byte(numbers(seqs)), []byte(topic))
		return err
	})
	return ok && err == nil, relayError(err)
}

// SettleRelay implements [dedup.RelayRecords].
func (s *Store) SettleRelay(ctx context.Context, topic string, term int64, fate dedup.OutboxFate) (ok bool, err error) {
	err = s.Transact(ctx, func(tx *sql.Tx) error {
		row, err := lockRelay(ctx, tx, topic)
		if ok = row.Term == term; err != nil || !ok {
			return err
		}
		if len(row.Seqs) > 0 {
			these := " WHERE topic = " + quoted(topic) + " AND seq IN (" + numbers(row.Seqs) + ")"
			switch fate.State {
			case dedup.OutboxSent:
				_, err = tx.ExecContext(ctx, "DELETE FROM onceline_outbox"+these)
			case dedup.OutboxHeld:
				_, err = tx.ExecContext(ctx, "UPDATE onceline_outbox SET state = 1, attempts = attempts + 1, due = NULL, reason = "+quoted(fate.Reason)+these+" AND state = 0")
			case dedup.OutboxLeft:
			default:
				err = fmt.Errorf("a prepared transaction's rows can't be %v", fate.State)
			}
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, "UPDATE onceline_outbox_relay SET token = NULL, seqs = NULL WHERE topic = "+quoted(topic))
		}
		return err
	})
	return ok && err == nil, relayError(err)
}

// VerifyRelays implements [dedup.RelayRecords]. Migrate makes the table.
func (s *Store) VerifyRelays(ctx context.Context) error {
	errs := []error{s.VerifyOutbox(ctx)}
	err := s.verifyTable(ctx, wanted{"onceline_outbox_relay", "topic", "SELECT, INSERT, UPDATE"}, func(format string, a ...any) {
		errs = append(errs, fmt.Errorf("%w: mysql: %s", dedup.ErrVerify, fmt.Sprintf(format, a...)))
	})
	if err != nil {
		errs = append(errs, fmt.Errorf("dedup/mysql: verify: %w", outsideTx(err)))
	}
	return errors.Join(errs...)
}

func relayError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("dedup/mysql: relay: %w", err)
}
