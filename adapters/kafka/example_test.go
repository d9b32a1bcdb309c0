package kafka_test

import (
	"context"
	"fmt"
	"log"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/adapters/kafka"
	"github.com/onceline/onceline/broker"
)

func ExampleNew() {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		log.Fatal(err)
	}
	defer fake.Close()
	ctx := context.Background()
	conn, err := kafka.New(ctx, kafka.Options{Client: []kgo.Opt{kgo.SeedBrokers(fake.ListenAddrs()...)}})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "orders/billing", Partitions: 1}); err != nil {
		log.Fatal(err)
	}
	pub, err := conn.OpenPublisher(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	receipts, err := pub.Publish(ctx, broker.Message{ID: "order-17", Key: "customer-4", Body: []byte("one pear")})
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
	fmt.Println(ds[0].ID, outcome.State, err)
	// Output:
	// Stored
	// order-17 Confirmed <nil>
}
