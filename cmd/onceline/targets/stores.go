package targets

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
)

// Stores returns the stores that guard effects in the suite's probes, as
// conformance.RunIfWorker takes them.
func Stores() []conformance.Store { return append(embeddedStores(), leaseStores(nil)...) }

// embeddedStores are those that need nothing but a folder.
func embeddedStores() []conformance.Store {
	var stores []conformance.Store
	for _, s := range []struct {
		kind string
		open func(*losing) (guarded, error)
	}{
		{conformance.Inbox, newInbox},
		{conformance.Position, newPosition},
		{conformance.Call, newCalls(0)},
		{conformance.CallKeyed, newCalls(time.Hour)},
	} {
		stores = append(stores, conformance.Store{Kind: s.kind, Name: "sqlite", Make: makeFolder,
			Open: func(ctx context.Context, dir string) (conformance.Guard, error) { return openSQLite(ctx, dir, s.open) }})
	}
	return stores
}

func makeFolder(context.Context) (string, func() error, error) {
	dir, err := os.MkdirTemp("", "onceline-store-")
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// guarded is what differs between the stores in SQLite.
type guarded interface {
	apply(ctx context.Context, m message, step func(conformance.Step)) error
}

// sqliteGuard is a store in a file, with the table in which effects take place.
type sqliteGuard struct {
	*losing
	guarded
}

func openSQLite(ctx context.Context, dir string, open func(*losing) (guarded, error)) (conformance.Guard, error) {
	store, err := sqlite.Open(ctx, filepath.Join(dir, "effects.db"), sqlite.Options{})
	if err != nil {
		return nil, err
	}
	l := &losing{Store: store}
	// A key that is known already takes no effect, as with a provider that knows keys.
	if _, err = store.DB().ExecContext(ctx, "CREATE TABLE IF NOT EXISTS effect (id TEXT NOT NULL, key TEXT UNIQUE)"); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	g, err := open(l)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &sqliteGuard{l, g}, nil
}

// Effects implements [conformance.Guard].
func (g *sqliteGuard) Effects(ctx context.Context, id string) (n int, err error) {
	return n, g.DB().QueryRowContext(ctx, "SELECT count(*) FROM effect WHERE id = ?", id).Scan(&n)
}

// LoseAnswer implements [conformance.Guard].
func (g *sqliteGuard) LoseAnswer() { g.lose.Store(true) }

// losing is a store that can lose the answer to a commit that took place.
type losing struct {
	*sqlite.Store
	lose atomic.Bool
}

func (l *losing) Transact(ctx context.Context, f func(*sql.Tx) error) error {
	err := l.Store.Transact(ctx, f)
	if err == nil && l.lose.Swap(false) {
		return fmt.Errorf("%w: by the probe", dedup.ErrCommitUnknown)
	}
	return err
}

// insert is the effect, in the transaction that is to hold it.
func insert(ctx context.Context, tx *sql.Tx, id string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effect (id) VALUES (?)", id)
	return err
}

// answer says what a consumer does about an outcome.
func answer(outcome dedup.Outcome, err error) error {
	switch {
	case outcome.OK():
		return nil
	case errors.Is(err, dedup.ErrUnresolved):
		return fmt.Errorf("%w: %w", conformance.ErrParked, err)
	case outcome == dedup.InFlight || outcome == dedup.Unknown:
		return fmt.Errorf("%w: %w", conformance.ErrAgain, err)
	}
	return fmt.Errorf("%s: %w", outcome, err)
}
