package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/onceline/onceline/adapters/nats"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/servertest"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/postgres"
	"github.com/onceline/onceline/localstack"
)

// Where a process that is a relay finds its outbox.
const (
	relayURL    = "ONCELINE_POSTGRES_RELAY_URL"
	relaySchema = "ONCELINE_POSTGRES_RELAY_SCHEMA"
)

// listener hears of an outbox in config's database.
func listener(config *pgx.ConnConfig, schema string) func(context.Context, func(), func(error)) {
	return postgres.Listener(func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, config.Copy()) }, schema, "orders")
}

// relay is what such a process does until it is killed.
func relay() error {
	ctx := context.Background()
	config, err := pgx.ParseConfig(os.Getenv(relayURL))
	if err != nil {
		return err
	}
	p := &pool{config, make(chan *pgx.Conn, 4)}
	for range cap(p.free) {
		p.free <- nil
	}
	schema := os.Getenv(relaySchema)
	s, err := postgres.New(p, postgres.Options{Schema: schema})
	if err != nil {
		return err
	}
	return storetest.RunRelay(ctx, s, dedup.RelayOptions{Listen: listener(config, schema)})
}

// TestRelayKilled: relays over embedded NATS are killed in the middle, and the
// connections to the database are cut.
func TestRelayKilled(t *testing.T) {
	t.Parallel()
	db := start(t)
	p := connect(t, db, 10)
	s, schema := open(t, p, postgres.Options{})
	e := servertest.NATS(t)
	storetest.RelayKills[pgx.Tx]{
		Driver: s, Broker: e.URL(), Kills: 8, Messages: 1000,
		Fault: func() {
			e.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 5})
			if db.Disconnect() == 0 {
				t.Error("no connection was cut")
			}
		},
		Env: []string{relayURL + "=" + db.URL(), relaySchema + "=" + schema},
	}.Run(t)
}

// memory is a publisher that keeps the IDs it gets.
type memory struct {
	ids   []string
	block func()
}

func (m *memory) Publish(_ context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	if m.block != nil {
		m.block()
	}
	receipts := make([]broker.Receipt, len(msgs))
	for i := range msgs {
		m.ids = append(m.ids, msgs[i].ID)
		receipts[i].Verdict = broker.Stored
	}
	return receipts, nil
}

func (m *memory) Limits() broker.Limits       { return broker.Limits{Window: time.Minute} }
func (m *memory) As(any) bool                 { return false }
func (m *memory) Close(context.Context) error { return nil }

