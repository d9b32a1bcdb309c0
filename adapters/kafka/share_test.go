package kafka

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func shares(o *Options) { o.Mode = Share }

// lockOf makes leases of that many milliseconds.
func lockOf(ms string) kfake.Opt {
	cfg := maps.Clone(quick)
	cfg["group.share.record.lock.duration.ms"] = ms
	return kfake.BrokerConfigs(cfg)
}

// shareConn is a connection in share mode whose group "g" begins at the start.
func shareConn(t testing.TB, c *kfake.Cluster, change ...func(*Options)) broker.Conn {
	t.Helper()
	conn := dial(t, c, append([]func(*Options){shares}, change...)...)
	if err := conn.Ensure(ctxOf(t, 5*time.Second), broker.Entity{Topic: "t", Subscription: "t/g"}); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestShareSettlesOneByOne(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := shareConn(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(10, 0)...)
	r := openReceiver(t, conn, "t/g")
	begun := time.Now()
	ds := receive(t, r, 4)
	if ds[0].Lease.Before(begun.Add(20*time.Second)) || ds[0].Lease.After(time.Now().Add(30*time.Second)) {
		t.Fatalf("lease ends in %v", time.Until(ds[0].Lease))
	}
	if ds[0].Attempt != (broker.Attempt{Number: 1, Trust: broker.Approximate}) {
		t.Fatalf("attempt %+v", ds[0].Attempt)
	}
	wantStates(t, settle(t, r, broker.Ack, ds[3], ds[1]), broker.Confirmed)
	wantStates(t, settle(t, r, broker.Ack, ds[3]), broker.Confirmed) // asked again
	wantStates(t, settle(t, r, broker.Nack, ds[0]), broker.Confirmed)
	// What isn't settled is never accepted by a later Receive: ds[2] stays held.
	again := receive(t, r, 7)
	if got := ids(again); got[0] != "m-0" || slices.Contains(got, "m-2") || slices.Contains(got, "m-1") {
		t.Fatalf("then came %v", got)
	}
	if again[0].Attempt.Number != 2 {
		t.Fatalf("attempt %d after a nack", again[0].Attempt.Number)
	}
	wantStates(t, settle(t, r, broker.Ack, again...), broker.Confirmed)
	wantStates(t, settle(t, r, broker.Ack, ds[2]), broker.Confirmed)
	if left := tryReceive(t, r, 1, 200*time.Millisecond); len(left) > 0 {
		t.Fatalf("settled messages came again: %v", ids(left))
	}
}

// A message that nobody settles comes again after its lease, however often its
// receiver asks for more (franz-go accepts it with the next poll, KAF-F-54).
func TestShareUnsettledIsNeverAccepted(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1, lockOf("1000"))
	conn := shareConn(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(5, 0)...)
	r := openReceiver(t, conn, "t/g")
	held := receive(t, r, 2)
	rest := receive(t, r, 3)
	wantStates(t, settle(t, r, broker.Ack, rest...), broker.Confirmed)
	again := receive(t, r, 2)
	if !slices.Equal(ids(again), []string{"m-0", "m-1"}) || again[0].Attempt.Number != 2 {
		t.Fatalf("after the lease came %v, attempt %d", ids(again), again[0].Attempt.Number)
	}
	// The old handles speak for nobody.
	wantStates(t, settle(t, r, broker.Ack, held...), broker.LeaseLost)
	wantStates(t, settle(t, r, broker.Ack, again...), broker.Confirmed)
}

