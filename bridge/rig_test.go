package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/bridge"
	"github.com/onceline/onceline/broker"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is two brokers and what is between them.
type rig struct {
	t        *testing.T
	from, to *memory.Broker
	in       broker.Publisher // of the source
	rcv      broker.Receiver
	pub      broker.Publisher // of the far side
	far      broker.Receiver

	mu   sync.Mutex
	errs []error
}

// entity of both sides.
var entity = broker.Entity{Topic: "orders", Subscription: "orders/bridge", Lease: 10 * time.Second, Ordered: true, DeadLetter: "dead"}

func newRig(t *testing.T, e broker.Entity, options ...memory.Option) *rig {
	t.Helper()
	r := &rig{t: t, from: memory.New(), to: memory.New(options...)}
	source, far := r.from.Conn(), r.to.Conn()
	must(t, source.Ensure(t.Context(), e))
	must(t, far.Ensure(t.Context(), broker.Entity{Topic: "orders", Subscription: "orders/far"}))
	var err error
	r.in, err = source.OpenPublisher(t.Context(), "orders")
	must(t, err)
	r.rcv, err = source.OpenReceiver(t.Context(), e.Subscription)
	must(t, err)
	r.pub, err = far.OpenPublisher(t.Context(), "orders")
	must(t, err)
	r.far, err = far.OpenReceiver(t.Context(), "orders/far")
	must(t, err)
	return r
}

func (r *rig) close() {
	r.from.Close()
	r.to.Close()
}

// publish sends n messages with the keys in turn; their IDs are 000, 001, …
func (r *rig) publish(n int, keys ...string) {
	r.t.Helper()
	msgs := make([]broker.Message, n)
	for i := range msgs {
		msgs[i] = broker.Message{ID: fmt.Sprintf("%03d", i), Body: []byte("body"), Headers: broker.Headers{{Key: "n", Value: fmt.Sprint(i)}}, Time: time.UnixMilli(1700000000000 + int64(i))}
		if len(keys) > 0 {
			msgs[i].Key = keys[i%len(keys)]
		}
	}
	_, err := r.in.Publish(r.t.Context(), msgs...)
	must(r.t, err)
}

func (r *rig) hook(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

// reported counts the hook's errors that are kind.
func (r *rig) reported(kind error) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, err := range r.errs {
		if errors.Is(err, kind) {
			n++
		}
	}
	return n
}

// drain moves all that the source has.
func (r *rig) drain(o bridge.Options) (bridge.Stats, error) {
	r.t.Helper()
	if o.Idle == 0 {
		o.Idle = 20 * time.Second
	}
	if o.Patience == 0 {
		o.Patience = time.Hour
	}
	o.ErrorHook = r.hook
	b := bridge.New(r.rcv, r.pub, o)
	err := b.Run(r.t.Context())
	return b.Stats(), err
}

// arrived takes what is at the far side.
func (r *rig) arrived() []broker.Delivery {
	r.t.Helper()
	return take(r.t, r.far)
}

func take(t *testing.T, from broker.Receiver) []broker.Delivery {
	t.Helper()
	var all []broker.Delivery
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		ds, err := from.Receive(ctx, 1000)
		cancel()
		if len(ds) == 0 {
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			return all
		}
		all = append(all, ds...)
		s := make([]broker.Settlement, len(ds))
		for i := range ds {
			s[i] = broker.Settlement{Delivery: &ds[i], Action: broker.Ack}
		}
		must(t, from.Settle(t.Context(), s))
	}
}

// ids are those of deliveries of one key, in their order.
func ids(ds []broker.Delivery, key string) []string {
	var out []string
	for i := range ds {
		if ds[i].Key == key {
			out = append(out, ds[i].ID)
		}
	}
	return out
}

// exact checks that each of n messages is there once, and in the order of its key.
func exact(t *testing.T, ds []broker.Delivery, n int) {
	t.Helper()
	if len(ds) != n {
		t.Errorf("%d messages arrived of %d", len(ds), n)
	}
	seen := map[string]int{}
	last := map[string]string{}
	for i := range ds {
		d := &ds[i]
		if seen[d.ID]++; seen[d.ID] > 1 {
			t.Errorf("%s arrived %d times", d.ID, seen[d.ID])
		}
		if d.Key != "" {
			if d.ID <= last[d.Key] {
				t.Errorf("key %s: %s came behind %s", d.Key, d.ID, last[d.Key])
			}
			last[d.Key] = d.ID
		}
	}
	for i := range n {
		if id := fmt.Sprintf("%03d", i); seen[id] == 0 {
			t.Errorf("%s is lost", id)
		}
	}
}

// sick is a publisher that refuses or loses what it is told to.
type sick struct {
	broker.Publisher
	judge func(m *broker.Message, call int) error // nil: sent

	mu    sync.Mutex
	calls int
	order []string // IDs that went through
}

func (s *sick) Publish(ctx context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	s.mu.Lock()
	s.calls++
	call := s.calls
	s.mu.Unlock()
	out := make([]broker.Receipt, len(msgs))
	var at []int
	var send []broker.Message
	for i := range msgs {
		if err := s.judge(&msgs[i], call); err != nil {
			out[i] = broker.Receipt{Verdict: broker.Refused, Err: err}
			if errors.Is(err, broker.ErrUnknownOutcome) {
				out[i].Verdict = broker.Unknown
			}
			continue
		}
		at, send = append(at, i), append(send, msgs[i])
	}
	if len(send) > 0 {
		receipts, _ := s.Publisher.Publish(ctx, send...)
		s.mu.Lock()
		for j, i := range at {
			out[i] = receipts[j]
			s.order = append(s.order, msgs[i].ID)
		}
		s.mu.Unlock()
	}
	for i := range out {
		if out[i].Err != nil {
			return out, out[i].Err
		}
	}
	return out, nil
}

func (s *sick) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}
