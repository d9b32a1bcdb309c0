package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/report"
)

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

func at(p broker.Position) string {
	if p.Token != "" {
		return p.Token
	}
	if p.Partition != "" {
		return fmt.Sprintf("%s/%d", p.Partition, p.Offset)
	}
	return fmt.Sprintf("%d", p.Offset)
}
