package dedup_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/internal/bubbletest"
)

// stepped is a store whose writes of a transactional relay do what the test says.
type stepped struct {
	*sqlite.Store
	prepare, settle func(do func() (bool, error)) (bool, error)
}

func (s *stepped) PrepareRelay(ctx context.Context, topic string, term int64, token []byte, seqs []int64) (bool, error) {
	do := func() (bool, error) { return s.Store.PrepareRelay(ctx, topic, term, token, seqs) }
	if s.prepare != nil {
		return s.prepare(do)
	}
	return do()
}

func (s *stepped) SettleRelay(ctx context.Context, topic string, term int64, fate dedup.OutboxFate) (bool, error) {
	do := func() (bool, error) { return s.Store.SettleRelay(ctx, topic, term, fate) }
	if s.settle != nil {
		return s.settle(do)
	}
	return do()
}

// txRig is an outbox with messages, and a broker without a memory of IDs.
type txRig struct {
	t     *testing.T
	b     *memory.Broker
	conn  broker.Conn
	store *stepped
	said  []error
	hit   func() int // how often what is to fail has
}

const txMessages = 90 // of three keys

func newTxRig(t *testing.T, path string) *txRig {
	r := &txRig{t: t, b: memory.New(memory.WithoutDedup())}
	r.conn = r.b.Conn()
	r.must(r.conn.Ensure(t.Context(), broker.Entity{Topic: "orders", Subscription: "orders/all", MaxBody: 100}))
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	r.must(err)
	r.store = &stepped{Store: s}
	r.write(0, txMessages, "")
	return r
}

