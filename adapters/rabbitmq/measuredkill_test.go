package rabbitmq

import (
	"context"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/localstack"
)

// TestMeasuredYoungQueue is RMQ-F-42: a quorum queue that its node has not written
// down yet comes back from a SIGKILL empty and without a leader. What it had
// confirmed is gone, it confirms nothing any more, and a clean restart doesn't help.
func TestMeasuredYoungQueue(t *testing.T) {
	m := startMeasured(t)
	ch := m.channel(t)
	old := m.declare(t, ch, "old", "quorum", nil)
	mustAcked(t, put(t, ch, "", old, "1"))
	written := time.Now().Add(4 * time.Second) // that is how long the node may take
	eventually(t, "an old queue", func() bool { return time.Now().After(written) })
	young := m.declare(t, ch, "young", "quorum", nil)
	mustAcked(t, put(t, ch, "", young, "1"))
	if err := m.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	look := func(when string) {
		if d := fetch(t, m.channel(t), old); string(d.Body) != "1" {
			t.Errorf("%s: the old queue has %q", when, d.Body)
		}
		ch := m.channel(t)
		if n := ready(t, ch, young); n != 0 {
			t.Errorf("%s: the young queue has %d messages", when, n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if ok, err := put(t, ch, "", young, "2").WaitContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: the young queue confirms: %v %v", when, ok, err)
		}
	}
	look("after the kill")
	m.Disconnect() // a node waits long for channels that wait for such a queue
	if err := m.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	look("after a restart")
	// Only a new queue helps.
	if _, err := m.channel(t).QueueDelete(young, false, false, false); err != nil {
		t.Fatal(err)
	}
	ch = m.channel(t)
	mustAcked(t, put(t, ch, "", m.declare(t, ch, "young", "quorum", nil), "3"))
}

// TestMeasuredCluster answers what one node can't.
func TestMeasuredCluster(t *testing.T) {
	m := startMeasured(t, localstack.RabbitMQNodes(3))
	t.Run("RMS-F-18", func(t *testing.T) { duplicateWaits(t, m) })
	t.Run("RMQ-F-43", func(t *testing.T) { electionNacks(t, m) }) // kills a node
}

// electionNacks: on a channel that first publishes between the
// death of a queue's leader and the election of the next one, the broker nacks. What
// is nacked is not stored, and what is acked is. A channel that has published to the
// queue before has its publishes held, and acked by the next leader.
func electionNacks(t *testing.T, m measured) {
	first, err := amqp.Dial("amqp://guest:guest@" + m.node(0) + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	leader, err := first.Channel() // a queue's leader is on the node of who declares it
	if err != nil {
		t.Fatal(err)
	}
	q := m.declare(t, leader, "q", "quorum", nil)
	ch := m.channel(t) // on another node
	mustAcked(t, put(t, ch, "", q, "before"))
	if err := m.KillNode(0); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	waits := put(t, ch, "", q, "by a channel that the queue knows")
	stored, nacks := 2, 0
	var firstNack, lastNack time.Duration
	eventually(t, "a confirm", func() bool {
		ch := m.channel(t)
		if acked(t, put(t, ch, "", q, "after")) {
			stored++
			return true
		}
		if lastNack = time.Since(killed); nacks == 0 {
			firstNack = lastNack
		}
		nacks++
		return false
	})
	t.Logf("%d nacks, from %s to %s after the kill; acked at %s", nacks, firstNack, lastNack, time.Since(killed))
	mustAcked(t, waits)
	ch = m.channel(t)
	for range stored {
		if err := fetch(t, ch, q).Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	if d, more, err := ch.Get(q, false); err != nil || more {
		t.Errorf("%q is there beside the %d that were acked: %v", d.Body, stored, err)
	}
}
