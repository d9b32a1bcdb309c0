package bridge_test

import (
	"context"
	"fmt"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/bridge"
	"github.com/onceline/onceline/broker"
)

// A bridge between two brokers, here in memory, that ends when the source is empty.
func Example() {
	ctx := context.Background()
	a, b := memory.New(), memory.New()
	defer a.Close()
	defer b.Close()
	from, to := a.Conn(), b.Conn()
	if err := from.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "orders/bridge"}); err != nil {
		panic(err)
	}
	if err := to.Ensure(ctx, broker.Entity{Topic: "orders"}); err != nil {
		panic(err)
	}
	in, err := from.OpenPublisher(ctx, "orders")
	if err != nil {
		panic(err)
	}
	if _, err := in.Publish(ctx, broker.Message{ID: "order-17", Key: "customer-4"}, broker.Message{ID: "order-18", Key: "customer-4"}); err != nil {
		panic(err)
	}

	receiver, err := from.OpenReceiver(ctx, "orders/bridge")
	if err != nil {
		panic(err)
	}
	publisher, err := to.OpenPublisher(ctx, "orders")
	if err != nil {
		panic(err)
	}
	promise := bridge.Judge(bridge.Pairing{From: memory.Boundary(), To: memory.Boundary(), Window: publisher.Limits().Window})
	fmt.Println(promise.Grade)
	moves := bridge.New(receiver, publisher, bridge.Options{Together: promise.Together, Idle: 50 * time.Millisecond, Refused: bridge.DeadLetter})
	if err := moves.Run(ctx); err != nil {
		panic(err)
	}
	fmt.Println(moves.Stats().Moved(), "moved")
	// Output:
	// exactly once, within the window
	// 2 moved
}
