package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Settle is driver.Receiver's. Acks are noted first, all of them, and then one
// commit covers what is contiguous: of this call and of all others that came
// while the commit before was under way.
func (r *groupReceiver) Settle(ctx context.Context, ops []driver.Op) {
	var letters []*driver.Op
	commit := false
	var unsure error
	if r.beats.silent() && slices.ContainsFunc(ops, func(op driver.Op) bool { return op.Settlement.Action != broker.Ack }) {
		unsure = r.alive(ctx) // of an ack the commit asks
	}
	r.mu.Lock()
	for i := range ops {
		op := &ops[i]
		e := op.Token.Ref.(*entry)
		switch {
		case unsure != nil && op.Settlement.Action != broker.Ack && !op.Again && !e.part.ended:
			op.Untouched, op.Settlement.Outcome = true, r.unsure(op.Settlement, unsure)
		case op.Settlement.Action == broker.Extend:
			// No lease runs: the member holds the partition as long as it lives.
			op.Settlement.Outcome = r.held(e, op.Token)
		case e.handle != op.Token.Tag:
			op.Settlement.Outcome = leaseLost(op.Settlement, "it was given back and handed out again")
		case e.txn != nil:
			op.Settlement.Outcome.State = broker.Pending // its transaction's end is the answer
		case e.part.ended || e.settled:
			commit = true // asks; the outcome follows below
		case op.Settlement.Action == broker.DeadLetter:
			letters = append(letters, op)
		case op.Settlement.Action == broker.Nack:
			if r.wishes.maxDeliveries > 0 && e.gives >= r.wishes.maxDeliveries {
				letters = append(letters, op)
				continue
			}
			e.handle++ // the old handle is spent
			r.back(e, op.Settlement.Delay)
			op.Settlement.Outcome.State = broker.Confirmed
		default:
			e.settled = true
			r.done(e)
			commit = true
		}
	}
	r.advance()
	r.mu.Unlock()
	if len(letters) > 0 && r.deadLetter(ctx, letters) {
		commit = true
	}
	if !commit {
		return
	}
	err := r.commit(ctx, false)
	r.mu.Lock()
	for i := range ops {
		if s := ops[i].Settlement; s.Outcome.State == 0 && s.Outcome.Err == nil {
			s.Outcome = r.outcome(s, ops[i].Token.Ref.(*entry), err)
		}
	}
	r.mu.Unlock()
}

// advance moves the watermarks over what is settled. r.mu is held.
func (r *groupReceiver) advance() {
	for _, p := range r.parts {
		p.advance()
	}
}

// held is the outcome of an Extend: there is nothing to extend, and nothing is
// lost while the partition is ours.
func (r *groupReceiver) held(e *entry, t *driver.Token) broker.Outcome {
	if e.part.ended || e.handle != t.Tag {
		return broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrLeaseLost, nil, "extend on %s: the partition is gone", r.name)}
	}
	return broker.Outcome{State: broker.Confirmed}
}

// outcome is what is known of a settled entry after a commit that ended with
// err. r.mu is held.
func (r *groupReceiver) outcome(s *broker.Settlement, e *entry, err error) broker.Outcome {
	p := e.part
	switch {
	case e.settled && e.rec.Offset < p.committed:
		return broker.Outcome{State: broker.Confirmed}
	case p.ended:
		return leaseLost(s, "its partition was taken away before a commit covered it")
	case err != nil && e.rec.Offset < p.watermark.Offset:
		err = broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "commit")
		return broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, err, "%s %q on %s", s.Action, s.Delivery.ID, r.name)}
	}
	return broker.Outcome{State: broker.Pending}
}

func leaseLost(s *broker.Settlement, why string) broker.Outcome {
	return broker.Outcome{State: broker.LeaseLost,
		Err: broker.Errorf(broker.ErrLeaseLost, nil, "%s %q: %s", s.Action, s.Delivery.ID, why)}
}

// deadLetter publishes ops' records to the dead-letter topic and settles those
// that got there. It reports whether any did.
func (r *groupReceiver) deadLetter(ctx context.Context, ops []*driver.Op) (any bool) {
	recs := make([]*kgo.Record, len(ops))
	gives := make([]int, len(ops))
	for i, op := range ops {
		e := op.Token.Ref.(*entry)
		recs[i], gives[i] = e.rec, e.gives
	}
	errs := r.conn.sendLetters(ctx, r.wishes, r.name, ops, recs, gives)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, op := range ops {
		if errs[i] != nil {
			op.Untouched, op.Settlement.Outcome.Err = true, errs[i]
			continue
		}
		any = true
		if e := op.Token.Ref.(*entry); !e.part.ended && !e.settled {
			e.settled = true
			r.done(e)
		}
	}
	r.advance()
	return any
}

