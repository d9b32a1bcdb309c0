// Package servertest starts the servers that the tests of stores need, for a test alone,
// and says what a test does where there is none: it doesn't run and says so, or fails
// where ONCELINE_REQUIRE names the server.
package servertest

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/onceline/onceline/localstack"
)

// Server is what a test starts, and closes at its end.
type Server interface {
	Close(ctx context.Context) error
}

// Postgres starts a PostgreSQL.
func Postgres(t testing.TB) *localstack.Database {
	t.Helper()
	return Start(t, "postgres", "a PostgreSQL server", func(ctx context.Context) (*localstack.Database, error) { return localstack.StartPostgres(ctx) })
}

// MariaDB starts a MariaDB.
func MariaDB(t testing.TB) *localstack.Database {
	t.Helper()
	return Start(t, "mariadb", "a MariaDB server", func(ctx context.Context) (*localstack.Database, error) { return localstack.StartMariaDB(ctx) })
}

// Redis starts a Redis or Valkey.
func Redis(t testing.TB) *localstack.Database {
	t.Helper()
	return Start(t, "redis", "a Redis or Valkey server", func(ctx context.Context) (*localstack.Database, error) { return localstack.StartRedis(ctx) })
}

// RedisCluster starts three nodes of Redis or Valkey that share the keys.
func RedisCluster(t testing.TB) *localstack.RedisCluster {
	t.Helper()
	return Start(t, "redis", "Redis 7 or Valkey", func(ctx context.Context) (*localstack.RedisCluster, error) {
		return localstack.StartRedisCluster(ctx, 3)
	})
}

// Start starts a server, of the name by which ONCELINE_REQUIRE demands it. Real servers
// run only where that or ONCELINE_LOCAL asks for them.
func Start[S Server](t testing.TB, name, what string, start func(ctx context.Context) (S, error)) S {
	t.Helper()
	required := slices.Contains(strings.Split(os.Getenv("ONCELINE_REQUIRE"), ","), name)
	if os.Getenv("ONCELINE_LOCAL") == "" && !required {
		t.Skipf("needs %s: set ONCELINE_LOCAL=1 or ONCELINE_REQUIRE=%s", what, name)
	}
	s, err := start(context.Background())
	if errors.Is(err, localstack.ErrNotInstalled) && !required {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// NATS starts a NATS, which needs nothing installed.
func NATS(t testing.TB) *localstack.NATS {
	t.Helper()
	e, err := localstack.StartNATS(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}
