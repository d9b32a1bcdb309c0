package servicebus_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/onceline/onceline/adapters/servicebus"
	"github.com/onceline/onceline/broker"
	emulator "github.com/onceline/onceline/localstack/servicebus"
)

// A queue with sessions: the messages of one key come in their order.
func Example() {
	ctx := context.Background()
	// In place of a namespace, an emulator in this process.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	namespace := emulator.New()
	go func() { _ = namespace.Serve(l) }()
	defer namespace.Close(ctx)

	conn, err := servicebus.Dial(ctx, "servicebus://"+l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "orders", Ordered: true}); err != nil {
		log.Fatal(err)
	}
	pub, err := conn.OpenPublisher(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	rcv, err := conn.OpenReceiver(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	order := broker.Message{ID: "order-17", Key: "customer-4", Body: []byte("two apples")}
	for range 2 { // the second is dropped, and nobody is told
		receipts, err := pub.Publish(ctx, order)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(receipts[0].Verdict)
	}
	deliveries, err := rcv.Receive(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range deliveries {
		outcome, err := d.Ack(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.ID, string(d.Body), outcome.State)
	}
	// Output:
	// Accepted
	// Accepted
	// order-17 two apples Confirmed
}
