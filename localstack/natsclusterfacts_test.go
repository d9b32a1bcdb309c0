package localstack_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/onceline/onceline/localstack"
)

// natsReplicated starts three nodes and makes a stream of three replicas on them,
// with a consumer.
func natsReplicated(t *testing.T, retention jetstream.RetentionPolicy) (*localstack.NATSCluster, *natsClient) {
	t.Helper()
	local(t)
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	e, err := localstack.StartNATSCluster(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, e)
	c := natsConnect(t, e.URL())
	again(t, "the stream", func(ctx context.Context) error { // the leader may not know all nodes yet
		c.stream, err = c.js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Retention: retention, Replicas: 3})
		return err
	})
	again(t, "the consumer", func(ctx context.Context) error {
		c.consumer, err = c.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second})
		return err
	})
	return e, c
}

// again does it until it succeeds, for longer than elections take.
func again(t *testing.T, what string, do func(ctx context.Context) error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := do(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) || t.Context().Err() != nil {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
		}
	}
}

// publishAgain publishes until there is an answer.
func (c *natsClient) publishAgain(id string) (a *jetstream.PubAck) {
	c.Helper()
	again(c.T, "publish", func(ctx context.Context) (err error) {
		a, err = c.js.Publish(ctx, "s.a", nil, jetstream.WithMsgID(id))
		return err
	})
	return a
}

// NATS-F-08: replicas remember an acked message's ID each for itself. One that restarts
// forgets it, unless it reads the message again in its log; so a leader that wasn't
// restarted knows it, and one that was may not.
func TestFactRollingRestartForgetsAckedIDs(t *testing.T) {
	e, c := natsReplicated(t, jetstream.WorkQueuePolicy)
	leader := func() (name string) {
		again(t, "all replicas", func(ctx context.Context) error { // else one that knows could be out of step
			info, err := c.stream.Info(ctx)
			if err != nil {
				return err
			}
			if name = info.Cluster.Leader; name == "" || len(info.Cluster.Replicas) != 2 {
				return errors.New("no leader")
			}
			for _, r := range info.Cluster.Replicas {
				if !r.Current || r.Offline {
					return fmt.Errorf("%s isn't current", r.Name)
				}
			}
			return nil
		})
		return name
	}
	takeNext := func() { // the consumer's leader may be on its way, too
		again(t, "the message", func(ctx context.Context) error {
			m, err := c.consumer.Next(jetstream.FetchMaxWait(500 * time.Millisecond))
			if err != nil {
				return err
			}
			return m.DoubleAck(ctx)
		})
	}
	forgotten := func(id string) bool {
		c.publishAgain(id)
		takeNext()
		restarted := map[string]bool{}
		for n := range 3 {
			if err := e.StopNode(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			if err := e.StartNode(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			restarted["node-"+strconv.Itoa(n)] = true
			before := leader()
			a := c.publishAgain(id)
			after := leader()
			t.Logf("%s after the restart of node %d: duplicate %v, by %s", id, n, a.Duplicate, before)
			if !a.Duplicate {
				if before == after && !restarted[before] {
					t.Errorf("%s is forgotten by %s, which wasn't restarted", id, before)
				}
				return true
			}
		}
		return false
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		if forgotten(id) {
			return
		}
	}
	t.Error("no rolling restart of four made an ID forgotten")
}

// NATS-F-06: a publish whose ID is being replicated is answered with an error that
// says so, and neither stored nor a duplicate.
func TestFactInProcess(t *testing.T) {
	_, c := natsReplicated(t, jetstream.LimitsPolicy)
	const ids, attempts = 200, 4
	var mu sync.Mutex
	inProcess, stored, duplicate := 0, 0, 0
	for id := range ids {
		var all sync.WaitGroup
		for range attempts {
			all.Go(func() {
				a, err := c.js.Publish(t.Context(), "s.a", nil, jetstream.WithMsgID(strconv.Itoa(id)))
				mu.Lock()
				defer mu.Unlock()
				var api *jetstream.APIError
				switch {
				case err == nil && a.Duplicate:
					duplicate++
				case err == nil:
					stored++
				case errors.As(err, &api) && api.ErrorCode == 10158 && api.Code == 409:
					inProcess++
				default:
					t.Errorf("publish: %v", err)
				}
			})
		}
		all.Wait()
	}
	t.Logf("of %d publishes: %d stored, %d duplicates, %d in process", ids*attempts, stored, duplicate, inProcess)
	if stored != ids || inProcess == 0 || c.stored() != ids {
		t.Errorf("%d of %d IDs stored, %d in the stream, %d in process", stored, ids, c.stored(), inProcess)
	}
}

// NATS-F-41: an ack that a single node confirmed can be gone after SIGKILL.
func TestFactConfirmedAckOfOneNode(t *testing.T) {
	local(t)
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	e := startChild(t, localstack.NATSName)
	c := natsStream(t, e.URL())
	const each = 20
	for round := range 5 { // until it is seen
		for i := range each {
			c.mustPublish("s.a", fmt.Sprint(round, "-", i))
		}
		for range each {
			if err := c.next().DoubleAck(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		again(t, "the server", func(ctx context.Context) error { _, err := c.consumer.Info(ctx); return err })
		info := c.consumer.CachedInfo()
		back := info.NumPending + uint64(info.NumAckPending)
		t.Logf("%d of %d confirmed acks are gone", back, each)
		if back > 0 {
			return
		}
		if err := c.stream.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("each confirmed ack outlived the kill")
}

// NATS-F-43: an ack that was confirmed by a replicated consumer outlives SIGKILL of
// all its nodes at once, which on a single node it need not (NATS-F-41).
func TestFactConfirmedAckOfThreeNodes(t *testing.T) {
	e, c := natsReplicated(t, jetstream.LimitsPolicy)
	const rounds, each = 2, 20
	for round := range rounds {
		acked := map[string]bool{}
		for i := range each {
			c.publishAgain(fmt.Sprintf("%d-%d", round, i))
		}
		for range each {
			m := c.next()
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Fatal(err)
			}
			acked[m.Headers().Get("Nats-Msg-Id")] = true
		}
		if err := e.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.publishAgain(fmt.Sprintf("last-%d", round))
		for last := false; !last; {
			var m jetstream.Msg
			again(t, "the last message", func(context.Context) (err error) {
				m, err = c.consumer.Next(jetstream.FetchMaxWait(900 * time.Millisecond))
				return err
			})
			id := m.Headers().Get("Nats-Msg-Id")
			if acked[id] {
				t.Errorf("round %d: %s came again", round, id)
			}
			last = id == fmt.Sprintf("last-%d", round)
			again(t, "ack", m.DoubleAck)
		}
	}
}

// NATS-F-44: of a stream that has no leader for now no node answers, and the
// question isn't kept for the leader to come.
func TestFactNoAnswerWithoutALeader(t *testing.T) {
	e, c := natsReplicated(t, jetstream.LimitsPolicy)
	for range 15 { // until the first question comes before the leader
		if err := e.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		again(t, "the client's reconnect", func(context.Context) error { return c.nc.Flush() })
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		early := make(chan error, 1)
		go func() {
			_, err := c.js.Stream(ctx, "S")
			early <- err
		}()
		again(t, "a later question", func(ctx context.Context) error {
			_, err := c.js.Stream(ctx, "S")
			return err
		})
		took := time.Since(began)
		err := <-early
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			t.Logf("a later question was answered after %v, the early one not in %v", took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("each early question was answered")
}
