package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	_ "github.com/go-sql-driver/mysql"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/mysql"
)

// A service books payments in the transaction of their markers.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("mysql", "billing@tcp(localhost)/billing?readTimeout=40s&writeTimeout=40s&interpolateParams=true")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	store, err := mysql.New(ctx, db, mysql.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	if err := store.Verify(ctx); err != nil { // a database that can lose what it has committed
		log.Fatal(err)
	}
	inbox := dedup.New[*sql.Tx](store, "billing", dedup.Options{})
	outcome, err := inbox.Once(ctx, dedup.Key{ID: "order-8812:paid:v1"}, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - ? WHERE id = ?", 4200, 77)
		return err
	})
	fmt.Println(outcome, err)
}
