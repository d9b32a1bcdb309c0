package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

func nextGen(o *Options) { o.NextGen, o.Session = true, 0 }

func TestGroupPendingThenConfirmed(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(6, 0)...)
	r := openReceiver(t, conn, "t/g")
	ds := receive(t, r, 6)
	wantStates(t, settle(t, r, broker.Ack, ds[1], ds[2]), broker.Pending)
	if at := committedAt(t, conn, "g", 0); at > 0 {
		t.Fatalf("committed %d with record 0 open", at)
	}
	wantStates(t, settle(t, r, broker.Ack, ds[0]), broker.Confirmed)
	wantStates(t, settle(t, r, broker.Ack, ds[1], ds[2]), broker.Confirmed)
	wantStates(t, settle(t, r, broker.Ack, ds[5]), broker.Pending)
	if at := committedAt(t, conn, "g", 0); at != 3 {
		t.Fatalf("committed %d, want 3", at)
	}
	if err := r.Close(ctxOf(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	wantStates(t, settle(t, r, broker.Ack, ds[1]), broker.Confirmed)
	wantStates(t, settle(t, r, broker.Ack, ds[5]), broker.LeaseLost)
	wantStates(t, settle(t, r, broker.Ack, ds[3]), broker.LeaseLost)
	r2 := openReceiver(t, conn, "t/g")
	if got := receive(t, r2, 3); got[0].ID != "m-3" {
		t.Fatalf("the next owner begins at %s", got[0].ID)
	}
}

// What is committed never passes an unsettled record, whatever the order and
// however many settle at once; and in the end all are Confirmed.
func TestGroupCommitsOnlyWhatIsContiguous(t *testing.T) {
	t.Parallel()
	const n, parts = 600, 3
	c, _ := cluster(t, parts)
	conn := dial(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(n, 0, "a", "b", "c", "d", "e", "f", "g", "h")...)
	r := openReceiver(t, conn, "t/g")
	ds := receive(t, r, n)
	var mu sync.Mutex
	open := map[string]map[uint64]bool{} // partition → unsettled offsets
	for _, d := range ds {
		if open[d.Position.Partition] == nil {
			open[d.Position.Partition] = map[uint64]bool{}
		}
		open[d.Position.Partition][d.Position.Offset] = true
	}
	// Every commit that reaches the broker is looked at.
	commits := 0
	c.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		commits++
		for _, tp := range req.(*kmsg.OffsetCommitRequest).Topics {
			for _, p := range tp.Partitions {
				for off := range open[partName(p.Partition)] {
					if off < uint64(p.Offset) {
						t.Errorf("commit of %d/%d passes %d, which is open", p.Partition, p.Offset, off)
					}
				}
			}
		}
		return nil, nil, false
	})
	rand.Shuffle(n, func(i, j int) { ds[i], ds[j] = ds[j], ds[i] })
	var wait sync.WaitGroup
	for w := range 8 {
		wait.Go(func() {
			for i := w; i < n; i += 8 {
				mu.Lock()
				delete(open[ds[i].Position.Partition], ds[i].Position.Offset)
				mu.Unlock()
				if o := settle(t, r, broker.Ack, ds[i])[0]; o.State != broker.Pending && o.State != broker.Confirmed {
					t.Errorf("ack %s: %v (%v)", ds[i].ID, o.State, o.Err)
				}
			}
		})
	}
	wait.Wait()
	wantStates(t, settle(t, r, broker.Ack, ds...), broker.Confirmed)
	if commits >= n {
		t.Errorf("%d commits for %d acks: none were put together", commits, n)
	}
}

