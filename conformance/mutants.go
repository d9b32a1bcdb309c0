package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/conformance/report"
)

// Mutant is an adapter broken on purpose. The suite must find it out by the
// claim that it violates, or the suite is no good.
type Mutant struct {
	Name   string
	Layer  string         // "publish", "receive" or "settle"
	Claim  boundary.Claim // kills it
	broken mutation
}

// mutation holds what a mutant does instead of the adapter; nil leaves it.
type mutation struct {
	publish func(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt)
	receive func(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error
	settle  func(ctx context.Context, next driver.Receiver, ops []driver.Op)
	limits  func(broker.Limits) broker.Limits
	close   func(ctx context.Context, next driver.Receiver) error
}

// Mutants returns all of them.
func Mutants() []Mutant {
	return []Mutant{
		{"drops-acks", "settle", boundary.SettleFinal, mutation{settle: dropAcks}},
		{"swallows-ack-errors", "settle", boundary.SettleLostResponse, mutation{settle: swallowErrors}},
		{"ignores-nack-delay", "settle", boundary.DeliverRedeliverNackDelay, mutation{settle: ignoreDelay}},
		{"forgets-attempts", "receive", boundary.DeliverAttempt, mutation{receive: forgetAttempts}},
		{"new-id-per-retry", "publish", boundary.PublishDedupLostResponse, mutation{publish: newIDs()}},
		{"stored-for-a-duplicate", "publish", boundary.PublishDedupVerdict, mutation{publish: hideDuplicates}},
		{"copy-lost", "publish", boundary.EffectReplay, mutation{publish: loseCopies}},
		{"nack-as-ack", "settle", boundary.EffectCommitUnknown, mutation{settle: ackNacks}},
		{"ack-never-sent", "settle", boundary.EffectCrashAfterAck, mutation{settle: dropAcks}},
		{"lease-too-long", "receive", boundary.DeliverLeaseAccuracy, mutation{receive: overstateLease}},
		{"extends-nothing", "settle", boundary.DeliverLeaseExtend, mutation{settle: extendNothing}},
		{"extends-half", "settle", boundary.DeliverLeaseExtend, mutation{settle: overstateExtend}},
		{"extends-once", "settle", boundary.DeliverLeaseMax, mutation{settle: extendOnce()}},
		{"prefetches", "receive", boundary.DeliverLeaseClock, mutation{receive: prefetch()}},
		{"drops-nacks", "settle", boundary.DeliverRedeliverNack, mutation{settle: dropNacks}},
		{"acks-the-first-of-a-batch", "settle", boundary.DeliverRedeliverAfterAck, mutation{settle: ackFirst}},
		{"calls-each-delivery-the-first", "receive", boundary.DeliverRedeliveredFlag, mutation{receive: forgetAttempts}},

		{"takes-unknown-for-lost", "settle", boundary.SettleLostRequest, mutation{settle: unknownAsLost}},
		{"confirms-as-the-context-ends", "settle", boundary.SettleCancel, mutation{settle: confirmAtEnd}},
		{"smears-a-bad-settlement", "settle", boundary.SettleBatchPartial, mutation{settle: smearSettlement}},
		{"leaves-the-handle-open", "settle", boundary.SettleDouble, mutation{settle: leaveOpen}},
		{"forgets-what-it-confirmed", "settle", boundary.SettleReack, mutation{settle: forgetConfirmed}},
		{"acks-later", "settle", boundary.SettleDurable, ackLater()},
		{"takes-a-lost-lease-for-an-ack", "settle", boundary.SettleStaleBeforeRedelivery, mutation{receive: longLeases, settle: lostAsDone}},
		{"gives-back-what-it-lost", "settle", boundary.SettleNackStale, mutation{receive: longLeases, settle: lostAsDone}},
		{"extends-what-it-lost", "settle", boundary.SettleExtendStale, mutation{receive: longLeases, settle: extendAnything}},
		{"takes-no-time-to-pass", "settle", boundary.FenceZombie, mutation{receive: longLeases, settle: lostAsDone}},
		{"swallows-publish-errors", "publish", boundary.PublishDedupLostRequest, mutation{publish: swallowPublishErrors}},
		{"cuts-ids", "publish", boundary.PublishIDLength, mutation{publish: changing(cutID)}},
		{"folds-ids", "publish", boundary.PublishIDCharset, mutation{publish: changing(foldID)}},
		{"takes-a-header-for-the-id", "publish", boundary.PublishDedupLookalikeHeader, mutation{publish: changing(headerAsID)}},
		{"loses-headers", "publish", boundary.PublishDedupLookalikeHeader, mutation{publish: changing(loseHeaders)}},
		{"stored-for-unknown", "publish", boundary.PublishCancel, mutation{publish: calledInstead(broker.Unknown, broker.Stored)}},
		{"refused-for-unknown", "publish", boundary.PublishCancel, mutation{publish: calledInstead(broker.Unknown, broker.Refused)}},
		{"stored-for-pushed-back", "publish", boundary.PublishBackpressure, mutation{publish: calledInstead(broker.Refused, broker.Stored)}},
		{"reorders-a-batch", "publish", boundary.PublishOrderKey, mutation{publish: backwards}},
		{"tells-a-longer-window", "publish", boundary.PublishRetryHorizon, mutation{limits: longerWindow}},

		{"drops-keys", "publish", boundary.DeliverBody, mutation{publish: changing(func(m *broker.Message) { m.Key = "" })}},
		{"drops-keys-of-order", "publish", boundary.DeliverOrderHeadOfLine, mutation{publish: changing(func(m *broker.Message) { m.Key = "" })}},
		{"bodies-as-text", "publish", boundary.DeliverBody, mutation{publish: changing(bodyAsText)}},
		{"loses-headers-that-repeat", "receive", boundary.DeliverBody, mutation{receive: dropRepeats}},
		{"fetches-ahead", "receive", boundary.DeliverPrefetch, mutation{receive: fetchAhead}},
		{"dead-letters-without-reason", "settle", boundary.DeliverDeadLetterReason, mutation{settle: dropReasons}},
		{"acks-dead-letters", "settle", boundary.DeliverDeadLetterAttempts, mutation{settle: ackDeadLetters}},
		{"close-that-leaks", "receive", boundary.DeliverClose, mutation{close: leak}},
		{"retries-under-new-ids", "publish", boundary.DeliverExactlyOnce, mutation{publish: newIDs()}},
	}
}

// dropAcks says Confirmed and tells the broker nothing.
func dropAcks(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		if ops[i].Settlement.Action == broker.Ack {
			ops[i].Settlement.Outcome.State = broker.Confirmed
			continue
		}
		next.Settle(ctx, ops[i:i+1])
	}
}

