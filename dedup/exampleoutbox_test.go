package dedup_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// A payment and the message that tells of it are committed together; a relay sends
// the message.
func ExampleRelay() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, balance, closeBank := openBank()
	defer closeBank()
	b := memory.New() // in a service, broker.Open
	defer b.Close()
	conn := b.Conn()
	defer conn.Close(ctx)
	if err := conn.Ensure(ctx, broker.Entity{Topic: "payments", Subscription: "payments/mail"}); err != nil {
		log.Fatal(err)
	}
	to, err := conn.OpenPublisher(ctx, "payments")
	if err != nil {
		log.Fatal(err)
	}
	relay := dedup.NewRelay(store, "payments", to, dedup.RelayOptions{})
	outbox := dedup.NewOutbox(store, "payments", dedup.OutboxOptions{Wake: relay.Wake})
	running := make(chan error)
	go func() { running <- relay.Run(ctx) }()

	err = outbox.InTx(ctx, func(tx *sql.Tx) error {
		if err := debit(ctx, tx, 42); err != nil {
			return err
		}
		return outbox.AddTx(ctx, tx, broker.Message{ID: "order-8812:paid:v1", Key: "account-77", Body: []byte("42")})
	})
	if err != nil {
		log.Fatal(err)
	}

	receiver, err := conn.OpenReceiver(ctx, "payments/mail")
	if err != nil {
		log.Fatal(err)
	}
	ds, err := receiver.Receive(ctx, 1)
	fmt.Println(balance(), ds[0].ID, string(ds[0].Body), err)
	stop()
	fmt.Println(<-running)
	// Output:
	// 58 order-8812:paid:v1 42 <nil>
	// <nil>
}
