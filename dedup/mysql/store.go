package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed" // the schema
	"errors"
	"fmt"
	"strings"
	"time"

	driversql "github.com/go-sql-driver/mysql"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/sqltx"
)

//go:embed schema.sql
var schema string

// Footprints of a marker, by whether its message carries a time, index included,
// measured at a million markers with MariaDB 10.11.19 by TestFootprint.
const (
	MarkerBytes      dedup.Footprint = 118
	TimedMarkerBytes dedup.Footprint = 80
)

// Options says how a [Store] works. The zero value is a good start. A negative timeout
// leaves the session's own.
type Options struct {
	// Window is how long markers are kept. Zero means seven days.
	Window time.Duration
	// Horizon, where it isn't zero, is how long copies may come. New refuses a
	// shorter window.
	Horizon dedup.Horizon
	// LockTimeout bounds the wait for a lock, in whole seconds. Zero means 5 s.
	LockTimeout time.Duration
	// StatementTimeout bounds each statement, on MariaDB: MySQL has nothing like it
	// for those that write. Zero means 30 s.
	StatementTimeout time.Duration
	// IdleTimeout bounds the time between two statements, after which the server
	// ends the session of a consumer that is frozen or cut off, and its claims with
	// it, in whole seconds. On MySQL the session ends also if it is idle outside of a
	// transaction. Zero means a minute.
	IdleTimeout time.Duration
	// Now is the clock of the window. Nil takes the database's.
	Now func() time.Time
}

// Store keeps markers, positions and calls in MySQL or MariaDB. It implements
// [dedup.Driver], [dedup.PositionDriver] and [dedup.CallDriver], and is safe for
// concurrent use.
type Store struct {
	db      *sql.DB
	o       Options
	engine  sqltx.Engine
	version string
	mariadb bool
}

var _ dedup.PositionDriver[*sql.Tx] = (*Store)(nil)

// commitTimeout bounds what of a commit doesn't depend on the driver's readTimeout.
const commitTimeout = 30 * time.Second

// New returns a store in db, which stays the caller's. It asks the database for its
// version and nothing else: [Store.Migrate] and [Store.Verify] do. Options that can't
// be are [broker.ErrInvalid], a database that isn't there is [dedup.ErrLost].
func New(ctx context.Context, db *sql.DB, o Options) (*Store, error) {
	or := func(d *time.Duration, zero time.Duration) {
		if *d == 0 {
			*d = zero
		}
	}
	or(&o.Window, 7*24*time.Hour)
	or(&o.LockTimeout, 5*time.Second)
	or(&o.StatementTimeout, 30*time.Second)
	or(&o.IdleTimeout, time.Minute)
	switch {
	case db == nil:
		return nil, broker.Errorf(broker.ErrInvalid, nil, "dedup/mysql: no database")
	case o.Window < 0:
		return nil, broker.Errorf(broker.ErrInvalid, nil, "dedup/mysql: a window of %v", o.Window)
	}
	if err := o.Horizon.Check(o.Window); err != nil {
		return nil, err
	}
	s := &Store{db: db, o: o}
	if err := db.QueryRowContext(ctx, "SELECT version()").Scan(&s.version); err != nil {
		return nil, outsideTx(err)
	}
	s.mariadb = strings.Contains(s.version, "MariaDB")
	settings := s.settings()
	s.engine = sqltx.Engine{
		DB: db, Options: &sql.TxOptions{Isolation: sql.LevelReadCommitted}, CommitTimeout: commitTimeout,
		Refused: refused, Dead: func(error) bool { return true },
		Begun: func(ctx context.Context, tx *sql.Tx) error {
			for _, query := range []string{settings, "SAVEPOINT onceline_begun"} {
				if query == "" {
					continue
				}
				if _, err := tx.ExecContext(ctx, query); err != nil {
					return err
				}
			}
			return nil
		},
	}
	return s, nil
}

