package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/conformance/report"
)

// Bench is where a probe works: one entity of its own on one instance of the
// target, connections, faults and time, and the history of all that is done
// through it. Its methods may be called from several goroutines.
type Bench struct {
	Target   *Target
	Instance *Instance
	Entity   broker.Entity // the probe's own; Ensure creates it
	name     string        // what Entity is made from
	Rand     *rand.Rand

	history  *History
	mutant   *Mutant // what breaks the adapter; nil for nothing
	mu       sync.Mutex
	names    map[any]string // of publishers and receivers, in the history
	conns    []broker.Conn
	workers  []*worker
	stores   []benchStore
	others   []*Instance // brokers that the probe has started beside its own
	ensured  []broker.Entity
	findings map[boundary.Claim]answer
	notes    []string
	ids      int
	took     time.Duration
}

// answer is what a probe found out about one claim.
type answer struct {
	observed boundary.Answer
	verdict  report.Verdict // set for NotApplicable and NotVerifiable
	reason   string
}

// Answer records the observed answer to a claim, with a sentence that says what
// was seen.
func (b *Bench) Answer(id boundary.Claim, a boundary.Answer, format string, args ...any) {
	b.record(id, answer{observed: a, reason: fmt.Sprintf(format, args...)})
}

// NotApplicable records that the target lacks what the claim asks about.
func (b *Bench) NotApplicable(id boundary.Claim, format string, args ...any) {
	b.record(id, answer{verdict: report.NotApplicable, reason: fmt.Sprintf(format, args...)})
}

// NotVerifiable records that the target can't show it either way.
func (b *Bench) NotVerifiable(id boundary.Claim, format string, args ...any) {
	b.record(id, answer{verdict: report.NotVerifiable, reason: fmt.Sprintf(format, args...)})
}

func (b *Bench) record(id boundary.Claim, a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.findings[id] = a
	b.notes = append(b.notes, a.reason)
}

// Note adds a sentence to the evidence.
func (b *Bench) Note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

// ID returns a new dedup ID.
func (b *Bench) ID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ids++
	return fmt.Sprintf("m%d", b.ids)
}

// Message returns a new message with an ID, the target's key and a small body.
func (b *Bench) Message() broker.Message {
	id := b.ID()
	return broker.Message{ID: id, Key: b.Target.Key, Body: []byte("body of " + id)}
}

// Messages returns n new messages.
func (b *Bench) Messages(n int) []broker.Message {
	ms := make([]broker.Message, n)
	for i := range ms {
		ms[i] = b.Message()
	}
	return ms
}

// Conn opens a new connection; the bench closes it after the probe.
func (b *Bench) Conn(ctx context.Context) (broker.Conn, error) {
	c, err := b.Instance.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a connection: %w", err)
	}
	c = b.mutant.wrap(c)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns = append(b.conns, c)
	return c, nil
}

