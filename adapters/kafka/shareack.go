package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// The protocol's acknowledge types (KAF-F-45).
const (
	ackGap     int8 = 0
	ackAccept  int8 = 1
	ackRelease int8 = 2
	ackReject  int8 = 3
	ackRenew   int8 = 4
)

// ack is one record's settlement on its way to the broker.
type ack struct {
	a    *acquired
	op   *driver.Op // nil for the receiver's own
	kind int8
	// The answer.
	state broker.State
	lease time.Time
	err   error
}

// ackJob is what one Settle has for one session.
type ackJob struct {
	acks []ack
	done chan struct{}
}

// Settle is driver.Receiver's: one request per broker, together with whatever
// others settle meanwhile.
func (r *shareReceiver) Settle(ctx context.Context, ops []driver.Op) {
	jobs := map[*shareSession]*ackJob{}
	var letters []*driver.Op
	r.mu.Lock()
	for i := range ops {
		op := &ops[i]
		if kind, goes := r.judge(op); goes {
			addAck(jobs, op, kind)
		} else if kind == ackReject {
			letters = append(letters, op)
		}
	}
	r.mu.Unlock()
	if len(letters) > 0 {
		r.deadLetter(ctx, letters, jobs)
	}
	r.mu.Lock()
	for _, j := range jobs {
		for i := range j.acks {
			if j.acks[i].kind != ackRenew {
				j.acks[i].a.sent = true
			}
		}
	}
	r.mu.Unlock()
	for s, j := range jobs {
		s.submit(j)
	}
	for s, j := range jobs {
		s.await(ctx, j)
	}
}

// judge decides what becomes of op: goes is true with the kind of ack to send;
// otherwise its outcome is set, or kind is ackReject for a dead letter. r.mu is
// held.
func (r *shareReceiver) judge(op *driver.Op) (kind int8, goes bool) {
	a := op.Token.Ref.(*acquired)
	s := op.Settlement
	switch {
	case a.sent && s.Action != broker.Extend:
		// The broker refuses a second ack whether or not the first took effect
		// (KAF-F-48), so it isn't asked; the first answer may have come late.
		s.Outcome = broker.Outcome{State: a.answer, Err: a.refused}
		if a.answer == broker.Unknown {
			s.Outcome.Err = broker.Errorf(broker.ErrUnknownOutcome, a.refused, "%s %q on %s", s.Action, s.Delivery.ID, r.name)
		}
	case a.life.epoch.Ended():
		s.Outcome = leaseLost(s, "its share session has ended")
	case s.Action == broker.Extend && !r.renews:
		s.Outcome.Err = broker.Errorf(broker.ErrUnsupported, nil, "extend on %s: the broker is older than 4.2 (KIP-1222)", r.name)
		op.Untouched = true
	case s.Action == broker.Extend:
		return ackRenew, true
	case s.Action == broker.DeadLetter,
		s.Action == broker.Nack && r.wishes.maxDeliveries > 0 && a.count >= r.wishes.maxDeliveries:
		return ackReject, false
	case s.Action == broker.Nack && s.Delay > 0:
		s.Outcome.Err = broker.Errorf(broker.ErrUnsupported, nil, "nack with a delay on %s: a share group redelivers at once", r.name)
		op.Untouched = true
	case s.Action == broker.Nack:
		if a.count >= r.limit {
			r.conn.log.Error("kafka: the broker drops a message that was given back too often; give the subscription MaxDeliveries and a dead-letter topic",
				"subscription", r.name, "id", s.Delivery.ID, "partition", a.rec.Partition, "offset", a.rec.Offset, "deliveries", a.count)
		}
		return ackRelease, true
	default:
		return ackAccept, true
	}
	return ackGap, false
}

func addAck(jobs map[*shareSession]*ackJob, op *driver.Op, kind int8) {
	a := op.Token.Ref.(*acquired)
	j := jobs[a.life.session]
	if j == nil {
		j = &ackJob{done: make(chan struct{})}
		jobs[a.life.session] = j
	}
	j.acks = append(j.acks, ack{a: a, op: op, kind: kind})
}

// deadLetter publishes the letters and adds an ack for each that got there. The
// record is accepted, not rejected: it was dealt with, and a broker with a
// dead-letter topic of its own (KIP-1191) would keep a second copy of a reject.
func (r *shareReceiver) deadLetter(ctx context.Context, ops []*driver.Op, jobs map[*shareSession]*ackJob) {
	recs, counts := recordsOf(ops)
	errs := r.conn.sendLetters(ctx, r.wishes, r.name, ops, recs, counts)
	for i, op := range ops {
		if errs[i] != nil {
			op.Untouched, op.Settlement.Outcome.Err = true, errs[i]
			continue
		}
		addAck(jobs, op, ackAccept)
	}
}

// submit queues a job. What is queued while a request is under way goes
// together with the next.
func (s *shareSession) submit(j *ackJob) {
	s.mu.Lock()
	s.queue = append(s.queue, j)
	begin := !s.running
	s.running = true
	s.mu.Unlock()
	if begin {
		s.r.tasks.Do(s.send)
	}
}

