package localstack_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The leader of a partition is killed between records that must all be stored; the
// node comes back.
func TestKafkaServerCluster(t *testing.T) {
	e := startKafkaServer(t, localstack.KafkaBrokers(3), localstack.KafkaTopics(1, "a"))
	for _, pid := range e.Pids() {
		t.Logf("memory %s", resident(pid))
	}
	cl := kafkaClient(t, e.URL())
	for n := range 100 {
		if n == 50 {
			topics, err := kadm.NewClient(cl).ListTopics(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			p := topics["a"].Partitions[0]
			if len(p.Replicas) != 3 {
				t.Errorf("partition on %v, want three nodes", p.Replicas)
			}
			pid := e.Pids()[p.Leader]
			if err := e.KillNode(int(p.Leader)); err != nil {
				t.Fatal(err)
			}
			gone(t, pid)
			defer func() {
				began := time.Now()
				if err := e.StartNode(t.Context(), int(p.Leader)); err != nil {
					t.Error(err)
				}
				t.Logf("the node was back after %v", time.Since(began).Round(time.Millisecond))
			}()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "a", Value: []byte(itoa(n))}).FirstErr(); err != nil {
			t.Fatalf("record %d: %v", n, err)
		}
		cancel()
	}
	if n := logEnd(t, cl, "a"); n != 100 {
		t.Errorf("%d records, want 100", n)
	}
}

// A quorum queue lives on when the node of its leader is killed.
func TestRabbitMQServerCluster(t *testing.T) {
	e := startReal(t, func(ctx context.Context) (*localstack.RabbitMQServer, error) {
		return localstack.StartRabbitMQServer(ctx, localstack.RabbitMQNodes(3))
	})
	for _, pid := range e.Pids() {
		t.Logf("memory %s", resident(pid))
	}
	urls := strings.Split(strings.TrimPrefix(e.URL(), "rabbitmq://"), ",")
	if len(urls) != 3 {
		t.Fatalf("URL %s has not three nodes", e.URL())
	}
	c := rabbitConnect(t, "rabbitmq://"+urls[0]) // which is where its queue's leader comes to be
	c.declare("q", "quorum")
	c.stored("q", "1")
	pid := e.Pids()[0]
	if err := e.KillNode(0); err != nil {
		t.Fatal(err)
	}
	gone(t, pid)
	// Until the queue has a new leader the broker refuses what is published, and a
	// channel that has seen that (of 3.10) goes on to.
	var other *rabbitClient
	refused := 0
	eventually(t, func() (string, bool) {
		other = rabbitConnect(t, "rabbitmq://"+urls[1])
		ok, err := other.publish("q", "2", 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			refused++
		}
		return "", ok
	})
	t.Logf("%d publishes were refused", refused)
	if got := other.drain("q"); !strings.HasPrefix(got, "1 2") {
		t.Errorf("the queue held %q", got)
	}
	began := time.Now()
	if err := e.StartNode(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	t.Logf("the node was back after %v", time.Since(began).Round(time.Millisecond))
	c = rabbitConnect(t, "rabbitmq://"+urls[0])
	c.stored("q", "3")
	if got := c.drain("q"); got != "3" {
		t.Errorf("the queue held %q", got)
	}
	if slices.Contains(e.Pids(), 0) {
		t.Errorf("nodes %v", e.Pids())
	}
}
