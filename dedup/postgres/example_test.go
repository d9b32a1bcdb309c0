package postgres_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
)

// A service applies a batch of payments, each once, by a pipeline of statements.
func ExampleOncePipelined() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, "postgres://billing@localhost/billing") // in a service, a *pgxpool.Pool
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	store, err := postgres.New(db, postgres.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	if err := store.Verify(ctx); err != nil { // a database that can lose what it has committed
		log.Fatal(err)
	}
	type payment struct {
		id              string
		account, amount int
	}
	payments := []payment{{"order-8812:paid:v1", 77, 4200}, {"order-8813:paid:v1", 12, 99}}
	inbox := dedup.New[pgx.Tx](store, "billing", dedup.Options{})
	results, err := postgres.OncePipelined(ctx, inbox, payments,
		func(p payment) dedup.Key { return dedup.Key{ID: p.id} },
		func(b *pgx.Batch, p payment) {
			b.Queue("UPDATE account SET balance = balance - $1 WHERE id = $2", p.amount, p.account)
		})
	for i, r := range results {
		fmt.Println(payments[i].id, r.Outcome, r.Err)
	}
	if err != nil {
		log.Print(err)
	}
}