// await waits for a job's answers and writes the outcomes. A job that is still
// queued when ctx ends is taken back.
func (s *shareSession) await(ctx context.Context, j *ackJob) {
	select {
	case <-j.done:
	case <-ctx.Done():
		s.mu.Lock()
		i := slices.Index(s.queue, j)
		if i >= 0 {
			s.queue = slices.Delete(s.queue, i, i+1)
		}
		s.mu.Unlock()
		s.r.mu.Lock()
		for k := range j.acks {
			op := j.acks[k].op
			op.Untouched = i >= 0
			if i >= 0 {
				j.acks[k].a.sent = false
				op.Settlement.Outcome.Err = broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "settle on %s: not sent", s.r.name)
			} else {
				op.Settlement.Outcome.Err = broker.Errorf(broker.ErrUnknownOutcome, context.Cause(ctx), "settle on %s", s.r.name)
			}
		}
		s.r.mu.Unlock()
		return
	}
	for k := range j.acks {
		x := &j.acks[k]
		x.op.Settlement.Outcome = broker.Outcome{State: x.state, Lease: x.lease, Err: x.err}
	}
}

// release gives records back aside; r.mu is held.
func (s *shareSession) release(as []*acquired) {
	j := &ackJob{done: make(chan struct{}), acks: make([]ack, len(as))}
	for i, a := range as {
		a.sent = true
		j.acks[i] = ack{a: a, kind: ackRelease}
	}
	s.submit(j)
}

// send carries out the queue until it is empty.
func (s *shareSession) send() {
	for {
		select {
		case s.turn <- struct{}{}:
		case <-s.r.life.Done():
			s.turn <- struct{}{} // whoever has it is ending too
		}
		s.mu.Lock()
		jobs := s.queue
		s.queue = nil
		if len(jobs) == 0 {
			s.running = false
			s.mu.Unlock()
			<-s.turn
			return
		}
		s.mu.Unlock()
		var all []*ack
		for _, j := range jobs {
			for i := range j.acks {
				all = append(all, &j.acks[i])
			}
		}
		s.carryOut(all)
		<-s.turn
		s.r.mu.Lock()
		for _, x := range all {
			if x.kind == ackRenew {
				if x.lease.After(s.r.heldUntil) {
					s.r.heldUntil = x.lease
				}
				continue
			}
			x.a.answer, x.a.refused = x.state, x.err
		}
		s.r.mu.Unlock()
		for _, j := range jobs {
			close(j.done)
		}
	}
}

// carryOut sends acks and fills in their answers. The broker takes or refuses a
// partition's acks together, so those of a refused partition are sent again in
// halves until the stale ones stand alone. turn is held.
func (s *shareSession) carryOut(acks []*ack) {
	s.r.mu.Lock()
	live := acks[:0:0]
	for _, x := range acks {
		if x.a.life.epoch.Ended() {
			x.lost("its share session has ended")
			continue
		}
		live = append(live, x)
	}
	s.r.mu.Unlock()
	if len(live) == 0 {
		return
	}
	slices.SortFunc(live, func(x, y *ack) int {
		if x.a.rec.Partition != y.a.rec.Partition {
			return int(x.a.rec.Partition) - int(y.a.rec.Partition)
		}
		return int(x.a.rec.Offset - y.a.rec.Offset)
	})
	sent := time.Now()
	resp, err := s.acknowledge(s.r.life, rangesOf(live))
	if err != nil {
		for _, x := range live {
			x.failed(err)
		}
		return
	}
	codes := map[int32]int16{}
	for i := range resp.Topics {
		for _, p := range resp.Topics[i].Partitions {
			codes[p.Partition] = p.ErrorCode
			if p.ErrorCode == kerr.NotLeaderForPartition.Code {
				s.r.mu.Lock()
				s.r.stale = true
				s.r.mu.Unlock()
			}
		}
	}
	lease := sent.Add(time.Duration(resp.AcquisitionLockTimeoutMillis) * time.Millisecond)
	for len(live) > 0 {
		n := 1
		for n < len(live) && live[n].a.rec.Partition == live[0].a.rec.Partition {
			n++
		}
		part := live[:n]
		live = live[n:]
		code, answered := codes[part[0].a.rec.Partition]
		err := kerr.ErrorForCode(code)
		switch {
		case !answered:
			err = errors.New("the broker left the partition out of its answer")
		case err != nil && n > 1 && oneOfMany(err):
			s.carryOut(part[:n/2])
			s.carryOut(part[n/2:])
			continue
		}
		for _, x := range part {
			if err != nil {
				x.failed(err)
				continue
			}
			if x.state = broker.Confirmed; x.kind == ackRenew {
				x.lease = lease
			}
		}
	}
}

// oneOfMany reports that a partition's acks were refused for one of them, and
// that none took effect.
func oneOfMany(err error) bool {
	return errors.Is(err, kerr.InvalidRecordState) || errors.Is(err, kerr.InvalidRequest)
}

// failed fills in the answer for an error.
func (x *ack) failed(err error) {
	switch {
	case oneOfMany(err), errors.Is(err, kerr.NotLeaderForPartition), errors.Is(err, kerr.FencedLeaderEpoch),
		errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID),
		errors.Is(err, kerr.ShareSessionNotFound), errors.Is(err, kerr.InvalidShareSessionEpoch), errors.Is(err, errNoSession):
		// Refused: the lease, or the session or leader that it hung on, is gone
		// (KAF-F-46).
		x.state, x.err = broker.LeaseLost, broker.Errorf(broker.ErrLeaseLost, err, "settle offset %d of partition %d", x.a.rec.Offset, x.a.rec.Partition)
	default:
		x.state, x.err = broker.Unknown, broker.Errorf(broker.ErrUnknownOutcome, err, "settle offset %d of partition %d", x.a.rec.Offset, x.a.rec.Partition)
	}
}

func (x *ack) lost(why string) {
	x.state, x.err = broker.LeaseLost, broker.Errorf(broker.ErrLeaseLost, nil, "settle offset %d of partition %d: %s", x.a.rec.Offset, x.a.rec.Partition, why)
}
