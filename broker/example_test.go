package broker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	_ "github.com/onceline/onceline/adapters/memory" // makes mem:// known to Open
	"github.com/onceline/onceline/broker"
)

func ExampleOpen() {
	ctx := context.Background()
	conn, err := broker.Open(ctx, "mem://example-open?window=2m")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)
	err = conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "orders/billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	pub, err := conn.OpenPublisher(ctx, "orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	rcv, err := conn.OpenReceiver(ctx, "orders/billing")
	if err != nil {
		fmt.Println(err)
		return
	}

	// The same ID twice: the receipts say what the broker made of it.
	order := broker.Message{ID: "order-17", Body: []byte("two apples")}
	for range 2 {
		receipts, err := pub.Publish(ctx, order)
		fmt.Println(receipts[0].Verdict, receipts[0].Position.Offset, err)
	}
	deliveries, err := rcv.Receive(ctx, 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range deliveries {
		d := &deliveries[i]
		outcome, err := d.Ack(ctx)
		fmt.Printf("%s: %s; %s %v\n", d.ID, d.Body, outcome.State, err)
	}

	// A scheme whose adapter isn't imported.
	_, err = broker.Open(ctx, "unheard-of://user:secret@host")
	fmt.Println(errors.Is(err, broker.ErrInvalid))
	// Output:
	// Stored 1 <nil>
	// Duplicate 1 <nil>
	// order-17: two apples; Confirmed <nil>
	// true
}

// open returns a publisher and a receiver of a broker in this process.
func open(name string, e broker.Entity) (conn broker.Conn, pub broker.Publisher, rcv broker.Receiver) {
	ctx := context.Background()
	conn, err := broker.Open(ctx, "mem://"+name)
	if err != nil {
		panic(err)
	}
	if err := conn.Ensure(ctx, e); err != nil {
		panic(err)
	}
	if pub, err = conn.OpenPublisher(ctx, e.Topic); err != nil {
		panic(err)
	}
	if rcv, err = conn.OpenReceiver(ctx, e.Subscription); err != nil {
		panic(err)
	}
	return conn, pub, rcv
}

