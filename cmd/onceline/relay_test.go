package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	driversql "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/mysql"
	"github.com/onceline/onceline/dedup/postgres"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/localstack"
)

// watched is an output that tells when a text has come.
type watched struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	more chan struct{}
}

func newWatched() *watched { return &watched{more: make(chan struct{}, 1)} }

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
	return w.buf.Write(b)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// waitFor waits until text has been written.
func (w *watched) waitFor(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !strings.Contains(w.String(), text) {
		select {
		case <-w.more:
		case <-ctx.Done():
			t.Fatalf("%q doesn't come: %s", text, w)
		}
	}
}

func TestRelay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	relays[*sql.Tx](t, store, path)
}

func TestRelayPostgres(t *testing.T) {
	t.Parallel()
	if !slices.Contains(strings.Split(os.Getenv("ONCELINE_REQUIRE"), ","), "postgres") {
		t.Skip("needs a PostgreSQL server: set ONCELINE_REQUIRE=postgres")
	}
	db, err := localstack.StartPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	pool, err := pgxpool.New(t.Context(), db.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.Options{Schema: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := onceline(t.Context(), "relay", "--from", db.URL(), "--schema", "shop", "--to", startNATS(t), "--topic", "orders"); code != report.ExitUsage || !strings.Contains(stderr, "call Migrate") {
		t.Errorf("without tables: exit %d: %s", code, stderr)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	relays[pgx.Tx](t, store, db.URL(), "--schema", "shop")
}

func TestRelayMariaDB(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("ONCELINE_REQUIRE"), ","), "mariadb") {
		t.Skip("needs a MariaDB server: set ONCELINE_REQUIRE=mariadb")
	}
	server, err := localstack.StartMariaDB(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if _, stderr, code := onceline(t.Context(), "relay", "--from", server.URL(), "--to", startNATS(t), "--topic", "orders"); code != report.ExitUsage || !strings.Contains(stderr, "call Migrate") {
		t.Errorf("without tables: exit %d: %s", code, stderr)
	}
	config, err := mysqlConfig(server.URL() + "?timeout=9s")
	if err != nil || config.Timeout != 9*time.Second || config.ReadTimeout == 0 {
		t.Fatalf("%+v, %v", config, err)
	}
	connector, err := driversql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	store, err := mysql.New(t.Context(), db, mysql.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	relays[*sql.Tx](t, store, server.URL())

	// What is left there, by the same address: the environment has one for both.
	out := dedup.NewOutbox(store, "orders", dedup.OutboxOptions{})
	defer out.Close(context.Background())
	if err := out.InTx(t.Context(), func(tx *sql.Tx) error {
		return out.AddTx(t.Context(), tx, broker.Message{ID: "c1"})
	}); err != nil {
		t.Fatal(err)
	}
	t.Setenv(outboxEnv, server.URL()+"?readTimeout=40s&interpolateParams=true&innodb_lock_wait_timeout=7")
	stdout, stderr, code := onceline(t.Context(), "audit", "--markers", server.URL())
	if code != 0 || !strings.Contains(stdout, "1 message in the outbox") || !strings.Contains(stdout, "0 markers without a time") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	exec := func(query string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	exec("UPDATE onceline_outbox SET state = 2, reason = 'too large'")
	if stdout, stderr, code := onceline(t.Context(), "audit", "--topic", "orders"); code != report.ExitDifference || !strings.Contains(stdout, "refused for good") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

// relays runs the command on an outbox that is empty.
func relays[T any](t *testing.T, store dedup.OutboxDriver[T], from string, more ...string) {
	url := startNATS(t)
	if _, stderr, code := onceline(t.Context(), "sub", "--url", url, "--subscription", "S/c", "--topic", "orders", "--ensure", "--wait", "50ms"); code != 0 {
		t.Fatal(stderr)
	}
	out := dedup.NewOutbox(store, "orders", dedup.OutboxOptions{Others: true})
	defer out.Close(context.Background())
	write := func(msgs ...broker.Message) {
		t.Helper()
		if err := out.InTx(t.Context(), func(tx T) error { return out.AddTx(t.Context(), tx, msgs...) }); err != nil {
			t.Fatal(err)
		}
	}
	args := append([]string{"relay", "--from", from, "--topic", "orders"}, more...)
	relay := append(slices.Clone(args), "--to", url)
	held := append([]string{"relay", "held"}, args[1:]...)

	// Once: all but what the broker never takes, which is parked.
	write(broker.Message{ID: "a1", Key: "a", Body: []byte("one")}, broker.Message{ID: "a2", Key: "a", Body: make([]byte, 2<<20)}, broker.Message{ID: "a3", Key: "a"}, broker.Message{ID: "b1"})
	stdout, stderr, code := onceline(t.Context(), append(relay, "--once")...)
	if code != report.ExitDifference || !strings.Contains(stdout, "sent 2 (2 stored, 0 duplicate") || !strings.Contains(stdout, "1 waiting (0 retried") || !strings.Contains(stdout, "1 parked") || !strings.Contains(stderr, "too large") {
		t.Fatalf("exit %d: %s%s", code, stdout, stderr)
	}
	stdout, stderr, code = onceline(t.Context(), held...)
	var seq int
	if _, err := fmt.Sscanf(stdout, "%d\tparked\t\"a2\"\t\"a\"\t1", &seq); err != nil || code != 0 || strings.Count(stdout, "\n") != 1 {
		t.Fatalf("exit %d, %v: %s%s", code, err, stdout, stderr)
	}
	if _, stderr, code = onceline(t.Context(), append(held, "--release", fmt.Sprint(seq+100))...); code != report.ExitDifference || stderr == "" {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if stdout, stderr, code = onceline(t.Context(), append(held, "--drop", fmt.Sprint(seq))...); code != 0 || stdout != "dropped 1\n" {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	if stdout, stderr, code = onceline(t.Context(), append(relay, "--once")...); code != 0 || !strings.Contains(stdout, "sent 1 ") || stderr != "" {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}

	// As a process that runs until it is interrupted.
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	numbers, errs := newWatched(), newWatched()
	ended := make(chan int)
	go func() {
		ended <- run(ctx, append(relay, "--every", "10ms", "--poll", "20ms"), numbers, errs)
	}()
	write(broker.Message{ID: "a4", Key: "a"}, broker.Message{ID: "a5", Key: "a"})
	numbers.waitFor(t, "sent 2 (2 stored")
	interrupt()
	if code := <-ended; code != 0 || errs.String() != "" || !strings.HasSuffix(numbers.String(), "0 waiting (0 retried, oldest 0s), 0 held, 0 parked\n") {
		t.Errorf("exit %d: %s%s", code, numbers, errs)
	}
	stdout, _, _ = onceline(t.Context(), "sub", "--url", url, "--subscription", "S/c", "--count", "5", "--json")
	for _, id := range []string{"a1", "a3", "a4", "a5", "b1"} {
		if !strings.Contains(stdout, fmt.Sprintf(`"id":"%s"`, id)) {
			t.Errorf("%s hasn't come: %s", id, stdout)
		}
	}
}

// failing refuses every write.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no reader") }

func TestRelayUsage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	url := startNATS(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--from", path, "--to", url}, report.ExitUsage, "--topic"},
		{[]string{"--topic", "orders", "--to", url}, report.ExitUsage, "--from"},
		{[]string{"--topic", "orders", "--from", path}, report.ExitUsage, "--to"},
		{[]string{"--topic", "orders", "--from", path, "--to", url}, report.ExitUnknown, "no such file"},
		{[]string{"--topic", "orders", "--from", path, "--to", url, "--schema", "x"}, report.ExitUsage, "PostgreSQL"},
		{[]string{"--topic", "orders", "--from", "oracle://u:secret@h/d", "--to", url}, report.ExitUsage, "neither"},
		{[]string{"--topic", "orders", "--from", "mysql://u:se%cret@h/d", "--to", url}, report.ExitUsage, "not the address"},
		{[]string{"--topic", "orders", "--from", "mysql://u:secret@h", "--to", url}, report.ExitUsage, "not the address"},
		{[]string{"--topic", "orders", "--from", "mariadb://u:secret@h/d?readTimeout=secret", "--to", url}, report.ExitUsage, "not the address"},
		{[]string{"--topic", "orders", "--from", "mysql://u:secret@127.0.0.1:1/d", "--to", url}, report.ExitUnknown, "refused"},
		{[]string{"--topic", "orders", "--from", "postgres://u:se%cret@h/d", "--to", url}, report.ExitUsage, "not the address"},
		{[]string{"--topic", "orders", "--from", "postgres://u:secret@127.0.0.1:1/d?connect_timeout=1", "--to", url}, report.ExitUnknown, "refused"},
		{[]string{"--topic", "orders", "--from", path, "--to", url, "--workers", "0"}, report.ExitUsage, "--workers"},
		{[]string{"--topic", "orders", "--from", path, "--to", url, "--poll", "0"}, report.ExitUsage, "--poll"},
		{[]string{"--topic", "orders", "--from", path, "--to", url, "--transactor", "x", "--workers", "3"}, report.ExitUsage, "without --transactor"},
		{[]string{"--topic", "no such topic", "--from", path, "--to", url, "--migrate"}, report.ExitUsage, "no such topic"},
		{[]string{"--topic", "orders", "--from", path, "--to", "nats://127.0.0.1:1", "--migrate"}, report.ExitUnknown, "127.0.0.1:1"},
	} {
		stdout, stderr, code := onceline(t.Context(), append([]string{"relay"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.says) || stdout != "" || strings.Contains(stderr, "se%cret") || strings.Contains(stderr, "secret") {
			t.Errorf("%v: exit %d: %s%s", c.args, code, stdout, stderr)
		}
	}
	if _, _, code := onceline(t.Context(), "sub", "--url", url, "--subscription", "S/c", "--topic", "orders", "--ensure", "--wait", "50ms"); code != 0 {
		t.Fatal(code)
	}
	if _, stderr, code := onceline(t.Context(), "relay", "--topic", "orders", "--from", path, "--to", url, "--once", "--transactor", "x"); code != report.ExitUsage || !strings.Contains(stderr, "can't be prepared") {
		t.Errorf("no transactions: exit %d: %s", code, stderr)
	}
	if code := run(t.Context(), []string{"relay", "--topic", "orders", "--from", path, "--to", url, "--once"}, failing{}, io.Discard); code != report.ExitUnknown {
		t.Errorf("nobody reads: exit %d", code)
	}
}

// TestRelayTransactor: the messages are in Kafka once, whichever relay sends which.
func TestRelayTransactor(t *testing.T) {
	k, err := localstack.StartKafka(t.Context(), localstack.KafkaTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	url := "kafka://" + k.Address()
	path := filepath.Join(t.TempDir(), "shop.db")
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	out := dedup.NewOutbox(store, "orders", dedup.OutboxOptions{})
	for i := range 2 {
		if err := out.InTx(t.Context(), func(tx *sql.Tx) error {
			return out.AddTx(t.Context(), tx, broker.Message{ID: fmt.Sprint("order-", i), Key: "k"})
		}); err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := onceline(t.Context(), "relay", "--from", path, "--to", url, "--topic", "orders", "--once", "--transactor", "shop")
		if code != 0 || !strings.HasPrefix(stdout, "sent 1 (1 stored") || !strings.Contains(stdout, "backlog: 0 waiting") {
			t.Errorf("exit %d: %s%s", code, stdout, stderr)
		}
	}
	stdout, stderr, code := onceline(t.Context(), "sub", "--url", url, "--subscription", "orders/look", "--json", "--wait", "2s")
	if code != 0 || strings.Count(stdout, "\n") != 2 || !strings.Contains(stdout, "order-0") || !strings.Contains(stdout, "order-1") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}
