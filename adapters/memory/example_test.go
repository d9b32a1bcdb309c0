package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
)

func Example() {
	ctx := context.Background()
	clock := memory.NewClock()
	b := memory.New(memory.WithClock(clock))
	defer b.Close()

	conn := b.Conn()
	err := conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "orders/billing", Lease: 30 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	pub, _ := conn.OpenPublisher(ctx, "orders")
	order := broker.Message{ID: "order-17", Body: []byte("2 apples")}
	for range 2 {
		receipts, err := pub.Publish(ctx, order)
		fmt.Println(receipts[0].Verdict, receipts[0].Position.Offset, err)
	}

	rcv, _ := conn.OpenReceiver(ctx, "orders/billing")
	slow, _ := rcv.Receive(ctx, 10)
	clock.Advance(30 * time.Second)
	quick, _ := rcv.Receive(ctx, 10)
	late, _ := slow[0].Ack(ctx)
	done, _ := quick[0].Ack(ctx)
	fmt.Println(late.State, done.State, quick[0].Attempt.Number)
	// Output:
	// Stored 1 <nil>
	// Duplicate 1 <nil>
	// LeaseLost Confirmed 2
}

func ExampleBroker_Inject() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b := memory.New()
	defer b.Close()
	conn := b.Conn()
	if err := conn.Ensure(ctx, broker.Entity{Topic: "orders"}); err != nil {
		fmt.Println(err)
		return
	}
	pub, _ := conn.OpenPublisher(ctx, "orders")

	lost := b.Inject(memory.Fault{Op: memory.Publish, Kind: memory.LoseResponse, Times: 1})
	go func() {
		_ = lost.WaitApplied(context.Background())
		cancel() // the caller gives up when the broker has the message
	}()
	order := broker.Message{ID: "order-17"}
	receipts, _ := pub.Publish(ctx, order)
	fmt.Println(receipts[0].Verdict)
	receipts, _ = pub.Publish(context.Background(), order)
	fmt.Println(receipts[0].Verdict)
	// Output:
	// Unknown
	// Duplicate
}

func ExampleNamed() {
	ctx := context.Background()
	conn, err := broker.Open(ctx, "mem://shop?lease=5s")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer memory.Named("shop").Close()
	err = conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "orders/billing", Lease: time.Minute})
	fmt.Println(err)
	_, err = broker.Open(ctx, "mem://shop?lease=6s")
	fmt.Println(err)
	// Output:
	// <nil>
	// open mem://shop: lease is 5s, wished 6s: conflict
}
