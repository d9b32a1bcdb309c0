package crashes

import (
	"context"
	"slices"

	"github.com/onceline/onceline/broker"
)

// The servers that stores need, as ONCELINE_REQUIRE names them too.
const (
	Postgres = "postgres"
	MariaDB  = "mariadb"
	Redis    = "redis"
)

// kind is what a store promises, by which its cells are judged.
type kind uint8

const (
	inboxKind kind = iota
	positionKind
	leaseKind
	callKind
)

// Store is a store that cells ask about.
type Store struct {
	Name string
	// What says how it goes about it.
	What string
	// Server is the database that it needs, "" for none.
	Server string
	// Wrong is true of a store that is written in a way which doesn't have effects once.
	Wrong bool

	kind kind
	// helped is true where the other side of an effect helps: a destination that compares
	// fencing numbers, a provider that knows calls by their keys.
	helped bool
	on     func(ctx context.Context, address string, w *wires) (*database, error) // nil without SQL
	guard  func(ctx context.Context, w *worker, d *database) (*guard, error)
}

// guard is a store in a consumer.
type guard struct {
	handle   broker.Handler // or
	position position
	cut      func()
	close    func() error
}

// open opens the store in a consumer.
func (s *Store) open(ctx context.Context, w *worker) (*guard, error) {
	if s.on == nil {
		return s.guard(ctx, w, nil)
	}
	lines := newWires(w, "commit")
	d, err := s.on(ctx, w.spec.Address, lines)
	if err != nil {
		return nil, err
	}
	g, err := s.guard(ctx, w, d)
	if err != nil {
		return nil, err
	}
	g.cut, g.close = lines.cut, d.close
	return g, nil
}

// Stores returns all, the wrong ones last.
func Stores() []Store {
	stores := []Store{
		{Name: "sqlite inbox", What: "marker and effect in one transaction", on: openSQLite, guard: inbox},
		{Name: "sqlite call", What: "a record before and after a call of somebody who knows no keys", kind: callKind, on: openSQLite, guard: calls(false)},
		{Name: "postgres inbox", What: "marker and effect in one transaction, by pgx", Server: Postgres, on: openPostgres, guard: inboxPgx},
		{Name: "postgres position", What: "the last offset and the effects of a batch in one transaction", Server: Postgres, kind: positionKind, on: openPostgres, guard: positions},
		{Name: "postgres call", What: "a record before and after a call of somebody who knows no keys", Server: Postgres, kind: callKind, on: openPostgres, guard: calls(false)},
		{Name: "postgres call.keyed", What: "the same, of somebody who knows calls by their keys", Server: Postgres, kind: callKind, helped: true, on: openPostgres, guard: calls(true)},
		{Name: "mariadb inbox", What: "marker and effect in one transaction", Server: MariaDB, on: openMariaDB, guard: inbox},
		{Name: "redis lease", What: "a reservation before the effect and a record after it", Server: Redis, kind: leaseKind, guard: lease},
		{Name: "redis lease.fenced", What: "the same, and the destination refuses a lower fencing number", Server: Redis, kind: leaseKind, helped: true, guard: lease},
	}
	return append(stores, wrongStores()...)
}

func storeNamed(name string) (*Store, bool) {
	stores := Stores()
	i := slices.IndexFunc(stores, func(s Store) bool { return s.Name == name })
	if i < 0 {
		return nil, false
	}
	return &stores[i], true
}

// Servers returns the names of those that stores need.
func Servers() []string { return []string{Postgres, MariaDB, Redis} }
