package sqlite

import (
	"context"
	"database/sql"
	_ "embed" // the schema
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/sqltx"
	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

//go:embed schema.sql
var schema string

// Footprints of a marker, by whether its message carries a time, measured at a
// million markers with SQLite 3.53.3 by TestFootprint.
const (
	MarkerBytes      dedup.Footprint = 58
	TimedMarkerBytes dedup.Footprint = 24
)

// Options says how a [Store] works. The zero value is a good start.
type Options struct {
	// Window is how long markers are kept. Zero means seven days.
	Window time.Duration
	// Horizon, where it isn't zero, is how long copies may come. Open and New
	// refuse a shorter window.
	Horizon dedup.Horizon
	// BusyTimeout is how long a transaction of Open's database waits for that of
	// another process. Zero means 5 s.
	BusyTimeout time.Duration
	// Now is the clock of the window. Nil takes time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() (Options, error) {
	if o.Window == 0 {
		o.Window = 7 * 24 * time.Hour
	}
	if o.Window < 0 {
		return o, broker.Errorf(broker.ErrInvalid, nil, "dedup/sqlite: a window of %v", o.Window)
	}
	if o.BusyTimeout == 0 {
		o.BusyTimeout = 5 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, o.Horizon.Check(o.Window)
}

// Store keeps markers, positions, calls and outboxes in a SQLite database. It implements
// [dedup.Driver], [dedup.PositionDriver], [dedup.CallDriver] and [dedup.OutboxDriver], and
// is safe for concurrent use.
type Store struct {
	*calls
	db     *sql.DB
	owned  bool
	engine sqltx.Engine
	o      Options

	insert, insertTimed, move, add *sql.Stmt

	relay relayStatements
}

var (
	_ dedup.PositionDriver[*sql.Tx] = (*Store)(nil)
	_ dedup.CallDriver              = (*Store)(nil)
)

// Open opens or makes the database in the file path, with what this package needs
// in it. It refuses a database in memory, whose markers end with the process. The
// caller reaches the database by [Store.DB], and closes the store.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if path == "" || strings.Contains(path, ":memory:") {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "dedup/sqlite: %q is not a file", path)
	}
	query := url.Values{"_txlock": {"immediate"}, "_pragma": {
		fmt.Sprintf("busy_timeout(%d)", max(o.BusyTimeout.Milliseconds(), 1)), "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+query.Encode())
	if err != nil {
		return nil, fmt.Errorf("dedup/sqlite: %w", err)
	}
	db.SetMaxOpenConns(1) // SQLite has one writer; more connections would only find it busy
	s := &Store{db: db, owned: true, o: o}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// New takes a database that the caller has opened with the driver of
// modernc.org/sqlite, makes the tables in it that are missing, and refuses it by
// [dedup.ErrVerify] if it doesn't keep what it has committed. The database should
// begin transactions with _txlock=immediate. Close leaves it open.
func New(ctx context.Context, db *sql.DB, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, o: o}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Store) start(ctx context.Context) error {
	s.engine = sqltx.Engine{DB: s.db, CommitTimeout: s.o.BusyTimeout + 10*time.Second,
		Refused: refused, Dead: func(error) bool { return false }}
	s.calls = s.newCalls()
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	if err := s.Verify(ctx); err != nil {
		return err
	}
	for stmt, query := range map[**sql.Stmt]string{
		&s.insert:      "INSERT INTO onceline_marker (key, seen) VALUES (?, ?) ON CONFLICT DO NOTHING",
		&s.insertTimed: "INSERT INTO onceline_marker_timed (key) SELECT ?1 WHERE ?1 >= (SELECT key FROM onceline_floor) ON CONFLICT DO NOTHING",
		&s.add:         addText,
		&s.move:        "UPDATE onceline_position SET last = ? WHERE consumer = ? AND topic = ? AND epoch = ? AND partition = ? AND last = ?",
	} {
		var err error
		if *stmt, err = s.db.PrepareContext(ctx, query); err != nil {
			return errors.Join(fmt.Errorf("dedup/sqlite: %w", err), s.Close())
		}
	}
	return nil
}

// DB returns the database. Who writes to it outside of an effect waits for the
// effects that are running, and they for him; in an effect, only its transaction is
// to be used.
func (s *Store) DB() *sql.DB { return s.db }

// Close closes the database if Open opened it.
func (s *Store) Close() error {
	var errs []error
	for _, stmt := range append(s.relay.all(), s.insert, s.insertTimed, s.move, s.add) {
		if stmt != nil {
			errs = append(errs, stmt.Close())
		}
	}
	if s.owned {
		errs = append(errs, s.db.Close())
	}
	return errors.Join(errs...)
}

// Migrate makes the tables that are missing. Open and New call it.
func (s *Store) Migrate(ctx context.Context) error {
	err := s.Transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, schema+outboxSchema+checkpointSchema+relaySchema)
		return err
	})
	if err != nil {
		return fmt.Errorf("dedup/sqlite: migrate: %w", err)
	}
	return nil
}

// Transact implements [dedup.Driver].
func (s *Store) Transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	return s.engine.Transact(ctx, f)
}

// Savepoint implements [dedup.Driver].
func (s *Store) Savepoint(ctx context.Context, tx *sql.Tx, again bool) error {
	query := "SAVEPOINT onceline"
	if again {
		query = "RELEASE onceline; SAVEPOINT onceline"
	}
	_, err := tx.ExecContext(ctx, query)
	return err
}

// Restore implements [dedup.Driver].
func (s *Store) Restore(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "ROLLBACK TO onceline")
	return err
}

// Fault implements [dedup.Driver].
func (s *Store) Fault(err error) dedup.Fault {
	switch code(err) {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return dedup.Busy
	case lib.SQLITE_IOERR, lib.SQLITE_FULL, lib.SQLITE_CORRUPT, lib.SQLITE_CANTOPEN, lib.SQLITE_NOTADB, lib.SQLITE_READONLY, lib.SQLITE_NOMEM:
		return dedup.Lost
	}
	return dedup.Permanent
}

// refused reports whether a commit that failed surely committed nothing.
func refused(err error) bool {
	switch code(err) {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_CONSTRAINT:
		return true
	}
	// The transaction had ended before, by the effect or by SQLite itself.
	return errors.Is(err, sql.ErrTxDone) || code(err) == lib.SQLITE_ERROR
}

// code returns the primary result code in err, or 0.
func code(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// Window is how long markers are kept.
func (s *Store) Window() time.Duration { return s.o.Window }
