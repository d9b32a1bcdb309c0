package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

// beatsOf is the hook of a receiver's member.
func beatsOf(t *testing.T, r broker.Receiver) *beats {
	t.Helper()
	var member *kgo.Client
	if !r.As(&member) {
		t.Fatal("no client")
	}
	hooks, _ := member.OptValue(kgo.WithHooks).([]kgo.Hook)
	for _, h := range hooks {
		if b, ok := h.(*beats); ok {
			return b
		}
	}
	t.Fatal("no hook")
	return nil
}

// A member that stood still past its session is told so by Extend and Nack, before a
// heartbeat has told it; one that was silent and is still a member goes on.
func TestGroupAsksAfterASilence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		action broker.Action
		change []func(*Options)
	}{
		{"extend", broker.Extend, nil},
		{"nack", broker.Nack, nil},
		{"extend with KIP-848", broker.Extend, []func(*Options){nextGen}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, _ := cluster(t, 1)
			conn := dial(t, k, append(c.change, func(o *Options) {
				if !o.NextGen {
					o.Session = time.Minute // so that no heartbeat tells it first
				}
			})...)
			publish(t, openPublisher(t, conn, "t"), messages(2, 0)...)
			r := openReceiver(t, conn, "t/g")
			ds := receive(t, r, 2)
			b := beatsOf(t, r)
			b.begin(time.Now().Add(-2 * time.Minute))
			if !b.silent() {
				t.Fatal("not silent")
			}
			wantStates(t, settle(t, r, c.action, ds[0]), broker.Confirmed)
			if b.silent() {
				t.Error("silent after the broker has answered")
			}
			if len(c.change) > 0 {
				return // evict is for classic groups
			}
			evict(t, conn, r, "g")
			b.begin(time.Now().Add(-2 * time.Minute))
			wantStates(t, settle(t, r, c.action, ds[1]), broker.LeaseLost)
		})
	}
}

// A heartbeat that comes too late says nothing, for it may have been refused.
func TestBeats(t *testing.T) {
	t.Parallel()
	b := &beats{bound: time.Minute}
	answered := func(key kmsg.Key, sent time.Duration) {
		b.OnBrokerE2E(kgo.BrokerMetadata{}, key.Int16(), kgo.BrokerE2E{TimeToRead: sent})
	}
	if b.silent() {
		t.Error("silent before there is a session")
	}
	b.begin(time.Now().Add(-50 * time.Second))
	answered(kmsg.Heartbeat, 0)
	if b.heard.Before(time.Now().Add(-time.Second)) || b.silent() {
		t.Errorf("heard %s ago", time.Since(b.heard))
	}
	b.begin(time.Now().Add(-50 * time.Second))
	answered(kmsg.Fetch, 0)
	answered(kmsg.Heartbeat, 40*time.Second)
	if ago := time.Since(b.heard); ago < 39*time.Second || ago > 41*time.Second {
		t.Errorf("heard %s ago, want as of when it was sent", ago)
	}
	b.begin(time.Now().Add(-2 * time.Minute))
	answered(kmsg.Heartbeat, 0)
	if !b.silent() {
		t.Error("a late heartbeat ends the silence")
	}
}
