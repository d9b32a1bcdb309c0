package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// inputs is what one member of a group has settled in a transaction.
type inputs struct {
	entries []*entry
	sent    map[*part]kgo.EpochOffset // with the broker, to take effect at the commit
	added   bool                      // the group was added to the transaction
}

// Settle is driver.Transaction's.
func (x *transaction) Settle(ctx context.Context, r driver.Receiver, ops []driver.Op) {
	g, ok := r.(*groupReceiver)
	if !ok {
		for i := range ops {
			s := ops[i].Settlement
			s.Outcome.Err = broker.Errorf(broker.ErrUnsupported, nil, "%s %q in transaction of %s: a share group's acks can't be part of one (KAF-F-52)", s.Action, s.Delivery.ID, x.t.id)
		}
		return
	}
	errs := x.letters(ctx, g, ops)
	x.mu.Lock()
	in := x.inputs[g]
	if in == nil {
		in = &inputs{sent: map[*part]kgo.EpochOffset{}}
		x.inputs[g] = in
	}
	x.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range ops {
		op := &ops[i]
		e := op.Token.Ref.(*entry)
		switch {
		case errs != nil && errs[i] != nil:
			op.Settlement.Outcome.Err = errs[i]
		case e.handle != op.Token.Tag:
			op.Settlement.Outcome = leaseLost(op.Settlement, "it was given back and handed out again")
		case e.part.ended:
			op.Settlement.Outcome = leaseLost(op.Settlement, "its partition was taken away")
		case e.settled || e.txn != nil:
			op.Settlement.Outcome.Err = broker.Errorf(broker.ErrConflict, nil, "%s %q: settled before", op.Settlement.Action, op.Settlement.Delivery.ID)
		default:
			e.txn = x
			in.entries = append(in.entries, e)
			op.Settlement.Outcome.State = broker.Pending
		}
	}
}

// letters publishes the dead-letter copies that ops ask for, within the transaction.
func (x *transaction) letters(ctx context.Context, g *groupReceiver, ops []driver.Op) []error {
	var errs []error
	for i := range ops {
		op := &ops[i]
		if op.Settlement.Action != broker.DeadLetter {
			continue
		}
		if errs == nil {
			errs = make([]error, len(ops))
		}
		errs[i] = x.letter(ctx, g, op)
	}
	return errs
}

func (x *transaction) letter(ctx context.Context, g *groupReceiver, op *driver.Op) error {
	to := g.wishes.deadLetter
	if to == "" {
		return broker.Errorf(broker.ErrUnsupported, nil, "dead-letter from %s: it has no dead-letter topic", g.name)
	}
	p, err := x.t.OpenPublisher(ctx, to)
	if err != nil {
		return err
	}
	e := op.Token.Ref.(*entry)
	g.mu.Lock()
	gives := e.gives
	g.mu.Unlock()
	receipts := make([]broker.Receipt, 1)
	p.Publish(ctx, []broker.Message{letter(e.rec, op.Settlement.Reason, g.name, gives)}, receipts)
	return receipts[0].Err
}

func (x *transaction) settles() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, in := range x.inputs {
		if len(in.entries) > 0 {
			return true
		}
	}
	return false
}

// each calls f for each member with settled entries, until it reports false.
func (x *transaction) each(f func(*groupReceiver, *inputs) bool) {
	x.mu.Lock()
	all := make(map[*groupReceiver]*inputs, len(x.inputs))
	for g, in := range x.inputs {
		if len(in.entries) > 0 {
			all[g] = in
		}
	}
	x.mu.Unlock()
	for g, in := range all {
		if !f(g, in) {
			return
		}
	}
}

// offsets is what the transaction would commit for a member: for each partition the
// offset behind what is settled without a gap, in it or before it. An error says that
// it can't be committed. g.mu is held.
func (x *transaction) offsets(g *groupReceiver, in *inputs) (map[*part]kgo.EpochOffset, error) {
	mine := map[*part]int{}
	for _, e := range in.entries {
		if e.part.ended {
			return nil, broker.Errorf(broker.ErrLeaseLost, nil, "commit on %s: partition %s of %s was taken away", x.t.id, e.part.name, g.name)
		}
		mine[e.part]++
	}
	to := make(map[*part]kgo.EpochOffset, len(mine))
	for p, n := range mine {
		for _, e := range p.queue {
			if !e.settled && e.txn != x {
				break
			}
			if e.txn == x {
				n--
			}
			to[p] = kgo.EpochOffset{Epoch: e.rec.LeaderEpoch, Offset: e.rec.Offset + 1}
		}
		if n > 0 {
			return nil, broker.Errorf(broker.ErrInvalid, nil,
				"commit on %s: in partition %s of %s a message before those of the transaction isn't settled, and Kafka commits a position, not messages: settle it too, or abort", x.t.id, p.name, g.name)
		}
	}
	return to, nil
}

