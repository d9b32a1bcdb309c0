package localstack_test

import (
	"context"
	"fmt"
	"log"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/onceline/onceline/localstack"
)

// A publish is applied, and its response is lost. The retry with the same
// message ID is told to be a duplicate.
func ExampleStart() {
	ctx := context.Background()
	stack, err := localstack.Start(ctx, "nats")
	if err != nil {
		log.Fatal(err)
	}
	defer stack.Close(ctx)

	nc, err := nats.Connect(stack.URL("nats"))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		log.Fatal(err)
	}

	lost := stack.Emulator("nats").Inject(localstack.Fault{
		Op: localstack.Publish, Kind: localstack.LoseResponse, Match: "orders.new", Times: 1,
	})
	first, cancel := context.WithCancel(ctx)
	go func() {
		_ = lost.WaitApplied(first) // the broker has it, so stop waiting for its response
		cancel()
	}()
	_, err = js.Publish(first, "orders.new", []byte("one"), jetstream.WithMsgID("order-1"))
	fmt.Println("first attempt failed:", err != nil, "- applied:", lost.Applied())

	ack, err := js.Publish(ctx, "orders.new", []byte("one"), jetstream.WithMsgID("order-1"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("retry: sequence", ack.Sequence, "duplicate", ack.Duplicate)
	// Output:
	// first attempt failed: true - applied: 1
	// retry: sequence 1 duplicate true
}