// twmb/franz-go#406: acks are not forgotten in a rebalance.
func TestCaseAcksSurviveRebalance(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]func(*Options){"classic": func(*Options) {}, "consumer": nextGen} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := cluster(t, 4)
			conn := dial(t, c, mode)
			publish(t, openPublisher(t, conn, "t"), messages(100, 0, "a", "b", "c", "d", "e", "f", "g", "h")...)
			r := openReceiver(t, conn, "t/g")
			ds := receive(t, r, 100)
			// Record 0 of each partition stays open, the others wait for it: then
			// it is settled with no time for a commit of its own.
			acked := map[string]bool{}
			slices.SortFunc(ds, func(a, b broker.Delivery) int { return int(a.Position.Offset) - int(b.Position.Offset) })
			settleIn(ctxOf(t, 10*time.Second), r, broker.Ack, ds[:50]...)
			for _, d := range ds[:50] {
				acked[d.ID] = true
			}
			r2 := openReceiver(t, conn, "t/g")
			other := tryReceive(t, r2, 1, 10*time.Second)
			other = append(other, tryReceive(t, r2, 100, 300*time.Millisecond)...)
			if len(other) == 0 {
				t.Fatal("no rebalance happened")
			}
			for _, d := range other {
				if acked[d.ID] {
					t.Errorf("%s was acked before the rebalance and came again", d.ID)
				}
			}
			// What moved is lost to the first member, and only that.
			moved := map[string]bool{}
			for _, d := range other {
				moved[d.Position.Partition] = true
			}
			for _, d := range ds[50:] {
				o := settle(t, r, broker.Ack, d)[0]
				if moved[d.Position.Partition] && o.State != broker.LeaseLost {
					t.Errorf("%s moved, and its first owner's ack is %v", d.ID, o.State)
				}
				if !moved[d.Position.Partition] && o.State != broker.Confirmed && o.State != broker.Pending {
					t.Errorf("%s stayed, and its ack is %v (%v)", d.ID, o.State, o.Err)
				}
			}
			wantStates(t, settle(t, r2, broker.Ack, other...), broker.Confirmed)
		})
	}
}

// segmentio/kafka-go#1330: an old member's ack doesn't move the offset of a
// partition that another one has now.
func TestCaseStaleAckIsRefused(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(50, 0)...)
	// The evicted member may rejoin first and have the partition again; then a
	// new group is tried.
	for try := range 20 {
		group := fmt.Sprintf("g%d", try)
		a := openReceiver(t, conn, "t/"+group)
		held := receive(t, a, 20)
		evict(t, conn, a, group)
		b := openReceiver(t, conn, "t/"+group)
		got := tryReceive(t, b, 50, 2*time.Second)
		if len(got) < 50 {
			continue
		}
		wantStates(t, settle(t, b, broker.Ack, got...), broker.Confirmed)
		settle(t, a, broker.Ack, held[19]) // waits for the lower ones, so nothing is known yet
		wantStates(t, settle(t, a, broker.Ack, held[:19]...), broker.LeaseLost)
		wantStates(t, settle(t, a, broker.Ack, held[19]), broker.LeaseLost)
		if at := committedAt(t, conn, group, 0); at != 50 {
			t.Fatalf("committed %d, want 50", at)
		}
		return
	}
	t.Fatal("the evicted member was assigned the partition again each time")
}

// An evicted member that doesn't know it yet learns it from its ack.
func TestGroupZombieLearnsFromItsAck(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c, func(o *Options) { o.Session = 8 * time.Second }) // heartbeats every 1.6 s
	publish(t, openPublisher(t, conn, "t"), messages(4, 0)...)
	r := openReceiver(t, conn, "t/g")
	ds := receive(t, r, 4)
	evict(t, conn, r, "g")
	o := settle(t, r, broker.Ack, ds[0])[0]
	if o.State != broker.LeaseLost || !errors.Is(o.Err, broker.ErrLeaseLost) {
		t.Fatalf("zombie's ack: %v (%v)", o.State, o.Err)
	}
	wantStates(t, settle(t, r, broker.Ack, ds...), broker.LeaseLost)
	if at := committedAt(t, conn, "g", 0); at > 0 {
		t.Fatalf("committed %d", at)
	}
	// It rejoins by itself and gets the messages again.
	again := receive(t, r, 4)
	wantStates(t, settle(t, r, broker.Ack, again...), broker.Confirmed)
}

func TestGroupLostCommitAnswer(t *testing.T) {
	t.Parallel()
	c, w := cluster(t, 1)
	conn := dial(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(3, 0)...)
	r := openReceiver(t, conn, "t/g")
	ds := receive(t, r, 3)
	w.lose(kmsg.OffsetCommit, 1, true)
	begun := time.Now()
	o := settleIn(ctxOf(t, 300*time.Millisecond), r, broker.Ack, ds[0])[0]
	if o.State != broker.Unknown || !errors.Is(o.Err, broker.ErrUnknownOutcome) || time.Since(begun) > 2*time.Second {
		t.Fatalf("lost answer: %v (%v) after %v", o.State, o.Err, time.Since(begun))
	}
	if w.losses() != 1 || committedAt(t, conn, "g", 0) != 1 {
		t.Fatal("the broker didn't apply the commit")
	}
	w.heal()
	wantStates(t, settle(t, r, broker.Ack, ds[0]), broker.Confirmed)
	w.lose(kmsg.OffsetCommit, 1, false) // cut: the SDK sends it again
	wantStates(t, settle(t, r, broker.Ack, ds[1]), broker.Confirmed)
}

