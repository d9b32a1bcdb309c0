package driver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is an adapter that does what a test says and notes what it is asked.
type fake struct {
	clock  atomic.Int64 // unix nanoseconds
	limits broker.Limits
	open   func(ctx context.Context) error // of both
	ensure func(ctx context.Context) error
	pub    func(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt)
	rcv    func(ctx context.Context, max int, out *driver.Batch) error
	settle func(ctx context.Context, ops []driver.Op)

	mu     sync.Mutex
	log    []string
	closed bool
	errs   []error // of Close, the connection's
}

func newFake() *fake {
	f := &fake{}
	f.clock.Store(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return f
}

func (f *fake) Now() time.Time          { return time.Unix(0, f.clock.Load()) }
func (f *fake) advance(d time.Duration) { f.clock.Add(int64(d)) }
func (f *fake) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, fmt.Sprintf(format, args...))
}

// took returns what was noted since it was last called.
func (f *fake) took() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.log
	f.log = nil
	return log
}

// used panics the test if the driver is called after Close.
func (f *fake) used(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		panic(what + " after Close")
	}
}

func (f *fake) OpenPublisher(ctx context.Context, topic string, o broker.PublisherOptions) (driver.Publisher, error) {
	f.used("OpenPublisher")
	f.note("open publisher %s %s", topic, o.Semantics)
	if f.open != nil {
		if err := f.open(ctx); err != nil {
			return nil, err
		}
	}
	return &fakePublisher{fake: f, topic: topic}, nil
}

func (f *fake) OpenReceiver(ctx context.Context, subscription string, o broker.ReceiverOptions) (driver.Receiver, error) {
	f.used("OpenReceiver")
	f.note("open receiver %s %v", subscription, o.StartFrom != nil)
	if f.open != nil {
		if err := f.open(ctx); err != nil {
			return nil, err
		}
	}
	return &fakeReceiver{fake: f, name: subscription}, nil
}

func (f *fake) Ensure(ctx context.Context, e broker.Entity) error {
	f.used("Ensure")
	f.note("ensure %s", e.Topic)
	if f.ensure != nil {
		return f.ensure(ctx)
	}
	return nil
}

func (f *fake) Delete(_ context.Context, e broker.Entity) error {
	f.used("Delete")
	f.note("delete %s", e.Topic)
	return nil
}

func (f *fake) As(target any) bool {
	p, ok := target.(**fake)
	if ok {
		*p = f
	}
	return ok
}

func (f *fake) Close(context.Context) error {
	f.used("Close")
	f.note("close")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return errors.Join(f.errs...)
}

type fakePublisher struct {
	*fake
	topic string
}

func (p *fakePublisher) Publish(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	p.used("Publish")
	for i := range msgs {
		p.note("publish %s", msgs[i].ID)
	}
	if p.pub != nil {
		p.pub(ctx, msgs, receipts)
		return
	}
	for i := range receipts {
		receipts[i] = broker.Receipt{Verdict: broker.Stored, Position: broker.Position{Offset: uint64(i)}}
	}
}

func (p *fakePublisher) Limits() broker.Limits { return p.limits }

func (p *fakePublisher) Close(context.Context) error {
	p.used("publisher Close")
	p.note("close publisher %s", p.topic)
	return nil
}

type fakeReceiver struct {
	*fake
	name string
	shut atomic.Bool
}

func (r *fakeReceiver) Receive(ctx context.Context, max int, out *driver.Batch) error {
	if r.shut.Load() {
		panic("Receive after Close")
	}
	return r.rcv(ctx, max, out)
}

func (r *fakeReceiver) Settle(ctx context.Context, ops []driver.Op) {
	if r.shut.Load() && (ctx.Err() == nil || slices.ContainsFunc(ops, func(op driver.Op) bool { return !op.Again })) {
		panic("Settle after Close")
	}
	for i := range ops {
		again := ""
		if ops[i].Again {
			again = " again"
		}
		r.note("%s %d%s", ops[i].Settlement.Action, ops[i].Token.Tag, again)
	}
	if r.settle != nil {
		r.settle(ctx, ops)
		return
	}
	for i := range ops {
		ops[i].Settlement.Outcome.State = broker.Confirmed
	}
}

func (r *fakeReceiver) AsDelivery(t *driver.Token, target any) bool {
	p, ok := target.(*uint64)
	if ok {
		*p = t.Tag
	}
	return ok
}

func (r *fakeReceiver) Close(context.Context) error {
	r.shut.Store(true)
	r.note("close receiver %s", r.name)
	return nil
}

const lease = 10 * time.Second

// deliver makes Receive bring n deliveries with a lease, under epoch.
func (f *fake) deliver(n int, epoch *driver.Epoch) {
	tag := uint64(0)
	f.rcv = func(_ context.Context, max int, out *driver.Batch) error {
		for range min(n, max) {
			d, token := out.Add()
			tag++
			d.ID, d.Lease = fmt.Sprint("m", tag), f.Now().Add(lease)
			token.Tag, token.Epoch = tag, epoch
		}
		return nil
	}
}

// answers makes Settle give the outcomes in turn, the last for ever.
func (f *fake) answers(outcomes ...broker.Outcome) {
	n := 0
	f.settle = func(_ context.Context, ops []driver.Op) {
		for i := range ops {
			ops[i].Settlement.Outcome = outcomes[min(n, len(outcomes)-1)]
			n++
		}
	}
}

func (f *fake) receiver(t testing.TB) broker.Receiver {
	t.Helper()
	r, err := driver.New(f).OpenReceiver(t.Context(), "sub")
	if err != nil {
		t.Fatal(err)
	}
	f.took()
	return r
}

func (f *fake) publisher(t testing.TB) broker.Publisher {
	t.Helper()
	p, err := driver.New(f).OpenPublisher(t.Context(), "topic")
	if err != nil {
		t.Fatal(err)
	}
	f.took()
	return p
}

func receive(t testing.TB, r broker.Receiver, n int) []broker.Delivery {
	t.Helper()
	ds, err := r.Receive(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

var (
	lostAnswer = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, nil, "fake")}
	leaseLost  = broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrLeaseLost, nil, "fake")}
	pending    = broker.Outcome{State: broker.Pending}
	confirmed  = broker.Outcome{State: broker.Confirmed}
	sent       = broker.Outcome{State: broker.Sent}
)
