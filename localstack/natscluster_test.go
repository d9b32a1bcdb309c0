package localstack_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/onceline/onceline/localstack"
)

func TestNATSCluster(t *testing.T) {
	local(t)                                // elections take their seconds
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else a race-enabled child takes a second to exit
	began := time.Now()
	e, err := localstack.StartNATSCluster(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ready in %v, memory of a node %s", time.Since(began).Round(time.Millisecond), resident(e.Pids()[0]))
	closeAtEnd(t, e)
	nc, err := nats.Connect(e.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(5*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(id int) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.Publish(ctx, "s.a", nil, jetstream.WithMsgID(strconv.Itoa(id)))
		return err
	}
	lost := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 1})
	if err := publish(0); err == nil {
		t.Error("the lost response has arrived")
	}
	counts(t, lost, 1, 1, 0)
	stored := 0
	for id := range 100 { // the first one again
		if id == 50 {
			leader := leaderOf(t, s)
			pid := e.Pids()[leader]
			if err := e.KillNode(t.Context(), leader); err != nil {
				t.Fatal(err)
			}
			gone(t, pid)
			defer func() {
				if err := e.StartNode(t.Context(), leader); err != nil {
					t.Errorf("start of the killed node: %v", err)
				}
			}()
		}
		for {
			if err := publish(id); err == nil {
				stored++
				break
			}
			if t.Context().Err() != nil {
				t.Fatal(t.Context().Err())
			}
		}
	}
	holds := func(want uint64) {
		t.Helper()
		got := eventually(t, func() (string, bool) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			info, err := s.Info(ctx)
			if err != nil {
				return err.Error(), false
			}
			return fmt.Sprint(info.State.Msgs), info.State.Msgs == want
		})
		if got != fmt.Sprint(want) {
			t.Errorf("the stream holds %s, want %d", got, want)
		}
	}
	holds(100)
	began = time.Now()
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("kill of all took %v", time.Since(began).Round(time.Millisecond))
	holds(100)
}

// leaderOf returns the number of the node that leads a stream.
func leaderOf(t *testing.T, s jetstream.Stream) int {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimPrefix(info.Cluster.Leader, "node-"))
	if err != nil {
		t.Fatalf("leader %q", info.Cluster.Leader)
	}
	return n
}
