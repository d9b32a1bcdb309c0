package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/onceline/onceline/broker"
)

// Read, process, write: the outputs of a batch and the acks of its inputs are one
// transaction. The ID is the instance's own, and the same after a restart.
func ExampleProcess() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	conn, err := broker.Open(ctx, "mem://process")
	if err != nil {
		panic(err)
	}
	defer conn.Close(ctx)
	for _, topic := range []string{"words", "loud"} {
		if err := conn.Ensure(ctx, broker.Entity{Topic: topic, Subscription: topic + "/one"}); err != nil {
			panic(err)
		}
	}
	pub, _ := conn.OpenPublisher(ctx, "words")
	_, _ = pub.Publish(ctx, broker.Message{ID: "1", Body: []byte("once")})

	in, err := conn.OpenReceiver(ctx, "words/one")
	if err != nil {
		panic(err)
	}
	x, err := broker.OpenTransactor(ctx, conn, "shouter-1")
	if err != nil {
		panic(err) // broker.ErrUnsupported says why a broker has none
	}
	err = broker.Process(ctx, in, x, func(_ context.Context, batch []broker.Delivery) ([]broker.Output, error) {
		defer cancel() // one batch is enough here
		var out []broker.Output
		for _, d := range batch {
			out = append(out, broker.Output{Topic: "loud", Message: broker.Message{ID: d.ID, Body: []byte(strings.ToUpper(string(d.Body)))}})
		}
		return out, nil
	}, broker.ProcessOptions{})
	fmt.Println(err)

	loud, _ := conn.OpenReceiver(context.Background(), "loud/one")
	ds, _ := loud.Receive(context.Background(), 1)
	fmt.Println(string(ds[0].Body), x.Scope())
	// Output:
	// <nil>
	// ONCE publishes and settles
}

// A transaction by hand: a commit whose answer is lost is resolved before anything
// else is done.
func ExampleOpenTransactor() {
	ctx := context.Background()
	conn, err := broker.Open(ctx, "mem://by-hand")
	if err != nil {
		panic(err)
	}
	defer conn.Close(ctx)
	for _, topic := range []string{"orders", "audit"} {
		if err := conn.Ensure(ctx, broker.Entity{Topic: topic}); err != nil {
			panic(err)
		}
	}
	x, err := broker.OpenTransactor(ctx, conn, "shop-1")
	if err != nil {
		panic(err)
	}
	tx, err := x.Begin(ctx)
	if err != nil {
		panic(err)
	}
	for _, topic := range []string{"orders", "audit"} {
		if _, err := tx.Publish(ctx, topic, broker.Message{ID: "order-17"}); err != nil {
			_ = tx.Abort(ctx)
			return
		}
	}
	o, err := tx.Commit(ctx)
	for errors.Is(err, broker.ErrUnknownOutcome) && x.Scope().Resolves && ctx.Err() == nil {
		o, err = tx.Resolve(ctx)
	}
	fmt.Println(o.State, err)
	// Output:
	// Confirmed <nil>
}