// sendInputs brings the offsets to the broker, which keeps them until the
// transaction ends. ok is false if it can't be committed, or not now.
func (x *transaction) sendInputs(ctx context.Context) (o broker.Outcome, ok bool) {
	ok = true
	// A gap in any of them is found before anything is sent.
	x.each(func(g *groupReceiver, in *inputs) bool {
		g.mu.Lock()
		_, err := x.offsets(g, in)
		g.mu.Unlock()
		if err != nil {
			o, ok = x.refused(ctx, err), false
		}
		return ok
	})
	if !ok {
		return o, false
	}
	if err := x.identify(ctx); err != nil {
		if ctx.Err() != nil {
			return x.still(err), false
		}
		return x.lost(ctx, err), false
	}
	x.each(func(g *groupReceiver, in *inputs) bool {
		if err := x.sendFor(ctx, g, in); err != nil {
			o, ok = x.refused(ctx, err), false
		}
		return ok
	})
	return o, ok
}

// refused sorts why offsets weren't taken.
func (x *transaction) refused(ctx context.Context, err error) broker.Outcome {
	var ke *kerr.Error
	switch {
	case errors.Is(err, broker.ErrInvalid):
		return broker.Outcome{Err: err}
	case errors.Is(err, broker.ErrLeaseLost), errors.As(err, &ke) && !passing(err) && !rebalancing(err):
		return x.lost(ctx, err)
	}
	return x.still(err)
}

// sendFor sends one member's offsets, until the broker takes or refuses them.
func (x *transaction) sendFor(ctx context.Context, g *groupReceiver, in *inputs) error {
	// A plain commit that is under way could be stored behind ours and would then
	// win over it (KAF-F-300).
	select {
	case g.commits <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	g.mu.Lock()
	for _, e := range in.entries {
		e.part.hold = x
	}
	g.mu.Unlock()
	<-g.commits
	if !x.t.epoch && !in.added {
		if err := x.addGroup(ctx, g.group); err != nil {
			return err
		}
		in.added = true
	}
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		err := x.sendOnce(ctx, g, in)
		if err == nil || !rebalancing(err) && !passing(err) {
			return err
		}
		// While the group rebalances it is soon known whether the partitions stay.
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// sendOnce sends one TxnOffsetCommit.
func (x *transaction) sendOnce(ctx context.Context, g *groupReceiver, in *inputs) error {
	// Looked at in this order, a partition that is still ours was ours in the
	// generation that the request names (see commitOnce).
	member, generation := g.cl.GroupMetadata()
	g.mu.Lock()
	to, err := x.offsets(g, in)
	same := member == g.member
	g.mu.Unlock()
	if err != nil {
		return err
	}
	if !same {
		return errNewMember
	}
	x.mu.Lock()
	id := x.proof
	x.mu.Unlock()
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = id.ID, id.Producer, id.Epoch
	req.Group, req.MemberID, req.Generation = g.group, member, generation
	if instance := g.conn.opts.Instance; instance != "" {
		req.InstanceID = &instance
	}
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic = g.topic
	for p, at := range to {
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch = p.id, at.Offset, at.Epoch
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, x.t.prod.cl)
	if err != nil {
		return err
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if err := kerr.ErrorForCode(resp.Topics[i].Partitions[j].ErrorCode); err != nil {
				if fenced(err) {
					return broker.Errorf(broker.ErrLeaseLost, err, "commit on %s: %s has lost its place", x.t.id, g.name)
				}
				return err
			}
		}
	}
	in.sent = to
	return nil
}

// addGroup tells the coordinator that a group's offsets are part of the transaction,
// for which newer brokers need no request of its own.
func (x *transaction) addGroup(ctx context.Context, group string) error {
	x.mu.Lock()
	id := x.proof
	x.mu.Unlock()
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = id.ID, id.Producer, id.Epoch, group
	return untilAnswered(ctx, func() error {
		resp, err := req.RequestWith(ctx, x.t.prod.cl)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
}