// Ensure creates the probe's entity on a new connection, which it returns.
// change, if not nil, adds wishes.
func (b *Bench) Ensure(ctx context.Context, change func(*broker.Entity)) (broker.Conn, error) {
	c, err := b.Conn(ctx)
	if err != nil {
		return nil, err
	}
	e := b.Entity
	if b.Target.WishLease {
		e.Lease = b.Target.Lease
	}
	if change != nil {
		change(&e)
	}
	if err := c.Ensure(ctx, e); err != nil {
		return nil, fmt.Errorf("ensure %s: %w", e.Topic, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ensured = append(b.ensured, e)
	return c, nil
}

// Publisher opens a publisher for the probe's topic on c.
func (b *Bench) Publisher(ctx context.Context, c broker.Conn) (broker.Publisher, error) {
	return c.OpenPublisher(ctx, b.Entity.Topic)
}

// Receiver opens a receiver for the probe's subscription on c.
func (b *Bench) Receiver(ctx context.Context, c broker.Conn) (broker.Receiver, error) {
	return c.OpenReceiver(ctx, b.Entity.Subscription)
}

// Publish publishes and records it. The receipts' own errors are the probe's to
// read.
func (b *Bench) Publish(ctx context.Context, p broker.Publisher, ms ...broker.Message) []broker.Receipt {
	for i := range ms {
		b.history.Record(report.Event{Actor: report.Producer, Kind: kindPublish, ID: ms[i].ID, Copy: ms[i].Copy, Key: ms[i].Key, Holder: b.nameOf("producer", p),
			Note: described(&ms[i])})
	}
	rs, _ := p.Publish(ctx, ms...)
	for i := range rs {
		note := fmt.Sprintf("%s at %s", rs[i].Verdict, at(rs[i].Position))
		if rs[i].Err != nil {
			note = fmt.Sprintf("%s (%v)", rs[i].Verdict, rs[i].Err)
		}
		b.history.Record(report.Event{Actor: report.Broker, Kind: kindReceipt, ID: ms[i].ID, Copy: ms[i].Copy, Verdict: rs[i].Verdict.String(), Note: note})
	}
	return rs
}

// MustPublish is Publish for where a good receipt is the premise of the probe.
func (b *Bench) MustPublish(ctx context.Context, p broker.Publisher, ms ...broker.Message) ([]broker.Receipt, error) {
	rs := b.Publish(ctx, p, ms...)
	for i := range rs {
		if !rs[i].Verdict.OK() {
			return rs, fmt.Errorf("publish %q: %s: %w", ms[i].ID, rs[i].Verdict, rs[i].Err)
		}
	}
	return rs, nil
}

// Receive takes up to max deliveries and records them. It returns none, and no
// error, if nothing came within the time.
func (b *Bench) Receive(ctx context.Context, r broker.Receiver, max int, within time.Duration) ([]broker.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		asked := b.history.now()
		ds, err := r.Receive(ctx, max)
		b.arrived(r, asked, ds)
		switch {
		case len(ds) > 0:
			return ds, nil
		case ctx.Err() != nil:
			return nil, nil
		case errors.Is(err, broker.ErrUnavailable) || errors.Is(err, broker.ErrBusy):
			// It may come back within the time, as after a restart.
			if !sleep(ctx, 20*time.Millisecond) {
				return nil, fmt.Errorf("receive: until the end of %s: %w", within, err)
			}
		case err != nil:
			return nil, fmt.Errorf("receive: %w", err)
		}
	}
}

// arrived records what r has got by a call that began at a time.
func (b *Bench) arrived(r broker.Receiver, asked float64, ds []broker.Delivery) {
	for i := range ds {
		b.history.Record(b.of(r, &ds[i], report.Event{Actor: report.Consumer, Kind: kindDelivery, Copy: ds[i].Copy, Asked: asked,
			Note: fmt.Sprintf("attempt %d (%s) at %s", ds[i].Attempt.Number, ds[i].Attempt.Trust, at(ds[i].Position))}))
	}
}

// of completes an event with what is known of the delivery that it concerns.
func (b *Bench) of(r broker.Receiver, d *broker.Delivery, e report.Event) report.Event {
	e.ID, e.Holder, e.Attempt = d.ID, b.nameOf("consumer", r), d.Attempt.Number
	if d.Position != (broker.Position{}) {
		e.Position = at(d.Position)
	}
	return e
}

// nameOf is what a publisher or receiver is called in the history.
func (b *Bench) nameOf(what string, end any) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	name, ok := b.names[end]
	if !ok {
		if b.names == nil {
			b.names = map[any]string{}
		}
		name = fmt.Sprintf("%s %d", what, len(b.names)+1)
		b.names[end] = name
	}
	return name
}

// described says what is published, beside its ID.
func described(m *broker.Message) string {
	note := fmt.Sprintf("%d bytes", len(m.Body))
	if m.Key != "" {
		note += fmt.Sprintf(", key %q", m.Key)
	}
	if m.Copy != "" {
		note += fmt.Sprintf(", copy %q", m.Copy)
	}
	return note
}

// MustReceive is Receive of exactly one for where its coming is the premise.
func (b *Bench) MustReceive(ctx context.Context, r broker.Receiver) (broker.Delivery, error) {
	ds, err := b.Receive(ctx, r, 1, 3*b.Target.patience()+2*time.Second+2*max(b.Target.Lease, b.Target.Session)+b.Target.SlowStart)
	if err != nil {
		return broker.Delivery{}, err
	}
	if len(ds) == 0 {
		return broker.Delivery{}, errors.New("receive: nothing came, and the probe can't go on without it")
	}
	return ds[0], nil
}

// Settle settles one delivery and records it.
func (b *Bench) Settle(ctx context.Context, r broker.Receiver, d *broker.Delivery, a broker.Action, delay time.Duration) broker.Outcome {
	b.history.Record(b.of(r, d, report.Event{Actor: report.Consumer, Kind: kindSettle, Action: a.String(), Note: a.String()}))
	s := []broker.Settlement{{Delivery: d, Action: a, Delay: delay, Reason: "asked for by the probe"}}
	_ = r.Settle(ctx, s) // the outcome says more
	b.history.Record(b.of(r, d, outcomeEvent(a, s[0].Outcome)))
	return s[0].Outcome
}

// settled records an outcome of which no more is known than the message's ID.
func (b *Bench) settled(id string, a broker.Action, o broker.Outcome) {
	e := outcomeEvent(a, o)
	e.ID = id
	b.history.Record(e)
}

func outcomeEvent(a broker.Action, o broker.Outcome) report.Event {
	e := report.Event{Actor: report.Broker, Kind: kindOutcome, Action: a.String(), State: o.State.String(), Note: fmt.Sprintf("%s %s", a, o.State)}
	if o.Err != nil {
		e.Note += fmt.Sprintf(" (%v)", o.Err)
	}
	return e
}

// MustAck acks and returns an error unless the broker took it as far as it can
// say.
func (b *Bench) MustAck(ctx context.Context, r broker.Receiver, d *broker.Delivery) error {
	if o := b.Settle(ctx, r, d, broker.Ack, 0); !o.State.OK() {
		return fmt.Errorf("ack %q: %s: %w", d.ID, o.State, o.Err)
	}
	return nil
}

