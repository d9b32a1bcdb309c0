package rabbitmq_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/onceline/onceline/adapters/rabbitmq"
	"github.com/onceline/onceline/broker"
	emulator "github.com/onceline/onceline/localstack/rabbitmq"
)

// Example publishes an order and processes it. A server of one's own is reached
// by the same URL.
func Example() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := emulator.New()
	go func() { _ = server.Serve(l) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	defer func() { _ = server.Close(ctx) }()

	conn, err := rabbitmq.Dial(ctx, "rabbitmq://"+l.Addr().String()+"/?queue=quorum")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "orders/billing", MaxDeliveries: 5, DeadLetter: "/orders-failed"})
	if err != nil {
		log.Fatal(err)
	}
	pub, err := conn.OpenPublisher(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	receipts, err := pub.Publish(ctx, broker.Message{ID: "order-17", Key: "customer-3", Body: []byte("two teapots")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipts[0].Verdict)

	rcv, err := conn.OpenReceiver(ctx, "orders/billing")
	if err != nil {
		log.Fatal(err)
	}
	ds, err := rcv.Receive(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	outcome, err := ds[0].Ack(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %q attempt %d: %s\n", ds[0].ID, ds[0].Body, ds[0].Attempt.Number, outcome.State)
	// Output:
	// Stored
	// order-17 "two teapots" attempt 1: Sent
}
