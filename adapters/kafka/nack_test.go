package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
)

func TestGroupNackComesAgainInOrder(t *testing.T) {
	t.Parallel()
	for _, ordered := range []bool{false, true} {
		t.Run(fmt.Sprint("ordered=", ordered), func(t *testing.T) {
			t.Parallel()
			c, _ := cluster(t, 1)
			conn := dial(t, c, func(o *Options) { o.Ordered = ordered })
			p := openPublisher(t, conn, "t")
			publish(t, p, messages(1, 0, "k")...)
			r := openReceiver(t, conn, "t/g")
			d := receive(t, r, 1)[0]
			if d.Attempt != (broker.Attempt{Number: 1, Trust: broker.Approximate}) || !d.Lease.IsZero() {
				t.Fatalf("first delivery: %+v, lease %v", d.Attempt, d.Lease)
			}
			const delay = 300 * time.Millisecond
			begun := time.Now()
			if o, err := d.Nack(ctxOf(t, time.Second), delay); err != nil || o.State != broker.Confirmed {
				t.Fatal(o, err)
			}
			publish(t, p, messages(2, 1, "k")...)
			publish(t, p, messages(1, 3, "other")...)
			// Another key flows meanwhile; the same key waits.
			if got := receive(t, r, 1); got[0].ID != "m-3" {
				t.Fatalf("beside a nacked record of key k came %s", got[0].ID)
			} else {
				wantStates(t, settle(t, r, broker.Ack, got...), broker.Pending)
			}
			again := receive(t, r, 1)[0]
			if waited := time.Since(begun); again.ID != "m-0" || again.Attempt.Number != 2 || waited < delay {
				t.Fatalf("%s, attempt %d after %v", again.ID, again.Attempt.Number, waited)
			}
			if at := committedAt(t, conn, "g", 0); at > 0 {
				t.Fatalf("committed %d past a nacked record", at)
			}
			if got := tryReceive(t, r, 1, 100*time.Millisecond); len(got) > 0 {
				t.Fatalf("%s came before %s was settled", got[0].ID, again.ID)
			}
			wantStates(t, settle(t, r, broker.Ack, again), broker.Confirmed)
			var order []string
			for range 2 {
				got := receive(t, r, 1)
				order = append(order, ids(got)...)
				wantStates(t, settle(t, r, broker.Ack, got...), broker.Confirmed)
			}
			if !slices.Equal(order, []string{"m-1", "m-2"}) {
				t.Fatalf("then came %v", order)
			}
			if at := committedAt(t, conn, "g", 0); at != 4 {
				t.Fatalf("committed %d, want 4", at)
			}
		})
	}
}

// With Ordered, no two messages of a key are in hand at once.
func TestGroupOrderedHandsOutOnePerKey(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 2)
	conn := dial(t, c)
	e := broker.Entity{Topic: "t", Subscription: "t/g", Ordered: true}
	if err := conn.Ensure(ctxOf(t, 5*time.Second), e); err != nil {
		t.Fatal(err)
	}
	publish(t, openPublisher(t, conn, "t"), messages(40, 0, "a", "b", "c", "d")...)
	r := openReceiver(t, conn, "t/g")
	last := map[string]int{}
	nacked := map[string]bool{}
	for done := 0; done < 40; {
		ds, err := r.Receive(ctxOf(t, 5*time.Second), 10)
		if err != nil {
			t.Fatalf("stuck after %d: %v", done, err)
		}
		seen := map[string]bool{}
		for _, d := range ds {
			if seen[d.Key] {
				t.Fatalf("two of key %s in hand", d.Key)
			}
			seen[d.Key] = true
			var n int
			fmt.Sscanf(d.ID, "m-%d", &n)
			if before, ok := last[d.Key]; ok && n != before+4 {
				t.Fatalf("key %s: %d after %d", d.Key, n, before)
			}
			if !nacked[d.ID] && rand.IntN(3) == 0 {
				nacked[d.ID] = true
				wantStates(t, settle(t, r, broker.Nack, d), broker.Confirmed)
				continue
			}
			last[d.Key] = n
			settle(t, r, broker.Ack, d)
			done++
		}
	}
}

// dapr/components-contrib#3849: a message in its retry cycle outlives a
// rebalance; the next owner gets it.
func TestCaseNackedMessageMovesWithItsPartition(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(3, 0)...)
	a := openReceiver(t, conn, "t/g")
	ds := receive(t, a, 3)
	wantStates(t, settle(t, a, broker.Nack, ds[0]), broker.Confirmed)
	settle(t, a, broker.Ack, ds[1], ds[2])
	b := openReceiver(t, conn, "t/g")
	closed := make(chan error, 1)
	go func() { closed <- a.Close(ctxOf(t, 5*time.Second)) }()
	got := receive(t, b, 3)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if got[0].ID != "m-0" {
		t.Fatalf("the next owner got %v", ids(got))
	}
	wantStates(t, settle(t, b, broker.Ack, got...), broker.Confirmed)
}

// dapr/components-contrib#3529: a poison message that is retried when the
// receiver closes is there after the restart.
func TestCaseNackedMessageSurvivesClose(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(1, 0)...)
	for range 3 {
		r := openReceiver(t, conn, "t/g")
		d := receive(t, r, 1)[0]
		if d.ID != "m-0" || d.Attempt.Number != 1 {
			t.Fatalf("%s, attempt %d", d.ID, d.Attempt.Number)
		}
		if _, err := d.Nack(ctxOf(t, time.Second), time.Hour); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if ds, err := r.Receive(ctx, 1); err == nil {
			t.Fatalf("received %v before its delay", ids(ds))
		}
		cancel()
		if err := r.Close(ctxOf(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
}
