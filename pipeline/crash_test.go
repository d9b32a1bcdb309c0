package pipeline_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"
)

// startKafka starts the model in this process.
func startKafka(t *testing.T, options ...localstack.KafkaOption) (*localstack.Kafka, broker.Conn) {
	t.Helper()
	k, err := localstack.StartKafka(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return k, open(t, k.URL())
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

// publish adds n messages of a few keys to a topic, and returns what a counting
// operator makes of them.
func publish(t *testing.T, conn broker.Conn, topic string, n int) map[string][]string {
	t.Helper()
	pub, err := conn.OpenPublisher(t.Context(), topic)
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
		for i := range ds {
			all = append(all, ds[i].Message)
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
	const total = 600
	for _, sink := range []string{"transactional", "database"} {
		t.Run(sink, func(t *testing.T) {
			t.Parallel()
			k, conn := startKafka(t, localstack.KafkaTopics(2, "in", "out"))
			path := file(t)
			s := openStore(t, path)
			_, read := ledger(t, s)
			want := publish(t, conn, "in", total)
			kills := 0
			for n := 0; ; n++ {
				steps := []string{"prepare", "prepared", "recorded", "resolved", "marked", "committed", "recorded", "prepared"}
				env := map[string]string{childFile: path, childURL: k.URL() + "?instance=a", childSink: sink, childTotal: strconv.Itoa(total), childSkip: strconv.Itoa(n % 2)}
				if n < len(steps) {
					env[childStep] = steps[n]
				}
				if steps := env[childStep]; steps == "resolved" || steps == "marked" {
					if sink != "transactional" {
						continue // nothing is prepared
					}
					env[childSkip] = "0"
				}
				if !spawn(t, env) {
					if n < len(steps) {
						t.Errorf("the child wasn't killed at %q, its number %d", env[childStep], n)
					}
					break
				}
				kills++
			}
			if kills < 6 {
				t.Errorf("%d processes were killed", kills)
			}
			if sink == "transactional" {
				exactly(t, want, received(t, conn, "out/check", total))
				return
			}
			exactly(t, want, read())
		})
	}
}
