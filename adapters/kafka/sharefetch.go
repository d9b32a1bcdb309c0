package kafka

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// shareSession is the share session with one broker. Its requests go one after
// another, for each carries the next session epoch.
type shareSession struct {
	r      *shareReceiver
	broker int32
	turn   chan struct{} // holds a token while a request is under way

	// Guarded by turn.
	epoch int32              // 0: none
	in    map[int32]struct{} // partitions that the broker has in the session

	// Guarded by r.mu.
	life *shareLife
	want []int32 // partitions to fetch

	mu      sync.Mutex
	queue   []*ackJob
	running bool // a task sends what is in queue
}

func newShareSession(r *shareReceiver, id int32) *shareSession {
	s := &shareSession{r: r, broker: id, turn: make(chan struct{}, 1), in: map[int32]struct{}{}}
	s.life = &shareLife{session: s}
	return s
}

// end ends the session's life: what was acquired under it can't be settled any
// more. r.mu is held.
func (s *shareSession) end() {
	s.life.epoch.End()
	s.life = &shareLife{session: s}
}

// reset forgets a session that is lost. turn is held.
func (s *shareSession) reset() {
	s.epoch = 0
	clear(s.in)
	s.r.mu.Lock()
	s.end()
	s.r.mu.Unlock()
}

func (s *shareSession) next() {
	if s.epoch == math.MaxInt32 {
		s.epoch = 0
	}
	s.epoch++
}

// fetch gets records for a waiting Receive. It ends with the first records, and
// when nobody waits any more.
func (r *shareReceiver) fetch() {
	failures := 0
	for pass := 0; ; pass++ {
		sessions := r.targets()
		if len(sessions) == 0 && !r.pause(20*time.Millisecond, true) {
			break
		}
		got, err := r.round(sessions, pass)
		if got {
			break
		}
		if err != nil {
			failures++
			if !r.pause(min(10*time.Millisecond<<min(failures, 6), 500*time.Millisecond), false) {
				break
			}
			continue
		}
		failures = 0
		if !r.waiting() {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fetching = false
	if r.want == 0 || r.closing {
		r.giveBack(r.buffered) // whoever wanted it is gone
		r.buffered = nil
	}
	signal(r.wake)
}

// waiting reports whether a Receive waits for records.
func (r *shareReceiver) waiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.want > 0 && !r.closing && r.fetchErr == nil && r.life.Err() == nil
}

// pause waits a moment, or for a change of the assignment, and reports whether
// a Receive still waits.
func (r *shareReceiver) pause(d time.Duration, change bool) bool {
	moved := r.moved
	if !change {
		moved = nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-moved:
	case <-r.life.Done():
	}
	return r.waiting()
}

// round asks each session once. Several brokers are asked without waiting
// first, and then each waits for its share of the time: to wait at all of them
// at once would lease more than the caller asked for.
func (r *shareReceiver) round(sessions []*shareSession, pass int) (got bool, failed error) {
	for _, s := range sessions {
		r.mu.Lock()
		want := r.want
		park := maxPark
		if time.Now().Before(r.heldUntil) {
			park = busyPark
		}
		r.mu.Unlock()
		if !r.waiting() {
			return false, failed
		}
		if len(sessions) > 1 {
			if park /= time.Duration(len(sessions)); pass == 0 {
				park = 0
			}
		}
		as, err := s.fetch(want, park)
		if err != nil {
			failed = err
			continue
		}
		if as = r.dropPoison(as); len(as) > 0 {
			r.mu.Lock()
			r.buffered = append(r.buffered, as...)
			r.mu.Unlock()
			return true, nil
		}
	}
	return false, failed
}

// fetch sends one ShareFetch for up to n records, which waits at the broker for
// as long as park.
func (s *shareSession) fetch(n int, park time.Duration) ([]*acquired, error) {
	select {
	case s.turn <- struct{}{}:
	case <-s.r.life.Done():
		return nil, broker.ErrClosed
	}
	defer func() { <-s.turn }()
	req := s.request(n, park)
	s.r.mu.Lock()
	life := s.life
	s.r.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.r.life, park+5*time.Second)
	defer cancel()
	sent := time.Now()
	kresp, err := s.r.cl.Broker(int(s.broker)).Request(ctx, req)
	var resp *kmsg.ShareFetchResponse
	if err == nil {
		resp = kresp.(*kmsg.ShareFetchResponse)
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		s.reset()
		s.r.mu.Lock()
		s.r.stale = true
		s.r.mu.Unlock()
		if wontHeal(err) {
			s.r.fail(broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "receive from %s", s.r.name))
		}
		return nil, err
	}
	s.next()
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			s.in[p.Partition] = struct{}{}
		}
	}
	for _, t := range req.ForgottenTopicsData {
		for _, p := range t.Partitions {
			delete(s.in, p)
		}
	}
	return s.take(resp, life, sent)
}

