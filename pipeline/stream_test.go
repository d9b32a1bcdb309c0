package pipeline_test

import (
	"context"
	"database/sql"
	"fmt"
	neturl "net/url"
	"testing"

	_ "github.com/onceline/onceline/adapters/rabbitmq"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"
	"github.com/onceline/onceline/pipeline"
)

// TestStreams: a stream of RabbitMQ is a source too. What was acked to it doesn't
// count: where to go on is the record's business.
func TestStreams(t *testing.T) {
	t.Parallel()
	e, err := localstack.StartRabbitMQ(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	at, err := neturl.Parse(e.URL())
	if err != nil {
		t.Fatal(err)
	}
	url := "rabbitmq://" + at.Host + "/?queue=stream&stream-port=" + at.Port()
	conn := open(t, url)
	if err := conn.Ensure(t.Context(), broker.Entity{Topic: "in", Subscription: "in/test"}); err != nil {
		t.Fatal(err)
	}
	pub, err := conn.OpenPublisher(t.Context(), "in")
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close(context.Background())
	s := openStore(t, file(t))
	apply, read := ledger(t, s)
	want := map[string][]string{}
	n := 0
	for round := range 3 {
		msgs := make([]broker.Message, 100)
		for i := range msgs {
			key := fmt.Sprintf("k%d", n%4)
			msgs[i] = broker.Message{ID: fmt.Sprintf("m%04d", n), Key: key, Body: fmt.Appendf(nil, "m%04d", n)}
			want[key] = append(want[key], fmt.Sprintf("%d m%04d", len(want[key])+1, n))
			n++
		}
		if _, err := pub.Publish(t.Context(), msgs...); err != nil {
			t.Fatal(err)
		}
		broken := once("m0150")
		op := counting{before: func(in *pipeline.Input) error {
			if broken(in.ID) {
				return errBroken
			}
			return nil
		}}
		name := fmt.Sprintf("in/other%d", round) // of which the broker knows no offset
		source := pipeline.From(open(t, url), name)
		source.Name = "in"
		r := start(t, pipeline.Config[*sql.Tx]{Store: s, Sources: []pipeline.Source{source}, Operator: op.operator(), Sink: pipeline.Database(apply), Options: options()})
		r.processed(t, 100)
		if err := r.stop(t); err != nil {
			t.Fatal(err)
		}
	}
	exactly(t, want, read())
}
