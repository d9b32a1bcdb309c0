package kafka

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

// transact publishes messages in a transaction and commits or aborts it.
func transact(t testing.TB, conn broker.Conn, commit bool, ms ...broker.Message) {
	t.Helper()
	var admin *kgo.Client
	conn.As(&admin)
	cl, err := kgo.NewClient(kgo.SeedBrokers(admin.OptValue(kgo.SeedBrokers).([]string)...), kgo.TransactionalID("tx"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx := ctxOf(t, 10*time.Second)
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for i := range ms {
		rec := &kgo.Record{Topic: "t", Value: ms[i].Body}
		rec.Headers, _ = headersOf(nil, make([]byte, 0, sizeOf(&ms[i], false)), &ms[i], true)
		if err := cl.ProduceSync(ctx, rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
		t.Fatal(err)
	}
}

// segmentio/kafka-go#1332 and twmb/franz-go#758: what an aborted transaction
// wrote is not delivered, unless the options ask for it. The holes it leaves in
// the offsets hold no commit back.
func TestCaseAbortedTransactionIsNotDelivered(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	p := openPublisher(t, conn, "t")
	publish(t, p, messages(1, 0)...)
	transact(t, conn, false, messages(3, 100)...)
	transact(t, conn, true, messages(2, 1)...)
	publish(t, p, messages(1, 3)...)
	r := openReceiver(t, conn, "t/g")
	ds := receive(t, r, 4)
	if want := []string{"m-0", "m-1", "m-2", "m-3"}; !slices.Equal(ids(ds), want) {
		t.Fatalf("received %v", ids(ds))
	}
	wantStates(t, settle(t, r, broker.Ack, ds...), broker.Confirmed)
	if at := committedAt(t, conn, "g", 0); at != int64(ds[3].Position.Offset)+1 {
		t.Fatalf("committed %d", at)
	}
	all := dial(t, c, func(o *Options) { o.Uncommitted = true })
	if ds := receive(t, openReceiver(t, all, "t/all"), 7); !slices.Contains(ids(ds), "m-101") {
		t.Fatalf("uncommitted: %v", ids(ds))
	}
}

// dapr/components-contrib#4362: a message whose deliveries are used up is in
// the dead-letter topic, with its own ID, and doesn't come again.
func TestCaseDeadLetterSettlesItsSource(t *testing.T) {
	t.Parallel()
	c, w := cluster(t, 1)
	conn := dial(t, c)
	e := broker.Entity{Topic: "t", Subscription: "t/g", MaxDeliveries: 3, DeadLetter: "dead"}
	if err := conn.Ensure(ctxOf(t, 5*time.Second), e); err != nil {
		t.Fatal(err)
	}
	publish(t, openPublisher(t, conn, "t"), messages(2, 0, "k")...)
	r := openReceiver(t, conn, "t/g")
	for n := 1; n <= 3; n++ {
		d := receive(t, r, 1)[0]
		if d.ID != "m-0" || d.Attempt.Number != n {
			t.Fatalf("%s, attempt %d, want %d", d.ID, d.Attempt.Number, n)
		}
		if n == 3 {
			// The copy's answer is lost: the handle stays held, and the next
			// nack joins the copy in flight.
			w.lose(kmsg.Produce, 1, true)
			o := settleIn(ctxOf(t, 200*time.Millisecond), r, broker.Nack, d)[0]
			if o.State != broker.Unknown || !errors.Is(o.Err, broker.ErrUnknownOutcome) {
				t.Fatalf("lost dead letter: %v (%v)", o.State, o.Err)
			}
			w.heal()
		}
		wantStates(t, settle(t, r, broker.Nack, d), broker.Confirmed)
	}
	if at := committedAt(t, conn, "g", 0); at != 1 {
		t.Fatalf("committed %d, want 1", at)
	}
	next := receive(t, r, 1)[0]
	if next.ID != "m-1" {
		t.Fatalf("then came %s", next.ID)
	}
	wantStates(t, settle(t, r, broker.DeadLetter, next), broker.Confirmed)
	if err := r.Close(ctxOf(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	wantLetters(t, conn, "t/g", "m-0", "m-1")
	if n := c.PartitionInfo("dead", 0).HighWatermark; n > 2 {
		t.Fatalf("%d dead letters", n)
	}
	if left := tryReceive(t, openReceiver(t, conn, "t/g"), 1, 300*time.Millisecond); len(left) > 0 {
		t.Fatalf("%v came again after the restart", ids(left))
	}
}

// A dead-letter topic that can't be written leaves the delivery as it is.
func TestDeadLetterUnpublishable(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c, func(o *Options) { o.MaxDeliveries, o.DeadLetter = 1, "nosuch" })
	publish(t, openPublisher(t, conn, "t"), messages(1, 0)...)
	r := openReceiver(t, conn, "t/g")
	d := receive(t, r, 1)[0]
	if _, err := d.Nack(ctxOf(t, time.Second), 0); !errors.Is(err, broker.ErrNotFound) {
		t.Fatalf("nack: %v", err)
	}
	if o, err := d.Ack(ctxOf(t, time.Second)); err != nil || o.State != broker.Confirmed {
		t.Fatalf("ack after that: %v (%v)", o.State, err)
	}
	plain := dial(t, c)
	r2 := openReceiver(t, plain, "t/other")
	d = receive(t, r2, 1)[0]
	if _, err := d.DeadLetter(ctxOf(t, time.Second), "why"); !errors.Is(err, broker.ErrUnsupported) {
		t.Fatalf("dead letter without a topic: %v", err)
	}
}

// twmb/franz-go#187: Close ends soon though a message is unsettled, and the
// member has left the group.
func TestCaseCloseWithUnsettledMessage(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(1, 0)...)
	r := openReceiver(t, conn, "t/g")
	receive(t, r, 1)
	begun := time.Now()
	if err := r.Close(ctxOf(t, 5*time.Second)); err != nil || time.Since(begun) > 2*time.Second {
		t.Fatalf("close after %v: %v", time.Since(begun), err)
	}
	if g := c.GroupInfo("g"); g != nil && len(g.Members) > 0 {
		t.Fatalf("%d members left", len(g.Members))
	}
}

// dapr/components-contrib#4349: the connections die again and again under load;
// the receiver never goes silent with messages left.
func TestCaseConnectionsDieUnderLoad(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]func(*Options){"group": func(*Options) {}, "consumer": nextGen, "share": shares} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, w := cluster(t, 2)
			conn := dial(t, c, mode)
			if err := conn.Ensure(ctxOf(t, 5*time.Second), broker.Entity{Topic: "t", Subscription: "t/g"}); err != nil {
				t.Fatal(err)
			}
			// A publish can be Unknown here, and a copy does no harm.
			p := broker.Retry(openPublisher(t, conn, "t"), broker.RetryPolicy{AllowCopies: true,
				Backoff: broker.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}})
			r := openReceiver(t, conn, "t/g")
			const rounds, each = 50, 5
			stop, cut := make(chan struct{}), make(chan struct{}, 1)
			var cutter sync.WaitGroup
			cutter.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-cut:
						w.cut()
					}
				}
			})
			defer func() { close(stop); cutter.Wait() }()
			seen := map[string]bool{}
			for round := range rounds {
				select {
				case cut <- struct{}{}:
				default:
				}
				publish(t, p, messages(each, round*each, "a", "b", "c")...)
				for end := time.Now().Add(10 * time.Second); len(seen) < (round+1)*each; {
					ds := tryReceive(t, r, 1, time.Second)
					for i, o := range settle(t, r, broker.Ack, ds...) {
						if o.State.OK() || o.State == broker.Unknown {
							seen[ds[i].ID] = true
						}
					}
					if time.Now().After(end) {
						t.Fatalf("silent in round %d with %d of %d", round, len(seen), (round+1)*each)
					}
				}
			}
		})
	}
}