func (s *shareSession) request(n int, park time.Duration) *kmsg.ShareFetchRequest {
	req := kmsg.NewPtrShareFetchRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &s.r.group, &s.r.member, s.epoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(park.Milliseconds()), 1, 16<<20
	req.MaxRecords = int32(min(n, math.MaxInt32))
	req.BatchSize = req.MaxRecords
	req.ShareAcquireMode = 1 // no more than MaxRecords, even if that splits a batch (KIP-1206)
	s.r.mu.Lock()
	want := s.want
	s.r.mu.Unlock()
	wanted := make(map[int32]struct{}, len(want))
	add := kmsg.NewShareFetchRequestTopic()
	add.TopicID = s.r.id
	for _, p := range want {
		wanted[p] = struct{}{}
		if _, in := s.in[p]; !in {
			fp := kmsg.NewShareFetchRequestTopicPartition()
			fp.Partition, fp.PartitionMaxBytes = p, 1<<20
			add.Partitions = append(add.Partitions, fp)
		}
	}
	if len(add.Partitions) > 0 {
		req.Topics = append(req.Topics, add)
	}
	forget := kmsg.NewShareFetchRequestForgottenTopicsData()
	forget.TopicID = s.r.id
	for p := range s.in {
		if _, ok := wanted[p]; !ok {
			forget.Partitions = append(forget.Partitions, p)
		}
	}
	if len(forget.Partitions) > 0 {
		req.ForgottenTopicsData = append(req.ForgottenTopicsData, forget)
	}
	return req
}

// take reads the records of a response, and sees to it that every acquired
// offset is either returned or settled here. turn is held.
func (s *shareSession) take(resp *kmsg.ShareFetchResponse, life *shareLife, sent time.Time) ([]*acquired, error) {
	lock := time.Duration(resp.AcquisitionLockTimeoutMillis) * time.Millisecond
	if resp.Version < 1 || lock <= 0 {
		lock = shortestLock
	}
	// The lease ran from when the broker took hold of the record, which is after
	// the request was sent.
	lease := sent.Add(lock)
	var out []*acquired
	var chores []ackRange
	var failed error
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			rp := &resp.Topics[i].Partitions[j]
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				failed = s.partitionFailed(rp, err)
				continue
			}
			if len(rp.AcquiredRecords) == 0 {
				continue
			}
			as, rest := s.decode(rp, life, lease)
			out, chores = append(out, as...), append(chores, rest...)
		}
	}
	s.r.mu.Lock()
	s.r.renews = resp.Version >= 2
	s.r.mu.Unlock()
	if len(chores) > 0 {
		if _, err := s.acknowledge(s.r.life, chores); err != nil {
			s.r.conn.log.Warn("kafka: share group: gaps stay leased until the lease ends", "subscription", s.r.name, "err", err)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	return nil, failed
}

func (s *shareSession) partitionFailed(rp *kmsg.ShareFetchResponseTopicPartition, err error) error {
	s.r.mu.Lock()
	s.r.stale = true
	if hint := rp.CurrentLeader.LeaderID; hint >= 0 && errors.Is(err, kerr.NotLeaderForPartition) {
		s.r.leaders[rp.Partition] = hint
	}
	s.r.mu.Unlock()
	if wontHeal(err) && !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.UnknownTopicID) {
		s.r.fail(broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "receive from %s, partition %d", s.r.name, rp.Partition))
	}
	return err
}

