package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed" // the schema
	"errors"
	"fmt"
	"strings"
	"sync"
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
	// StatementTimeout bounds each statement, on MySQL each that only reads: it has
	// nothing like it for those that write, of which one that takes longer than the
	// driver's readTimeout is taken for a lost connection: its message is Unknown, and
	// comes again, each time. So it is on MariaDB where readTimeout is the shorter one.
	// An effect whose statement takes longer is Failed, so that a message which always
	// does is dead-lettered in the end. Zero means 30 s.
	StatementTimeout time.Duration
	// IdleTimeout bounds the time between two statements, after which the server
	// ends the session of a consumer that is frozen or cut off, and its claims with
	// it, in whole seconds. On MySQL the session ends also if it is idle outside of a
	// transaction. Zero means a minute.
	IdleTimeout time.Duration
	// Now is the clock of the window. Nil takes the database's.
	Now func() time.Time
}

// Store keeps markers, positions, calls and outboxes in MySQL or MariaDB. It implements
// [dedup.Driver], [dedup.PositionDriver], [dedup.CallDriver] and [dedup.OutboxDriver],
// and is safe for concurrent use.
type Store struct {
	*calls
	db      *sql.DB
	o       Options
	engine  sqltx.Engine
	version string
	mariadb bool
	logged  bool // there is a binary log
	// watching has a *watched for each transaction of Transact, by its *sql.Tx.
	watching sync.Map
	lanes    sync.Map // topics whose lanes have their rows
}

var (
	_ dedup.PositionDriver[*sql.Tx] = (*Store)(nil)
	_ dedup.CallDriver              = (*Store)(nil)
)

// commitTimeout bounds what of a commit doesn't depend on the driver's readTimeout.
const commitTimeout = 30 * time.Second

// New returns a store in db, which stays the caller's. It asks the database for its
// version and whether it has a binary log, and nothing else: [Store.Migrate] and [Store.Verify] do. Options that can't
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
	var log string
	if err := db.QueryRowContext(ctx, "SELECT version(), @@global.log_bin").Scan(&s.version, &log); err != nil {
		return nil, outsideTx(err)
	}
	s.logged = !off(log)
	s.mariadb = strings.Contains(s.version, "MariaDB")
	s.calls = s.newCalls()
	settings := s.settings()
	s.engine = sqltx.Engine{
		DB: db, Options: &sql.TxOptions{Isolation: sql.LevelReadCommitted}, CommitTimeout: commitTimeout,
		Refused: refused, Dead: func(error) bool { return true }, Ended: "SET SESSION autocommit = 1",
		Begun: func(ctx context.Context, tx *sql.Tx) error {
			for _, query := range []string{settings, "SAVEPOINT onceline_begun"} {
				if _, err := tx.ExecContext(ctx, query); err != nil {
					return err
				}
			}
			return nil
		},
	}
	return s, nil
}

// Tested reports whether the server is of the kind that this package is tested on, which
// is MariaDB: for MySQL none could be had.
func (s *Store) Tested() bool { return s.mariadb }

// Version is what the server says of itself.
func (s *Store) Version() string { return s.version }

// settings is the statement that makes a session fit for a transaction, and bounds its
// waits.
func (s *Store) settings() string {
	seconds := func(d time.Duration) int64 { return max(int64((d+time.Second-1)/time.Second), 1) }
	// After a deadlock the server takes what comes for statements without a transaction
	// (MY-F-03). Without autocommit they make one, which is rolled back as well.
	set := []string{"autocommit = 0"}
	if s.o.LockTimeout > 0 {
		set = append(set, fmt.Sprintf("innodb_lock_wait_timeout = %d", seconds(s.o.LockTimeout)))
	}
	switch {
	case s.o.IdleTimeout > 0 && s.mariadb:
		set = append(set, fmt.Sprintf("idle_write_transaction_timeout = %d, idle_transaction_timeout = %[1]d", seconds(s.o.IdleTimeout)))
	case s.o.IdleTimeout > 0:
		set = append(set, fmt.Sprintf("wait_timeout = %d", seconds(s.o.IdleTimeout)))
	}
	switch {
	case s.o.StatementTimeout > 0 && s.mariadb:
		set = append(set, fmt.Sprintf("max_statement_time = %.3f", s.o.StatementTimeout.Seconds()))
	case s.o.StatementTimeout > 0:
		set = append(set, fmt.Sprintf("max_execution_time = %d", max(s.o.StatementTimeout.Milliseconds(), 1)))
	}
	return "SET SESSION " + strings.Join(set, ", ")
}

// Transact implements [dedup.Driver].
func (s *Store) Transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	var w watched
	err := s.engine.Transact(ctx, func(tx *sql.Tx) error {
		if !s.logged {
			s.watching.Store(tx, &w)
			defer s.watching.Delete(tx)
		}
		if err := f(tx); err != nil {
			return err
		}
		// The savepoint is gone if the server rolled the transaction back, or
		// if the effect ended it.
		_, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT onceline_begun")
		return saved("commit", err)
	})
	return s.settled(ctx, &w, err)
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
		1205, // lock wait timeout
		3572, // NOWAIT
		1020, // record has changed (MariaDB, innodb_snapshot_isolation)
		1317: // query was interrupted, by somebody
		return dedup.Busy
	case 1969, 3024: // statement timeout of MariaDB, of MySQL
		// Of the same statement the next time too, mostly: an attempt of its message.
		return dedup.Permanent
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