func (r *txRig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *txRig) write(from, n int, body string) {
	out := dedup.NewOutbox(r.store.Store, "orders", dedup.OutboxOptions{})
	r.must(out.InTx(r.t.Context(), func(tx *sql.Tx) error {
		for i := from; i < from+n; i++ {
			if err := out.AddTx(r.t.Context(), tx, broker.Message{ID: fmt.Sprintf("%d-%03d", i%3, i), Key: fmt.Sprint(i % 3), Body: []byte(body)}); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (r *txRig) relay() *dedup.Relay {
	return dedup.NewTransactionalRelay(r.store, "orders", r.conn, "relay", dedup.RelayOptions{Batch: 30, PublishTimeout: 2 * time.Second,
		Backoff: broker.Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}, ErrorHook: func(err error) { r.said = append(r.said, err) }})
}

// drain ends when nothing is left, whatever fails meanwhile.
func (r *txRig) drain(relay *dedup.Relay) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for {
		_, err := relay.Drain(ctx)
		if err != nil {
			r.said = append(r.said, err)
		}
		b, berr := r.store.OutboxBacklog(ctx, "orders")
		r.must(berr)
		if err == nil && b.Waiting == 0 {
			return
		}
		if ctx.Err() != nil {
			r.t.Fatalf("%v, %v: %v", b, err, r.said)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// once fails the test unless n messages are there, each once, in the order of its key.
func (r *txRig) once(n int) {
	r.t.Helper()
	if s, err := r.b.Stats("orders/all"); err != nil || s.Ready != n {
		r.t.Errorf("%+v, %v: not %d messages", s, err, n)
	}
	seen, last := map[string]bool{}, map[string]string{}
	for _, id := range received(r.t, r.conn, "orders/all", n) {
		key, _, _ := strings.Cut(id, "-")
		if seen[id] || id < last[key] {
			r.t.Errorf("%s is there twice, or behind %s", id, last[key])
		}
		seen[id], last[key] = true, id
	}
	row, ok, err := r.store.TakeRelay(r.t.Context(), "orders", 0)
	if err != nil || !ok || row.Token != nil {
		r.t.Errorf("still noted: %+v, %t, %v", row, ok, err)
	}
}

func (r *txRig) close() {
	r.must(r.conn.Close(context.Background()))
	r.b.Close()
	r.must(r.store.Close())
}

func onTxRig(t *testing.T, f func(t *testing.T, r *txRig)) {
	path := filepath.Join(t.TempDir(), "a.db")
	bubbletest.Run(t, func(t *testing.T) {
		r := newTxRig(t, path)
		defer r.close()
		f(t, r)
	})
}

// TestTransactionalRelayPaced: messages that come one after another are sent several at a
// time, and the store has half of its time for who adds them; full turns follow each other
// at once.
func TestTransactionalRelayPaced(t *testing.T) {
	onTxRig(t, func(t *testing.T, r *txRig) {
		slow := func(do func() (bool, error)) (bool, error) {
			time.Sleep(50 * time.Millisecond) // of the bubble
			return do()
		}
		r.store.prepare, r.store.settle = slow, slow
		relay := r.relay()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- relay.Run(ctx) }()
		sent := func(n int) {
			t.Helper()
			for relay.Stats().Sent() < uint64(n) {
				time.Sleep(time.Millisecond)
			}
		}
		began := time.Now()
		sent(txMessages) // three turns
		if took := time.Since(began); took < 250*time.Millisecond || took > 310*time.Millisecond {
			t.Errorf("full turns take %v", took)
		}
		time.Sleep(time.Second)
		full := relay.Stats().Publishes
		for i := range 40 { // 10 ms apart
			r.write(txMessages+i, 1, "")
			relay.Wake()
			time.Sleep(10 * time.Millisecond)
		}
		sent(txMessages + 40)
		// A turn in 200 ms, and not in 100.
		if n := relay.Stats().Publishes - full; n > 4 {
			t.Errorf("%d turns for 40 messages in 400 ms", n)
		}
		stop()
		r.must(<-ended)
		r.must(relay.Close(t.Context()))
		r.once(txMessages + 40)
	})
}

// TestTransactionalRelayKilled: a relay ends at each step, as by a kill, and the next one
// sends the rest: each message once (MassTransit/MassTransit#3791).
func TestTransactionalRelayKilled(t *testing.T) {
	type write = func(do func() (bool, error)) (bool, error)
	kill := func(n int, first bool) write {
		return func(do func() (bool, error)) (bool, error) {
			if n--; n == 0 && first {
				panic("killed")
			}
			ok, err := do()
			if n == 0 {
				panic("killed")
			}
			return ok, err
		}
	}
	for name, set := range map[string]func(*stepped){
		"prepared":          func(s *stepped) { s.prepare = kill(2, true) },
		"noted":             func(s *stepped) { s.prepare = kill(2, false) },
		"committed":         func(s *stepped) { s.settle = kill(2, true) },
		"settled":           func(s *stepped) { s.settle = kill(2, false) },
		"first, and noted":  func(s *stepped) { s.prepare = kill(1, false) },
		"last, not settled": func(s *stepped) { s.settle = kill(3, true) },
	} {
		t.Run(name, func(t *testing.T) {
			onTxRig(t, func(t *testing.T, r *txRig) {
				set(r.store)
				killed := false
				func() {
					defer func() { killed = recover() != nil }()
					_, _ = r.relay().Drain(t.Context())
				}()
				if !killed {
					t.Fatal("it wasn't killed")
				}
				r.store.prepare, r.store.settle = nil, nil
				next := r.relay()
				r.drain(next)
				r.must(next.Close(t.Context()))
				r.once(txMessages)
			})
		})
	}
}

// TestTransactionalRelayFailures: what fails or has no answer is done again by the same
// relay: each message once.
func TestTransactionalRelayFailures(t *testing.T) {
	lost := errors.New("gone")
	// once does or doesn't write, and answers with err.
	once := func(applied bool, err error) func(do func() (bool, error)) (bool, error) {
		n := 0
		return func(do func() (bool, error)) (bool, error) {
			if n++; n != 2 {
				return do()
			}
			if applied {
				if _, err := do(); err != nil {
					return false, err
				}
			}
			return false, err
		}
	}
	fault := func(op memory.Op, kind memory.Kind) func(*txRig) {
		return func(r *txRig) {
			r.hit = r.b.Inject(memory.Fault{Op: op, Kind: kind, Times: 2, Err: map[memory.Kind]error{memory.Error: broker.ErrUnavailable}[kind],
				Delay: map[memory.Kind]time.Duration{memory.Delay: 5 * time.Second}[kind]}).Hits
		}
	}
	for name, set := range map[string]func(*txRig){
		"note not written":               func(r *txRig) { r.store.prepare = once(false, lost) },
		"note written, without answer":   func(r *txRig) { r.store.prepare = once(true, dedup.ErrCommitUnknown) },
		"rows not removed":               func(r *txRig) { r.store.settle = once(false, lost) },
		"rows removed, without answer":   func(r *txRig) { r.store.settle = once(true, dedup.ErrCommitUnknown) },
		"commit lost":                    fault(memory.Commit, memory.LoseRequest),
		"commit's answer lost":           fault(memory.Commit, memory.LoseResponse),
		"connection cut at the commit":   fault(memory.Commit, memory.Cut),
		"commit refused for the time":    fault(memory.Commit, memory.Error),
		"commit late, and after its end": fault(memory.Commit, memory.Delay),
	} {
		t.Run(name, func(t *testing.T) {
			onTxRig(t, func(t *testing.T, r *txRig) {
				set(r)
				relay := r.relay()
				r.drain(relay)
				if r.hit != nil && r.hit() != 2 || r.hit == nil && len(r.said) == 0 {
					t.Errorf("nothing has failed: %v", r.said)
				}
				r.must(relay.Close(t.Context()))
				r.once(txMessages)
			})
		})
	}
}

// TestTransactionalRelayReplaced: a relay that another has taken over from ends, and sends
// nothing more (xavierjohn/Trellis#644).
func TestTransactionalRelayReplaced(t *testing.T) {
	onTxRig(t, func(t *testing.T, r *txRig) {
		first, second := r.relay(), r.relay()
		taken := false
		r.store.prepare = func(do func() (bool, error)) (bool, error) {
			if !taken {
				taken = true
				if _, err := second.Drain(t.Context()); err != nil { // the first holds the lanes no more
					t.Error(err)
				}
			}
			return do()
		}
		if _, err := first.Drain(t.Context()); !errors.Is(err, broker.ErrFenced) {
			t.Errorf("the first one goes on: %v", err)
		}
		if err := first.Run(t.Context()); !errors.Is(err, broker.ErrFenced) {
			t.Errorf("and again: %v", err)
		}
		r.drain(second)
		r.must(first.Close(t.Context()))
		r.must(second.Close(t.Context()))
		r.once(txMessages)
	})
}

// TestTransactionalRelayParks: what the broker never takes is put aside with what is
// behind it in its key, and the rest is sent (MassTransit/MassTransit#3512).
func TestTransactionalRelayParks(t *testing.T) {
	onTxRig(t, func(t *testing.T, r *txRig) {
		r.write(txMessages, 1, strings.Repeat("x", 200)) // of key 0
		r.write(txMessages+1, 5, "")                     // one of key 0
		relay := r.relay()
		if _, err := relay.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		b, err := r.store.OutboxBacklog(t.Context(), "orders")
		if err != nil || b.Parked != 1 || b.Waiting != 1 {
			t.Errorf("%v, %v", b, err)
		}
		r.must(relay.Close(t.Context()))
		r.once(txMessages + 4)
	})
}

// TestTransactionalRelayRefuses: a broker without such transactions is told at once.
func TestTransactionalRelayRefuses(t *testing.T) {
	onTxRig(t, func(t *testing.T, r *txRig) {
		relay := dedup.NewTransactionalRelay(r.store, "orders", noTransactions{r.conn}, "relay", dedup.RelayOptions{ErrorHook: func(error) {}})
		if err := relay.Run(t.Context()); !errors.Is(err, broker.ErrUnsupported) {
			t.Errorf("%v", err)
		}
		for _, bad := range []func(){
			func() { dedup.NewTransactionalRelay(nil, "orders", r.conn, "relay", dedup.RelayOptions{}) },
			func() { dedup.NewTransactionalRelay(r.store, "", r.conn, "relay", dedup.RelayOptions{}) },
			func() { dedup.NewTransactionalRelay(r.store, "orders", nil, "relay", dedup.RelayOptions{}) },
			func() { dedup.NewTransactionalRelay(r.store, "orders", r.conn, "", dedup.RelayOptions{}) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("made of nothing")
					}
				}()
				bad()
			}()
		}
	})
}

// noTransactions hides what a connection can.
type noTransactions struct{ broker.Conn }
