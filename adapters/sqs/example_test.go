package sqs_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/onceline/onceline/adapters/sqs"
	"github.com/onceline/onceline/broker"
	localsqs "github.com/onceline/onceline/localstack/sqs"
)

// A FIFO queue on an emulator. On AWS the URL is sqs://?region=eu-west-1, with
// credentials from the SDK's default chain.
func Example() {
	emulator := httptest.NewServer(localsqs.New())
	defer emulator.Close()
	ctx := context.Background()

	conn, err := broker.Open(ctx, strings.Replace(emulator.URL, "http:", "sqs:", 1)+"?anonymous=true")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)
	queue := broker.Entity{Topic: "orders.fifo", Subscription: "orders.fifo", Ordered: true, MaxDeliveries: 5, DeadLetter: "orders-dead.fifo"}
	if err := conn.Ensure(ctx, queue); err != nil {
		fmt.Println(err)
		return
	}
	publisher, err := conn.OpenPublisher(ctx, queue.Topic)
	if err != nil {
		fmt.Println(err)
		return
	}
	order := broker.Message{ID: "order-17", Key: "customer-4", Body: []byte("two chairs")}
	for range 2 { // the second is a retry, and the queue knows its ID
		receipts, err := publisher.Publish(ctx, order)
		fmt.Println(receipts[0].Verdict, err)
	}

	receiver, err := conn.OpenReceiver(ctx, queue.Subscription)
	if err != nil {
		fmt.Println(err)
		return
	}
	deliveries, err := receiver.Receive(ctx, 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range deliveries {
		d := &deliveries[i]
		outcome, err := d.Ack(ctx)
		fmt.Printf("%s %s %s: %s %v\n", d.Key, d.ID, d.Body, outcome.State, err)
	}

	var q sqs.Queue
	receiver.As(&q)
	fmt.Println("IDs are compared in the", q.Boundary().Entries["publish.dedup.scope"].Declared)
	// Output:
	// Accepted <nil>
	// Accepted <nil>
	// customer-4 order-17 two chairs: Confirmed <nil>
	// IDs are compared in the topic
}
