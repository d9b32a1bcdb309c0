package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/internal/storetest"
	"github.com/onceline/onceline/dedup/mysql"
)

func TestRelayRecords(t *testing.T) {
	server := start(t)
	first := connect(t, server, "")
	storetest.RunRelayRecords(t, func(t *testing.T) storetest.RelayRecordsDriver[*sql.Tx] {
		return open(t, newDatabase(t, server, first), mysql.Options{})
	})
	t.Run("Killed", func(t *testing.T) { relayKilled(t, open(t, newDatabase(t, server, first), mysql.Options{})) })
	db := newDatabase(t, server, first)
	s := open(t, db, mysql.Options{})
	if _, _, err := s.TakeRelay(t.Context(), strings.Repeat("t", 256), 0); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("a topic that would be cut: %v", err)
	}
	exec(t, db, "DROP TABLE onceline_outbox_relay")
	if err := s.VerifyRelays(t.Context()); !errors.Is(err, dedup.ErrVerify) || !strings.Contains(err.Error(), "onceline_outbox_relay") {
		t.Errorf("without the table: %v", err)
	}
	if err := s.VerifyOutbox(t.Context()); err != nil {
		t.Errorf("without what only transactional relays need: %v", err)
	}
}

// dying is a store whose relay ends, as by a kill, with its transaction committed at the
// broker and its rows still there.
type dying struct {
	*mysql.Store
	dead context.CancelFunc
}

func (d *dying) SettleRelay(ctx context.Context, topic string, term int64, fate dedup.OutboxFate) (bool, error) {
	d.dead()
	return false, context.Canceled
}

// relayKilled: what a relay that was killed has committed isn't sent again by the next one,
// to a broker that doesn't know IDs.
func relayKilled(t *testing.T, s *mysql.Store) {
	b := memory.New(memory.WithoutDedup())
	defer b.Close()
	conn := b.Conn()
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := conn.Ensure(t.Context(), broker.Entity{Topic: "orders", Subscription: "orders/all"}); err != nil {
		t.Fatal(err)
	}
	out := dedup.NewOutbox(s, "orders", dedup.OutboxOptions{})
	const messages = 60
	if err := out.InTx(t.Context(), func(tx *sql.Tx) error {
		for i := range messages {
			if err := out.AddTx(t.Context(), tx, broker.Message{ID: fmt.Sprintf("%d-%03d", i%3, i), Key: fmt.Sprint(i % 3)}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	o := dedup.RelayOptions{Batch: 20}
	ctx, kill := context.WithCancel(t.Context())
	_, err := dedup.NewTransactionalRelay(&dying{s, kill}, "orders", conn, "relay", o).Drain(ctx)
	if ctx.Err() == nil {
		t.Fatalf("it ended before it had committed anything: %v", err)
	}
	if there, err := b.Stats("orders/all"); err != nil || there.Ready != 20 {
		t.Fatalf("%+v, %v", there, err)
	}
	if left, err := s.OutboxBacklog(t.Context(), "orders"); err != nil || left.Waiting != messages {
		t.Fatalf("%v, %v", left, err)
	}
	next := dedup.NewTransactionalRelay(s, "orders", conn, "relay", o)
	for {
		n, err := next.Drain(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
	}
	if err := next.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := s.OutboxBacklog(t.Context(), "orders"); err != nil || left != (dedup.OutboxBacklog{}) {
		t.Errorf("%v, %v", left, err)
	}
	rcv, err := conn.OpenReceiver(t.Context(), "orders/all")
	if err != nil {
		t.Fatal(err)
	}
	defer rcv.Close(context.WithoutCancel(t.Context()))
	seen, last := map[string]bool{}, map[string]string{}
	for len(seen) < messages {
		ds, err := rcv.Receive(t.Context(), messages)
		if err != nil {
			t.Fatal(err)
		}
		for i := range ds {
			if seen[ds[i].ID] || ds[i].ID <= last[ds[i].Key] {
				t.Fatalf("%s is there twice, or behind %s", ds[i].ID, last[ds[i].Key])
			}
			seen[ds[i].ID], last[ds[i].Key] = true, ds[i].ID
			if _, err := ds[i].Ack(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if there, err := b.Stats("orders/all"); err != nil || there.Ready != 0 {
		t.Errorf("%+v, %v: more than were written", there, err)
	}
}
