package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Dialect is the kind of SQL that a database speaks.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql" // and MariaDB
	SQLite   Dialect = "sqlite"
)

// Database is where tables are. Audits hold up to three connections of it at a time.
type Database struct {
	DB      *sql.DB
	Dialect Dialect
	// Name names it to people; no password.
	Name string
	// Timeout bounds each statement, reading its rows included. Zero means 10 minutes.
	Timeout time.Duration
}

// session is a connection in a read-only transaction: all that is read by it is of one
// moment.
type session struct {
	d    *Database
	conn *sql.Conn
	tx   *sql.Tx
	undo string
}

// begin opens a session. end ends it.
func (d *Database) begin(ctx context.Context) (s *session, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout())
	defer cancel()
	conn, err := d.DB.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Name, err)
	}
	s = &session{d: d, conn: conn}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", d.Name, errors.Join(err, s.end()))
			s = nil
		}
	}()
	o := sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
	var set []string
	switch d.Dialect {
	case Postgres:
		set = []string{fmt.Sprintf("SET LOCAL statement_timeout = %d", d.timeout().Milliseconds()), "SET LOCAL timezone = 'UTC'", "SET LOCAL idle_in_transaction_session_timeout = 0"}
	case MySQL:
		if err = s.prepareMySQL(ctx); err != nil {
			return s, err
		}
	case SQLite:
		// Its transactions see one moment, and are read-only by this setting.
		o = sql.TxOptions{}
		if _, err = conn.ExecContext(ctx, "PRAGMA query_only = 1"); err != nil {
			return s, err
		}
		s.undo = "PRAGMA query_only = 0"
	}
	// Not bound to the time for beginning.
	if s.tx, err = conn.BeginTx(context.WithoutCancel(ctx), &o); err != nil {
		return s, err
	}
	for _, q := range set {
		if _, err = s.tx.ExecContext(ctx, q); err != nil {
			return s, err
		}
	}
	return s, nil
}

// prepareMySQL sets what can only be set for the session: times in UTC, whole keys in
// their order, quotes and escapes as they are written here whatever the server's mode is,
// and the bound of a statement, which MariaDB and MySQL name differently.
func (s *session) prepareMySQL(ctx context.Context) error {
	var version string
	if err := s.conn.QueryRowContext(ctx, "SELECT version()").Scan(&version); err != nil {
		return err
	}
	bound := fmt.Sprintf("max_execution_time = %d", s.d.timeout().Milliseconds())
	if strings.Contains(version, "MariaDB") {
		bound = fmt.Sprintf("max_statement_time = %.3f", s.d.timeout().Seconds())
	}
	_, err := s.conn.ExecContext(ctx, "SET SESSION time_zone = '+00:00', max_sort_length = 8192, sql_mode = '', "+bound)
	return err
}

func (s *session) end() error {
	var errs []error
	if s.tx != nil {
		if err := s.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			errs = append(errs, err)
		}
	}
	if s.undo != "" {
		_, err := s.conn.ExecContext(context.Background(), s.undo)
		errs = append(errs, err)
	}
	if s.d.Dialect == MySQL {
		// Its settings must not go on to another user of the pool.
		_ = s.conn.Raw(func(any) error { return errBad })
	}
	if err := s.conn.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (d *Database) timeout() time.Duration {
	if d.Timeout <= 0 {
		return 10 * time.Minute
	}
	return d.Timeout
}

// query runs a statement, and calls row for each of its rows.
func (s *session) query(ctx context.Context, q string, row func(scan func(...any) error) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.d.timeout(), fmt.Errorf("it took more than %v", s.d.timeout()))
	defer cancel()
	rows, err := s.tx.QueryContext(ctx, q)
	if err != nil {
		return s.wrap(ctx, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return s.wrap(ctx, err)
		}
	}
	return s.wrap(ctx, errors.Join(rows.Err(), rows.Close()))
}

// one runs a statement that returns one row.
func (s *session) one(ctx context.Context, q string, into ...any) error {
	n := 0
	err := s.query(ctx, q, func(scan func(...any) error) error { n++; return scan(into...) })
	if err == nil && n != 1 {
		return fmt.Errorf("%s: %d rows of one", s.d.Name, n)
	}
	return err
}

func (s *session) wrap(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return fmt.Errorf("%s: %w", s.d.Name, err)
}