// TestOutboxInterleaved: transactions whose numbers or beginnings are in another order
// than their commits, and two relays at once. Relays as they are often written lose a
// message there or turn two; this one doesn't (eugene-khyst/postgresql-event-sourcing#16).
func TestOutboxInterleaved(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 8)
	s, schema := open(t, p, postgres.Options{})
	ctx := t.Context()
	out := dedup.NewOutbox(s, "orders", dedup.OutboxOptions{})
	begin := func() pgx.Tx {
		tx, err := p.BeginTx(ctx, pgx.TxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	add := func(tx pgx.Tx, id, key string) {
		if err := out.AddTx(ctx, tx, broker.Message{ID: id, Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(tx pgx.Tx) {
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	to := &memory{}
	drain := func() {
		if _, err := dedup.NewRelay(s, "orders", to, dedup.RelayOptions{}).Drain(ctx); err != nil {
			t.Fatal(err)
		}
	}
	// query returns the IDs that a query on the outbox finds.
	query := func(text string, args ...any) string {
		var ids string
		text = strings.ReplaceAll(text, "{outbox}", fmt.Sprintf("%q.onceline_outbox", schema))
		if err := p.QueryRow(ctx, "SELECT coalesce(string_agg(convert_from(id, 'UTF8'), ' '), '') FROM ("+text+") q", args...).Scan(&ids); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	const unseen, byTransaction = "SELECT id FROM {outbox} WHERE seq > $1 ORDER BY seq", "SELECT id FROM {outbox} ORDER BY xmin::text::bigint, seq"

	// A lower number is committed after a higher one.
	early, late := begin(), begin()
	add(early, "early", "a")
	add(late, "late", "b")
	commit(late)
	if got := query(unseen, 0); got != "late" {
		t.Errorf("found %q", got)
	}
	var last int64
	if err := p.QueryRow(ctx, fmt.Sprintf("SELECT max(seq) FROM %q.onceline_outbox", schema)).Scan(&last); err != nil {
		t.Fatal(err)
	}
	drain()
	commit(early)
	if got := query(unseen, last); got != "" {
		t.Errorf("seq > last_seen found %q: the anomaly isn't there", got)
	}
	drain()
	if got := strings.Join(to.ids, " "); got != "late early" {
		t.Errorf("sent %s", got)
	}

	// The transaction that begins first writes last, to the same key.
	to.ids = nil
	first, second := begin(), begin()
	if _, err := first.Exec(ctx, "SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	add(second, "1", "k")
	commit(second)
	add(first, "2", "k")
	commit(first)
	if got := query(byTransaction); got != "2 1" {
		t.Errorf("by transaction %q: the anomaly isn't there", got)
	}
	drain()
	if got := strings.Join(to.ids, " "); got != "1 2" {
		t.Errorf("sent %s", got)
	}

	// Two relays at once, one of which is slow.
	to.ids = nil
	both := begin()
	add(both, "1", "k")
	add(both, "2", "k")
	commit(both)
	const skip = "SELECT id FROM {outbox} ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED"
	slow := begin()
	var id []byte
	if err := slow.QueryRow(ctx, strings.ReplaceAll(skip, "{outbox}", fmt.Sprintf("%q.onceline_outbox", schema))).Scan(&id); err != nil {
		t.Fatal(err)
	}
	if got := query(skip); string(id) != "1" || got != "2" {
		t.Errorf("SKIP LOCKED found %q beside %q: the anomaly isn't there", got, id)
	}
	if err := slow.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	entered, leave := make(chan struct{}), make(chan struct{})
	slowly := &memory{}
	slowly.block = func() {
		slowly.block = nil
		close(entered)
		<-leave
	}
	ended := make(chan error)
	go func() {
		_, err := dedup.NewRelay(s, "orders", slowly, dedup.RelayOptions{}).Drain(ctx)
		ended <- err
	}()
	<-entered
	if drain(); len(to.ids) != 0 {
		t.Errorf("another relay sent %v", to.ids)
	}
	close(leave)
	if err := <-ended; err != nil || strings.Join(slowly.ids, " ") != "1 2" {
		t.Errorf("sent %v, %v", slowly.ids, err)
	}
}

// TestListener: NOTIFY wakes a relay of another process.
func TestListener(t *testing.T) {
	t.Parallel()
	db := start(t)
	p := connect(t, db, 6)
	s, schema := open(t, p, postgres.Options{})
	to := &memory{}
	failed := make(chan error, 100)
	r := dedup.NewRelay(s, "orders", to, dedup.RelayOptions{Workers: 1, Poll: time.Hour, Listen: listener(p.config, schema), ErrorHook: func(err error) { failed <- err }})
	run, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error)
	go func() { ended <- r.Run(run) }()
	var cut atomic.Bool
	out := dedup.NewOutbox(s, "orders", dedup.OutboxOptions{Others: true, ErrorHook: func(err error) {
		if !cut.Load() || !errors.Is(err, dedup.ErrLost) && !errors.Is(err, dedup.ErrCommitUnknown) {
			t.Error(err)
		}
	}})
	sent := func(n uint64) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); r.Stats().Sent() < n; <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%+v", r.Stats())
			}
		}
	}
	write := func() {
		t.Helper()
		if err := out.InTx(t.Context(), func(tx pgx.Tx) error { return out.AddTx(t.Context(), tx, broker.Message{}) }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		write()
		sent(uint64(i + 1))
	}
	// The listener's connection is lost; what was written meanwhile is found when
	// there is another one.
	cut.Store(true)
	db.Disconnect()
	for lost := false; !lost; {
		lost = strings.Contains((<-failed).Error(), "listen")
	}
	tx, err := p.takeAlive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.give(tx)
	for {
		err := out.InTx(t.Context(), func(tx pgx.Tx) error { return out.AddTx(t.Context(), tx, broker.Message{}) })
		if err == nil {
			break
		}
		if !errors.Is(err, dedup.ErrLost) {
			t.Log(err)
		}
	}
	sent(11)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := out.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestVerifyOutbox: what would lose messages or turn their order is refused.
func TestVerifyOutbox(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 2)
	for _, c := range []struct{ change, says string }{
		{"", ""},
		{"ALTER TABLE %[1]q.onceline_outbox ALTER COLUMN seq SET CACHE 50", "50 numbers at a time"},
		{"ALTER TABLE %[1]q.onceline_outbox SET UNLOGGED", "unlogged"},
		{"DROP TABLE %[1]q.onceline_outbox", "onceline_outbox is missing; call Migrate"},
		{"ALTER TABLE %[1]q.onceline_outbox_lane DROP CONSTRAINT onceline_outbox_lane_pkey", "primary key"},
	} {
		s, schema := open(t, p, postgres.Options{})
		if c.change != "" {
			p.exec(t, fmt.Sprintf(c.change, schema))
		}
		err := s.VerifyOutbox(t.Context())
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, dedup.ErrVerify) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.change, err)
		}
		if c.says == "" {
			continue
		}
		if err := dedup.NewRelay(s, "orders", &memory{}, dedup.RelayOptions{}).Run(t.Context()); !errors.Is(err, dedup.ErrVerify) {
			t.Errorf("%s: the relay runs: %v", c.change, err)
		}
	}
}
