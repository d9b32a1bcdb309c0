package dedup_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/internal/bubbletest"
)

// received returns the IDs that a subscription has, in the order of its positions.
func received(t *testing.T, conn broker.Conn, subscription string, n int) []string {
	t.Helper()
	rcv, err := conn.OpenReceiver(t.Context(), subscription)
	if err != nil {
		t.Fatal(err)
	}
	defer rcv.Close(context.Background())
	var all []broker.Delivery
	for len(all) < n {
		ds, err := rcv.Receive(t.Context(), 500)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ds...)
	}
	slices.SortFunc(all, func(a, b broker.Delivery) int { return int(a.Position.Offset) - int(b.Position.Offset) })
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	return ids
}

// TestRelayFaults: two relays from SQLite to a broker that loses requests and answers,
// refuses, and cuts connections.
func TestRelayFaults(t *testing.T) {
	b := memory.New()
	defer b.Close()
	conn := b.Conn()
	defer conn.Close(context.Background())
	if err := conn.Ensure(t.Context(), broker.Entity{Topic: "orders", Subscription: "orders/all"}); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	out := dedup.NewOutbox(store, "orders", dedup.OutboxOptions{})
	const n = 200
	if err := out.InTx(t.Context(), func(tx *sql.Tx) error {
		for i := range n {
			if err := out.AddTx(t.Context(), tx, broker.Message{ID: fmt.Sprintf("%d-%03d", i%7, i), Key: fmt.Sprint(i % 7)}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, f := range []memory.Fault{
		{Op: memory.Publish, Kind: memory.LoseResponse, Times: 3}, {Op: memory.Publish, Kind: memory.Cut, Times: 2},
		{Op: memory.Publish, Kind: memory.LoseRequest, Times: 2}, {Op: memory.Publish, Kind: memory.Error, Err: broker.ErrBusy, Times: 3},
	} {
		if i := b.Inject(f); i.Err() != nil {
			t.Fatal(i.Err())
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	var running sync.WaitGroup
	for range 2 {
		to, err := conn.OpenPublisher(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		r := dedup.NewRelay(store, "orders", to, dedup.RelayOptions{Batch: 30, Poll: 5 * time.Millisecond, PublishTimeout: 40 * time.Millisecond,
			Backoff: broker.Backoff{Min: time.Millisecond, Max: 5 * time.Millisecond}, ErrorHook: func(error) {}})
		running.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	ids := received(t, conn, "orders/all", n)
	for {
		b, err := store.OutboxBacklog(t.Context(), "orders")
		if err != nil || ctx.Err() != nil {
			t.Fatal(b, err)
		}
		if b.Waiting == 0 {
			break
		}
		<-time.After(time.Millisecond)
	}
	stop()
	running.Wait()
	last := map[string]string{}
	for _, id := range ids {
		key, _, _ := strings.Cut(id, "-")
		if id <= last[key] {
			t.Errorf("%s after %s", id, last[key])
		}
		last[key] = id
	}
	if s, err := b.Stats("orders/all"); err != nil || s.Ready != n || len(ids) != n {
		t.Errorf("%d messages, %+v, %v", len(ids), s, err)
	}
}

// TestInboxAndOutbox: a handler's messages go out once although its input comes
// twice, at the same time (MassTransit/MassTransit#3791).
func TestInboxAndOutbox(t *testing.T) {
	b := memory.New()
	defer b.Close()
	conn := b.Conn()
	defer conn.Close(context.Background())
	if err := conn.Ensure(t.Context(), broker.Entity{Topic: "paid", Subscription: "paid/all"}); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	to, err := conn.OpenPublisher(t.Context(), "paid")
	if err != nil {
		t.Fatal(err)
	}
	relay := dedup.NewRelay(store, "paid", to, dedup.RelayOptions{})
	out := dedup.NewOutbox(store, "paid", dedup.OutboxOptions{Wake: relay.Wake})
	inbox := dedup.New[*sql.Tx](store, "billing", dedup.Options{})
	var copies sync.WaitGroup
	for range 2 {
		copies.Go(func() {
			for i := range 50 {
				outcome, err := inbox.Once(t.Context(), dedup.Key{ID: fmt.Sprint("order-", i)}, func(ctx context.Context, tx *sql.Tx) error {
					return out.AddTx(ctx, tx, broker.Message{}) // even with an ID made anew
				})
				if !outcome.OK() {
					t.Error(outcome, err)
				}
				out.Notify()
			}
		})
	}
	copies.Wait()
	if n, err := relay.Drain(t.Context()); n != 50 || err != nil {
		t.Errorf("%d sent, %v", n, err)
	}
	ids := received(t, conn, "paid/all", 50)
	if slices.Sort(ids); len(slices.Compact(ids)) != 50 {
		t.Errorf("%d messages", len(ids))
	}
}

// TestOutboxOneKey: a thousand messages of one key, written one after the other, keep
// their order although four workers relay them and each publish takes its time
// (MassTransit/MassTransit#3512).
func TestOutboxOneKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	bubbletest.Run(t, func(t *testing.T) {
		store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		random := rand.New(rand.NewPCG(3, 4))
		var mu sync.Mutex
		var ids []string
		to := &fakePublisher{time.Minute, func(_ context.Context, m broker.Message) broker.Receipt {
			mu.Lock()
			delay := time.Duration(random.IntN(20)) * time.Millisecond
			mu.Unlock()
			time.Sleep(delay)
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, m.ID)
			return broker.Receipt{Verdict: broker.Stored}
		}}
		relay := dedup.NewRelay(store, "orders", to, dedup.RelayOptions{Workers: 4})
		out := dedup.NewOutbox(store, "orders", dedup.OutboxOptions{Wake: relay.Wake})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- relay.Run(ctx) }()
		const n = 250
		for i := range n {
			if err := out.InTx(t.Context(), func(tx *sql.Tx) error {
				return out.AddTx(t.Context(), tx, broker.Message{ID: fmt.Sprintf("%04d", i), Key: "k"})
			}); err != nil {
				t.Fatal(err)
			}
		}
		for relay.Stats().Sent() < n {
			time.Sleep(time.Second)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(ids) != n || !slices.IsSorted(ids) {
			t.Errorf("%d messages, in order: %v", len(ids), slices.IsSorted(ids))
		}
	})
}

// TestInboxAndOutboxRedelivered: the input of a handler that writes fifty messages comes
// again, as after a lease that ended, while a relay has sent some of them and got no
// answer to others. Each goes out once, under its own ID (MassTransit/MassTransit#3791).
func TestInboxAndOutboxRedelivered(t *testing.T) {
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	out := dedup.NewOutbox(store, "paid", dedup.OutboxOptions{})
	inbox := dedup.New[*sql.Tx](store, "billing", dedup.Options{})
	input := func(want dedup.Outcome) {
		t.Helper()
		outcome, err := inbox.Once(t.Context(), dedup.Key{ID: "order"}, func(ctx context.Context, tx *sql.Tx) error {
			return out.AddTx(ctx, tx, make([]broker.Message, 50)...)
		})
		if outcome != want {
			t.Errorf("%v: %v; want %v", outcome, err, want)
		}
	}
	input(dedup.Applied)
	sent := map[string]int{}
	to := &fakePublisher{time.Minute, func(_ context.Context, m broker.Message) broker.Receipt {
		if sent[m.ID]++; sent[m.ID] > 1 {
			return broker.Receipt{Verdict: broker.Duplicate} // as the broker finds it by its ID
		}
		switch len(sent) {
		case 10, 30: // stored, and no answer
			return broker.Receipt{Verdict: broker.Unknown, Err: broker.ErrUnknownOutcome}
		case 25:
			input(dedup.Duplicate)
		}
		return broker.Receipt{Verdict: broker.Stored}
	}}
	relay := dedup.NewRelay(store, "paid", to, dedup.RelayOptions{Batch: 7, Backoff: broker.Backoff{Min: time.Microsecond, Max: time.Microsecond}, ErrorHook: func(error) {}})
	n := 0
	for deadline := time.Now().Add(20 * time.Second); n < 50 && time.Now().Before(deadline); {
		more, err := relay.Drain(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n += more
	}
	input(dedup.Duplicate)
	if st := relay.Stats(); n != 50 || len(sent) != 50 || st.Stored != 48 || st.Duplicate != 2 || st.Unknown != 2 {
		t.Errorf("%d sent, %d IDs, %+v", n, len(sent), st)
	}
	if b, err := store.OutboxBacklog(t.Context(), "paid"); err != nil || b != (dedup.OutboxBacklog{}) {
		t.Errorf("%v, %v", b, err)
	}
}
