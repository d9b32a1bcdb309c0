package pipeline_test

import (
	"context"
	"database/sql"
	"fmt"
	stdlog "log"
	"os"
	"path/filepath"
	"strconv"
	"time"

	_ "github.com/onceline/onceline/adapters/kafka"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/localstack"
	"github.com/onceline/onceline/pipeline"
)

// Orders are summed up by customer; each order makes a message with the customer's
// new total.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	check := func(err error) {
		if err != nil {
			stdlog.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "")
	check(err)
	defer os.RemoveAll(dir)
	kafka, err := localstack.StartKafka(ctx) // in a service, a cluster of yours
	check(err)
	defer kafka.Close(context.Background())
	conn, err := broker.Open(ctx, kafka.URL())
	check(err)
	defer conn.Close(context.Background())
	check(conn.Ensure(ctx, broker.Entity{Topic: "orders"}))
	check(conn.Ensure(ctx, broker.Entity{Topic: "totals"}))
	store, err := sqlite.Open(ctx, filepath.Join(dir, "billing.db"), sqlite.Options{})
	check(err)
	defer store.Close()

	totals := pipeline.JSON[map[string]int]{Empty: func() map[string]int { return map[string]int{} }}
	p, err := pipeline.New(pipeline.Config[*sql.Tx]{
		Name:    "billing",
		Store:   store,
		Sources: []pipeline.Source{pipeline.From(conn, "orders/billing")},
		Operator: pipeline.Operator{
			State: &totals,
			Process: func(_ context.Context, in *pipeline.Input, out *pipeline.Out) error {
				amount, err := strconv.Atoi(string(in.Body))
				if err != nil { // the pipeline would come back to it for ever
					out.Emit("totals.dead", in.Message)
					return nil
				}
				totals.Value[in.Key] += amount
				out.Emit("totals", broker.Message{Key: in.Key, Body: []byte(strconv.Itoa(totals.Value[in.Key]))})
				return nil
			},
		},
		Sink:    pipeline.Transactional[*sql.Tx](conn, "billing", pipeline.TransactionalOptions{}),
		Options: pipeline.Options{Interval: 50 * time.Millisecond},
	})
	check(err)
	ended := make(chan error)
	go func() { ended <- p.Run(ctx) }()

	orders, err := conn.OpenPublisher(ctx, "orders")
	check(err)
	_, err = orders.Publish(ctx, broker.Message{ID: "order-1", Key: "ann", Body: []byte("40")}, broker.Message{ID: "order-2", Key: "ann", Body: []byte("2")})
	check(err)
	reader, err := conn.OpenReceiver(ctx, "totals/print")
	check(err)
	defer reader.Close(context.Background())
	for n := 0; n < 2; {
		ds, err := reader.Receive(ctx, 2-n)
		check(err)
		for _, d := range ds {
			fmt.Println(d.Key, string(d.Body), d.ID)
			n++
		}
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// ann 40 billing:orders/billing:p0:0:1:v1
	// ann 42 billing:orders/billing:p0:1:1:v1
	// <nil>
}
