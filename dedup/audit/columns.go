package audit

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"
)

// errBad makes database/sql close a connection instead of giving it to another.
var errBad = driver.ErrBadConn

// Table is a table or view with a row for each effect, or for each message or attempt of
// a producer, and the names of the columns that say what it is. A name with a dot is that
// of a table in a schema. Names are taken as they are written, upper and lower case
// included.
type Table struct {
	In   *Database
	Name string
	// Key identifies the message by its business: a column, or several that make it
	// together. Rows in which one of them is NULL are counted and not looked at.
	Key []string
	// Time is the producer's: of the message, the same on all its copies. In a table
	// with a row for each attempt to send, of the attempt.
	Time string
	// Applied is when the effect took place.
	Applied string
	// Last is when the message was last tried, and Attempts how often, in a table with a
	// row for each message.
	Last, Attempts string
	// Producer and Seq are who sent the message, and its number in that one's count.
	Producer, Seq string
}

// opened is a table whose columns were looked at.
type opened struct {
	*Table
	*session
	types map[string]string
	units map[string]int64 // of numbers that are times: how many are a second
}

// ErrTable is what an audit returns for a table or column that can't be read as it is
// named.
var ErrTable = errors.New("audit: a table can't be read")

// open begins a session for the table and looks at the types of its columns.
func (t *Table) open(ctx context.Context) (*opened, error) {
	s, err := t.In.begin(ctx)
	if err != nil {
		return nil, err
	}
	o := &opened{Table: t, session: s, types: map[string]string{}, units: map[string]int64{}}
	if err := o.look(ctx); err != nil {
		return nil, errors.Join(err, s.end())
	}
	return o, nil
}

