package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
)

// assigned begins an epoch for each partition. It is called at the begin of
// every session of the group, with nothing new too.
//
// It takes the client that franz-go hands it, for it may run before newGroup
// has returned.
func (r *groupReceiver) assigned(ctx context.Context, cl *kgo.Client, m map[string][]int32) {
	member, _ := cl.GroupMetadata()
	r.beats.begin(time.Now())
	if r.watch != nil {
		r.watch(broker.Assignment{Began: true, Gained: len(m[r.topic])})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range m[r.topic] {
		if old := r.parts[id]; old != nil {
			r.end(old) // assigned anew without a word: be safe
		}
		r.parts[id] = newPart(id)
	}
	was := r.member
	r.member = member
	if was == "" || was == member {
		return
	}
	// The broker threw the old member out. When franz-go learns that from a
	// join, it joins as a new member and keeps, with cooperative balancing,
	// whatever it is assigned again as if it had never been away. But others may
	// have had the partition meanwhile and have gone on from our position, so it
	// begins anew where the group is now.
	kept := map[int32]*part{}
	for id, p := range r.parts {
		if !slices.Contains(m[r.topic], id) {
			r.end(p)
			kept[id] = p
		}
	}
	r.signal()
	if len(kept) == 0 {
		return
	}
	r.mu.Unlock()
	to, err := r.restart(ctx, cl, kept)
	if err == nil {
		cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{r.topic: to})
	}
	r.mu.Lock()
	if err != nil {
		r.pollErr = broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "receive from %s: the member was thrown out of its group and can't learn where to go on; open the receiver anew", r.name)
		return
	}
	for id := range kept {
		r.parts[id] = newPart(id)
	}
}

// stableOffsets looks up a group's offsets when no transaction that is still open may
// change those of the partitions of kept any more: who had one meanwhile may have been
// killed as it committed. It waits for that, as franz-go does where a member joins
// (KAF-F-440).
func (r *groupReceiver) stableOffsets(ctx context.Context, cl *kgo.Client, kept map[int32]*part) (kadm.OffsetResponses, error) {
	ctx = kadm.RequireStable(ctx)
	adm := kadm.NewClient(cl)
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		attempt, cancel := context.WithTimeout(ctx, r.session)
		offsets, err := adm.FetchOffsetsForTopics(attempt, r.group, r.topic)
		cancel()
		for id := range kept {
			if o, ok := offsets.Lookup(r.topic, id); err == nil && ok {
				err = o.Err
			}
		}
		if err == nil || !passing(err) && !errors.Is(err, kerr.UnstableOffsetCommit) {
			return offsets, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}

// restart looks up where the partitions of a member that was away go on: at the
// group's offset, at what StartFrom says, or at the first record that this
// member had.
func (r *groupReceiver) restart(ctx context.Context, cl *kgo.Client, kept map[int32]*part) (map[int32]kgo.EpochOffset, error) {
	offsets, err := r.stableOffsets(ctx, cl, kept)
	if err != nil {
		return nil, err
	}
	to := map[int32]kgo.EpochOffset{}
	for id, p := range kept {
		at := kgo.EpochOffset{Epoch: -1, Offset: p.first}
		if o, ok := offsets.Lookup(r.topic, id); ok && o.At >= 0 {
			at = kgo.EpochOffset{Epoch: o.LeaderEpoch, Offset: o.At}
		}
		if r.from != nil {
			if pos, ok := r.from(p.name); ok {
				at = kgo.EpochOffset{Epoch: -1, Offset: int64(pos.Offset)}
			}
		}
		to[id] = at // franz-go leaves a negative one where it is
	}
	return to, nil
}

// adjust lets the caller say where to start.
func (r *groupReceiver) adjust(_ context.Context, m map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	for id := range m[r.topic] {
		if pos, ok := r.from(partName(id)); ok {
			m[r.topic][id] = kgo.NewOffset().At(int64(pos.Offset)).WithEpoch(-1)
		}
	}
	return m, nil
}

// revoked commits what is settled, while the group still takes it, and ends the
// partitions. franz-go's own commit at this place doesn't run once there is a
// callback (franz-go issue 406).
func (r *groupReceiver) revoked(ctx context.Context, _ *kgo.Client, m map[string][]int32) {
	r.mu.Lock()
	closing := r.closing // then Close has committed
	r.mu.Unlock()
	// franz-go also calls at the end of a session in which nothing is taken away.
	if !closing && len(m[r.topic]) > 0 {
		ctx, cancel := context.WithTimeout(ctx, min(maxRevoke, r.session/2))
		if err := r.commit(ctx, true); err != nil {
			r.conn.log.Warn("kafka: settled messages will come again: no commit at the rebalance", "subscription", r.name, "err", err)
		}
		cancel()
	}
	r.lost(ctx, nil, m)
}

// lost ends partitions.
func (r *groupReceiver) lost(_ context.Context, _ *kgo.Client, m map[string][]int32) {
	if n := len(m[r.topic]); n > 0 && r.watch != nil {
		r.watch(broker.Assignment{Lost: n})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range m[r.topic] {
		if p := r.parts[id]; p != nil {
			r.end(p)
			delete(r.parts, id)
		}
	}
	r.signal()
}

// end ends a partition's epoch. r.mu is held.
func (r *groupReceiver) end(p *part) {
	if p.ended {
		return
	}
	p.ended = true
	p.epoch.End()
	r.waiting -= p.waiting
	p.queue, p.lines, p.waiting = nil, nil, 0 // entries elsewhere see that the part has ended
}