// swallowErrors takes a lost answer for a good one.
func swallowErrors(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	next.Settle(ctx, ops)
	for i := range ops {
		ops[i].Settlement.Outcome = broker.Outcome{State: broker.Confirmed}
	}
}

// ignoreDelay gives a message back at once.
func ignoreDelay(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		if ops[i].Settlement.Action == broker.Nack {
			ops[i].Settlement.Delay = 0
		}
	}
	next.Settle(ctx, ops)
}

// forgetAttempts takes each delivery for the first.
func forgetAttempts(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
	err := next.Receive(ctx, max, out)
	for i := range out.Len() {
		out.At(i).Attempt.Number = 1
	}
	return err
}

// newIDs gives each attempt an ID of its own.
func newIDs() func(context.Context, driver.Publisher, []broker.Message, []broker.Receipt) {
	var mu sync.Mutex
	n := 0
	return func(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
		mu.Lock()
		own := make([]broker.Message, len(ms))
		copy(own, ms)
		for i := range own {
			n++
			own[i].Copy = fmt.Sprintf("%s attempt %d", own[i].Copy, n)
		}
		mu.Unlock()
		next.Publish(ctx, own, rs)
	}
}

// hideDuplicates says Stored where the broker had the ID.
func hideDuplicates(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	next.Publish(ctx, ms, rs)
	for i := range rs {
		if rs[i].Verdict == broker.Duplicate {
			rs[i].Verdict = broker.Stored
		}
	}
}

// loseCopies takes what is published again on purpose for a retry.
func loseCopies(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	own := slices.Clone(ms)
	for i := range own {
		own[i].Copy = ""
	}
	next.Publish(ctx, own, rs)
}

// ackNacks settles for good what is given back.
func ackNacks(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		if ops[i].Settlement.Action == broker.Nack {
			ops[i].Settlement.Action = broker.Ack
		}
	}
	next.Settle(ctx, ops)
}

// calledInstead takes one verdict for another.
func calledInstead(is, said broker.Verdict) func(context.Context, driver.Publisher, []broker.Message, []broker.Receipt) {
	return func(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
		next.Publish(ctx, ms, rs)
		for i := range rs {
			if rs[i].Verdict == is {
				rs[i].Verdict = said
				if said.OK() {
					rs[i].Err = nil
				}
			}
		}
	}
}

