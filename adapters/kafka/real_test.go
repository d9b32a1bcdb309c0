package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// These tests ask a real Kafka from 4.2 on what the others ask the fake: the one
// that local starts, or one that runs already:
//
//	ONCELINE_LOCAL=1 go test -run TestReal ./adapters/kafka
//	ONCELINE_KAFKA=127.0.0.1:9092 go test -run TestReal ./adapters/kafka
//
// A share lease of 15 s is the lowest that a broker admits by default, so they
// take a minute; group.share.min.record.lock.duration.ms=1000 makes it shorter.
func realSeeds(t *testing.T) kgo.Opt {
	if addr := os.Getenv("ONCELINE_KAFKA"); addr != "" {
		return kgo.SeedBrokers(addr)
	}
	return seedsOf(local(t))
}

func realConn(t *testing.T, change ...func(*Options)) broker.Conn {
	t.Helper()
	o := Options{Client: []kgo.Opt{realSeeds(t), kgo.MetadataMinAge(50 * time.Millisecond)}, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	for _, f := range change {
		f(&o)
	}
	conn, err := New(ctxOf(t, 10*time.Second), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(ctxOf(t, 10*time.Second)); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return conn
}

// realEntity makes a topic and a subscription of its own.
func realEntity(t *testing.T, conn broker.Conn, e broker.Entity) broker.Entity {
	t.Helper()
	e.Topic = fmt.Sprintf("t-%d", time.Now().UnixNano())
	e.Subscription = e.Topic + "/" + e.Topic + "-g"
	if e.DeadLetter != "" {
		e.DeadLetter = e.Topic + ".dead"
	}
	if err := conn.Ensure(ctxOf(t, 10*time.Second), e); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Delete(ctxOf(t, 10*time.Second), broker.Entity{Topic: e.Topic, DeadLetter: e.DeadLetter}); err != nil {
			t.Errorf("delete: %v", err)
		}
	})
	return e
}

func TestRealGroup(t *testing.T) {
	for name, mode := range map[string]func(*Options){"classic": func(o *Options) { o.Session = 6 * time.Second }, "consumer": nextGen} {
		t.Run(name, func(t *testing.T) {
			conn := realConn(t, mode)
			e := realEntity(t, conn, broker.Entity{Partitions: 2, MaxDeliveries: 2, DeadLetter: "x", MaxBody: 3000})
			p := openPublisher(t, conn, e.Topic)
			ms := messages(20, 0, "a", "b", "c", "d")
			ms[3].Body = make([]byte, 3001)
			rs, err := p.Publish(ctxOf(t, 10*time.Second), ms...)
			if !errors.Is(err, broker.ErrTooLarge) || rs[3].Verdict != broker.Refused || rs[4].Verdict != broker.Stored {
				t.Fatalf("%v, %+v", err, rs[3:5])
			}
			r := openReceiver(t, conn, e.Subscription)
			ds := receive(t, r, 19)
			slices.SortFunc(ds, func(a, b broker.Delivery) int { return int(a.Position.Offset) - int(b.Position.Offset) })
			for _, d := range ds[2:] {
				if o := settle(t, r, broker.Ack, d)[0]; o.State != broker.Pending {
					t.Fatalf("%+v with the first ones open: %v (%v)", d.Position, o.State, o.Err)
				}
			}
			begun := time.Now()
			if o, err := ds[0].Nack(ctxOf(t, time.Second), 200*time.Millisecond); err != nil || o.State != broker.Confirmed {
				t.Fatal(o, err)
			}
			again := receive(t, r, 1)[0]
			if again.ID != ds[0].ID || again.Attempt.Number != 2 || time.Since(begun) < 200*time.Millisecond {
				t.Fatalf("%s, attempt %d after %v", again.ID, again.Attempt.Number, time.Since(begun))
			}
			wantStates(t, settle(t, r, broker.Nack, again), broker.Confirmed) // to the dead-letter topic
			wantStates(t, settle(t, r, broker.Ack, ds[1]), broker.Confirmed)
			wantStates(t, settle(t, r, broker.Ack, ds[2:]...), broker.Confirmed)

			// A second member takes a partition over; nothing confirmed comes again.
			r2 := openReceiver(t, conn, e.Subscription)
			for begun, moved := time.Now(), false; !moved; {
				if time.Since(begun) > 20*time.Second {
					t.Fatal("the second member got nothing")
				}
				publish(t, p, messages(4, 100, "a", "b", "c", "d")...)
				for _, x := range []broker.Receiver{r, r2} {
					got := tryReceive(t, x, 4, 300*time.Millisecond)
					for _, d := range got {
						if d.ID < "m-100" || d.ID > "m-103" {
							t.Fatalf("%s came again", d.ID)
						}
					}
					wantStates(t, settle(t, x, broker.Ack, got...), broker.Confirmed)
					moved = moved || x == r2 && len(got) > 0
				}
			}
			if err := errors.Join(r.Close(ctxOf(t, 5*time.Second)), r2.Close(ctxOf(t, 5*time.Second))); err != nil {
				t.Fatal(err)
			}
			dead := openReceiver(t, conn, e.DeadLetter+"/"+e.Topic)
			if d := receive(t, dead, 1)[0]; d.ID != ds[0].ID || d.Headers.Get(driver.HeaderSource) != e.Subscription {
				t.Fatalf("dead letter %+v", d.Message)
			}
		})
	}
}