// The broker takes or refuses a partition's acks together; a stale one among
// them must cost the others nothing.
func TestShareStaleAckAmongFreshOnes(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1, lockOf("1000"))
	conn := shareConn(t, c)
	bare, err := driver.Unfenced(conn)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, openPublisher(t, conn, "t"), messages(9, 0)...)
	r := openReceiver(t, bare, "t/g")
	old := receive(t, r, 1)
	other := openReceiver(t, conn, "t/g")
	fresh := receive(t, other, 8)
	moved := receive(t, other, 1) // the old one's lease has ended
	if moved[0].ID != old[0].ID {
		t.Fatalf("moved %s, want %s", moved[0].ID, old[0].ID)
	}
	mine := receive(t, r, len(fresh)) // their leases have ended too
	all := append(slices.Clone(mine[:4]), old[0])
	all = append(all, mine[4:]...)
	os := settle(t, r, broker.Ack, all...)
	for i, o := range os {
		want := broker.Confirmed
		if all[i].ID == old[0].ID {
			want = broker.LeaseLost // the other one has it
		}
		if o.State != want {
			t.Errorf("%s: %v (%v)", all[i].ID, o.State, o.Err)
		}
	}
	wantStates(t, settle(t, other, broker.Ack, moved...), broker.Confirmed)
	if left := tryReceive(t, other, 1, 300*time.Millisecond); len(left) > 0 {
		t.Fatalf("acked messages came again: %v", ids(left))
	}
}

func TestShareStaleAckIsRefused(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1, lockOf("1000"))
	conn := shareConn(t, c)
	bare, err := driver.Unfenced(conn)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, openPublisher(t, conn, "t"), messages(3, 0)...)
	a := openReceiver(t, bare, "t/g")
	held := receive(t, a, 3)
	b := openReceiver(t, conn, "t/g")
	moved := receive(t, b, 3)
	os := settle(t, a, broker.Ack, held...)
	for _, o := range os {
		if o.State != broker.LeaseLost || !errors.Is(o.Err, broker.ErrLeaseLost) {
			t.Fatalf("stale ack: %v (%v)", o.State, o.Err)
		}
	}
	wantStates(t, settle(t, b, broker.Ack, moved...), broker.Confirmed)
}

func TestShareLostAckAnswer(t *testing.T) {
	t.Parallel()
	for name, mute := range map[string]bool{"cut": false, "black hole": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, w := cluster(t, 1, lockOf("1000"))
			conn := shareConn(t, c)
			publish(t, openPublisher(t, conn, "t"), messages(2, 0)...)
			r := openReceiver(t, conn, "t/g")
			ds := receive(t, r, 2)
			w.lose(kmsg.ShareAcknowledge, 1, mute)
			begun := time.Now()
			o := settleIn(ctxOf(t, 300*time.Millisecond), r, broker.Ack, ds[0])[0]
			if o.State != broker.Unknown || !errors.Is(o.Err, broker.ErrUnknownOutcome) || time.Since(begun) > 2*time.Second {
				t.Fatalf("lost answer: %v (%v)", o.State, o.Err)
			}
			if w.losses() != 1 {
				t.Fatal("nothing was lost")
			}
			w.heal()
			o = settle(t, r, broker.Ack, ds[0])[0]
			if o.State != broker.Unknown || !errors.Is(o.Err, broker.ErrUnknownOutcome) {
				t.Fatalf("asked again: %v (%v)", o.State, o.Err)
			}
			// It did take effect; the other one comes again.
			again := receive(t, r, 1)
			if again[0].ID != "m-1" {
				t.Fatalf("%s came again", again[0].ID)
			}
			wantStates(t, settle(t, r, broker.Ack, again...), broker.Confirmed)
		})
	}
}

func TestShareExtend(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1, lockOf("1000"))
	conn := shareConn(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(1, 0)...)
	r, other := openReceiver(t, conn, "t/g"), openReceiver(t, conn, "t/g")
	d := receive(t, r, 1)[0]
	for end := d.Lease.Add(700 * time.Millisecond); time.Now().Before(end); {
		o, err := d.Extend(ctxOf(t, time.Second), 0)
		if err != nil || o.State != broker.Confirmed || time.Until(o.Lease) < 500*time.Millisecond {
			t.Fatalf("extend: %v, lease for %v (%v)", o.State, time.Until(o.Lease), err)
		}
		if got := tryReceive(t, other, 1, 300*time.Millisecond); len(got) > 0 {
			t.Fatal("an extended message was given to another receiver")
		}
	}
	if o, err := d.Ack(ctxOf(t, time.Second)); err != nil || o.State != broker.Confirmed {
		t.Fatal(o, err)
	}
}