var decompressor = kgo.DefaultDecompressor()

// decode matches records with the acquired ranges. An offset without a record
// is a hole of compaction or a transaction's marker, and is acknowledged as a
// gap; where a batch can't be read, its offsets are released.
func (s *shareSession) decode(rp *kmsg.ShareFetchResponseTopicPartition, life *shareLife, lease time.Time) ([]*acquired, []ackRange) {
	fake := kmsg.NewFetchResponseTopicPartition()
	fake.Partition, fake.RecordBatches = rp.Partition, rp.Records
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: s.r.topic, Partition: rp.Partition}, &fake, decompressor, nil)
	hole := ackGap
	if fp.Err != nil {
		hole = ackRelease
		s.r.conn.log.Error("kafka: a batch can't be read", "subscription", s.r.name, "partition", rp.Partition, "err", fp.Err)
	}
	total := 0
	for _, ar := range rp.AcquiredRecords {
		total += int(max(0, ar.LastOffset-ar.FirstOffset+1))
	}
	slab := make([]acquired, 0, min(total, len(fp.Records)))
	var rest []ackRange
	next := 0
	for _, ar := range rp.AcquiredRecords {
		at := ar.FirstOffset
		for next < len(fp.Records) && fp.Records[next].Offset < at {
			next++
		}
		for ; next < len(fp.Records) && fp.Records[next].Offset <= ar.LastOffset; next++ {
			rec := fp.Records[next]
			if rec.Offset > at {
				rest = append(rest, ackRange{rp.Partition, at, rec.Offset - 1, hole})
			}
			slab = append(slab, acquired{rec: rec, life: life, count: max(1, int(ar.DeliveryCount)), lease: lease})
			at = rec.Offset + 1
		}
		if at <= ar.LastOffset {
			rest = append(rest, ackRange{rp.Partition, at, ar.LastOffset, hole})
		}
	}
	as := make([]*acquired, len(slab))
	for i := range slab {
		as[i] = &slab[i]
	}
	return as, rest
}

// dropPoison moves records to the dead-letter topic that were delivered too
// often already, each time to a consumer that died of them: the broker would
// drop them at its own limit.
func (r *shareReceiver) dropPoison(as []*acquired) []*acquired {
	if r.wishes.maxDeliveries == 0 {
		return as
	}
	var bad []*acquired
	keep := as[:0]
	for _, a := range as {
		if a.count > r.wishes.maxDeliveries {
			bad = append(bad, a)
		} else {
			keep = append(keep, a)
		}
	}
	if len(bad) == 0 {
		return as
	}
	ctx, cancel := context.WithDeadline(r.life, bad[0].lease)
	defer cancel()
	recs, counts := make([]*kgo.Record, len(bad)), make([]int, len(bad))
	for i, a := range bad {
		recs[i], counts[i] = a.rec, a.count-1
	}
	errs := r.conn.sendLetters(ctx, r.wishes, r.name, make([]*driver.Op, len(bad)), recs, counts)
	for i, a := range bad {
		kind := ackAccept
		if errs[i] != nil {
			r.conn.log.Warn("kafka: can't move a message to the dead-letter topic", "subscription", r.name, "err", errs[i])
			kind = ackRelease
		}
		a.life.session.submit(&ackJob{done: make(chan struct{}), acks: []ack{{a: a, kind: kind}}})
	}
	return keep
}