func (o *opened) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, o.d.timeout())
	defer cancel()
	var names, cols []string
	seen := map[string]bool{}
	for _, c := range append([]string{o.Time, o.Applied, o.Last, o.Attempts, o.Producer, o.Seq}, o.Key...) {
		if c != "" && !seen[c] {
			seen[c] = true
			names, cols = append(names, c), append(cols, o.quote(c))
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: %s: no column is named", ErrTable, o.Name)
	}
	rows, err := o.tx.QueryContext(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE 1 = 0", strings.Join(cols, ", "), o.table()))
	if err != nil {
		return fmt.Errorf("%w: %s in %s: %w", ErrTable, o.Name, o.d.Name, err)
	}
	defer rows.Close()
	types, err := rows.ColumnTypes()
	if err != nil {
		return fmt.Errorf("%w: %s in %s: %w", ErrTable, o.Name, o.d.Name, err)
	}
	for i, t := range types {
		o.types[names[i]] = strings.ToUpper(t.DatabaseTypeName())
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return fmt.Errorf("%w: %s in %s: %w", ErrTable, o.Name, o.d.Name, err)
	}
	if o.d.Dialect == SQLite {
		if err := o.quoted(ctx, names); err != nil {
			return err
		}
	}
	for _, c := range []string{o.Time, o.Applied, o.Last} {
		if c == "" {
			continue
		}
		if err := o.unit(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// quoted refuses columns that SQLite takes as text, for a quoted name that isn't one is
// text to it.
func (o *opened) quoted(ctx context.Context, names []string) error {
	there := map[string]bool{}
	err := o.query(ctx, "SELECT lower(name) FROM pragma_table_xinfo('"+strings.ReplaceAll(o.Name, "'", "''")+"')", func(scan func(...any) error) error {
		var name string
		err := scan(&name)
		there[name] = true
		return err
	})
	if err != nil {
		return err
	}
	for _, n := range names {
		if len(there) > 0 && !there[strings.ToLower(n)] {
			return fmt.Errorf("%w: %s in %s has no column %q", ErrTable, o.Name, o.d.Name, n)
		}
	}
	return nil
}

// number says that a column's type is one of numbers. SQLite's are of the values.
func (o *opened) number(col string) bool {
	t := o.types[col]
	for _, n := range []string{"INT", "NUMERIC", "DECIMAL", "FLOAT", "DOUBLE", "REAL"} {
		if strings.Contains(t, n) {
			return true
		}
	}
	return false
}

// unit finds out what a number that is a time counts: what would be after the year 5000
// in a unit is of the next smaller one.
func (o *opened) unit(ctx context.Context, col string) error {
	o.units[col] = 1
	what := o.quote(col)
	switch {
	case o.d.Dialect == SQLite:
		what = fmt.Sprintf("CASE WHEN typeof(%[1]s) IN ('integer', 'real') THEN %[1]s END", what)
	case !o.number(col):
		if t := o.types[col]; !strings.HasPrefix(t, "TIMESTAMP") && t != "DATE" && t != "DATETIME" {
			return fmt.Errorf("%w: %s in %s: the column %q is of type %s, which is neither a time nor a number", ErrTable, o.Name, o.d.Name, col, t)
		}
		return nil
	}
	var top *float64
	if err := o.one(ctx, fmt.Sprintf("SELECT max(%s) FROM %s", what, o.table()), &top); err != nil {
		return err
	}
	for u := int64(1e11); top != nil && *top >= float64(u) && o.units[col] < 1e9; u *= 1000 {
		o.units[col] *= 1000
	}
	return nil
}

func (s *session) quote(name string) string {
	q := `"`
	if s.d.Dialect == MySQL {
		q = "`"
	}
	return q + strings.ReplaceAll(name, q, q+q) + q
}

func (o *opened) table() string {
	parts := strings.Split(o.Name, ".")
	for i, p := range parts {
		parts[i] = o.quote(p)
	}
	return strings.Join(parts, ".")
}

// key is the expression of the key, as bytes: compared as they are in every database,
// not by the collation of the one, in which "a" may be "A".
func (o *opened) key() string {
	parts := make([]string, len(o.Key))
	for i, c := range o.Key {
		parts[i] = o.bytes(c)
	}
	switch {
	case len(parts) == 1:
		return parts[0]
	case o.d.Dialect == MySQL:
		return "concat(" + strings.Join(parts, ", x'1f', ") + ")"
	case o.d.Dialect == Postgres:
		return "(" + strings.Join(parts, ` || '\x1f'::bytea || `) + ")"
	}
	for i, p := range parts {
		parts[i] = "CAST(" + p + " AS TEXT)"
	}
	return "CAST(" + strings.Join(parts, " || char(31) || ") + " AS BLOB)"
}

func (o *opened) bytes(col string) string {
	q, t := o.quote(col), o.types[col]
	switch o.d.Dialect {
	case Postgres:
		if t == "BYTEA" {
			return q
		}
		return "convert_to(" + q + "::text, 'UTF8')"
	case MySQL:
		if strings.Contains(t, "BINARY") || strings.Contains(t, "BLOB") {
			return "CAST(" + q + " AS BINARY)"
		}
		return "CAST(CONVERT(" + q + " USING utf8mb4) AS BINARY)"
	}
	return "CAST(" + q + " AS BLOB)"
}

// keyed is the condition that a row has a key.
func (o *opened) keyed() string {
	parts := make([]string, len(o.Key))
	for i, c := range o.Key {
		parts[i] = o.quote(c) + " IS NOT NULL"
	}
	return "(" + strings.Join(parts, " AND ") + ")"
}

// producer is the expression of who sent, the same for all where no column says it.
func (o *opened) producer() string {
	if o.Producer == "" {
		return map[Dialect]string{Postgres: `''::bytea`, MySQL: `CAST('' AS BINARY)`, SQLite: `x''`}[o.d.Dialect]
	}
	b := o.bytes(o.Producer)
	return map[Dialect]string{Postgres: "coalesce(" + b + ", ''::bytea)", MySQL: "coalesce(" + b + ", '')", SQLite: "coalesce(" + b + ", x'')"}[o.d.Dialect]
}

// micros is the expression of a time, in microseconds since 1970; NULL for what isn't
// one.
func (o *opened) micros(col string) string {
	q := o.quote(col)
	num := fmt.Sprintf("floor(%s * 1.0 * %d)", q, int64(1e6)/min(o.units[col], 1e6))
	if u := o.units[col]; u > 1e6 {
		num = fmt.Sprintf("floor(%s / %d)", q, u/1e6)
	}
	switch o.d.Dialect {
	case Postgres:
		if o.number(col) {
			return "CAST(" + num + " AS bigint)"
		}
		return "CAST(extract(epoch FROM " + q + ") * 1000000 AS bigint)"
	case MySQL:
		if o.number(col) {
			return "CAST(" + num + " AS SIGNED)"
		}
		return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + q + ")"
	}
	// The driver of modernc.org/sqlite writes a time.Time in UTC as Go prints it.
	num = strings.Replace(num, "floor", "", 1)
	return fmt.Sprintf("CASE typeof(%[1]s) WHEN 'integer' THEN CAST(%[2]s AS INTEGER) WHEN 'real' THEN CAST(%[2]s AS INTEGER) WHEN 'text' THEN CAST(round(unixepoch(replace(%[1]s, ' +0000 UTC', 'Z'), 'subsec') * 1000000) AS INTEGER) END", q, num)
}

// since is the condition that a time isn't before at, so written that an index of it
// serves.
func (o *opened) since(col string, at time.Time) string {
	q := o.quote(col)
	switch {
	case at.IsZero() || col == "":
		return "1 = 1"
	case o.d.Dialect == SQLite:
		return fmt.Sprintf("%s >= %d", o.micros(col), at.UnixMicro())
	case o.number(col):
		return fmt.Sprintf("%s >= %d", q, scaled(at, o.units[col]))
	}
	return fmt.Sprintf("%s >= '%s%s'", q, at.UTC().Format("2006-01-02 15:04:05.000000"), map[Dialect]string{Postgres: "+00"}[o.d.Dialect])
}

func scaled(at time.Time, unit int64) int64 {
	switch unit {
	case 1e9:
		return at.UnixNano()
	case 1e6:
		return at.UnixMicro()
	case 1e3:
		return at.UnixMilli()
	}
	return at.Unix()
}