// mustAckAll acks all of ds in one go: their leases may be short and many.
func (b *Bench) mustAckAll(ctx context.Context, r broker.Receiver, ds []broker.Delivery) error {
	s := make([]broker.Settlement, len(ds))
	for i := range ds {
		s[i].Delivery = &ds[i]
		b.history.Record(b.of(r, &ds[i], report.Event{Actor: report.Consumer, Kind: kindSettle, Action: broker.Ack.String(), Note: broker.Ack.String()}))
	}
	_ = r.Settle(ctx, s) // the outcomes say more
	var first error
	for i := range s {
		o := s[i].Outcome
		b.history.Record(b.of(r, &ds[i], outcomeEvent(broker.Ack, o)))
		if first == nil && !o.State.OK() {
			first = fmt.Errorf("ack %q: %s: %w", ds[i].ID, o.State, o.Err)
		}
	}
	return first
}

// Effect records that a consumer applied the effect of a message. No store
// guards it.
func (b *Bench) Effect(id, who string) {
	b.history.Record(report.Event{Actor: report.Store, Kind: kindEffect, ID: id, Holder: who, Note: "applied by " + who})
}

// Inject arms a fault on the probe's own entity.
func (b *Bench) Inject(f Fault) (Injection, error) {
	f.Match = b.Entity.Topic
	if b.Target.FaultsByQueue && f.Op != OnPublish {
		f.Match = b.Entity.Subscription
	}
	i, err := b.Instance.Inject(f)
	if err != nil {
		return nil, fmt.Errorf("inject %s: %w", f, err)
	}
	b.history.Add(report.Fault, "fault", "", "armed: %s", f)
	return i, nil
}

// Applied waits until the broker was seen to apply a request whose response was
// lost, and records it: no probe may say that a response was lost before.
func (b *Bench) Applied(ctx context.Context, i Injection) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := i.WaitApplied(ctx); err != nil {
		return fmt.Errorf("the broker was not seen to apply the request: %w", err)
	}
	b.history.Add(report.Fault, "fault", "", "the broker applied the request, and its answer was dropped")
	return nil
}

// Wait lets the broker's time pass: by its clock where that can be moved.
func (b *Bench) Wait(ctx context.Context, d time.Duration) error {
	b.history.Add(report.Clock, "wait", "", "%s", d)
	if b.Instance.Advance != nil {
		b.Instance.Advance(d)
		return nil
	}
	if !sleep(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}

// Now is the broker's time.
func (b *Bench) Now() time.Time {
	if b.Instance.Now != nil {
		return b.Instance.Now()
	}
	return time.Now()
}

// Restart restarts the broker cleanly, Kill as by a crash.
func (b *Bench) Restart(ctx context.Context) error {
	b.history.Add(report.Broker, "restart", "", "clean stop and start")
	return b.Instance.Restart(ctx)
}

// Kill kills the broker and starts it again.
func (b *Bench) Kill(ctx context.Context) error {
	b.history.Add(report.Broker, "kill", "", "killed and started again")
	return b.Instance.Kill(ctx)
}

// close removes the probe's entities and closes its connections. A failure is
// part of the evidence, not of the answer.
func (b *Bench) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	b.mu.Lock()
	workers, conns, ensured, others := b.workers, b.conns, b.ensured, b.others
	b.mu.Unlock()
	for _, w := range workers {
		w.stop()
	}
	for _, c := range conns {
		if err := c.Close(ctx); err != nil {
			b.Note("cleanup: close a connection: %v", err)
		}
	}
	b.closeStores()
	for _, other := range others {
		if err := other.close(ctx); err != nil {
			b.Note("cleanup: %v", err)
		}
	}
	if err := b.cleanup(ctx, ensured); err != nil {
		b.Note("cleanup: %v", err)
	}
}

// cleanup deletes the entities over a connection of its own, after all others
// are closed: some brokers delete nothing that is in use.
func (b *Bench) cleanup(ctx context.Context, ensured []broker.Entity) error {
	if len(ensured) == 0 {
		return nil
	}
	c, err := b.Instance.Open(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, 0, len(ensured)+1)
	for _, e := range ensured {
		errs = append(errs, c.Delete(ctx, e))
	}
	return errors.Join(append(errs, c.Close(ctx))...)
}

// fenceless is a view of c with the toolkit's fence off.
func (b *Bench) fenceless(c broker.Conn) (broker.Conn, error) {
	v, err := driver.Unfenced(c)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns = append(b.conns, v)
	return v, nil
}

func at(p broker.Position) string {
	if p.Token != "" {
		return p.Token
	}
	if p.Partition != "" {
		return fmt.Sprintf("%s/%d", p.Partition, p.Offset)
	}
	return fmt.Sprintf("%d", p.Offset)
}

// sleep waits for d and reports whether ctx lasted so long.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
