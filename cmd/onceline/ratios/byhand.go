package ratios

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/onceline/onceline/dedup"
)

// The statements of the inbox, as somebody writes them who does without the package:
// the same claims, the same bounds of a transaction's waits.
const (
	beginByHand = "begin isolation level read committed read write; set local lock_timeout = 5000; set local statement_timeout = 30000; set local idle_in_transaction_session_timeout = 60000"
	claimByHand = "INSERT INTO onceline_marker (key) SELECT $1::uuid WHERE pg_try_advisory_xact_lock($2) ON CONFLICT DO NOTHING"
	// The markers are sorted, so that two transactions don't wait for each other.
	claimsByHand = `INSERT INTO onceline_marker (key) SELECT key FROM unnest($1::uuid[], $2::bigint[]) AS u (key, lock)
	WHERE pg_try_advisory_xact_lock(lock) ON CONFLICT DO NOTHING RETURNING key`
)

func markerByHand(id int) (dedup.Marker, error) {
	return dedup.Key{Consumer: "hand", ID: key(id).ID}.Marker()
}

// byHandSingly is what singles does.
func (x *postgresBench) byHandSingly(n int) way {
	return way{n, func(ctx context.Context) error {
		for _, id := range x.ids(n) {
			if err := x.onceByHand(ctx, id); err != nil {
				return err
			}
		}
		return nil
	}}
}

func (x *postgresBench) onceByHand(ctx context.Context, id int) error {
	m, err := markerByHand(id)
	if err != nil {
		return err
	}
	tx, err := x.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginByHand})
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // after a commit there is nothing to roll back
	tag, err := tx.Exec(ctx, claimByHand, m.Bytes, m.Lock())
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("by hand: %d was there", id)
	}
	if err := effect(ctx, tx, id); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// byHandPipelined is what pipelined does.
func (x *postgresBench) byHandPipelined(size, times int) way {
	return way{size * times, func(ctx context.Context) error {
		for range times {
			if err := x.batchByHand(ctx, x.ids(size)); err != nil {
				return err
			}
		}
		return nil
	}}
}

func (x *postgresBench) batchByHand(ctx context.Context, ids []int) error {
	markers := make([]dedup.Marker, len(ids))
	for i, id := range ids {
		var err error
		if markers[i], err = markerByHand(id); err != nil {
			return err
		}
	}
	slices.SortFunc(markers, dedup.Marker.Compare)
	keys, locks := make([][16]byte, len(ids)), make([]int64, len(ids))
	for i, m := range markers {
		keys[i], locks[i] = m.Bytes, m.Lock()
	}
	tx, err := x.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginByHand})
	if err != nil {
		return err
	}
	defer tx.Rollback(ctx) //nolint:errcheck // after a commit there is nothing to roll back
	rows, err := tx.Query(ctx, claimsByHand, keys, locks)
	if err != nil {
		return err
	}
	fresh, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
	if err != nil {
		return err
	}
	if len(fresh) != len(ids) {
		return fmt.Errorf("by hand: %d of %d were there", len(ids)-len(fresh), len(ids))
	}
	b := &pgx.Batch{}
	for _, id := range ids {
		queue(b, id)
	}
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