// errNothing ends a commit that has nothing to say any more.
var errNothing = errors.New("nothing left to commit")

// errNewMember ends a commit under a membership that the partitions are not of.
var errNewMember = errors.New("the member has joined anew")

// commit brings the broker's offsets up to the watermarks. One at a time: who
// comes while another commits waits for its end, and the first of those then
// commits for all. It returns nil if all that was settled when it was called is
// committed, is in a partition that is gone, or waits for a lower offset.
//
// last is set where no later commit can follow: then a broker in the midst of a
// rebalance is asked once more and not waited for.
func (r *groupReceiver) commit(ctx context.Context, last bool) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		err := r.commitInTurn(ctx)
		if err == nil || ctx.Err() != nil || !rebalancing(err) || last && wait > 40*time.Millisecond {
			return err
		}
		// Still a member, as far as is known: soon either the generation is
		// known here or the partitions are gone. A callback of the group may
		// have to commit first, so nobody's turn is held up meanwhile.
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// commitInTurn waits for its turn and commits what is owed then.
func (r *groupReceiver) commitInTurn(ctx context.Context) error {
	select {
	case r.commits <- struct{}{}:
	default:
		select {
		case r.commits <- struct{}{}:
		case <-ctx.Done():
			if !r.owes() {
				return nil
			}
			return context.Cause(ctx)
		}
	}
	defer func() { <-r.commits }()
	if !r.owes() {
		return nil // the one before took it along, or the partitions are gone
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := r.commitOnce(ctx); !errors.Is(err, errNothing) {
		return err // what was refused has ended, what came since has its own commit
	}
	return nil
}

// owes reports whether a watermark is ahead of what the broker has.
func (r *groupReceiver) owes() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.parts {
		if !p.ended && p.hold == nil && p.watermark.Offset > p.committed {
			return true
		}
	}
	return false
}

// commitOnce sends one commit.
func (r *groupReceiver) commitOnce(ctx context.Context) error {
	sent := map[int32]kgo.EpochOffset{}
	parts := map[int32]*part{}
	r.mu.Lock()
	for id, p := range r.parts {
		if !p.ended && p.hold == nil && p.watermark.Offset > p.committed {
			sent[id], parts[id] = p.watermark, p
		}
	}
	r.mu.Unlock()
	if len(sent) == 0 {
		return errNothing
	}
	// The commit carries the member and generation of the moment it is made.
	// Between the lines above and that moment the member may have lost a
	// partition and joined anew, and the commit would then set back the offset
	// of the partition's new owner. So the offsets are looked at once more after
	// the generation is fixed: a partition that is still ours was ours in it.
	ctx = kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error { return r.stillOurs(req, parts) })
	var failed error
	r.cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{r.topic: sent},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if failed = err; err == nil {
				failed = r.committed(resp, sent, parts)
			}
		})
	return failed
}

func (r *groupReceiver) stillOurs(req *kmsg.OffsetCommitRequest, parts map[int32]*part) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.MemberID != r.member {
		return errNewMember // assigned is about to find out
	}
	left := 0
	for i := range req.Topics {
		t := &req.Topics[i]
		keep := t.Partitions[:0]
		for _, p := range t.Partitions {
			if part := parts[p.Partition]; part != nil && !part.ended {
				keep = append(keep, p)
			}
		}
		t.Partitions = keep
		left += len(keep)
	}
	if left == 0 {
		return errNothing
	}
	return nil
}

// committed takes the broker's answer in and returns the first error in it.
func (r *groupReceiver) committed(resp *kmsg.OffsetCommitResponse, sent map[int32]kgo.EpochOffset, parts map[int32]*part) (failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			rp := &resp.Topics[i].Partitions[j]
			p := parts[rp.Partition]
			if p == nil {
				continue
			}
			err := kerr.ErrorForCode(rp.ErrorCode)
			switch {
			case err == nil:
				p.committed = max(p.committed, sent[rp.Partition].Offset)
			case fenced(err):
				if !p.ended {
					p.fenced = time.Now()
				}
				r.end(p)
				r.signal()
			case failed == nil || rebalancing(failed):
				failed = err
			}
		}
	}
	return failed
}

// fenced reports that the broker doesn't know the member, or knows another one
// in its place: its partitions are somebody else's (KAF-F-32).
func fenced(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.FencedInstanceID) || errors.Is(err, kerr.FencedMemberEpoch)
}

// rebalancing reports that the commit was refused for its generation, which is
// not this member's any more or not known to it yet. Which of the two the next
// heartbeat tells.
func rebalancing(err error) bool {
	return errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.StaleMemberEpoch) ||
		errors.Is(err, errNewMember)
}

// lastCommit is Close's, which needs time for leaving the group too.
func (r *groupReceiver) lastCommit(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok {
		half, cancel := context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
		ctx = half
	}
	return r.commit(ctx, true)
}
