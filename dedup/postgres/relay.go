package postgres

import (
	"context"
	_ "embed" // the schema
	"errors"
	"fmt"
	"strings"

	"github.com/onceline/onceline/dedup"
)

//go:embed relay.sql
var relaySchema string

var (
	_ dedup.RelayRecords = (*Store)(nil)
	_ dedup.RelayRecords = (*SQL)(nil)
)

// relayText puts the tables' names into a query.
func (c *core) relayText(query string) string {
	return strings.NewReplacer("{relay}", c.texts.schema+".onceline_outbox_relay", "{outbox}", c.texts.schema+".onceline_outbox").Replace(query)
}

// TakeRelay implements [dedup.RelayRecords].
func (c *core) TakeRelay(ctx context.Context, topic string, was int64) (row dedup.RelayRow, ok bool, err error) {
	if err := checkTopic(topic); err != nil {
		return row, false, err
	}
	err = c.in(ctx, func(q querier) error {
		row, ok = dedup.RelayRow{}, false
		var seqs []int64
		err := q.each(ctx, func(scan func(...any) error) error {
			ok = true
			return scan(&row.Term, &row.Token)
		}, c.relayText(`INSERT INTO {relay} AS r (topic, term) VALUES ($1, 1)
			ON CONFLICT (topic) DO UPDATE SET term = r.term + 1 WHERE $2::bigint IN (0, r.term) RETURNING term, token`), topic, was)
		if err == nil && row.Token != nil {
			err = q.each(ctx, func(scan func(...any) error) error {
				var seq int64
				err := scan(&seq)
				seqs = append(seqs, seq)
				return err
			}, c.relayText("SELECT unnest(seqs) FROM {relay} WHERE topic = $1"), topic)
		}
		row.Seqs = seqs
		return err
	})
	return row, ok && err == nil, relayError(err)
}

// PrepareRelay implements [dedup.RelayRecords].
func (c *core) PrepareRelay(ctx context.Context, topic string, term int64, token []byte, seqs []int64) (ok bool, err error) {
	if token == nil {
		token = []byte{} // nil is NULL
	}
	err = c.in(ctx, func(q querier) error {
		n, err := q.exec(ctx, c.relayText("UPDATE {relay} SET token = $3, seqs = $4::text::bigint[] WHERE topic = $1 AND term = $2"), topic, term, token, arrayOf(seqs))
		ok = n == 1
		return err
	})
	return ok && err == nil, relayError(err)
}

// SettleRelay implements [dedup.RelayRecords].
func (c *core) SettleRelay(ctx context.Context, topic string, term int64, fate dedup.OutboxFate) (ok bool, err error) {
	err = c.in(ctx, func(q querier) error {
		n, err := q.exec(ctx, c.relayText("UPDATE {relay} SET term = term WHERE topic = $1 AND term = $2"), topic, term) // and nobody else changes it
		if ok = n == 1; err != nil || !ok {
			return err
		}
		const these = " WHERE topic = $1 AND seq IN (SELECT unnest(seqs) FROM {relay} WHERE topic = $1 AND token IS NOT NULL)"
		switch fate.State {
		case dedup.OutboxSent:
			_, err = q.exec(ctx, c.relayText("DELETE FROM {outbox}"+these), topic)
		case dedup.OutboxHeld:
			_, err = q.exec(ctx, c.relayText("UPDATE {outbox} SET state = 1, attempts = attempts + 1, due = NULL, reason = $2"+these+" AND state = 0"), topic, text(fate.Reason))
		case dedup.OutboxLeft:
		default:
			err = fmt.Errorf("a prepared transaction's rows can't be %v", fate.State)
		}
		if err == nil {
			_, err = q.exec(ctx, c.relayText("UPDATE {relay} SET token = NULL, seqs = '{}' WHERE topic = $1"), topic)
		}
		return err
	})
	return ok && err == nil, relayError(err)
}

// VerifyRelays implements [dedup.RelayRecords]. Migrate makes the table.
func (c *core) VerifyRelays(ctx context.Context) error {
	if err := c.VerifyOutbox(ctx); err != nil {
		return err
	}
	var errs []error
	err := c.in(ctx, func(q querier) error {
		errs = nil
		bad := func(format string, a ...any) {
			errs = append(errs, fmt.Errorf("%w: postgres: %s", dedup.ErrVerify, fmt.Sprintf(format, a...)))
		}
		return c.verifyTable(ctx, q, table{"onceline_outbox_relay", "r", "topic", "SELECT,INSERT,UPDATE"}, bad)
	})
	if err != nil {
		errs = append(errs, fmt.Errorf("dedup/postgres: verify: %w", err))
	}
	return errors.Join(errs...)
}

func relayError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("dedup/postgres: relay: %w", err)
}
