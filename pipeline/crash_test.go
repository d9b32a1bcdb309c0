package pipeline_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	_ "github.com/onceline/onceline/adapters/nats"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/sqlite"
	"github.com/onceline/onceline/localstack"
	"github.com/onceline/onceline/pipeline"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// stage is a Kafka with topics "in" and "out", under names of the test's own.
type stage struct {
	url   string
	conn  broker.Conn
	names string
}

// newStage makes the topics.
func newStage(t *testing.T, url, names string, partitions int) *stage {
	t.Helper()
	g := &stage{url: url, conn: open(t, url), names: names}
	for _, topic := range []string{"in", "out"} {
		if err := g.conn.Ensure(t.Context(), broker.Entity{Topic: names + topic, Partitions: partitions}); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// model is a stage on the model, in this process, with one of the two versions of
// transactions.
func model(t *testing.T, version int16, partitions int) *stage {
	t.Helper()
	k, err := localstack.StartKafka(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	g := newStage(t, k.URL(), "", partitions)
	if version == 1 {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		u.Feature, u.MaxVersionLevel, u.UpgradeType = "transaction.version", 1, 2
		req.FeatureUpdates = append(req.FeatureUpdates, u)
		resp, err := req.RequestWith(t.Context(), g.client(t))
		if err != nil || resp.ErrorCode != 0 {
			t.Fatalf("%+v: %v", resp, err)
		}
	}
	return g
}

func (g *stage) client(t *testing.T) (client *kgo.Client) {
	t.Helper()
	if !g.conn.As(&client) {
		t.Fatal("no client")
	}
	return client
}

// env is that of a child which kills itself at a step, after so many of them.
func (g *stage) env(path, sink string, total int, step string, skip int) map[string]string {
	return map[string]string{childFile: path, childURL: g.url + "?instance=a", childNames: g.names, childSink: sink,
		childTotal: strconv.Itoa(total), childStep: step, childSkip: strconv.Itoa(skip)}
}

// config is that of a pipeline in this process, with what a child has too.
func (g *stage) config(t *testing.T, s *sqlite.Store) pipeline.Config[*sql.Tx] {
	conn := open(t, g.url+"?instance=a")
	op := counting{topic: g.names + "out"}
	return pipeline.Config[*sql.Tx]{Name: "crash", Store: s, Sources: []pipeline.Source{pipeline.From(conn, g.names+"in/crash")}, Operator: op.operator(),
		Sink: pipeline.Transactional[*sql.Tx](conn, g.names+"crash", pipeline.TransactionalOptions{}), Options: options()}
}

func open(t *testing.T, url string) broker.Conn {
	t.Helper()
	conn, err := broker.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// publish adds n messages of a few keys to the input, and returns what a counting
// operator makes of them.
func (g *stage) publish(t *testing.T, n int) map[string][]string {
	t.Helper()
	pub, err := g.conn.OpenPublisher(t.Context(), g.names+"in")
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close(context.Background())
	want := map[string][]string{}
	msgs := make([]broker.Message, n)
	for i := range msgs {
		key := fmt.Sprintf("k%d", i%7)
		msgs[i] = broker.Message{ID: fmt.Sprintf("m%04d", i), Key: key, Body: fmt.Appendf(nil, "m%04d", i)}
		want[key] = append(want[key], fmt.Sprintf("%d m%04d", len(want[key])+1, i))
	}
	if _, err := pub.Publish(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
	return want
}

// received reads n messages of a subscription, and what comes behind them in a short
// time.
func received(t *testing.T, conn broker.Conn, subscription string, n int) (all []broker.Message) {
	t.Helper()
	r, err := conn.OpenReceiver(t.Context(), subscription)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	for {
		wait := patience
		if len(all) >= n {
			wait = 200 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		ds, err := r.Receive(ctx, 1000)
		cancel()
		settles := make([]broker.Settlement, len(ds))
		for i := range ds {
			all = append(all, ds[i].Message)
			settles[i] = broker.Settlement{Delivery: &ds[i], Action: broker.Ack}
		}
		if err := r.Settle(t.Context(), settles); err != nil { // or a lease ends on a slow machine
			t.Errorf("ack: %v", err)
		}
		if err != nil {
			if len(all) < n {
				t.Errorf("received %d of %d: %v", len(all), n, err)
			}
			return all
		}
	}
}

// TestKilled: processes are killed at each step of a checkpoint and of a recovery,
// one after another. Readers of committed messages see each output once, in order,
// with the number that the state gave it.
func TestKilled(t *testing.T) {
	t.Parallel()
	t.Run("transactional/2", func(t *testing.T) { t.Parallel(); killed(t, model(t, 2, 2), "transactional") })
	t.Run("transactional/1", func(t *testing.T) { t.Parallel(); killed(t, model(t, 1, 2), "transactional") })
	t.Run("outbox", func(t *testing.T) { t.Parallel(); killed(t, model(t, 2, 2), "outbox") })
}

func killed(t *testing.T, g *stage, sink string) {
	const total = 600
	path := file(t)
	s := openStore(t, path)
	want := g.publish(t, total)
	steps := []string{"prepare", "prepared", "recorded", "committed", "prepare", "recorded"}
	if sink == "transactional" { // the other prepares nothing that would be resolved
		steps = []string{"prepare", "prepared", "recorded", "resolved", "marked", "committed", "recorded", "prepared"}
	}
	for n, step := range steps {
		skip := n % 2
		if step == "resolved" || step == "marked" {
			skip = 0
		}
		if !spawn(t, g.env(path, sink, total, step, skip)) {
			t.Fatalf("the child wasn't killed at %q", step)
		}
	}
	if spawn(t, g.env(path, sink, total, "", 0)) {
		t.Fatal("the last child was killed")
	}
	switch sink {
	case "transactional":
		exactly(t, want, received(t, g.conn, g.names+"out/check", total))
	case "outbox":
		exactly(t, want, relayed(t, s, total))
	}
}

// relayed sends the outbox to NATS, and returns what is there.
func relayed(t *testing.T, s *sqlite.Store, total int) []broker.Message {
	t.Helper()
	e, err := localstack.StartNATS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	conn := open(t, e.URL())
	if err := conn.Ensure(t.Context(), broker.Entity{Topic: "out", Subscription: "out/check"}); err != nil {
		t.Fatal(err)
	}
	pub, err := conn.OpenPublisher(t.Context(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close(context.Background())
	e.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 2})
	relay := dedup.NewRelay(s, "out", pub, dedup.RelayOptions{PublishTimeout: 300 * time.Millisecond, Backoff: broker.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond}, ErrorHook: func(error) {}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	all := received(t, conn, "out/check", total)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return all
}

// TestStoodStill: a process stands still in the middle of a checkpoint, another one
// takes the pipeline over, and then the first goes on.
func TestStoodStill(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"prepare", "prepared", "recorded", "committed"} {
		t.Run(step, func(t *testing.T) { t.Parallel(); stoodStill(t, model(t, 1, 2), step) })
	}
}

func stoodStill(t *testing.T, g *stage, at string) {
	const total = 200
	path := file(t)
	want := g.publish(t, total)
	config := g.config(t, openStore(t, path))
	config.Options.MaxInput = 30
	still, goOn := make(chan struct{}), make(chan struct{})
	first, err := pipeline.New(config)
	if err != nil {
		t.Fatal(err)
	}
	var times int
	pipeline.AtStep(first, func(step string) {
		if step != at {
			return
		}
		if times++; times == 2 {
			close(still)
			<-goOn
		}
	})
	stopped := run(t, first)
	<-still
	second := start(t, g.config(t, openStore(t, path)))
	exactly(t, want, received(t, g.conn, g.names+"out/check", total))
	close(goOn)
	if err := stopped.wait(t); !errors.Is(err, pipeline.ErrFenced) {
		t.Errorf("the one that stood still: %v", err)
	}
	if err := second.stop(t); err != nil {
		t.Error(err)
	}
	exactly(t, want, received(t, g.conn, g.names+"out/again", total))
}