// twmb/franz-go#57: what was received and not settled comes again after the
// process was killed.
func TestCaseKilledReceiverLosesNothing(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(100, 0)...)
	victim := dial(t, c)
	r := openReceiver(t, victim, "t/g")
	ds := receive(t, r, 100)
	wantStates(t, settle(t, r, broker.Ack, ds[:10]...), broker.Confirmed)
	// Killed: its client is gone without a word; the broker ends the session.
	evict(t, conn, r, "g")
	var member *kgo.Client
	r.As(&member)
	member.PauseFetchTopics("t")
	next := openReceiver(t, conn, "t/g")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		t.Log("close of the victim:", err)
	}
	got := receive(t, next, 90)
	if got[0].ID != "m-10" || got[89].ID != "m-99" {
		t.Fatalf("came again: %s to %s", got[0].ID, got[89].ID)
	}
}

func TestGroupStartFrom(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 2)
	conn := dial(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(40, 0, "a", "b", "c", "d", "e")...)
	asked := make(chan string, 10)
	r := openReceiver(t, conn, "t/g", broker.StartFrom(func(partition string) (broker.Position, bool) {
		asked <- partition
		return broker.Position{Partition: partition, Offset: 5}, partition == "0"
	}))
	n0, n1 := c.PartitionInfo("t", 0).HighWatermark, c.PartitionInfo("t", 1).HighWatermark
	ds := receive(t, r, int(n0-5+n1))
	first := map[string]uint64{}
	for _, d := range ds {
		if at, ok := first[d.Position.Partition]; !ok || d.Position.Offset < at {
			first[d.Position.Partition] = d.Position.Offset
		}
	}
	if first["0"] != 5 || first["1"] != 0 || len(asked) < 2 {
		t.Fatalf("began at %v, asked %d times", first, len(asked))
	}
}

// Cancelled receives strand nothing: what was fetched and not handed out is
// there for the next call, and nothing of it counts as delivered.
func TestGroupCancelStrandsNothing(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	p := openPublisher(t, conn, "t")
	r := openReceiver(t, conn, "t/g")
	publish(t, p, messages(1, -1)...)
	settle(t, r, broker.Ack, receive(t, r, 1)...)
	seen := map[string]int{}
	take := func(ds []broker.Delivery) {
		for _, d := range ds {
			seen[d.ID]++
			if d.Attempt.Number != 1 {
				t.Fatalf("%s: attempt %d", d.ID, d.Attempt.Number)
			}
		}
		settle(t, r, broker.Ack, ds...)
	}
	for round := range 50 {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			ds, err := r.Receive(ctx, 10)
			if len(ds) > 0 && err != nil {
				t.Errorf("deliveries with an error: %v", err)
			}
			take(ds)
		}()
		var sent sync.WaitGroup
		sent.Go(func() { publish(t, p, messages(5, 5*round)...) })
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond) // a random place to cancel, not a wait
		cancel()
		<-done
		sent.Wait()
	}
	for len(seen) < 250 {
		ds := tryReceive(t, r, 250-len(seen), time.Second)
		if len(ds) == 0 {
			t.Fatalf("%d of 250 arrived", len(seen))
		}
		take(ds)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s came %d times", id, n)
		}
	}
}

// A commit is tied to the membership and the assignment that its messages are
// from: one that was made under another is not sent.
func TestGroupCommitIsTiedToItsAssignment(t *testing.T) {
	t.Parallel()
	r := &groupReceiver{topic: "t", member: "me", parts: map[int32]*part{0: newPart(0), 1: newPart(1)}}
	parts := map[int32]*part{0: r.parts[0], 1: r.parts[1]}
	request := func(member string) *kmsg.OffsetCommitRequest {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.MemberID = member
		req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: 0}, {Partition: 1}}}}
		return req
	}
	if err := r.stillOurs(request("another"), parts); !errors.Is(err, errNewMember) || !rebalancing(err) {
		t.Errorf("under another membership: %v", err)
	}
	r.end(parts[0])
	req := request("me")
	if err := r.stillOurs(req, parts); err != nil || len(req.Topics[0].Partitions) != 1 || req.Topics[0].Partitions[0].Partition != 1 {
		t.Errorf("with one partition lost: %v, %+v", err, req.Topics)
	}
	r.end(parts[1])
	if err := r.stillOurs(request("me"), parts); !errors.Is(err, errNothing) {
		t.Errorf("with all lost: %v", err)
	}
}
