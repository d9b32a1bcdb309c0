package dedup

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/onceline/onceline/broker"
)

// Dialect is how a database wants its SQL.
type Dialect uint8

// The dialects.
const (
	PostgreSQL Dialect = iota + 1
	SQLite
	MySQL // and MariaDB
)

func (d Dialect) String() string {
	names := [...]string{"none", "PostgreSQL", "SQLite", "MySQL"}
	if int(d) < len(names) {
		return names[d]
	}
	return fmt.Sprintf("Dialect(%d)", uint8(d))
}

// VersionedTable is a table whose rows each hold the newest state of a thing, and its
// version.
type VersionedTable struct {
	// Name is the table's, with its schema before a dot where it needs one.
	Name string
	// Key are the columns of a unique key, which on MySQL has to be the only one.
	Key []string
	// Version is an integer column that isn't NULL.
	Version string
	// Columns are the others that are written.
	Columns []string
}

// Versioned writes states whose messages carry a version that their producer raises
// with each change: a number of the thing's own, not a clock's. A copy has no effect,
// and neither has a message that comes after a newer one, so this takes no marker and
// no order. It serves messages that carry the whole state, and none that add to it.
//
// A thing that is deleted stays as a row that says so in one of the columns, with the
// version of the deletion. Without the row an older message would bring it back.
//
// It is safe for concurrent use.
type Versioned struct {
	query        string
	keys, values int
}

// NewVersioned returns the writes to a table. A table without a name, key or version,
// a column that comes twice, and an unknown dialect are [broker.ErrInvalid].
func NewVersioned(d Dialect, t VersionedTable) (*Versioned, error) {
	all := slices.Concat(t.Key, []string{t.Version}, t.Columns)
	sorted := slices.Sorted(slices.Values(all))
	switch {
	case d < PostgreSQL || d > MySQL:
		return nil, broker.Errorf(broker.ErrInvalid, nil, "dedup: versioned writes in %v", d)
	case t.Name == "" || len(t.Key) == 0 || slices.Contains(all, ""):
		return nil, broker.Errorf(broker.ErrInvalid, nil, "dedup: versioned table %q without a name, a key or the name of a column", t.Name)
	case len(slices.Compact(sorted)) < len(all):
		return nil, broker.Errorf(broker.ErrInvalid, nil, "dedup: versioned table %q with a column twice", t.Name)
	}
	quote := func(name string) string {
		if d == MySQL {
			return "`" + strings.ReplaceAll(name, "`", "``") + "`"
		}
		return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	parts := strings.Split(t.Name, ".")
	for i := range parts {
		parts[i] = quote(parts[i])
	}
	var names, places, sets []string
	for i, column := range all {
		names = append(names, quote(column))
		places = append(places, "?")
		if d == PostgreSQL {
			places[i] = fmt.Sprintf("$%d", i+1)
		}
	}
	version := quote(t.Version)
	query := fmt.Sprintf("INSERT INTO %s AS old_row (%s) VALUES (%s) ON CONFLICT (%s) DO UPDATE SET ",
		strings.Join(parts, "."), strings.Join(names, ", "), strings.Join(places, ", "), strings.Join(names[:len(t.Key)], ", "))
	if d == MySQL {
		// It knows no condition there, and evaluates the assignments one after the
		// other: the version's comes last.
		query = fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s) ON DUPLICATE KEY UPDATE ",
			strings.Join(parts, "."), strings.Join(names, ", "), strings.Join(places, ", "))
		for _, column := range names[len(t.Key)+1:] {
			sets = append(sets, fmt.Sprintf("%s = IF(VALUES(%s) > %s, VALUES(%s), %s)", column, version, version, column, column))
		}
		query += strings.Join(append(sets, fmt.Sprintf("%s = GREATEST(%s, VALUES(%s))", version, version, version)), ", ")
	} else {
		for _, column := range names[len(t.Key):] {
			sets = append(sets, fmt.Sprintf("%s = excluded.%s", column, column))
		}
		query += fmt.Sprintf("%s WHERE old_row.%s < excluded.%s", strings.Join(sets, ", "), version, version)
	}
	return &Versioned{query, len(t.Key), len(t.Columns)}, nil
}

// Query returns the statement. Its parameters are the key, the version and the other
// columns, in the order of the table.
func (v *Versioned) Query() string { return v.query }

// Exec runs a statement and returns how many rows it has changed. [ExecSQL] makes one
// of database/sql; for pgx it is
//
//	func(ctx context.Context, query string, args ...any) (int64, error) {
//		tag, err := tx.Exec(ctx, query, args...)
//		return tag.RowsAffected(), err
//	}
type Exec func(ctx context.Context, query string, args ...any) (int64, error)

// ExecSQL is Exec on a *sql.DB, *sql.Conn or *sql.Tx. MySQL's driver must not be told
// clientFoundRows, which counts rows that stay as they are.
func ExecSQL(on interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}) Exec {
	return func(ctx context.Context, query string, args ...any) (int64, error) {
		result, err := on.ExecContext(ctx, query, args...)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	}
}

// Write puts a state in place of an older one, or where there is none. The outcome is
// [Applied], or [Duplicate] where the row has this version or a newer one and stays
// as it is: the message may be acked after both, once the transaction, if exec is in
// one, is committed. With an error it is [Unknown]; to write again is always right.
//
// Key and values are those of the table's Key and Columns, in their order; another
// number of them is [broker.ErrInvalid].
func (v *Versioned) Write(ctx context.Context, exec Exec, version int64, key []any, values ...any) (Outcome, error) {
	if len(key) != v.keys || len(values) != v.values {
		return Unknown, broker.Errorf(broker.ErrInvalid, nil, "dedup: versioned write with %d parts of the key and %d values, not %d and %d", len(key), len(values), v.keys, v.values)
	}
	args := make([]any, 0, len(key)+1+len(values))
	args = append(append(append(args, key...), version), values...)
	switch n, err := exec(ctx, v.query, args...); {
	case err != nil:
		return Unknown, fmt.Errorf("dedup: versioned write: %w", err)
	case n > 0:
		return Applied, nil
	}
	return Duplicate, nil
}