func ExampleConsume() {
	conn, pub, rcv := open("example-consume", broker.Entity{Topic: "orders", Subscription: "orders/billing", DeadLetter: "dead"})
	defer conn.Close(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for _, body := range []string{"two apples", "???", "a pear"} {
		if _, err := pub.Publish(ctx, broker.Message{ID: body, Key: "customer-1", Body: []byte(body)}); err != nil {
			fmt.Println(err)
		}
	}

	err := broker.Consume(ctx, rcv, func(ctx context.Context, d *broker.Delivery) error {
		switch string(d.Body) {
		case "???":
			return broker.Poison(errors.New("not an order")) // dead-lettered at once
		case "a pear":
			defer stop() // the handler that runs may finish
		}
		fmt.Printf("bill %s, attempt %d\n", d.Body, d.Attempt.Number)
		return nil // acked
	}, broker.ConsumeOptions{
		Workers:     1,
		MaxAttempts: 5, // then dead-lettered
		Backoff:     broker.Backoff{Min: time.Second, Max: time.Minute},
		ErrorHook:   func(err error) { fmt.Println("hook:", err) },
	})
	fmt.Println("ended:", err)
	// Output:
	// bill two apples, attempt 1
	// hook: handle "???", attempt 1: not an order
	// bill a pear, attempt 1
	// ended: <nil>
}

// AtMostOnce suits what is worth nothing late and harmful twice.
func ExampleConsume_atMostOnce() {
	conn, pub, rcv := open("example-at-most-once", broker.Entity{Topic: "readings", Subscription: "readings/gauge"})
	defer conn.Close(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if _, err := pub.Publish(ctx, broker.Message{ID: "reading-1", Body: []byte("21.5")}); err != nil {
		fmt.Println(err)
	}
	err := broker.Consume(ctx, rcv, func(ctx context.Context, d *broker.Delivery) error {
		defer stop()
		fmt.Printf("show %s\n", d.Body)
		return errors.New("the display is off") // told to the hook, not tried again
	}, broker.ConsumeOptions{Semantics: broker.AtMostOnce, ErrorHook: func(err error) { fmt.Println("hook:", err) }})
	fmt.Println("ended:", err)
	// Output:
	// show 21.5
	// hook: handle "reading-1", attempt 1: the display is off
	// ended: <nil>
}

// A message that somebody else is at work on comes again later, at no cost.
func ExamplePostpone() {
	conn, pub, rcv := open("example-postpone", broker.Entity{Topic: "orders", Subscription: "orders/billing"})
	defer conn.Close(context.Background())
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if _, err := pub.Publish(ctx, broker.Message{ID: "order-17"}); err != nil {
		fmt.Println(err)
	}
	inFlight := true
	err := broker.Consume(ctx, rcv, func(ctx context.Context, d *broker.Delivery) error {
		if inFlight {
			inFlight = false
			return broker.Postpone(errors.New("in flight elsewhere"), time.Millisecond)
		}
		fmt.Println("handled", d.ID)
		stop()
		return nil
	}, broker.ConsumeOptions{Workers: 1, MaxAttempts: 1, ErrorHook: func(err error) { fmt.Println("hook:", err) }})
	fmt.Println("ended:", err)
	// Output:
	// hook: handle "order-17", attempt 1: in flight elsewhere
	// handled order-17
	// ended: <nil>
}

func ExampleRetry() {
	conn, pub, _ := open("example-retry", broker.Entity{Topic: "orders", Subscription: "orders/billing"})
	defer conn.Close(context.Background())

	// The window comes from the publisher: no attempt ends after it.
	retrying := broker.Retry(pub, broker.RetryPolicy{
		Attempts:  5,
		PerTry:    2 * time.Second,
		Backoff:   broker.Backoff{Min: 50 * time.Millisecond, Max: time.Second},
		ErrorHook: func(err error) { slog.Warn("orders", "error", err) },
	})
	fmt.Println("window:", retrying.Limits().Window)

	receipts, err := retrying.Publish(context.Background(), broker.Message{ID: "order-17"})
	fmt.Println(receipts[0].Verdict, err)

	// An attempt of an hour ago, by a producer that crashed: it may be stored,
	// and the broker has forgotten its ID.
	receipts, err = retrying.Publish(context.Background(), broker.Message{ID: "order-16", Time: time.Now().Add(-time.Hour)})
	fmt.Println(receipts[0].Verdict, errors.Is(err, broker.ErrWindowExceeded))
	// Output:
	// window: 2m0s
	// Stored <nil>
	// Unknown true
}

func ExampleNewBatcher() {
	conn, pub, _ := open("example-batcher", broker.Entity{Topic: "orders", Subscription: "orders/billing"})
	defer conn.Close(context.Background())

	// Up to four batches in flight, each of up to 100 messages. The retries go
	// under the Batcher, so that they keep the order of keys.
	batcher := broker.NewBatcher(broker.Retry(pub, broker.RetryPolicy{}), 4, 100)

	// Publish joins the batch that grows, as many goroutines as there are.
	receipts, err := batcher.Publish(context.Background(), broker.Message{ID: "order-1", Key: "customer-1"})
	fmt.Println(receipts[0].Verdict, err)

	if err := batcher.Close(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output: Stored <nil>
}

func ExampleBatcher_Go() {
	conn, pub, _ := open("example-batcher-go", broker.Entity{Topic: "orders", Subscription: "orders/billing"})
	defer conn.Close(context.Background())

	batcher := broker.NewBatcher(pub, 1, 100)
	stored := 0
	for i := range 1000 {
		m := broker.Message{ID: fmt.Sprintf("order-%d", i), Key: "customer-1"}
		batcher.Go(context.Background(), m, func(r broker.Receipt) {
			if r.Verdict == broker.Stored {
				stored++ // one lane, so one goroutine
			}
		})
	}
	// Close waits until every message has its receipt.
	if err := batcher.Close(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(stored)
	// Output: 1000
}
