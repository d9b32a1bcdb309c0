package storetest

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup"
)

// RelayRecordsDriver is a store with an outbox that can be relayed in transactions.
type RelayRecordsDriver[T any] interface {
	dedup.OutboxDriver[T]
	dedup.RelayRecords
}

// RunRelayRecords runs all behaviours of a store for transactional relays, each on a
// store of its own.
func RunRelayRecords[T any](t *testing.T, open func(t *testing.T) RelayRecordsDriver[T]) {
	t.Run("Terms", func(t *testing.T) { relayTerms(t, open(t)) })
	t.Run("Settled", func(t *testing.T) { relaySettled(t, open(t)) })
	t.Run("Lanes", func(t *testing.T) { relayLanes(t, open(t)) })
}

func takeRelay[T any](t *testing.T, d RelayRecordsDriver[T], topic string, was int64) (dedup.RelayRow, bool) {
	t.Helper()
	row, ok, err := d.TakeRelay(t.Context(), topic, was)
	if err != nil {
		t.Fatal(err)
	}
	return row, ok
}

// relayTerms: each owner of a topic has a term of its own, and only the last one writes.
func relayTerms[T any](t *testing.T, d RelayRecordsDriver[T]) {
	if err := d.VerifyRelays(t.Context()); err != nil {
		t.Fatal(err)
	}
	if row, ok := takeRelay(t, d, "a", 0); !ok || row.Term != 1 || row.Token != nil || row.Seqs != nil {
		t.Fatalf("the first: %+v, %t", row, ok)
	}
	if row, ok := takeRelay(t, d, "b", 0); !ok || row.Term != 1 {
		t.Fatalf("of another topic: %+v, %t", row, ok)
	}
	prepare := func(term int64, token string, seqs ...int64) bool {
		ok, err := d.PrepareRelay(t.Context(), "a", term, []byte(token), seqs)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	token := "\x00\x01 token \xff"
	if !prepare(1, "old", 5) || !prepare(1, token, 3, 9_000_000_000) || prepare(2, "of nobody") {
		t.Error("the owner alone may prepare")
	}
	if row, ok := takeRelay(t, d, "a", 7); ok {
		t.Errorf("taken by one that has lost it: %+v", row)
	}
	row, ok := takeRelay(t, d, "a", 1)
	if !ok || row.Term != 2 || !bytes.Equal(row.Token, []byte(token)) || !slices.Equal(row.Seqs, []int64{3, 9_000_000_000}) {
		t.Fatalf("the second: %+v, %t", row, ok)
	}
	if prepare(1, "late") {
		t.Error("the first one prepared again")
	}
	if ok, err := d.SettleRelay(t.Context(), "a", 1, dedup.OutboxFate{State: dedup.OutboxSent}); ok || err != nil {
		t.Errorf("the first one settled: %t, %v", ok, err)
	}
	if row, ok := takeRelay(t, d, "a", 0); !ok || row.Term != 3 || !bytes.Equal(row.Token, []byte(token)) {
		t.Errorf("the third: %+v, %t", row, ok)
	}
}

// relaySettled: the rows of what is prepared are removed, stopped or left, and no others,
// and the record is gone with that.
func relaySettled[T any](t *testing.T, d RelayRecordsDriver[T]) {
	err := d.Transact(t.Context(), func(tx T) error {
		for _, topic := range []string{"a", "b"} {
			var rows []dedup.OutboxRow
			for i := range 4 {
				rows = append(rows, dedup.OutboxRow{ID: string(rune('0' + i)), Lane: i, Hash: int64(i + 1), Meta: []byte{1, 0}, Time: time.Now()})
			}
			if err := d.AddOutbox(t.Context(), tx, topic, rows); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	seqs := map[string]int64{}
	_, err = d.RelayOutbox(t.Context(), dedup.OutboxTurn{Topic: "a", Lanes: dedup.OutboxLanes, Rows: 10, Bytes: 1 << 20, Bound: time.Second}, func(rows []dedup.OutboxRow) []dedup.OutboxFate {
		for _, r := range rows {
			seqs[r.ID] = r.Seq
		}
		return make([]dedup.OutboxFate, len(rows))
	})
	if err != nil || len(seqs) != 4 {
		t.Fatal(seqs, err)
	}
	row, _ := takeRelay(t, d, "a", 0)
	for _, c := range []struct {
		fate          dedup.OutboxFate
		waiting, held int64
	}{
		{dedup.OutboxFate{State: dedup.OutboxLeft}, 4, 0},
		{dedup.OutboxFate{State: dedup.OutboxHeld, Reason: "why\x00 not"}, 2, 2},
		{dedup.OutboxFate{State: dedup.OutboxSent}, 2, 0},
		{dedup.OutboxFate{State: dedup.OutboxSent}, 2, 0},
	} {
		if ok, err := d.PrepareRelay(t.Context(), "a", row.Term, []byte("token"), []int64{seqs["0"], seqs["2"]}); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if ok, err := d.SettleRelay(t.Context(), "a", row.Term, c.fate); !ok || err != nil {
			t.Fatalf("%v: %t, %v", c.fate.State, ok, err)
		}
		a, err := d.OutboxBacklog(t.Context(), "a")
		if err != nil || a.Waiting != c.waiting || a.Held != c.held {
			t.Errorf("%v: %v, %v", c.fate.State, a, err)
		}
		if b, err := d.OutboxBacklog(t.Context(), "b"); err != nil || b.Waiting != 4 {
			t.Errorf("%v, of another topic: %v, %v", c.fate.State, b, err)
		}
		next, ok := takeRelay(t, d, "a", row.Term)
		if row = next; !ok || row.Token != nil || row.Seqs != nil {
			t.Errorf("%v: there is still %+v", c.fate.State, row)
		}
	}
	if ok, err := d.SettleRelay(t.Context(), "a", row.Term, dedup.OutboxFate{State: dedup.OutboxSent}); !ok || err != nil {
		t.Errorf("with nothing prepared: %t, %v", ok, err)
	}
	if b, err := d.OutboxBacklog(t.Context(), "a"); err != nil || b.Waiting != 2 {
		t.Errorf("with nothing prepared: %v, %v", b, err)
	}
}

// relayLanes: what an owner that has died had in its hands is free for the next one, and
// not for a relay that isn't one.
func relayLanes[T any](t *testing.T, d RelayRecordsDriver[T]) {
	err := d.Transact(t.Context(), func(tx T) error {
		return d.AddOutbox(t.Context(), tx, "a", []dedup.OutboxRow{{ID: "m", Lane: 3, Hash: 9, Meta: []byte{1, 0}, Time: time.Now()}})
	})
	if err != nil {
		t.Fatal(err)
	}
	turn := dedup.OutboxTurn{Topic: "a", Lanes: dedup.OutboxLanes, Rows: 10, Bytes: 1 << 20, Bound: time.Minute, Owner: 1}
	left := func(rows []dedup.OutboxRow) []dedup.OutboxFate { return make([]dedup.OutboxFate, len(rows)) }
	died := false
	func() {
		defer func() { died = recover() != nil }()
		_, _ = d.RelayOutbox(t.Context(), turn, func([]dedup.OutboxRow) []dedup.OutboxFate { panic("killed") })
	}()
	if !died {
		t.Fatal("there was no row")
	}
	plain := turn
	plain.Owner = 0
	if n, err := d.RelayOutbox(t.Context(), plain, left); err != nil || n > 1 {
		t.Errorf("a relay that is no owner: %d rows, %v", n, err) // PostgreSQL knows that the other is gone
	}
	turn.Owner = 2
	if n, err := d.RelayOutbox(t.Context(), turn, left); err != nil || n != 1 {
		t.Errorf("the next owner: %d rows, %v", n, err)
	}
}
