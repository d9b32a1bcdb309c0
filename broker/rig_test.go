package broker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/adapters/memory"
	"github.com/onceline/onceline/broker"
)

// rig is a memory broker with one topic, one subscription and a dead-letter
// topic, to be used within a synctest bubble.
type rig struct {
	t    *testing.T
	b    *memory.Broker
	conn broker.Conn
	pub  broker.Publisher
	rcv  *spy
	e    broker.Entity

	mu   sync.Mutex
	errs []error // of the hook
}

const sub = "orders/billing"

func newRig(t *testing.T, e broker.Entity, opts ...memory.Option) *rig {
	t.Helper()
	r := &rig{t: t, b: memory.New(opts...)}
	r.conn = r.b.Conn()
	e.Topic, e.Subscription = "orders", sub
	r.e = e
	must(t, r.conn.Ensure(t.Context(), e))
	var err error
	r.pub, err = r.conn.OpenPublisher(t.Context(), e.Topic)
	must(t, err)
	r.rcv = r.open()
	t.Cleanup(func() {
		if err := r.conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
		r.b.Close()
	})
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) open() *spy {
	r.t.Helper()
	rcv, err := r.conn.OpenReceiver(r.t.Context(), sub)
	must(r.t, err)
	return &spy{Receiver: rcv}
}

// publish sends n messages with the keys in turn; their IDs are 000, 001, …
func (r *rig) publish(n int, keys ...string) {
	r.t.Helper()
	msgs := make([]broker.Message, n)
	for i := range msgs {
		msgs[i].ID = fmt.Sprintf("%03d", i)
		if len(keys) > 0 {
			msgs[i].Key = keys[i%len(keys)]
		}
	}
	_, err := r.pub.Publish(r.t.Context(), msgs...)
	must(r.t, err)
}

// hook collects what Consume reports.
func (r *rig) hook(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

func (r *rig) hooked() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errs)
}

// reported counts the hook's errors that are kind.
func (r *rig) reported(kind error) int {
	n := 0
	for _, err := range r.hooked() {
		if errors.Is(err, kind) {
			n++
		}
	}
	return n
}

func (r *rig) stats() memory.Stats {
	r.t.Helper()
	s, err := r.b.Stats(sub)
	must(r.t, err)
	return s
}

// consume starts Consume; stop ends it and returns what it returned.
func (r *rig) consume(h broker.Handler, o broker.ConsumeOptions) (stop func() error) {
	ctx, cancel := context.WithCancel(r.t.Context())
	if o.ErrorHook == nil {
		o.ErrorHook = r.hook
	}
	done := make(chan error, 1)
	go func() { done <- broker.Consume(ctx, r.rcv, h, o) }()
	return func() error {
		cancel()
		return <-done
	}
}

// deadLetters takes what is in the dead-letter topic.
func (r *rig) deadLetters() []broker.Delivery {
	r.t.Helper()
	must(r.t, r.conn.Ensure(r.t.Context(), broker.Entity{Topic: r.e.DeadLetter, Subscription: r.e.DeadLetter + "/all"}))
	rcv, err := r.conn.OpenReceiver(r.t.Context(), r.e.DeadLetter+"/all")
	must(r.t, err)
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
	defer cancel()
	ds, err := rcv.Receive(ctx, 100)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		r.t.Fatal(err)
	}
	return ds
}

// spy is a receiver that notes what is asked of it and may answer differently.
type spy struct {
	broker.Receiver
	settle  func(ctx context.Context, s []broker.Settlement, next func() error) error
	receive func(ctx context.Context, max int, next func() ([]broker.Delivery, error)) ([]broker.Delivery, error)

	mu    sync.Mutex
	log   []string // "Ack 001"
	asked []int    // max of each Receive
}

func (s *spy) Receive(ctx context.Context, max int) ([]broker.Delivery, error) {
	s.mu.Lock()
	s.asked = append(s.asked, max)
	s.mu.Unlock()
	next := func() ([]broker.Delivery, error) { return s.Receiver.Receive(ctx, max) }
	if s.receive != nil {
		return s.receive(ctx, max, next)
	}
	return next()
}

func (s *spy) Settle(ctx context.Context, ss []broker.Settlement) error {
	s.mu.Lock()
	for i := range ss {
		s.log = append(s.log, fmt.Sprintf("%s %s", ss[i].Action, ss[i].Delivery.ID))
	}
	s.mu.Unlock()
	next := func() error { return s.Receiver.Settle(ctx, ss) }
	if s.settle != nil {
		return s.settle(ctx, ss, next)
	}
	return next()
}

func (s *spy) count(line string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, l := range s.log {
		if l == line {
			n++
		}
	}
	return n
}