// backwards sends the last message of a batch first.
func backwards(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	own, answers := slices.Clone(ms), make([]broker.Receipt, len(ms))
	slices.Reverse(own)
	next.Publish(ctx, own, answers)
	slices.Reverse(answers)
	copy(rs, answers)
}

// longerWindow promises that IDs are remembered for three times as long.
func longerWindow(l broker.Limits) broker.Limits {
	l.Window *= 3
	return l
}

// RunMutants runs each mutant of t's adapter against the claim that has to kill
// it, and returns those of which that claim was decided. The error names the
// others, whose probe failed to run. t should be a target on which the adapter
// itself passes.
func RunMutants(ctx context.Context, t Target, o Options) ([]report.Mutant, error) {
	var out []report.Mutant
	var undecided []error
	for _, m := range Mutants() {
		o.Claims = []string{string(m.Claim)}
		o.Progress = nil
		o.wrap = m.wrap
		r, err := Run(ctx, t, o)
		if err != nil {
			return out, err
		}
		if ctx.Err() != nil {
			break
		}
		found := r.Targets[0]
		if found.Error != "" || found.Findings[0].Verdict.Class() == report.Broken {
			undecided = append(undecided, fmt.Errorf("mutant %s: %s%s", m.Name, found.Error, reasonOf(found.Findings)))
			continue
		}
		f := found.Findings[0]
		out = append(out, report.Mutant{Name: m.Name, Layer: m.Layer, Claim: string(m.Claim),
			Answer: f.Observed, Reason: f.Reason, Killed: f.Verdict.Class() == report.Differs})
	}
	return out, errors.Join(undecided...)
}

func reasonOf(fs []report.Finding) string {
	if len(fs) == 0 {
		return ""
	}
	return fs[0].Reason
}

func (m Mutant) wrap(c broker.Conn) broker.Conn {
	inner, ok := driver.Unwrap(c)
	if !ok {
		return c
	}
	return driver.New(&mutantConn{Conn: inner, m: m.broken})
}

type mutantConn struct {
	driver.Conn
	m mutation
}

// Now is the adapter's clock, if it has one.
func (c *mutantConn) Now() time.Time {
	if clock, ok := c.Conn.(driver.Clock); ok {
		return clock.Now()
	}
	return time.Now()
}

func (c *mutantConn) OpenPublisher(ctx context.Context, topic string, o broker.PublisherOptions) (driver.Publisher, error) {
	p, err := c.Conn.OpenPublisher(ctx, topic, o)
	if err != nil || c.m.publish == nil && c.m.limits == nil {
		return p, err
	}
	return &mutantPublisher{p, c.m}, nil
}

func (c *mutantConn) OpenReceiver(ctx context.Context, subscription string, o broker.ReceiverOptions) (driver.Receiver, error) {
	r, err := c.Conn.OpenReceiver(ctx, subscription, o)
	if err != nil {
		return r, err
	}
	return &mutantReceiver{r, c.m}, nil
}

type mutantPublisher struct {
	driver.Publisher
	m mutation
}

func (p *mutantPublisher) Publish(ctx context.Context, ms []broker.Message, rs []broker.Receipt) {
	if p.m.publish == nil {
		p.Publisher.Publish(ctx, ms, rs)
		return
	}
	p.m.publish(ctx, p.Publisher, ms, rs)
}

func (p *mutantPublisher) Limits() broker.Limits {
	l := p.Publisher.Limits()
	if p.m.limits != nil {
		l = p.m.limits(l)
	}
	return l
}

type mutantReceiver struct {
	driver.Receiver
	m mutation
}

func (r *mutantReceiver) Receive(ctx context.Context, max int, out *driver.Batch) error {
	if r.m.receive == nil {
		return r.Receiver.Receive(ctx, max, out)
	}
	return r.m.receive(ctx, r.Receiver, max, out)
}

func (r *mutantReceiver) Settle(ctx context.Context, ops []driver.Op) {
	if r.m.settle == nil {
		r.Receiver.Settle(ctx, ops)
		return
	}
	r.m.settle(ctx, r.Receiver, ops)
}

func (r *mutantReceiver) Close(ctx context.Context) error {
	if r.m.close == nil {
		return r.Receiver.Close(ctx)
	}
	return r.m.close(ctx, r.Receiver)
}