// A member that was thrown out sets nothing back.
func TestRealEvictedMember(t *testing.T) {
	conn := realConn(t, func(o *Options) { o.Session = 20 * time.Second })
	e := realEntity(t, conn, broker.Entity{Partitions: 1})
	p := openPublisher(t, conn, e.Topic)
	publish(t, p, messages(50, 0)...)
	a := openReceiver(t, conn, e.Subscription)
	held := receive(t, a, 20)
	evict(t, conn, a, e.Topic+"-g")
	b := openReceiver(t, conn, e.Subscription)
	got := receive(t, b, 50)
	wantStates(t, settle(t, b, broker.Ack, got...), broker.Confirmed)
	if err := b.Close(ctxOf(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	wantStates(t, settle(t, a, broker.Ack, held...), broker.LeaseLost)
	publish(t, p, messages(1, 50)...)
	if next := receive(t, a, 1); next[0].ID != "m-50" {
		t.Fatalf("after its return came %s", next[0].ID)
	}
}

func TestRealShare(t *testing.T) {
	conn := realConn(t, shares)
	lease := 2 * time.Second
	probe := broker.Entity{Topic: "probe", Subscription: "probe/probe-g", Lease: lease}
	if err := conn.Ensure(ctxOf(t, 10*time.Second), probe); err != nil {
		t.Logf("a lease of %v is refused (%v), taking 15 s", lease, err)
		lease = 15 * time.Second
	}
	_ = conn.Delete(ctxOf(t, 10*time.Second), probe)
	// One partition: the broker assigns several to different members.
	e := realEntity(t, conn, broker.Entity{Partitions: 1, MaxDeliveries: 4, DeadLetter: "x", Lease: lease})
	p := openPublisher(t, conn, e.Topic)
	publish(t, p, messages(10, 0, "a", "b", "c")...)
	a, b := openReceiver(t, conn, e.Subscription), openReceiver(t, conn, e.Subscription)
	// 4.2 has one limit for all groups, 4.3 one for each (KAF-F-40).
	if limit := driverOf(t, a).limit; limit < e.MaxDeliveries {
		t.Errorf("the broker drops a message after %d deliveries, Ensure asked for %d", limit, e.MaxDeliveries)
	}
	ds := receive(t, a, 10)
	if left := time.Until(ds[0].Lease); left > lease || left < lease/2 {
		t.Errorf("lease for %v, want about %v", left, lease)
	}
	wantStates(t, settle(t, a, broker.Ack, ds[0], ds[4]), broker.Confirmed)
	wantStates(t, settle(t, a, broker.Nack, ds[1]), broker.Confirmed)
	again := receive(t, b, 1)
	if again[0].ID != ds[1].ID || again[0].Attempt.Number != 2 {
		t.Fatalf("after a nack %s, attempt %d", again[0].ID, again[0].Attempt.Number)
	}
	wantStates(t, settle(t, b, broker.Ack, again...), broker.Confirmed)
	if o, err := ds[2].Extend(ctxOf(t, 2*time.Second), 0); err != nil || o.State != broker.Confirmed || time.Until(o.Lease) < lease*3/4 {
		t.Fatalf("extend: %+v (%v)", o, err)
	}
	wantStates(t, settle(t, a, broker.DeadLetter, ds[3]), broker.Confirmed)
	wantStates(t, settle(t, a, broker.Ack, ds[2]), broker.Confirmed)
	// Unsettled for its lease: it comes again, and never was accepted.
	rest := receiveWithin(t, b, 5, 2*lease+10*time.Second)
	wantStates(t, settle(t, a, broker.Ack, ds[5]), broker.LeaseLost)
	wantStates(t, settle(t, b, broker.Ack, rest...), broker.Confirmed)
	// Close gives back at once, and so does a connection that ends.
	publish(t, p, messages(4, 20)...)
	receive(t, a, 2)
	receive(t, b, 2)
	if err := a.Close(ctxOf(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	back := receive(t, b, 2)
	if time.Since(begun) > 2*time.Second {
		t.Errorf("given back %v after Close", time.Since(begun))
	}
	wantStates(t, settle(t, b, broker.Ack, back...), broker.Confirmed)
}

func receiveWithin(t *testing.T, r broker.Receiver, n int, d time.Duration) []broker.Delivery {
	t.Helper()
	ds := tryReceive(t, r, n, d)
	if len(ds) != n {
		t.Fatalf("received %d deliveries, want %d", len(ds), n)
	}
	return ds
}

// A stale ack among fresh ones costs those nothing; the broker refuses the
// partition's acks together.
func TestRealShareStaleAckAmongFreshOnes(t *testing.T) {
	conn := realConn(t, shares)
	bare, err := driver.Unfenced(conn)
	if err != nil {
		t.Fatal(err)
	}
	e := realEntity(t, conn, broker.Entity{Partitions: 1})
	p := openPublisher(t, conn, e.Topic)
	publish(t, p, messages(1, 0)...)
	a, b := openReceiver(t, bare, e.Subscription), openReceiver(t, conn, e.Subscription)
	old := receive(t, a, 1)
	moved := receiveWithin(t, b, 1, 45*time.Second) // after a's lease
	publish(t, p, messages(6, 1)...)
	fresh := receive(t, a, 6)
	all := append(slices.Clone(fresh[:3]), old[0])
	all = append(all, fresh[3:]...)
	for i, o := range settle(t, a, broker.Ack, all...) {
		want := broker.Confirmed
		if all[i].ID == old[0].ID {
			want = broker.LeaseLost
		}
		if o.State != want {
			t.Errorf("%s: %v (%v), want %v", all[i].ID, o.State, o.Err, want)
		}
	}
	wantStates(t, settle(t, b, broker.Ack, moved...), broker.Confirmed)
}

func TestRealShareCrash(t *testing.T) {
	conn := realConn(t, shares)
	e := realEntity(t, conn, broker.Entity{Partitions: 1})
	publish(t, openPublisher(t, conn, e.Topic), messages(3, 0)...)
	victim, err := New(ctxOf(t, 5*time.Second), Options{Client: []kgo.Opt{realSeeds(t)}, Mode: Share})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = victim.Close(ctxOf(t, 5*time.Second)) })
	a := openReceiver(t, victim, e.Subscription)
	receive(t, a, 3)
	driverOf(t, a).cl.Close()
	begun := time.Now()
	got := receive(t, openReceiver(t, conn, e.Subscription), 3)
	t.Logf("given back %v after the connection ended, attempt %d", time.Since(begun), got[0].Attempt.Number)
	if time.Since(begun) > 5*time.Second {
		t.Error("not at once")
	}
}