// settings is the statement that bounds the waits of a session, "" for none.
func (s *Store) settings() string {
	seconds := func(d time.Duration) int64 { return max(int64((d+time.Second-1)/time.Second), 1) }
	var set []string
	if s.o.LockTimeout > 0 {
		set = append(set, fmt.Sprintf("innodb_lock_wait_timeout = %d", seconds(s.o.LockTimeout)))
	}
	switch {
	case s.o.IdleTimeout > 0 && s.mariadb:
		set = append(set, fmt.Sprintf("idle_write_transaction_timeout = %d, idle_transaction_timeout = %[1]d", seconds(s.o.IdleTimeout)))
	case s.o.IdleTimeout > 0:
		set = append(set, fmt.Sprintf("wait_timeout = %d", seconds(s.o.IdleTimeout)))
	}
	if s.o.StatementTimeout > 0 && s.mariadb {
		set = append(set, fmt.Sprintf("max_statement_time = %.3f", s.o.StatementTimeout.Seconds()))
	}
	if len(set) == 0 {
		return ""
	}
	return "SET SESSION " + strings.Join(set, ", ")
}

// Transact implements [dedup.Driver].
func (s *Store) Transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	return s.engine.Transact(ctx, func(tx *sql.Tx) error {
		if err := f(tx); err != nil {
			return err
		}
		// The savepoint is gone if the server rolled the transaction back, or
		// if the effect ended it.
		_, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT onceline_begun")
		return saved("commit", err)
	})
}

// Savepoint implements [dedup.Driver]. One of the same name replaces the one before.
func (s *Store) Savepoint(ctx context.Context, tx *sql.Tx, _ bool) error {
	_, err := tx.ExecContext(ctx, "SAVEPOINT onceline")
	return saved("savepoint", err)
}

// Restore implements [dedup.Driver].
func (s *Store) Restore(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT onceline")
	return saved("roll back to savepoint", err)
}

// errEnded: the server has rolled the transaction back.
var errEnded = errors.New("dedup/mysql: the transaction has been rolled back by the server, or ended by the effect")

// The numbers of errors that say something about trying again. 1305 is also that of a
// routine that doesn't exist.
const (
	noSavepoint  = 1305
	duplicateKey = 1062
)

func saved(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case number(err) == noSavepoint:
		return fmt.Errorf("%w: %w", errEnded, err)
	}
	return fmt.Errorf("dedup/mysql: %s: %w", what, err)
}

// number returns the number of the server's error in err, or 0.
func number(err error) uint16 {
	var e *driversql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// Fault implements [dedup.Driver].
func (s *Store) Fault(err error) dedup.Fault {
	if errors.Is(err, errEnded) {
		return dedup.Busy
	}
	switch number(err) {
	case 1213, // deadlock
		1205,       // lock wait timeout
		3572,       // NOWAIT
		1020,       // record has changed (MariaDB, innodb_snapshot_isolation)
		1317,       // query was interrupted
		1969, 3024: // statement timeout of MariaDB, of MySQL
		return dedup.Busy
	case 1040, 1203, // too many connections
		1053, 1077, // shutting down
		1152, 1158, 1159, 1160, 1161, 1184, // the connection
		1927, 4031, // the connection was killed, was idle
		1290, 1836, 1792, // read only
		1021, 1037, 1041, 1114, // disk or memory is full
		1047, 3100, 3101: // the node is not part of the cluster, or refuses for its sake
		return dedup.Lost
	case 0:
		if errors.Is(err, driversql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn) {
			return dedup.Lost
		}
	}
	return dedup.Permanent
}

// refused reports whether a commit that failed surely committed nothing.
func refused(err error) bool {
	switch number(err) {
	case 1213, 1205, 3101:
		return true
	}
	return errors.Is(err, sql.ErrTxDone)
}

// outsideTx says of an error outside of a transaction, which the server didn't make,
// that the connection is lost.
func outsideTx(err error) error {
	if err == nil || number(err) != 0 {
		return err
	}
	return fmt.Errorf("%w: mysql: %w", dedup.ErrLost, err)
}

// Window is how long markers are kept.
func (s *Store) Window() time.Duration { return s.o.Window }
