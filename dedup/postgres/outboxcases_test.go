package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
)

// TestOutboxRandom: transactions that begin, write, commit and roll back in any order,
// with a relay between. What is published is what was committed
// (kamu-data/kamu-cli#1398).
func TestOutboxRandom(t *testing.T) {
	t.Parallel()
	p := connect(t, start(t), 8)
	s, _ := open(t, p, postgres.Options{})
	out := dedup.NewOutbox(s, "orders", dedup.OutboxOptions{})
	ctx := context.Background()
	random := rand.New(rand.NewPCG(5, 6))
	for round := range 15 {
		to := &memory{}
		relay := dedup.NewRelay(s, "orders", to, dedup.RelayOptions{Workers: 1})
		const transactions, rows = 5, 10
		var open [transactions]pgx.Tx
		var written [transactions]int
		var committed []string
		for left := transactions; left > 0; {
			i := random.IntN(transactions)
			switch {
			case random.IntN(6) == 0:
				if _, err := relay.Drain(ctx); err != nil {
					t.Fatal(err)
				}
			case written[i] < 0: // ended
			case open[i] == nil:
				var err error
				if open[i], err = p.BeginTx(ctx, pgx.TxOptions{}); err != nil {
					t.Fatal(err)
				}
			case written[i] < rows:
				m := broker.Message{ID: fmt.Sprintf("%d-%d-%d", round, i, written[i])}
				if random.IntN(2) == 0 {
					m.Key = fmt.Sprint(i) // a key of its own, as its writer has its lock
				}
				if err := out.AddTx(ctx, open[i], m); err != nil {
					t.Fatal(err)
				}
				written[i]++
			default:
				end := open[i].Commit
				if random.IntN(3) == 0 {
					end = open[i].Rollback
				} else {
					for n := range rows {
						committed = append(committed, fmt.Sprintf("%d-%d-%d", round, i, n))
					}
				}
				if err := end(ctx); err != nil {
					t.Fatal(err)
				}
				written[i] = -1
				left--
			}
		}
		if _, err := relay.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		slices.Sort(committed)
		if slices.Sort(to.ids); !slices.Equal(to.ids, committed) {
			t.Fatalf("round %d: published %v, committed %v", round, to.ids, committed)
		}
	}
}

// TestOutboxRestored: the rows of a database that was restored in another one, whose
// transactions are counted from the beginning, are published, and before those that
// are written there (ThreeDotsLabs/watermill#576).
func TestOutboxRestored(t *testing.T) {
	p := connect(t, start(t), 4)
	from, old := open(t, p, postgres.Options{})
	to, restored := open(t, p, postgres.Options{})
	ctx := t.Context()
	add := func(s *postgres.Store, ids ...string) {
		t.Helper()
		out := dedup.NewOutbox(s, "orders", dedup.OutboxOptions{})
		for _, id := range ids {
			if err := out.InTx(ctx, func(tx pgx.Tx) error { return out.AddTx(ctx, tx, broker.Message{ID: id, Key: "k"}) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(from, "1", "2", "3")
	// What pg_dump writes: the rows, and where the sequence stands.
	table := fmt.Sprintf("%q.onceline_outbox", restored)
	p.exec(t, fmt.Sprintf("INSERT INTO %s OVERRIDING SYSTEM VALUE SELECT * FROM %q.onceline_outbox", table, old),
		fmt.Sprintf("SELECT setval(pg_get_serial_sequence('%s', 'seq'), (SELECT max(seq) FROM %s))", table, table))
	add(to, "4")
	sent := &memory{}
	if _, err := dedup.NewRelay(to, "orders", sent, dedup.RelayOptions{}).Drain(ctx); err != nil || strings.Join(sent.ids, " ") != "1 2 3 4" {
		t.Errorf("sent %v, %v", sent.ids, err)
	}
}
