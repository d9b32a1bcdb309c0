package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

// beats notes when the group last heard of this member. A process that stood still
// for longer than its session has lost its partitions and doesn't know it: until its
// next heartbeat is answered all looks as it did, and what isn't asked of the broker,
// an Extend or a nack, would be answered from that. It is a hook of franz-go.
type beats struct {
	// bound is from when on the broker is asked: half a session, for when a
	// heartbeat left is known here only to the time that a busy machine takes. With
	// KIP-848 the session is the broker's own and not known here: a second.
	bound time.Duration

	mu    sync.Mutex
	heard time.Time // when the last heartbeat was sent that was answered in its session
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (b *beats) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	if key != kmsg.Heartbeat.Int16() && key != kmsg.ConsumerGroupHeartbeat.Int16() || e.Err() != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	// One that comes too late may be answered with a refusal, which this hook
	// doesn't see: the silence ends with an answer to alive, or a new session.
	if sent := time.Now().Add(-e.DurationE2E()); sent.Sub(b.heard) <= b.bound {
		b.heard = sent
	}
}

// begin begins a session, or goes on with one that the broker has confirmed.
func (b *beats) begin(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard = at
}

// silent reports whether the session may be over without this member's knowing.
func (b *beats) silent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.heard.IsZero() && time.Since(b.heard) > b.bound
}

// alive asks the broker whether the member that was silent is still one, and ends its
// partitions if not. The error says that it couldn't be learned.
func (r *groupReceiver) alive(ctx context.Context) error {
	member, generation := r.cl.GroupMetadata()
	r.mu.Lock()
	mine := r.member
	r.mu.Unlock()
	at := time.Now()
	err := errNewMember
	if member == mine {
		err = r.askAlive(ctx, member, generation)
	}
	switch {
	case err == nil, errors.Is(err, kerr.RebalanceInProgress), errors.Is(err, kerr.StaleMemberEpoch):
		// A member of another epoch is one: what it holds it is asked to give up.
		r.beats.begin(at)
		return nil
	case !fenced(err) && !errors.Is(err, errNewMember):
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.member != mine {
		return nil // it has joined anew meanwhile, and assigned has ended what was
	}
	for _, p := range r.parts {
		if !p.ended {
			p.fenced = time.Now()
		}
		r.end(p)
	}
	r.signal()
	return nil
}

// askAlive asks as the member whether it is one, by what has no effect beyond: a
// heartbeat, or with KIP-848, where a heartbeat's answer may bring an assignment that
// franz-go has to see, by looking up offsets.
func (r *groupReceiver) askAlive(ctx context.Context, member string, generation int32) error {
	if r.conn.opts.NextGen {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.MemberID, g.MemberEpoch = r.group, &member, generation
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Groups = append(req.Groups, g)
		resp, err := req.RequestWith(ctx, r.cl)
		if err != nil {
			return err
		}
		if len(resp.Groups) != 1 {
			return kerr.ErrorForCode(resp.ErrorCode)
		}
		return kerr.ErrorForCode(resp.Groups[0].ErrorCode)
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = r.group, member, generation
	if id := r.conn.opts.Instance; id != "" {
		req.InstanceID = &id
	}
	resp, err := req.RequestWith(ctx, r.cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// unsure is the outcome of what isn't done, for nobody could say whether it may be.
func (r *groupReceiver) unsure(s *broker.Settlement, why error) broker.Outcome {
	return broker.Outcome{Err: broker.Errorf(kindOf(why, broker.ErrUnavailable), why,
		"%s %q on %s: its group hasn't heard of this member for long and can't be asked", s.Action, s.Delivery.ID, r.name)}
}
