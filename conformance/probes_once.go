package conformance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// What the soak for the label exactly-once does.
const (
	onceMessages = 10_000 // unless Target.Soak says otherwise
	onceBatches  = 40     // of publishes, and about so many of receives
	onceFaults   = 10     // lost answers to publishes, and as many to acks
	onceTries    = 20     // of one batch
	onceLease    = 60 * time.Second
)

// once is the soak as it runs. Its messages have a history of their own, which is
// longer than a report may be; of that the report gets what became of a message that
// was lost or doubled.
type once struct {
	*Bench         // the soak's: with the long history
	n       int    // messages
	probe   *Bench // the probe's
	answers bool   // acks are answered
	lose    [2][]int
	losses  [2]int
}

// The two hops on which answers are lost.
const (
	onPublish = iota
	onSettle
)

// probeExactlyOnce. Anomaly: a broker that is sold as exactly-once delivers a message
// twice after nothing worse than an answer that was lost. Experiment: ten thousand
// messages (fewer where the server is slow), published and consumed in batches; ten answers to publishes and ten to
// acks, at random places, are dropped after the broker was seen to apply the request;
// producer and consumer live, and ask again until they know. The history is held
// against the rule that each message comes once.
func probeExactlyOnce(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, func(w *broker.Entity) {
		if b.Target.WishLease {
			w.Lease = max(w.Lease, onceLease) // nothing that is slow here may end one
		}
	})
	if err != nil {
		return err
	}
	n := cmp.Or(b.Target.Soak, onceMessages)
	batch := max(1, n/onceBatches)
	history := newHistory()
	history.max = 20 * n
	s := &once{Bench: &Bench{Target: b.Target, Instance: b.Instance, Entity: b.Entity, Rand: b.Rand, history: history}, probe: b, n: n, answers: true}
	for hop := range s.lose {
		for range onceFaults {
			s.lose[hop] = append(s.lose[hop], b.Rand.IntN(n*3/4))
		}
		slices.Sort(s.lose[hop])
	}
	b.history.Add(report.Producer, "soak", "", "%d messages in batches of %d; %d answers to be lost on each hop, at %v and %v", n, batch, onceFaults, s.lose[onPublish], s.lose[onSettle])
	ms := s.Messages(n)
	for from := 0; from < len(ms); from += batch {
		if err := s.publishSurely(ctx, e.pub, ms[from:min(from+batch, len(ms))], s.due(onPublish, from)); err != nil {
			return err
		}
	}
	if err := s.consume(ctx, e.rcv, batch); err != nil {
		return err
	}
	return s.judge()
}

// due reports whether an answer is to be lost at a place, and crosses it out.
func (s *once) due(hop, at int) bool {
	if len(s.lose[hop]) == 0 || s.lose[hop][0] > at {
		return false
	}
	s.lose[hop] = s.lose[hop][1:]
	return true
}

// losing does something whose answer is dropped, and lets it give up once the broker
// was seen to apply it.
func (s *once) losing(ctx context.Context, hop int, op FaultOp, cut bool, do func(context.Context)) error {
	i, err := s.probe.Inject(Fault{Op: op, Kind: LoseResponse, Times: 1, Cut: cut})
	if err != nil {
		return err
	}
	defer i.Remove()
	try, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(try)
	}()
	err = s.probe.Applied(ctx, i)
	cancel()
	<-done
	s.losses[hop]++
	return err
}

