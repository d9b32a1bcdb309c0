package dedup_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
)

// openBank opens a database with one account of a hundred, and removes it in close.
func openBank() (store *sqlite.Store, balance func() int, close func()) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	store, err = sqlite.Open(context.Background(), filepath.Join(dir, "bank.db"), sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := store.DB().Exec("CREATE TABLE account (balance INTEGER NOT NULL CHECK (balance >= 0)); INSERT INTO account VALUES (100)"); err != nil {
		log.Fatal(err)
	}
	balance = func() (n int) {
		if err := store.DB().QueryRow("SELECT balance FROM account").Scan(&n); err != nil {
			log.Fatal(err)
		}
		return n
	}
	return store, balance, func() { store.Close(); os.RemoveAll(dir) }
}

func debit(ctx context.Context, tx *sql.Tx, amount int) error {
	_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - ?", amount)
	return err
}

func ExampleInbox_Once() {
	store, balance, closeBank := openBank()
	defer closeBank()
	inbox := dedup.New(store, "billing", dedup.Options{})
	for range 2 { // the message is delivered twice
		outcome, err := inbox.Once(context.Background(), dedup.Key{ID: "order-8812:paid:v1"}, func(ctx context.Context, tx *sql.Tx) error {
			return debit(ctx, tx, 42)
		})
		fmt.Println(outcome, err, balance())
	}
	// Output:
	// applied <nil> 58
	// duplicate <nil> 58
}

func ExampleOnceBatch() {
	store, balance, closeBank := openBank()
	defer closeBank()
	inbox := dedup.New(store, "billing", dedup.Options{})
	type payment struct {
		id     string
		amount int
	}
	payments := []payment{{"a", 10}, {"b", 1000}, {"a", 10}, {"c", 5}}
	results, err := dedup.OnceBatch(context.Background(), inbox, payments,
		func(p payment) dedup.Key { return dedup.Key{ID: p.id} },
		func(ctx context.Context, tx *sql.Tx, p payment) error { return debit(ctx, tx, p.amount) })
	for i, r := range results {
		fmt.Println(payments[i].id, r.Outcome)
	}
	fmt.Println("error:", err != nil, "balance:", balance())
	// Output:
	// a applied
	// b failed
	// a duplicate
	// c applied
	// error: true balance: 85
}

func ExampleHandler() {
	store, balance, closeBank := openBank()
	defer closeBank()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	b := memory.New()
	defer b.Close()
	conn := b.Conn()
	defer conn.Close(context.Background())
	if err := conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "orders/billing"}); err != nil {
		log.Fatal(err)
	}
	pub, err := conn.OpenPublisher(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	// Two copies of one message, and another one.
	for _, m := range []broker.Message{{ID: "a"}, {ID: "a", Copy: "replayed"}, {ID: "last"}} {
		if _, err := pub.Publish(ctx, m); err != nil {
			log.Fatal(err)
		}
	}
	rcv, err := conn.OpenReceiver(ctx, "orders/billing")
	if err != nil {
		log.Fatal(err)
	}
	inbox := dedup.New(store, "billing", dedup.Options{})
	handler := dedup.Handler(inbox, func(ctx context.Context, tx *sql.Tx, d *broker.Delivery) error {
		if d.ID == "last" {
			stop()
			return nil
		}
		return debit(ctx, tx, 42)
	})
	if err := broker.Consume(ctx, rcv, handler, broker.ConsumeOptions{Workers: 1}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("balance:", balance())
	// Output: balance: 58
}

func ExampleAppliedFrom() {
	store, balance, closeBank := openBank()
	defer closeBank()
	ctx := context.Background()
	positions := dedup.NewPosition(store, "billing", dedup.Options{})
	partition := dedup.Partition{Topic: "orders", Epoch: "topic-id-1", Name: "0"}
	apply := func(last int64, offsets ...int64) (int64, error) {
		return dedup.AppliedFrom(ctx, positions, partition, last, offsets, func(o int64) int64 { return o },
			func(ctx context.Context, tx *sql.Tx, _ int64) error { return debit(ctx, tx, 1) })
	}
	last, err := positions.Load(ctx, partition)
	if err != nil {
		log.Fatal(err)
	}
	zombie := last // another consumer, which will be replaced and not know it
	last, err = apply(last, 0, 1, 2)
	fmt.Println(last, err, balance())
	_, err = apply(zombie, 0, 1, 2, 3)
	fmt.Println(errors.Is(err, dedup.ErrFenced), balance())
	last, err = apply(last, 2, 3, 4) // the broker gives one again
	fmt.Println(last, err, balance())
	// Output:
	// 2 <nil> 97
	// true 97
	// 4 <nil> 95
}

// A consumer of a Kafka group keeps its offsets beside its effects. Several processes may
// run this: a partition's messages have their effects once whoever gets them.
func ExampleFollow() {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, "billing.db", sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	conn, err := broker.Open(ctx, "kafka://127.0.0.1:9092") // of adapters/kafka
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	orders := dedup.Log{
		Topic: "orders",
		Open: func(ctx context.Context, opts ...broker.ReceiverOption) (broker.Receiver, error) {
			return conn.OpenReceiver(ctx, "orders/billing", opts...)
		},
		MaxAttempts: 10, // then it is dead-lettered
	}
	positions := dedup.NewPosition(store, "billing", dedup.Options{})
	err = dedup.Follow(ctx, positions, orders, func(ctx context.Context, tx *sql.Tx, d *broker.Delivery) error {
		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 1 WHERE owner = ?", string(d.Body))
		return err
	})
	fmt.Println(err)
}

func ExampleJoinID() {
	fmt.Println(dedup.JoinID(1, "order-8812", "paid"))
	fmt.Println(dedup.JoinID(2, "tenant:7", "order-8812", "paid"))
	_, err := dedup.JoinID(1, "", "paid")
	fmt.Println(err)
	// Output:
	// order-8812:paid:v1 <nil>
	// tenant%3A7:order-8812:paid:v2 <nil>
	// dedup: part 1 of 2 of an ID is empty: invalid
}

func ExampleSize() {
	week := 7 * 24 * time.Hour
	fmt.Println(dedup.Size(2000, week, sqlite.MarkerBytes))
	// Output: 1209600000 markers, 70.2 GB, 172800000 a day
}
