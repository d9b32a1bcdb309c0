package pubsub_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/onceline/onceline/adapters/pubsub"
	"github.com/onceline/onceline/broker"
	emulator "github.com/onceline/onceline/localstack/pubsub"
)

// A publish, a receive and a confirmed ack, on the emulator of this project. With
// the service itself only the URL differs: pubsub:///my-project?exactly-once=true.
func Example() {
	ctx := context.Background()
	server := emulator.New()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(l)
	defer server.Close(ctx)

	conn, err := broker.Open(ctx, "pubsub://"+l.Addr().String()+"/my-project?exactly-once=true&pull-wait=100ms")
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "billing"}); err != nil {
		log.Fatal(err)
	}
	pub, err := conn.OpenPublisher(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	receipts, err := pub.Publish(ctx, broker.Message{ID: "order-17", Body: []byte("two of them")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipts[0].Verdict)

	rcv, err := conn.OpenReceiver(ctx, "billing")
	if err != nil {
		log.Fatal(err)
	}
	deliveries, err := rcv.Receive(ctx, 10)
	if err != nil {
		log.Fatal(err)
	}
	outcome, err := deliveries[0].Ack(ctx)
	fmt.Println(deliveries[0].ID, string(deliveries[0].Body), outcome.State, err)
	// Output:
	// Stored
	// order-17 two of them Confirmed <nil>
}

// New takes a client that the program has already; Boundary says what to expect.
func ExampleBoundaryExactlyOnce() {
	b := pubsub.BoundaryExactlyOnce()
	fmt.Println(b.Entries["settle.answer"].Declared, b.Entries["publish.dedup.new-producer"].Declared)
	// Output: confirmed twice
}
