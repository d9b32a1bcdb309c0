package bridge_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/bridge"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
)

// box is an inbox and an outbox in one database.
type box struct {
	store *sqlite.Store
	out   *dedup.Outbox[*sql.Tx]
	pub   broker.Publisher
}

func openBox(t *testing.T, path string) *box {
	t.Helper()
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	must(t, err)
	b := &box{store: store, out: dedup.NewOutbox(store, "orders", dedup.OutboxOptions{})}
	b.pub = bridge.Through(dedup.New(store, "bridge", dedup.Options{}), b.out)
	return b
}

func (b *box) close(t *testing.T) {
	must(t, b.pub.Close(t.Context()))
	must(t, b.out.Close(t.Context()))
	must(t, b.store.Close())
}

// TestThrough: source, inbox and outbox, relay, far side; the source brings each message
// twice, and the far side knows no IDs.
func TestThrough(t *testing.T) {
	e := entity
	e.Lease = 200 * time.Millisecond
	r := newRig(t, e, memory.WithoutDedup())
	defer r.close()
	path := filepath.Join(t.TempDir(), "bridge.db")
	b := openBox(t, path)
	r.publish(200, "a", "b", "")
	r.pub = b.pub
	r.from.Inject(memory.Fault{Op: memory.Settle, Kind: memory.Cut, Times: 3})
	stats, err := r.drain(bridge.Options{Batch: 20, Together: true, Idle: 600 * time.Millisecond})
	must(t, err)
	if stats.Stored != 200 {
		t.Errorf("%v", stats)
	}
	b.close(t)
	b = openBox(t, path)
	defer b.close(t)

	// As after a reset of the source's position, with another bridge process: all again,
	// and some are copies on purpose.
	conn := r.from.Conn()
	must(t, conn.Ensure(t.Context(), broker.Entity{Topic: "again", Subscription: "again/bridge"}))
	again, err := conn.OpenPublisher(t.Context(), "again")
	must(t, err)
	_, err = again.Publish(t.Context(), broker.Message{ID: "001", Key: "b"}, broker.Message{ID: "002", Copy: "resubmit"}, broker.Message{ID: "100", Key: "b"})
	must(t, err)
	rcv, err := conn.OpenReceiver(t.Context(), "again/bridge")
	must(t, err)
	second := bridge.New(rcv, b.pub, bridge.Options{Idle: 100 * time.Millisecond, ErrorHook: r.hook})
	must(t, second.Run(t.Context()))
	if s := second.Stats(); s.Duplicate != 2 || s.Stored != 1 {
		t.Errorf("%v", s)
	}

	far, err := r.to.Conn().OpenPublisher(t.Context(), "orders")
	must(t, err)
	relay := dedup.NewRelay(b.store, "orders", far, dedup.RelayOptions{})
	n, err := relay.Drain(t.Context())
	must(t, err)
	ds := r.arrived()
	copies := 0
	var firsts []broker.Delivery
	for _, d := range ds {
		if d.Copy != "" {
			copies++
			continue
		}
		firsts = append(firsts, d)
	}
	if exact(t, firsts, 200); n != 201 || copies != 1 {
		t.Errorf("%d sent, %d copies", n, copies)
	}
}

// TestThroughReceipts: what the database says is said as a broker would.
func TestThroughReceipts(t *testing.T) {
	b := openBox(t, filepath.Join(t.TempDir(), "bridge.db"))
	receipts, err := b.pub.Publish(t.Context(), broker.Message{ID: "1"}, broker.Message{ID: "1"}, broker.Message{ID: "a\x00b"}, broker.Message{},
		broker.Message{ID: "2", Headers: broker.Headers{{Key: "onceline-id", Value: "x"}}}, broker.Message{ID: "3"})
	if !errors.Is(err, broker.ErrInvalid) {
		t.Error(err)
	}
	for i, want := range []broker.Verdict{broker.Stored, broker.Duplicate, broker.Refused, broker.Refused, broker.Refused, broker.Stored} {
		if r := receipts[i]; r.Verdict != want || (want == broker.Refused) != errors.Is(r.Err, broker.ErrInvalid) {
			t.Errorf("message %d: %v, %v", i, r.Verdict, r.Err)
		}
	}
	// A database that isn't fit for it costs no message.
	if _, err := b.store.DB().ExecContext(t.Context(), "ALTER TABLE onceline_outbox RENAME TO elsewhere"); err != nil {
		t.Fatal(err)
	}
	receipts, err = b.pub.Publish(t.Context(), broker.Message{ID: "4"})
	if receipts[0].Verdict.OK() || errors.Is(err, broker.ErrInvalid) || errors.Is(err, broker.ErrRefused) {
		t.Errorf("%v: %v", receipts[0].Verdict, err)
	}
	if _, err := b.store.DB().ExecContext(t.Context(), "ALTER TABLE elsewhere RENAME TO onceline_outbox"); err != nil {
		t.Fatal(err)
	}
	if receipts, err = b.pub.Publish(t.Context(), broker.Message{ID: "4"}); receipts[0].Verdict != broker.Stored || err != nil {
		t.Errorf("%v: %v", receipts[0].Verdict, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if receipts, err = b.pub.Publish(ctx, broker.Message{ID: "5"}); receipts[0].Verdict.OK() || err == nil {
		t.Errorf("%v: %v", receipts[0].Verdict, err)
	}
	b.close(t)
	if receipts, err = b.pub.Publish(t.Context(), broker.Message{ID: "6"}); receipts[0].Verdict != broker.Refused || !errors.Is(err, broker.ErrClosed) {
		t.Errorf("%v: %v", receipts[0].Verdict, err)
	}
}
