package targets

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/dedup"
)

// Stores returns the stores that guard effects in the suite's probes, as
// conformance.RunIfWorker takes them. Those that need a server are not to be had on
// embedded targets.
func Stores() []conformance.Store {
	stores := append(embeddedStores(), leaseStores(nil)...)
	return slices.Concat(stores, postgresStores(nil), mysqlStores(nil))
}

// embeddedStores are those that need nothing but a folder.
func embeddedStores() []conformance.Store {
	return append(sqlStores("sqlite", makeFolder, openSQLite), checkpointStores()...)
}

// sqlStores are the stores in one SQL database.
func sqlStores(name string, make func(context.Context) (string, func() error, error), open func(context.Context, string) (*database, error)) []conformance.Store {
	var stores []conformance.Store
	for _, s := range []struct {
		kind string
		over func(*database) (sqlKind, error)
	}{
		{conformance.Inbox, newInbox},
		{conformance.Position, newPosition},
		{conformance.Call, newCalls(0)},
		{conformance.CallKeyed, newCalls(time.Hour)},
	} {
		stores = append(stores, conformance.Store{Kind: s.kind, Name: name, Make: make,
			Open: func(ctx context.Context, address string) (conformance.Guard, error) {
				db, err := open(ctx, address)
				if err != nil {
					return nil, err
				}
				// Connected before there is anything to be late for.
				over, err := s.over(db)
				if err = errors.Join(err, db.db.PingContext(ctx)); err != nil {
					return nil, errors.Join(err, db.close())
				}
				return &sqlGuard{db, over}, nil
			}})
	}
	return stores
}

// database is an SQL database with a store of package dedup in it, and a table in which
// effects take place.
type database struct {
	dedup.PositionDriver[*sql.Tx]
	calls dedup.CallDriver
	db    *sql.DB
	// consumer is the name under which a store keeps what it keeps.
	consumer string
	// insert is the effect of the message $1, call that of a call of $1 with the key $2,
	// which a key that is there already doesn't have; count says how often $1's took
	// place.
	insert, call, count string
	// lose is set to lose the answer to the next commit that takes place, and cleared
	// when that is lost.
	lose  *atomic.Bool
	close func() error
}

// texts are the statements, in a schema or in none.
func (d *database) texts(schema string) (create string) {
	table := schema + "onceline_effect"
	d.insert = "INSERT INTO " + table + " (id) VALUES ($1)"
	d.call = "INSERT INTO " + table + " (id, key) VALUES ($1, $2) ON CONFLICT DO NOTHING"
	d.count = "SELECT count(*) FROM " + table + " WHERE id = $1"
	return "CREATE TABLE IF NOT EXISTS " + table + " (id TEXT NOT NULL, key TEXT UNIQUE)"
}

// sqlKind is what differs between the kinds of store in an SQL database.
type sqlKind interface {
	apply(ctx context.Context, m message, step func(conformance.Step)) error
	losing() *atomic.Bool
}

// message is what a store is asked about.
type message struct {
	broker.Message
	at broker.Position
}

// sqlGuard is a kind of store in an SQL database.
type sqlGuard struct {
	*database
	kind sqlKind
}

// Apply implements [conformance.Guard].
func (g *sqlGuard) Apply(ctx context.Context, m broker.Message, at broker.Position, step func(conformance.Step)) error {
	return g.kind.apply(ctx, message{m, at}, step)
}

// LoseAnswer implements [conformance.Guard].
func (g *sqlGuard) LoseAnswer() func() bool { return arm(g.kind.losing()) }

// arm sets lose and returns whether somebody has cleared it.
func arm(lose *atomic.Bool) func() bool {
	lose.Store(true)
	return func() bool { return !lose.Load() }
}

// Effects implements [conformance.Guard].
func (g *sqlGuard) Effects(ctx context.Context, id string) (n int, err error) {
	return n, g.db.QueryRowContext(ctx, g.count, id).Scan(&n)
}

// Close implements [conformance.Guard].
func (g *sqlGuard) Close() error { return g.close() }

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
