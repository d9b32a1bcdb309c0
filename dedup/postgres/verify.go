package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/onceline/onceline/dedup"
)

// table is what Verify wants of one.
type table struct {
	name, kind, key, rights string
}

var tables = []table{
	{"onceline_marker", "r", "key", "SELECT,INSERT,DELETE"},
	{"onceline_marker_timed", "p", "key", "SELECT,INSERT,DELETE"},
	{"onceline_position", "r", "consumer,topic,epoch,partition", "SELECT,INSERT,UPDATE"},
	{"onceline_call", "r", "key", "SELECT,INSERT,UPDATE,DELETE"},
}

// found is what the catalog says of a table.
type found struct{ kind, persistence, key, missing string }

// Text of what Verify asks. The key is that of the primary key, if it is valid and
// checked at once, as ON CONFLICT needs it.
const tableText = `SELECT c.relkind::text, c.relpersistence::text,
	coalesce((SELECT string_agg(a.attname, ',' ORDER BY k.ord)
		FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k (attnum, ord) JOIN pg_attribute a ON a.attnum = k.attnum
		WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND i.indisprimary AND i.indisvalid AND i.indimmediate), ''),
	coalesce((SELECT string_agg(r, ',') FROM unnest(string_to_array($3::text, ',')) r WHERE NOT has_table_privilege(c.oid, r)), '')
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`

// Verify reports what in the database would let an effect happen twice or be lost,
// each with what to change, as an error that is [dedup.ErrVerify]; nil if there is
// nothing: the tables, their keys and persistence, the partitions of the day, the
// rights, and the settings by which a crash could take back what was committed. Call
// it at the start, and let a refusal end the program.
func (c *core) Verify(ctx context.Context) error {
	var errs []error
	err := c.in(ctx, func(q querier) error {
		errs = nil
		bad := func(format string, a ...any) {
			errs = append(errs, fmt.Errorf("%w: postgres: %s", dedup.ErrVerify, fmt.Sprintf(format, a...)))
		}
		if err := verifySettings(ctx, q, bad); err != nil {
			return err
		}
		for _, t := range tables {
			if err := c.verifyTable(ctx, q, t, bad); err != nil {
				return err
			}
		}
		return c.verifyDays(ctx, q, bad)
	})
	if err != nil {
		errs = append(errs, fmt.Errorf("dedup/postgres: verify: %w", err))
	}
	return errors.Join(errs...)
}

func verifySettings(ctx context.Context, q querier, bad func(string, ...any)) error {
	var version int64
	var synchronous, fsync, pages string
	err := q.row(ctx, []any{&version, &synchronous, &fsync, &pages}, `SELECT current_setting('server_version_num')::bigint,
		current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes')`)
	if err != nil {
		return err
	}
	if version < 130000 {
		bad("version %d is older than 13", version/10000)
	}
	if synchronous == "off" {
		bad("synchronous_commit is off: a crash loses effects whose messages were acked; set it to on for the role or the database")
	}
	if fsync == "off" {
		bad("fsync is off: a crash can lose or corrupt everything; set it to on")
	}
	if pages == "off" {
		bad("full_page_writes is off: a crash can corrupt the unique index; set it to on")
	}
	return nil
}

func (c *core) verifyTable(ctx context.Context, q querier, t table, bad func(string, ...any)) error {
	var f found
	n := 0
	err := q.each(ctx, func(scan func(...any) error) error {
		n++
		return scan(&f.kind, &f.persistence, &f.key, &f.missing)
	}, tableText, c.o.Schema, t.name, t.rights)
	if err != nil {
		return err
	}
	name := c.o.Schema + "." + t.name
	if n == 0 {
		bad("%s is missing; call Migrate", name)
		return nil
	}
	if f.kind != t.kind {
		bad("%s is of kind %q, not %q (r: a table, p: partitioned); rename it and call Migrate", name, f.kind, t.kind)
	}
	if f.persistence != "p" {
		bad("%s is unlogged: a crash empties it; ALTER TABLE %s SET LOGGED", name, name)
	}
	switch {
	case f.key == t.key:
	case strings.HasPrefix(f.key, t.key+",") || strings.HasSuffix(f.key, ","+t.key):
		bad("the primary key of %s is (%s): a copy that differs in the other column is applied again, as across midnight with the day on which it came; the key has to be (%s) alone", name, f.key, t.key)
	default:
		bad("the primary key of %s is (%s), not (%s), or not valid, or deferrable: nothing keeps copies out; rename the table and call Migrate", name, f.key, t.key)
	}
	if f.missing != "" {
		bad("the role lacks %s on %s; GRANT it", f.missing, name)
	}
	return nil
}

func (c *core) verifyDays(ctx context.Context, q querier, bad func(string, ...any)) error {
	var by string
	err := q.row(ctx, []any{&by}, "SELECT coalesce((SELECT pg_get_partkeydef(to_regclass($1))), '')", c.texts.timed)
	if err != nil {
		return err
	}
	if by == "" {
		return nil // missing, or not partitioned: said already
	}
	if by != "RANGE (key)" {
		bad("%s is partitioned by %s, not by RANGE (key): rename it and call Migrate", c.texts.timed, by)
	}
	now, err := c.now(ctx, q)
	if err != nil {
		return err
	}
	ds, err := c.loadDays(ctx, q)
	if err != nil {
		return err
	}
	if !ds.have(dedup.MinuteMarker(now)) {
		bad("%s has no partition for %s: messages of today are outside of the window; call Maintain", c.texts.timed, now.Format("2006-01-02"))
	}
	return q.each(ctx, func(scan func(...any) error) error {
		var name, bound, persistence string
		if err := scan(&name, &bound, &persistence); err != nil {
			return err
		}
		if !rangeBound.MatchString(bound) {
			bad("the partition %s takes %q: markers in it are of no day and never dropped; detach it", name, bound)
		}
		if persistence != "p" {
			bad("the partition %s is unlogged: a crash empties it; ALTER TABLE %s.%s SET LOGGED", name, c.texts.schema, name)
		}
		return nil
	}, `SELECT c.relname, pg_get_expr(c.relpartbound, c.oid), c.relpersistence::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = to_regclass($1) ORDER BY c.relname`, c.texts.timed)
}