// An evicted member that comes back must not undo what happened meanwhile:
// franz-go joins anew and keeps the partition as if it had never been away.
func TestGroupEvictedMemberSetsNothingBack(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c, func(o *Options) { o.Session = 8 * time.Second })
	p := openPublisher(t, conn, "t")
	publish(t, p, messages(50, 0)...)
	a := openReceiver(t, conn, "t/g")
	held := receive(t, a, 20)
	evict(t, conn, a, "g")
	b := openReceiver(t, conn, "t/g")
	got := receive(t, b, 50)
	wantStates(t, settle(t, b, broker.Ack, got...), broker.Confirmed)
	if err := b.Close(ctxOf(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	for i, o := range settle(t, a, broker.Ack, held...) {
		if o.State != broker.LeaseLost {
			t.Fatalf("ack %d from before the eviction: %v (%v)", i, o.State, o.Err)
		}
	}
	if at := committedAt(t, conn, "g", 0); at != 50 {
		t.Fatalf("committed %d, want 50: a member from before set it back", at)
	}
	// It goes on where the group is, not where it was.
	publish(t, p, messages(1, 50)...)
	next := receive(t, a, 1)
	if next[0].ID != "m-50" {
		t.Fatalf("after its return came %s", next[0].ID)
	}
	wantStates(t, settle(t, a, broker.Ack, next...), broker.Confirmed)
}

// A wish that the group refuses is told, not waited out.
func TestGroupRefusesSession(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	r := openReceiver(t, dial(t, c, func(o *Options) { o.Session = time.Second }), "t/g")
	if _, err := r.Receive(ctxOf(t, 5*time.Second), 1); !errors.Is(err, broker.ErrInvalid) {
		t.Fatalf("a session under the broker's bound: %v", err)
	}
}

func TestGroupStaticMember(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c, func(o *Options) { o.Instance = "one" })
	publish(t, openPublisher(t, conn, "t"), messages(4, 0)...)
	r := openReceiver(t, conn, "t/g")
	ds := receive(t, r, 4)
	wantStates(t, settle(t, r, broker.Ack, ds[:2]...), broker.Confirmed)
	if err := r.Close(ctxOf(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	// The member comes back by its name and goes on.
	back := openReceiver(t, conn, "t/g")
	again := receive(t, back, 2)
	if again[0].ID != "m-2" {
		t.Fatalf("back at %s", again[0].ID)
	}
	// Another process with its name takes its place: it is fenced.
	twin := dial(t, c, func(o *Options) { o.Instance = "one" })
	r2 := openReceiver(t, twin, "t/g")
	mine := receive(t, r2, 2)
	wantStates(t, settle(t, back, broker.Ack, again...), broker.LeaseLost)
	wantStates(t, settle(t, r2, broker.Ack, mine...), broker.Confirmed)
}

func TestGroupExtendAndConflict(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := dial(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(1, 0)...)
	r := openReceiver(t, conn, "t/g")
	d := receive(t, r, 1)[0]
	if o, err := d.Extend(ctxOf(t, time.Second), time.Minute); err != nil || o.State != broker.Confirmed || !o.Lease.IsZero() {
		t.Fatalf("extend: %+v (%v)", o, err)
	}
	if o, err := d.Ack(ctxOf(t, time.Second)); err != nil || o.State != broker.Confirmed {
		t.Fatal(o, err)
	}
	if _, err := d.Nack(ctxOf(t, time.Second), 0); !errors.Is(err, broker.ErrConflict) {
		t.Fatalf("nack after ack: %v", err)
	}
}
