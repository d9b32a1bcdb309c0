package audit

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// Format is how a file holds rows.
type Format string

// The formats.
const (
	Lines Format = "jsonl" // a JSON object on each line
	CSV   Format = "csv"   // with the names of the columns in the first row
)

// ErrFile is what [Load] returns for a file that can't be read as it is said to be. Its
// text says where.
var ErrFile = errors.New("audit: not a file of rows")

// mostLine bounds a line of a file.
const mostLine = 16 << 20

// File is a file of rows, whose columns are named as of a [Table].
type File struct {
	Format Format
	// Where is a column and the text that it must have for a row to count: in a history,
	// "kind" and "effect". Without Column all rows count.
	Column, Is string
}

// Load reads rows into a new table of a SQLite database, which should be in a file of its
// own that is deleted afterwards, and sets t's In and Name to it. Of each row it takes the
// columns that t names. A time is RFC 3339 or a date with a time in UTC, or a number of
// seconds, milliseconds, microseconds or nanoseconds since 1970, whichever is before the
// year 5000. Rows that lack a column have NULL there. told is called now and then with the
// number of rows; it may be nil.
func Load(ctx context.Context, d *Database, name string, t *Table, r io.Reader, f File, told func(rows int64)) (err error) {
	l := &loader{t: t, at: map[string]int{}, file: f}
	for _, c := range append([]string{t.Time, t.Applied, t.Last, t.Attempts, t.Producer, t.Seq}, t.Key...) {
		if _, ok := l.at[c]; c != "" && !ok {
			l.at[c] = len(l.columns)
			l.columns = append(l.columns, c)
		}
	}
	if len(l.columns) == 0 {
		return fmt.Errorf("%w: no column is named", ErrTable)
	}
	l.found = make([]bool, len(l.columns))
	s := &session{d: d}
	var cols, marks []string
	for _, c := range l.columns {
		cols, marks = append(cols, s.quote(c)), append(marks, "?")
	}
	tx, err := d.DB.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	if _, err := tx.ExecContext(ctx, "CREATE TABLE "+s.quote(name)+" ("+strings.Join(cols, ", ")+")"); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	insert, err := tx.PrepareContext(ctx, "INSERT INTO "+s.quote(name)+" VALUES ("+strings.Join(marks, ", ")+")")
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer insert.Close()
	l.insert, l.told = insert, told
	if err := l.read(ctx, r); err != nil {
		return err
	}
	for i, found := range l.found {
		if !found && l.rows > 0 {
			return fmt.Errorf("%w: no row has the column %q", ErrTable, l.columns[i])
		}
	}
	t.In, t.Name = d, name
	return tx.Commit()
}

// loader takes rows into the table.
type loader struct {
	t       *Table
	file    File
	columns []string
	at      map[string]int
	found   []bool
	insert  *sql.Stmt
	told    func(int64)
	rows    int64
	line    int
}

func (l *loader) read(ctx context.Context, r io.Reader) error {
	switch l.file.Format {
	case Lines:
		return l.lines(ctx, r)
	case CSV:
		return l.csv(ctx, r)
	}
	return fmt.Errorf("%w: the format %q isn't known", ErrFile, l.file.Format)
}

func (l *loader) bad(format string, a ...any) error {
	return fmt.Errorf("%w: line %d: %w", ErrFile, l.line, fmt.Errorf(format, a...))
}

func (l *loader) lines(ctx context.Context, r io.Reader) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 64<<10), mostLine)
	for in.Scan() {
		l.line++
		if len(strings.TrimSpace(in.Text())) == 0 {
			continue
		}
		var row map[string]json.RawMessage
		if err := json.Unmarshal(in.Bytes(), &row); err != nil {
			return l.bad("%w", err)
		}
		text := func(column string) (string, bool, error) {
			raw, ok := row[column]
			if !ok || string(raw) == "null" {
				return "", false, nil
			}
			switch raw[0] {
			case '"':
				var s string
				err := json.Unmarshal(raw, &s)
				return s, true, err
			case '{', '[':
				return "", false, fmt.Errorf("the column %q holds an object or a list", column)
			}
			return string(raw), true, nil
		}
		if err := l.row(ctx, text); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		l.line++
		return l.bad("%w", err)
	}
	return nil
}

func (l *loader) csv(ctx context.Context, r io.Reader) error {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	head, err := in.Read()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it is empty", ErrFile)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	where := map[string]int{}
	for i, h := range head {
		h = strings.TrimPrefix(h, "\ufeff") // some spreadsheets begin with it
		if _, twice := where[h]; twice {
			return fmt.Errorf("%w: two columns have the name %q", ErrFile, h)
		}
		where[h] = i
	}
	for _, c := range append([]string{l.file.Column}, l.columns...) {
		if _, ok := where[c]; !ok && c != "" {
			return fmt.Errorf("%w: there is no column %q", ErrTable, c)
		}
	}
	for {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrFile, err)
		}
		l.line, _ = in.FieldPos(0)
		err = l.row(ctx, func(column string) (string, bool, error) {
			s := record[where[column]]
			return s, s != "", nil
		})
		if err != nil {
			return err
		}
	}
}

// row takes a row, whose columns text returns.
func (l *loader) row(ctx context.Context, text func(string) (s string, ok bool, err error)) error {
	if l.file.Column != "" {
		s, ok, err := text(l.file.Column)
		if err != nil {
			return l.bad("%w", err)
		}
		if !ok || s != l.file.Is {
			return nil
		}
	}
	values := make([]any, len(l.columns))
	for c, i := range l.at {
		s, ok, err := text(c)
		if err != nil {
			return l.bad("%w", err)
		}
		if !ok {
			continue
		}
		l.found[i] = true
		switch c {
		case l.t.Time, l.t.Applied, l.t.Last:
			values[i], err = microsOf(s)
		case l.t.Seq, l.t.Attempts:
			values[i], err = strconv.ParseInt(s, 10, 64)
		default:
			values[i] = s
		}
		if err != nil {
			return l.bad("the column %q: %w", c, err)
		}
	}
	if l.rows++; l.rows%100_000 == 0 && l.told != nil {
		l.told(l.rows)
	}
	if _, err := l.insert.ExecContext(ctx, values...); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// microsOf reads a time as microseconds since 1970.
func microsOf(s string) (int64, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		unit := int64(1e6)
		for u := int64(1e11); (n >= u || n <= -u) && unit > 1; u *= 1000 {
			unit /= 1000
			if unit == 1 && (n >= 1e17 || n <= -1e17) {
				return n / 1000, nil
			}
		}
		return n * unit, nil
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		if math.Abs(f) >= 1e11 || math.IsNaN(f) { // of fractions only seconds are sure
			return 0, fmt.Errorf("%q is no number of seconds", s)
		}
		return int64(math.Round(f * 1e6)), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999Z07", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999 -0700 MST", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UnixMicro(), nil
		}
	}
	return 0, fmt.Errorf("%q is no time", s)
}
