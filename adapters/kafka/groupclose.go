package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
)

// maxLeave is how long Close lets franz-go leave the group by itself. It takes
// one round trip, unless a join is pending: franz-go waits for its end first,
// and the group may wait for a member that was killed, for a whole session.
const maxLeave = 500 * time.Millisecond

// Close commits what is settled, leaves the group and ends all epochs. A static
// member doesn't leave: its partitions wait for it until the session ends
// (KIP-345).
func (r *groupReceiver) Close(ctx context.Context) error {
	err := r.lastCommit(ctx)
	r.mu.Lock()
	r.closing = true
	for id, p := range r.parts {
		r.end(p)
		delete(r.parts, id)
	}
	polling := r.polling
	r.signal()
	r.mu.Unlock()
	r.endPolls()
	if polling {
		select {
		case <-r.idle:
		case <-ctx.Done(): // it waits for a rebalance that waits for the broker
			r.stop()
			<-r.idle
		}
	}
	r.cl.AllowRebalance()
	if lerr := r.leave(ctx); lerr != nil && ctx.Err() == nil {
		r.conn.log.Warn("kafka: leaving the group", "subscription", r.name, "err", lerr)
	}
	if err != nil {
		return broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "close %s: settled messages may come again", r.name)
	}
	return nil
}

// leave leaves the group and closes the client.
func (r *groupReceiver) leave(ctx context.Context) error {
	defer r.stop()
	left := make(chan error, 1)
	go func() {
		err := r.cl.LeaveGroupContext(ctx)
		r.cl.Close()
		// Close leaves once more and polls once more; without this that poll
		// blocks that leave for ever.
		r.cl.AllowRebalance()
		left <- err
	}()
	patience := maxLeave
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)/2)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	overdue := timer.C
	if r.conn.opts.NextGen {
		overdue = nil // no join is held back there
	}
	for {
		select {
		case err := <-left:
			return err
		case <-ctx.Done():
			// The broker doesn't answer: whatever still asks it is ended.
			r.stop()
			<-left
			return nil
		case <-overdue:
			overdue = nil
			static := r.conn.opts.Instance != ""
			if id, _ := r.cl.GroupMetadata(); id == "" && !static {
				// The answer to the first join, which has the ID, is on its way.
				// After it franz-go doesn't ask again, and leaves. Brokers before
				// 2.2 give no ID before the join is over (KIP-394).
				continue
			}
			// The client ends first, so that it can't join again.
			r.stop()
			<-left
			if id, _ := r.cl.GroupMetadata(); id != "" && !static {
				return r.leaveAs(ctx, id)
			}
			return nil
		}
	}
}

// leaveAs takes a member out of the group whose own client has ended, its join
// perhaps pending. Left in the group, it would be assigned partitions and hold
// them for a session. If the join arrives after this, the broker refuses it, for
// it doesn't know the ID any more.
func (r *groupReceiver) leaveAs(ctx context.Context, id string) error {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = r.group, id
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID, m.Reason = id, kmsg.StringPtr("closed while the group rebalances")
	req.Members = append(req.Members, m)
	resp, err := req.RequestWith(ctx, r.conn.admin)
	if err != nil {
		return err
	}
	err = kerr.ErrorForCode(resp.ErrorCode)
	for i := 0; err == nil && i < len(resp.Members); i++ {
		err = kerr.ErrorForCode(resp.Members[i].ErrorCode)
	}
	if errors.Is(err, kerr.UnknownMemberID) {
		return nil // gone, which is what was wanted
	}
	return err
}
