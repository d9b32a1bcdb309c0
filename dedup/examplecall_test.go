package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
)

// A mail is sent by a provider that knows no keys. After a timeout it isn't sent
// again: somebody looks it up.
func ExampleCalls() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := sqlite.Open(ctx, filepath.Join(dir, "mail.db"), sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	mails, err := dedup.NewCalls(store, "mail", dedup.CallOptions{})
	if err != nil {
		log.Fatal(err)
	}
	send := func(ctx context.Context, key string) ([]byte, error) {
		return nil, errors.New("timeout") // it may have been sent
	}
	outcome, _, err := mails.Once(ctx, "order-8812:mail:v1", nil, send)
	fmt.Println(outcome, errors.Is(err, dedup.ErrUnresolved))

	decided, err := mails.Reconcile(ctx, func(ctx context.Context, call dedup.Call) (dedup.Answer, []byte, string, error) {
		fmt.Println(call.ID, "is", call.State, "after a", call.Note)
		return dedup.TookPlace, []byte("mail 77"), "found in the outbox", nil
	})
	fmt.Println(decided, err)
	outcome, result, err := mails.Once(ctx, "order-8812:mail:v1", nil, send)
	fmt.Println(outcome, string(result), err)
	// Output:
	// unknown true
	// order-8812:mail:v1 is unresolved after a timeout
	// 1 <nil>
	// duplicate mail 77 <nil>
}