func TestShareNackWithDelayIsUnsupported(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := shareConn(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(1, 0)...)
	r := openReceiver(t, conn, "t/g")
	d := receive(t, r, 1)[0]
	if _, err := d.Nack(ctxOf(t, time.Second), time.Second); !errors.Is(err, broker.ErrUnsupported) {
		t.Fatalf("nack with delay: %v", err)
	}
	// The handle is still held.
	if o, err := d.Nack(ctxOf(t, time.Second), 0); err != nil || o.State != broker.Confirmed {
		t.Fatal(o, err)
	}
}

func TestShareCloseGivesBackAtOnce(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1) // of several partitions each member would have some
	conn := shareConn(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(20, 0, "a", "b", "c")...)
	a, b := openReceiver(t, conn, "t/g"), openReceiver(t, conn, "t/g")
	ds := receive(t, a, 20)
	wantStates(t, settle(t, a, broker.Ack, ds[:5]...), broker.Confirmed)
	if err := a.Close(ctxOf(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	got := receive(t, b, 15)
	if took := time.Since(begun); took > 2*time.Second {
		t.Fatalf("given back after %v", took)
	}
	wantStates(t, settle(t, a, broker.Ack, ds[:5]...), broker.Confirmed)
	wantStates(t, settle(t, a, broker.Ack, ds[5]), broker.LeaseLost)
	wantStates(t, settle(t, b, broker.Ack, got...), broker.Confirmed)
}

// A crash: the connection is gone, and with it all leases (KAF-F-50).
func TestShareCrashGivesBack(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := shareConn(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(3, 0)...)
	victim, err := New(ctxOf(t, 5*time.Second), Options{Client: []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, Mode: Share})
	if err != nil {
		t.Fatal(err)
	}
	a, b := openReceiver(t, victim, "t/g"), openReceiver(t, conn, "t/g")
	ds := receive(t, a, 3)
	driverOf(t, a).cl.Close() // every connection ends, nothing is said
	t.Cleanup(func() { _ = victim.Close(ctxOf(t, 5*time.Second)) })
	got := receive(t, b, 3)
	wantStates(t, settle(t, b, broker.Ack, got...), broker.Confirmed)
	if o := settle(t, a, broker.Ack, ds[0])[0]; o.State == broker.Confirmed {
		t.Fatal("a dead receiver's ack was confirmed")
	}
}

// driverOf is the adapter's receiver behind a broker.Receiver: found by the
// client's context, for package driver hides it.
func driverOf(t testing.TB, r broker.Receiver) *shareReceiver {
	t.Helper()
	var dr *shareReceiver
	if !r.As(&dr) {
		t.Fatal("no share receiver")
	}
	return dr
}

func TestShareCancelStrandsNothing(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := shareConn(t, c)
	p := openPublisher(t, conn, "t")
	a, b := openReceiver(t, conn, "t/g"), openReceiver(t, conn, "t/g")
	publish(t, p, messages(1, -1)...)
	settle(t, a, broker.Ack, receive(t, a, 1)...)
	worst := time.Duration(0)
	for round := range 50 {
		ctx, cancel := context.WithCancel(context.Background())
		got := make(chan []broker.Delivery)
		go func() {
			ds, err := a.Receive(ctx, 10)
			if len(ds) > 0 && err != nil {
				t.Errorf("deliveries with an error: %v", err)
			}
			got <- ds
		}()
		time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond) // a random place to cancel, not a wait
		cancel()
		publish(t, p, messages(5, 5*round)...)
		ds := <-got
		wantStates(t, settle(t, a, broker.Ack, ds...), broker.Confirmed)
		begun := time.Now()
		rest := receive(t, b, 5-len(ds))
		worst = max(worst, time.Since(begun))
		wantStates(t, settle(t, b, broker.Ack, rest...), broker.Confirmed)
	}
	if worst > 1500*time.Millisecond {
		t.Errorf("after a cancelled Receive another one waited %v", worst)
	}
	t.Logf("worst %v", worst)
}

