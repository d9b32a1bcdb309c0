package kafka

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

// killMember joins a group of topic t, waits until the group has settled with
// so many members and it has a partition, and is then gone without a word. It returns when it was killed: from then on the
// group waits for it for a session.
func killMember(t *testing.T, c *kfake.Cluster, conn broker.Conn, group string, members int, session time.Duration) time.Time {
	t.Helper()
	life, kill := context.WithCancel(context.Background())
	defer kill()
	got := make(chan struct{})
	var once sync.Once
	cl, err := kgo.NewClient(kgo.WithContext(life), kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumerGroup(group), kgo.ConsumeTopics("t"),
		kgo.DisableAutoCommit(), kgo.SessionTimeout(session), kgo.HeartbeatInterval(session/10), kgo.DisableClientMetrics(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			if len(m["t"]) > 0 {
				once.Do(func() { close(got) })
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-got:
	case <-time.After(10 * time.Second):
		t.Error("the member that is to be killed got no partition")
	}
	stable(t, conn, group, members)
	kill()
	killed := time.Now()
	cl.Close() // with its context ended it says nothing to the broker
	return killed
}

// groupOf asks the broker for a group's state and its members' number.
func groupOf(t *testing.T, conn broker.Conn, group string) (state string, members int) {
	t.Helper()
	var cl *kgo.Client
	conn.As(&cl)
	gs, err := kadm.NewClient(cl).DescribeGroups(ctxOf(t, 5*time.Second), group)
	if err != nil {
		t.Fatal(err)
	}
	return gs[group].State, len(gs[group].Members)
}

// stable waits until a group has so many members and no rebalance.
func stable(t *testing.T, conn broker.Conn, group string, members int) {
	t.Helper()
	eventually(t, "a stable group", func() bool {
		state, n := groupOf(t, conn, group)
		return state == "Stable" && n == members
	})
}

// A receiver that is closed while its join is pending leaves the group: the
// group waits for a killed member, and must not wait for the closed one after
// it.
func TestGroupCloseWhileJoining(t *testing.T) {
	t.Parallel()
	const session = 4 * time.Second
	c, _ := cluster(t, 1, kfake.GroupMinSessionTimeout(session))
	conn := dial(t, c, func(o *Options) { o.Session = session })
	publish(t, openPublisher(t, conn, "t"), messages(1, 0)...)
	killed := killMember(t, c, conn, "g", 1, session)
	for try := range 2 {
		r := openReceiver(t, conn, "t/g")
		ctx, cancel := context.WithCancel(context.Background())
		received := make(chan error, 1)
		go func() {
			_, err := r.Receive(ctx, 1)
			received <- err
		}()
		eventually(t, "a pending join", func() bool {
			state, n := groupOf(t, conn, "g")
			return state == "PreparingRebalance" && n == 2
		})
		cancel()
		if err := <-received; !errors.Is(err, context.Canceled) {
			t.Fatalf("the cancelled receive: %v", err)
		}
		begun := time.Now()
		if err := r.Close(ctxOf(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("try %d: close took %v", try, took)
		}
		if since := time.Since(killed); since > session-200*time.Millisecond {
			t.Fatalf("too slow to tell anything: the killed member's session ended before, %v", since)
		}
		if _, n := groupOf(t, conn, "g"); n != 1 {
			t.Errorf("try %d: %d members after the close, want the killed one", try, n)
		}
	}
	next := openReceiver(t, conn, "t/g")
	ds := tryReceive(t, next, 1, 4*session)
	took := time.Since(killed)
	if len(ds) != 1 || ds[0].ID != "m-0" {
		t.Fatalf("received %v", ids(ds))
	}
	// The session, a heartbeat and a rebalance; a ghost would add a session.
	if took > session+session/2 {
		t.Errorf("the message came %v after the kill, with a session of %v", took, session)
	}
	wantStates(t, settle(t, next, broker.Ack, ds...), broker.Confirmed)
}

// The same for one that has been a member for long and joins again because
// another one came.
func TestGroupCloseWhileRejoining(t *testing.T) {
	t.Parallel()
	const session = 4 * time.Second
	c, _ := cluster(t, 2, kfake.GroupMinSessionTimeout(session))
	conn := dial(t, c, func(o *Options) { o.Session = session })
	old := openReceiver(t, conn, "t/g")
	var cl *kgo.Client
	old.As(&cl)
	stable(t, conn, "g", 1)
	killed := killMember(t, c, conn, "g", 2, session)
	id, _ := cl.GroupMetadata()
	joins := make(chan struct{}, 100)
	c.ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if req.(*kmsg.JoinGroupRequest).MemberID == id {
			joins <- struct{}{}
		}
		return nil, nil, false
	})
	other := openReceiver(t, conn, "t/g")
	select {
	case <-joins:
	case <-time.After(2 * time.Second):
		t.Fatal("the member didn't join again")
	}
	for _, r := range []broker.Receiver{old, other} {
		begun := time.Now()
		if err := r.Close(ctxOf(t, 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("close took %v", took)
		}
	}
	_, n := groupOf(t, conn, "g")
	if since := time.Since(killed); since > session-200*time.Millisecond {
		t.Fatalf("too slow to tell anything: the killed member's session ended before, %v", since)
	}
	if n != 1 {
		t.Errorf("%d members after both closed, want the killed one", n)
	}
}

// A static member whose join is pending ends soon too and stays in the group,
// where its next life takes its place.
func TestGroupCloseStaticWhileJoining(t *testing.T) {
	t.Parallel()
	const session = 4 * time.Second
	c, _ := cluster(t, 1, kfake.GroupMinSessionTimeout(session))
	conn := dial(t, c, func(o *Options) { o.Session, o.Instance = session, "one" })
	killMember(t, c, conn, "g", 1, session)
	r := openReceiver(t, conn, "t/g")
	eventually(t, "a pending join", func() bool {
		state, n := groupOf(t, conn, "g")
		return state == "PreparingRebalance" && n == 2
	})
	begun := time.Now()
	if err := r.Close(ctxOf(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("close took %v", took)
	}
	if _, n := groupOf(t, conn, "g"); n != 2 {
		t.Errorf("%d members after the close, want the killed one and the static one", n)
	}
}
