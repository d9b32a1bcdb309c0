package postgres

import (
	"context"
	"database/sql"
	_ "embed" // the schema
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup"
)

//go:embed checkpoint.sql
var checkpointSchema string

var (
	_ dedup.CheckpointDriver[pgx.Tx]  = (*Store)(nil)
	_ dedup.CheckpointDriver[*sql.Tx] = (*SQL)(nil)
)

// checkpointText puts the tables' names into a query.
func (c *core) checkpointText(query string) string {
	return strings.NewReplacer("{pipeline}", c.texts.schema+".onceline_pipeline", "{checkpoint}", c.texts.schema+".onceline_checkpoint").Replace(query)
}

func (c *core) takePipeline(ctx context.Context, q querier, name string) (dedup.PipelineRow, error) {
	p := dedup.PipelineRow{Name: name}
	err := q.row(ctx, []any{&p.Term, &p.Note}, c.checkpointText(`INSERT INTO {pipeline} AS p (name, term) VALUES ($1, 1)
		ON CONFLICT (name) DO UPDATE SET term = p.term + 1 RETURNING term, note`), name)
	return p, checkpointError(err)
}

// ownPipeline locks the row: at READ COMMITTED it waits for a TakePipeline that is
// under way, and then sees its term.
func (c *core) ownPipeline(ctx context.Context, q querier, name string, term int64) (bool, error) {
	own := false
	err := q.each(ctx, func(scan func(...any) error) error {
		var at int64
		err := scan(&at)
		own = at == term
		return err
	}, c.checkpointText("SELECT term FROM {pipeline} WHERE name = $1 FOR UPDATE"), name)
	return own, checkpointError(err)
}

func (c *core) notePipeline(ctx context.Context, q querier, name string, note []byte) error {
	n, err := q.exec(ctx, c.checkpointText("UPDATE {pipeline} SET note = $2 WHERE name = $1"), name, note)
	if err == nil && n == 0 {
		err = fmt.Errorf("no pipeline %q", name)
	}
	return checkpointError(err)
}

func (c *core) pipelines(ctx context.Context, q querier) (all []dedup.PipelineRow, err error) {
	err = q.each(ctx, func(scan func(...any) error) error {
		var p dedup.PipelineRow
		err := scan(&p.Name, &p.Term, &p.Note)
		all = append(all, p)
		return err
	}, c.checkpointText("SELECT name, term, note FROM {pipeline} ORDER BY name"))
	return all, checkpointError(err)
}

func (c *core) addCheckpoint(ctx context.Context, q querier, name string, r dedup.CheckpointRow, keep int64) error {
	data := r.Data
	if data == nil {
		data = []byte{} // nil is NULL
	}
	_, err := q.exec(ctx, c.checkpointText("INSERT INTO {checkpoint} (pipeline, number, term, state, note, taken, data) VALUES ($1, $2, $3, $4, $5, $6, $7)"),
		name, r.Number, r.Term, int16(r.State), text(r.Note), r.Taken.UnixMicro(), data)
	if err == nil {
		_, err = q.exec(ctx, c.checkpointText("DELETE FROM {checkpoint} WHERE pipeline = $1 AND number <= $2"), name, r.Number-keep)
	}
	return checkpointError(err)
}

func (c *core) markCheckpoint(ctx context.Context, q querier, name string, number int64, state dedup.CheckpointState, note string) (bool, error) {
	n, err := q.exec(ctx, c.checkpointText("UPDATE {checkpoint} SET state = $3, note = $4 WHERE pipeline = $1 AND number = $2"), name, number, int16(state), text(note))
	return n == 1, checkpointError(err)
}

func (c *core) checkpoints(ctx context.Context, q querier, name string, limit int) (rows []dedup.CheckpointRow, err error) {
	err = q.each(ctx, func(scan func(...any) error) error {
		var r dedup.CheckpointRow
		var state int16
		var taken int64
		err := scan(&r.Number, &r.Term, &state, &r.Note, &taken, &r.Data)
		r.State, r.Taken = dedup.CheckpointState(state), time.UnixMicro(taken)
		rows = append(rows, r)
		return err
	}, c.checkpointText("SELECT number, term, state, note, taken, data FROM {checkpoint} WHERE pipeline = $1 ORDER BY number DESC LIMIT $2"), name, int64(limit))
	return rows, checkpointError(err)
}

// VerifyCheckpoints implements [dedup.CheckpointDriver]. Migrate makes the tables.
func (c *core) VerifyCheckpoints(ctx context.Context) error {
	var errs []error
	err := c.in(ctx, func(q querier) error {
		errs = nil
		bad := func(format string, a ...any) {
			errs = append(errs, fmt.Errorf("%w: postgres: %s", dedup.ErrVerify, fmt.Sprintf(format, a...)))
		}
		if err := verifySettings(ctx, q, bad); err != nil {
			return err
		}
		for _, t := range []table{{"onceline_pipeline", "r", "name", "SELECT,INSERT,UPDATE"}, {"onceline_checkpoint", "r", "pipeline,number", "SELECT,INSERT,UPDATE,DELETE"}} {
			if err := c.verifyTable(ctx, q, t, bad); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		errs = append(errs, fmt.Errorf("dedup/postgres: verify: %w", err))
	}
	return errors.Join(errs...)
}

func checkpointError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("dedup/postgres: checkpoint: %w", err)
}