// TestShareSessionIsForgotten: the broker forgets a session with its connection, also
// with one that was idle. The next fetch is told so, and the one after it begins a new
// session; no caller hears of it.
func TestShareSessionIsForgotten(t *testing.T) {
	t.Parallel()
	for _, lost := range []*kerr.Error{kerr.ShareSessionNotFound, kerr.InvalidShareSessionEpoch} {
		c, _ := cluster(t, 1)
		conn := shareConn(t, c)
		p := openPublisher(t, conn, "t")
		publish(t, p, messages(1, 0)...)
		r := openReceiver(t, conn, "t/g")
		wantStates(t, settle(t, r, broker.Ack, receive(t, r, 1)...), broker.Confirmed)
		var told atomic.Int32
		c.ControlKey(int16(kmsg.ShareFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			if req.(*kmsg.ShareFetchRequest).ShareSessionEpoch == 0 {
				c.KeepControl()
				return nil, nil, false
			}
			told.Add(1)
			resp := req.ResponseKind().(*kmsg.ShareFetchResponse)
			resp.ErrorCode = lost.Code
			return resp, nil, true
		})
		publish(t, p, messages(1, 1)...)
		ds, err := r.Receive(ctxOf(t, mustCome), 1)
		if err != nil || len(ds) != 1 || ds[0].ID != "m-1" {
			t.Errorf("%s: came %v: %v", lost.Message, ids(ds), err)
		}
		if told.Load() != 1 {
			t.Errorf("%s: the session was called lost %d times: nothing was shown", lost.Message, told.Load())
		}
	}
}

// TestShareLeavesAMovingCoordinator: a member that leaves while its group has no
// coordinator for a moment goes on trying, or it would be counted as one for its session.
func TestShareLeavesAMovingCoordinator(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1)
	conn := shareConn(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(1, 0)...)
	r := openReceiver(t, conn, "t/g")
	wantStates(t, settle(t, r, broker.Ack, receive(t, r, 1)...), broker.Confirmed)
	var refused, left atomic.Int32
	c.ControlKey(int16(kmsg.ShareGroupHeartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		switch {
		case req.(*kmsg.ShareGroupHeartbeatRequest).MemberEpoch >= 0:
			return nil, nil, false
		case refused.Add(1) > 3:
			left.Add(1)
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
		resp.ErrorCode = kerr.NotCoordinator.Code
		return resp, nil, true
	})
	if err := r.Close(ctxOf(t, mustCome)); err != nil || left.Load() != 1 {
		t.Errorf("after %d refusals, %d leaves: %v", refused.Load()-left.Load(), left.Load(), err)
	}
}

// TestShareCoordinatorIsGone: a member whose group's coordinator died for good looks for
// the new one, though whatever is in front of the dead broker still takes connections
// and says nothing of another coordinator.
func TestShareCoordinatorIsGone(t *testing.T) {
	t.Parallel()
	c, _ := cluster(t, 1, kfake.NumBrokers(2))
	conn := shareConn(t, c)
	publish(t, openPublisher(t, conn, "t"), messages(1, 0)...)
	dead := 1 - c.CoordinatorFor("g")
	var asked, beaten atomic.Int32
	c.ControlKey(int16(kmsg.FindCoordinator), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if asked.Add(1) > 2 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
		host, port, err := net.SplitHostPort(c.ListenAddrs()[dead])
		if err != nil {
			return nil, err, true
		}
		at, err := strconv.Atoi(port)
		if err != nil {
			return nil, err, true
		}
		of := kmsg.NewFindCoordinatorResponseCoordinator()
		of.Key, of.NodeID, of.Host, of.Port = "g", dead, host, int32(at)
		resp.NodeID, resp.Host, resp.Port = of.NodeID, of.Host, of.Port
		resp.Coordinators = append(resp.Coordinators, of)
		return resp, nil, true
	})
	c.ControlKey(int16(kmsg.ShareGroupHeartbeat), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if c.CurrentNode() != dead {
			return nil, nil, false
		}
		beaten.Add(1)
		return nil, errors.New("the connection is cut"), true
	})
	r := openReceiver(t, conn, "t/g")
	if ds := receive(t, r, 1); ds[0].ID != "m-0" {
		t.Fatalf("came %v", ids(ds))
	}
	if beaten.Load() < 2 {
		t.Errorf("the dead coordinator was asked %d times: nothing was shown", beaten.Load())
	}
}