// publishSurely publishes until each message has a good receipt.
func (s *once) publishSurely(ctx context.Context, p broker.Publisher, ms []broker.Message, lose bool) error {
	var rs []broker.Receipt
	for try := range onceTries {
		if lose && try == 0 {
			err := s.losing(ctx, onPublish, OnPublish, s.Target.CutLost, func(ctx context.Context) { rs = s.Publish(ctx, p, ms...) })
			if err != nil {
				return err
			}
		} else {
			rs = s.Publish(ctx, p, ms...)
		}
		var left []broker.Message
		for i := range rs {
			if !rs[i].Verdict.OK() {
				left = append(left, ms[i])
			}
		}
		if ms = left; len(ms) == 0 {
			return nil
		}
		if !sleep(ctx, time.Duration(try)*10*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("publish: %s of a batch got no good receipt in %d tries", amount(len(ms), "message", "messages"), onceTries)
}

// consume receives and acks until all messages came and then nothing more does, also
// after the time of a lease where the probe can move it.
func (s *once) consume(ctx context.Context, r broker.Receiver, batch int) error {
	n := s.n
	came := make(map[string]bool, n)
	total, last := 0, false
	for {
		within := s.Target.busy()
		if len(came) == n {
			if within = s.Target.patience() / 2; s.Instance.Advance != nil {
				within = min(within, 200*time.Millisecond)
			}
		}
		ds, err := s.Receive(ctx, r, batch, within)
		if err != nil {
			return err
		}
		if len(ds) == 0 {
			if last || s.Instance.Advance == nil {
				return nil
			}
			// What nobody knows to be settled comes again now.
			last = true
			if err := s.Wait(ctx, onceLease+slack(onceLease)); err != nil {
				return err
			}
			continue
		}
		if total += len(ds); total > 3*n { // a broker that redelivers without end has shown it
			return nil
		}
		if err := s.settleSurely(ctx, r, ds, s.answers && total > len(ds) && s.due(onSettle, total)); err != nil {
			return err
		}
		for i := range ds {
			came[ds[i].ID] = true
		}
	}
}

// settleSurely acks, and asks again for what is Unknown or Pending. What stays Unknown
// is left: the message comes again if the broker doesn't know of the ack.
func (s *once) settleSurely(ctx context.Context, r broker.Receiver, ds []broker.Delivery, lose bool) error {
	settle := func(ctx context.Context, ss []broker.Settlement) {
		_ = r.Settle(ctx, ss) // the outcomes say more
		for i := range ss {
			s.settled(ss[i].Delivery.ID, broker.Ack, ss[i].Outcome)
		}
	}
	ss := make([]broker.Settlement, len(ds))
	for i := range ds {
		ss[i].Delivery = &ds[i]
	}
	if lose {
		if err := s.losing(ctx, onSettle, OnSettle, s.Target.CutLostSettle, func(ctx context.Context) { settle(ctx, ss) }); err != nil {
			return err
		}
	} else {
		settle(ctx, ss)
	}
	for range 3 {
		var left []broker.Settlement
		for i := range ss {
			switch ss[i].Outcome.State {
			case broker.Sent:
				s.answers = false
			case broker.Unknown, broker.Pending:
				left = append(left, broker.Settlement{Delivery: ss[i].Delivery})
			}
		}
		if ss = left; len(ss) == 0 {
			return nil
		}
		ask, cancel := context.WithTimeout(ctx, 5*time.Second)
		settle(ask, ss)
		cancel()
	}
	return ctx.Err()
}

// judge answers from the long history.
func (s *once) judge() error {
	events := s.history.Events()
	q := CheckQueue(events)
	// Of a lease or session that ended here, on a busy machine, no lost answer is the
	// cause.
	ended := map[string]bool{}
	for _, e := range events {
		if e.Kind == kindOutcome && e.Action == broker.Ack.String() && e.State == broker.LeaseLost.String() {
			ended[e.ID] = true
		}
	}
	double := slices.DeleteFunc(slices.Clone(q.Duplicated), func(id string) bool { return ended[id] })
	if n := len(q.Duplicated) - len(double); n > 0 {
		s.probe.Note("%s came again because their lease or session ended, and don't count", amount(n, "message", "messages"))
	}
	lost := fmt.Sprintf("of %s, with %d answers to publishes and %d to acks lost", amount(s.n, "message", "messages"), s.losses[onPublish], s.losses[onSettle])
	if !s.answers {
		lost += " (acks have no answer)"
	}
	switch {
	case len(q.Unexpected) > 0:
		return fmt.Errorf("%s came that were never published: %q", amount(len(q.Unexpected), "message", "messages"), q.Unexpected[0])
	case len(q.Lost) > 0:
		s.story(events, q.Lost[0])
		s.probe.Answer(boundary.DeliverExactlyOnce, boundary.Lost, "%s, %d never came", lost, len(q.Lost))
	case len(double) > 0:
		s.story(events, double[0])
		s.probe.Answer(boundary.DeliverExactlyOnce, boundary.Duplicates, "%s, %d came more than once, and none is missing", lost, len(double))
	default:
		s.probe.Answer(boundary.DeliverExactlyOnce, boundary.Once, "%s, each came once", lost)
	}
	return nil
}

// story puts what became of a message into the report.
func (s *once) story(events []report.Event, id string) {
	s.probe.Note("what became of %q, with the times of the soak:", id)
	for _, e := range events {
		if e.ID == id {
			s.probe.history.Add(e.Actor, e.Kind, e.ID, "at %.3f s: %s", e.At, e.Note)
		}
	}
}
