package kafka

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func TestShareDeadLetter(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c, shares)
	e := broker.Entity{Topic: "t", Subscription: "t/g", MaxDeliveries: 2, DeadLetter: "dead"}
	if err := conn.Ensure(ctxOf(t, 5*time.Second), e); err != nil {
		t.Fatal(err)
	}
	ms := messages(2, 0, "k")
	ms[0].Headers = broker.Headers{{Key: "h", Value: "v"}}
	publish(t, openPublisher(t, conn, "t"), ms...)
	r := openReceiver(t, conn, "t/g")
	for n := 1; n <= 2; n++ {
		ds := receive(t, r, 2)
		if ds[0].Attempt.Number != n {
			t.Fatalf("attempt %d, want %d", ds[0].Attempt.Number, n)
		}
		wantStates(t, settle(t, r, broker.Nack, ds[0]), broker.Confirmed)
		if n == 1 {
			wantStates(t, settle(t, r, broker.Nack, ds[1]), broker.Confirmed)
		} else {
			wantStates(t, settle(t, r, broker.DeadLetter, ds[1]), broker.Confirmed)
		}
	}
	if left := tryReceive(t, r, 1, 200*time.Millisecond); len(left) > 0 {
		t.Fatalf("%v came a third time", ids(left))
	}
	wantLetters(t, conn, "t/g", "m-0", "m-1")
}

// wantLetters reads topic "dead" and checks identity, headers and origin.
func wantLetters(t testing.TB, conn broker.Conn, source string, want ...string) {
	t.Helper()
	var cl *kgo.Client
	conn.As(&cl)
	rd, err := kgo.NewClient(kgo.SeedBrokers(cl.OptValue(kgo.SeedBrokers).([]string)...), kgo.ConsumeTopics("dead"), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var got []string
	for len(got) < len(want) {
		fs := rd.PollRecords(ctx, 10)
		if err := fs.Err(); err != nil {
			t.Fatalf("%v after letters %v", err, got)
		}
		for _, rec := range fs.Records() {
			var m broker.Message
			decode(&m, rec, nil, 1)
			got = append(got, m.ID)
			if m.Headers.Get(driver.HeaderSource) != source || m.Headers.Get(driver.HeaderAttempts) == "" || m.Headers.Get(driver.HeaderReason) == "" {
				t.Errorf("letter %s: headers %v", m.ID, m.Headers)
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("letters %v, want %v", got, want)
	}
}

// Leadership moves: nothing is lost, and held messages are refused.
func TestShareLeaderMoves(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 3, kfake.NumBrokers(3))
	conn := shareConn(t, c)
	p := openPublisher(t, conn, "t")
	publish(t, p, messages(30, 0, "a", "b", "c", "d", "e", "f")...)
	r := openReceiver(t, conn, "t/g")
	seen := map[string]bool{}
	take := func(n int) {
		for range n {
			ds := tryReceive(t, r, 1, 10*time.Second)
			if len(ds) == 0 {
				t.Fatalf("%d of 60 arrived", len(seen))
			}
			for i, o := range settle(t, r, broker.Ack, ds...) {
				if o.State == broker.Confirmed {
					seen[ds[i].ID] = true
				}
			}
		}
	}
	take(10)
	for part := range int32(3) {
		leader := c.LeaderFor("t", part)
		if err := c.MoveTopicPartition("t", part, (leader+1)%3); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, p, messages(30, 30, "a", "b", "c", "d", "e", "f")...)
	for len(seen) < 60 {
		take(1)
	}
}

// Holes in the offsets, here a transaction's markers, are settled by the
// receiver: they hold nothing up and are nobody's message.
func TestShareHoles(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1, lockOf("1000"))
	conn := shareConn(t, c)
	p := openPublisher(t, conn, "t")
	transact(t, conn, true, messages(2, 0)...)
	publish(t, p, messages(1, 2)...)
	r := openReceiver(t, conn, "t/g")
	ds := receive(t, r, 3)
	if !slices.Equal(ids(ds), []string{"m-0", "m-1", "m-2"}) || ds[2].Position.Offset != 3 {
		t.Fatalf("received %v, the last at %d", ids(ds), ds[2].Position.Offset)
	}
	wantStates(t, settle(t, r, broker.Ack, ds...), broker.Confirmed)
	// The group has passed all, the marker too.
	eventually(t, "the group is at the end", func() bool {
		var cl *kgo.Client
		conn.As(&cl)
		os, err := kadm.NewClient(cl).DescribeShareGroupOffsets(ctxOf(t, 5*time.Second), "g")
		if err != nil {
			return false
		}
		o, ok := os["g"].Offsets["t"][0]
		return ok && o.StartOffset == 4
	})
}
