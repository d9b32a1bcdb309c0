package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

// heartbeats keeps the membership until the receiver ends.
func (r *shareReceiver) heartbeats() {
	failures := 0
	for {
		wait, err := r.heartbeat()
		if err != nil {
			failures++
			wait = min(50*time.Millisecond<<min(failures, 6), 2*time.Second)
			if failures > 1 || wontHeal(err) {
				r.conn.log.Warn("kafka: share group heartbeat", "subscription", r.name, "err", err)
			}
			if wontHeal(err) {
				r.fail(broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "receive from %s", r.name))
			}
		} else {
			failures = 0
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.life.Done():
			timer.Stop()
			return
		}
		r.mu.Lock()
		closing := r.closing
		r.mu.Unlock()
		if closing {
			return
		}
	}
}

// fail hands an error to the Receive that waits.
func (r *shareReceiver) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.want > 0 { // otherwise it shows again when somebody waits
		r.fetchErr = err
		signal(r.wake)
	}
}

// heartbeat sends one and returns when the next is due.
func (r *shareReceiver) heartbeat() (time.Duration, error) {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID = r.group, r.member
	r.mu.Lock()
	req.MemberEpoch = r.epoch
	r.mu.Unlock()
	if req.MemberEpoch == 0 {
		req.SubscribedTopicNames = []string{r.topic}
	}
	ctx, cancel := context.WithTimeout(r.life, 10*time.Second)
	defer cancel()
	resp, err := req.RequestWith(ctx, r.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	switch {
	case err == nil:
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedMemberEpoch), errors.Is(err, kerr.GroupIDNotFound):
		// Thrown out: what was held is somebody else's. Join again.
		r.mu.Lock()
		r.epoch = 0
		clear(r.assigned)
		for _, s := range r.sessions {
			s.end()
		}
		r.mu.Unlock()
		return 0, err
	case errors.Is(err, kerr.NotCoordinator), errors.Is(err, kerr.CoordinatorNotAvailable):
		r.forgetCoordinator(ctx)
		return 0, err
	default:
		return 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch = resp.MemberEpoch
	if resp.Assignment != nil {
		r.assign(resp.Assignment.TopicPartitions)
	}
	return max(20*time.Millisecond, time.Duration(resp.HeartbeatIntervalMillis)*time.Millisecond), nil
}

// forgetCoordinator makes franz-go ask anew who coordinates the group. It does
// so by itself for every request but a share heartbeat; a classic heartbeat is
// refused and does no harm.
func (r *shareReceiver) forgetCoordinator(ctx context.Context) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID = r.group, r.member
	if _, err := req.RequestWith(ctx, r.cl); err != nil {
		r.conn.log.Debug("kafka: looking for the coordinator", "subscription", r.name, "err", err)
	}
}

// assign takes a new assignment. r.mu is held.
func (r *shareReceiver) assign(topics []kmsg.ShareGroupHeartbeatResponseAssignmentTopicPartition) {
	now := map[int32]struct{}{}
	for _, t := range topics {
		if t.TopicID != r.id {
			continue // of a topic of the same name that was here before
		}
		for _, p := range t.Partitions {
			now[p] = struct{}{}
			if _, known := r.leaders[p]; !known {
				r.stale = true
			}
		}
	}
	if !maps.Equal(now, r.assigned) {
		r.assigned = now
		signal(r.moved)
	}
}

// leave tells the group that the member goes.
func (r *shareReceiver) leave(ctx context.Context) error {
	r.mu.Lock()
	joined := r.epoch != 0
	r.mu.Unlock()
	if !joined {
		return nil
	}
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch = r.group, r.member, -1
	resp, err := req.RequestWith(ctx, r.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.GroupIDNotFound) {
		return nil // gone, which is what was wanted
	}
	return err
}

// targets returns the sessions of the brokers that lead assigned partitions,
// another one first each time.
func (r *shareReceiver) targets() []*shareSession {
	r.mu.Lock()
	stale := r.stale
	r.stale = false
	r.mu.Unlock()
	if stale {
		r.lookUp()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	want := map[int32][]int32{}
	for p := range r.assigned {
		if leader, ok := r.leaders[p]; ok && leader >= 0 {
			want[leader] = append(want[leader], p)
		} else {
			r.stale = true
		}
	}
	for id, s := range r.sessions {
		s.want = want[id] // nil: forget all, but keep what is held
	}
	ids := slices.Sorted(maps.Keys(want))
	out := make([]*shareSession, len(ids))
	r.turn++
	for i := range ids {
		id := ids[(i+r.turn)%len(ids)]
		s := r.sessions[id]
		if s == nil {
			s = newShareSession(r, id)
			s.want = want[id]
			r.sessions[id] = s
		}
		out[i] = s
	}
	return out
}

// lookUp asks who leads the partitions.
func (r *shareReceiver) lookUp() {
	ctx, cancel := context.WithTimeout(r.life, 5*time.Second)
	defer cancel()
	t, err := describe(ctx, r.cl, r.topic)
	if err == nil && t.id != r.id {
		err = kerr.UnknownTopicID // deleted and made anew
	}
	if err != nil {
		if wontHeal(err) {
			r.fail(broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "receive from %s", r.name))
		}
		r.mu.Lock()
		r.stale = true
		r.mu.Unlock()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaders = t.leaders
}
