package dedup_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/internal/bubbletest"
)

// warned collects warnings.
type warned struct {
	mu   sync.Mutex
	said []string
}

func (w *warned) hook() dedup.HandlerOption {
	return dedup.WarnHook(func(s string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.said = append(w.said, s)
	})
}

// TestHandlerWarnsOfIDs: one that is a hash of the body is told once a minute, and
// counted each time; nothing else is.
func TestHandlerWarnsOfIDs(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		const id = "5d41402abc4b2a76b9719d911017c592" // the MD5 of "hello"
		m := func() *broker.Delivery {
			return &broker.Delivery{Message: broker.Message{ID: id, Body: []byte("hello")}}
		}
		fine := &broker.Delivery{Message: broker.Message{ID: "order-1:paid:v1", Body: []byte("hello")}}
		var w warned
		in := dedup.New[*fakeTx](newFakeStore(), "c", dedup.Options{})
		l := dedup.NewLease(newFakeLeases(), "c", dedup.LeaseOptions{})
		c, err := dedup.NewCalls(newFakeCalls(), "c", dedup.CallOptions{})
		if err != nil {
			t.Fatal(err)
		}
		nothing := func(context.Context, *fakeTx, *broker.Delivery) error { return nil }
		for name, h := range map[string]broker.Handler{
			"inbox": dedup.Handler(in, nothing, w.hook()),
			"lease": dedup.LeaseHandler(l, func(context.Context, int64, *broker.Delivery) ([]byte, error) { return nil, nil }, w.hook()),
			"calls": dedup.CallHandler(c, func(context.Context, string, *broker.Delivery) ([]byte, error) { return nil, nil }, w.hook()),
		} {
			w.said = nil
			for i := range 5 {
				if err := h(t.Context(), m()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if err := h(t.Context(), fine); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if i == 3 {
					time.Sleep(time.Minute)
				}
			}
			if len(w.said) != 2 || !strings.Contains(w.said[0], "MD5") {
				t.Errorf("%s said %q", name, w.said)
			}
		}
		if in.Stats().SuspectIDs != 5 || l.Stats().SuspectIDs != 5 || c.Stats().SuspectIDs != 5 {
			t.Errorf("%+v", in.Stats())
		}
		w.said = nil
		off := dedup.Handler(dedup.New[*fakeTx](newFakeStore(), "c", dedup.Options{}), nothing, w.hook(), dedup.WithoutIDCheck())
		if err := off(t.Context(), m()); err != nil || len(w.said) > 0 {
			t.Error(w.said, err)
		}
	})
}

// windowed is a store that says how long it keeps markers.
type windowed struct {
	*fakeStore
	window time.Duration
}

func (s *windowed) Window() time.Duration { return s.window }

// TestServes: a window that is shorter than what the entity makes is told when the
// handler is made, and what comes later than the window is counted.
func TestServes(t *testing.T) {
	entity := broker.Entity{Topic: "orders", Subscription: "orders/billing", Window: 10 * time.Minute, Lease: time.Minute, MaxDeliveries: 10}
	nothing := func(context.Context, *fakeTx, *broker.Delivery) error { return nil }
	for _, c := range []struct {
		window time.Duration
		more   dedup.Horizon
		says   string
	}{
		{20 * time.Minute, dedup.Horizon{}, ""},
		{20*time.Minute - 1, dedup.Horizon{}, "producer's retries 10m0s, redelivery 10m0s"},
		{time.Hour, dedup.Horizon{Replay: 24 * time.Hour}, "replay 24h0m0s"},
		{time.Hour, dedup.Horizon{ProducerRetry: 30 * time.Minute, Redelivery: time.Minute}, ""},
		{0, dedup.Horizon{}, "nobody says"},
	} {
		store := &windowed{newFakeStore(), c.window}
		in := dedup.New[*fakeTx](store, "c", dedup.Options{})
		var w warned
		dedup.Handler(in, nothing, w.hook(), dedup.Serves(entity, c.more))
		if says := strings.Join(w.said, "; "); (says == "") != (c.says == "") || !strings.Contains(says, c.says) || says != "" && !strings.Contains(says, "orders/billing") {
			t.Errorf("%v, %+v: %q, want %q", c.window, c.more, says, c.says)
		}
		w.said = nil
		for range 2 {
			if _, _, err := dedup.HandleBatch(t.Context(), in, nil, nil, nothing, w.hook(), dedup.Serves(entity, c.more)); err != nil {
				t.Error(err)
			}
		}
		if n := len(w.said); n != min(len(c.says), 1) {
			t.Errorf("%v: HandleBatch warned %d times", c.window, n)
		}
	}
	in := dedup.New[*fakeTx](&windowed{newFakeStore(), time.Hour}, "c", dedup.Options{})
	h := dedup.Handler(in, nothing)
	for id, age := range map[string]time.Duration{"new": time.Minute, "late": 2 * time.Hour} {
		for range 2 {
			if err := h(t.Context(), &broker.Delivery{Message: broker.Message{ID: id, Time: time.Now().Add(-age)}}); err != nil {
				t.Error(err)
			}
		}
	}
	if st := in.Stats(); st.Late != 1 || st.Applied != 2 {
		t.Errorf("%+v", st)
	}
}
