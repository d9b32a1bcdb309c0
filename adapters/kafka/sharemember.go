package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
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
			wait = min(50*time.Millisecond<<min(failures, 5), time.Second)
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
	resp, err := r.askCoordinator(ctx, req)
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

// askCoordinator sends a heartbeat to the group's coordinator, which is looked up if
// the last one to be asked failed in any way. franz-go looks it up itself, and anew for
// every request but a share heartbeat, for which it stays with the first one as long as
// that doesn't say that another one is it: forever, if it is dead.
func (r *shareReceiver) askCoordinator(ctx context.Context, req *kmsg.ShareGroupHeartbeatRequest) (*kmsg.ShareGroupHeartbeatResponse, error) {
	r.mu.Lock()
	node := r.coordinator
	r.coordinator = noBroker // until it has answered
	r.mu.Unlock()
	if node == noBroker {
		var err error
		if node, err = coordinatorOf(ctx, r.cl, r.group); err != nil {
			return nil, err
		}
	}
	kresp, err := r.cl.Broker(int(node)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.ShareGroupHeartbeatResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.coordinator = node
	r.mu.Unlock()
	return resp, nil
}

// noBroker is no broker's ID.
const noBroker = -1

// coordinatorOf asks the cluster who coordinates a group: any broker, and another one
// if that is the dead one.
func coordinatorOf(ctx context.Context, cl *kgo.Client, group string) (node int32, err error) {
	for range 3 {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey = group
		var resp *kmsg.FindCoordinatorResponse
		if resp, err = req.RequestWith(ctx, cl); err == nil {
			return resp.NodeID, kerr.ErrorForCode(resp.ErrorCode)
		}
	}
	return noBroker, err
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

// leaveBound is how long a member tries to leave where Close's context lasts longer.
const leaveBound = 5 * time.Second

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
	ctx, cancel := context.WithTimeout(ctx, leaveBound)
	defer cancel()
	for { // the coordinator may be another one by now, or about to be
		_, err := r.askCoordinator(ctx, req)
		if err == nil || errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.GroupIDNotFound) {
			return nil // gone, which is what was wanted
		}
		again := time.NewTimer(100 * time.Millisecond)
		select {
		case <-again.C:
		case <-ctx.Done():
		}
		if again.Stop(); ctx.Err() != nil || wontHeal(err) || errors.Is(err, kgo.ErrClientClosed) {
			return err
		}
	}
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
