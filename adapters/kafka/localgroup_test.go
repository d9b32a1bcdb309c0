package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// classicMember is a member of a group of the classic protocol, by hand.
type classicMember struct {
	group, id  string
	generation int32
	instance   *string
}

// join sends a JoinGroup; the answer comes when all members have joined.
func (m *classicMember) join(t *testing.T, cl kmsg.Requestor) *kmsg.JoinGroupResponse {
	t.Helper()
	for {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.MemberID, req.InstanceID, req.ProtocolType = m.group, m.id, m.instance, "consumer"
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 20_000, 20_000
		p := kmsg.NewJoinGroupRequestProtocol()
		meta := kmsg.NewConsumerMemberMetadata()
		p.Name, p.Metadata = "range", meta.AppendTo(nil)
		req.Protocols = append(req.Protocols, p)
		resp := ask[*kmsg.JoinGroupResponse](t, cl, req)
		m.id, m.generation = resp.MemberID, resp.Generation
		if resp.ErrorCode != kerr.MemberIDRequired.Code {
			return resp
		}
	}
}

// sync sends a SyncGroup, with assignments if the member leads.
func (m *classicMember) sync(t *testing.T, cl kmsg.Requestor) int16 {
	t.Helper()
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = m.group, m.id, m.instance, m.generation
	kind, name := "consumer", "range"
	req.ProtocolType, req.Protocol = &kind, &name
	a := kmsg.NewSyncGroupRequestGroupAssignment()
	a.MemberID = m.id
	req.GroupAssignment = append(req.GroupAssignment, a)
	return ask[*kmsg.SyncGroupResponse](t, cl, req).ErrorCode
}

func (m *classicMember) heartbeat(t *testing.T, cl kmsg.Requestor) int16 {
	t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = m.group, m.id, m.instance, m.generation
	return ask[*kmsg.HeartbeatResponse](t, cl, req).ErrorCode
}

func (m *classicMember) leave(t *testing.T, cl kmsg.Requestor) {
	t.Helper()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = m.group
	lm := kmsg.NewLeaveGroupRequestMember()
	lm.MemberID, lm.InstanceID = m.id, m.instance
	req.Members = append(req.Members, lm)
	code(t, "leave", ask[*kmsg.LeaveGroupResponse](t, cl, req).ErrorCode, 0)
}

// commit commits an offset of partition 0 and returns the code for it.
func commit(t *testing.T, cl kmsg.Requestor, topic topicInfo, m classicMember, offset int64) int16 {
	t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = m.group, m.id, m.instance, m.generation
	rt, rp := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
	rt.Topic, rt.TopicID, rp.Offset = topic.name, topic.id, offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return ask[*kmsg.OffsetCommitResponse](t, cl, req).Topics[0].Partitions[0].ErrorCode
}

// txnCommit adds an offset to a transaction of its own, and commits that.
func txnCommit(t *testing.T, cl kmsg.Requestor, topic topicInfo, m classicMember, txn string, offset int64) int16 {
	t.Helper()
	p := initProducer(t, cl, txn)
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = txn, p.id, p.epoch
	req.Group, req.MemberID, req.InstanceID, req.Generation = m.group, m.id, m.instance, m.generation
	rt, rp := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rt.Topic, rp.Offset = topic.name, offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	c := ask[*kmsg.TxnOffsetCommitResponse](t, cl, req).Topics[0].Partitions[0].ErrorCode
	if c == 0 {
		code(t, "commit of the transaction", endTxn(t, cl, txn, p, true).ErrorCode, 0)
	}
	return c
}

// position is the group's committed offset of partition 0, -1 for none.
func position(t *testing.T, cl kmsg.Requestor, topic topicInfo, group string) int64 {
	t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	g, rt := kmsg.NewOffsetFetchRequestGroup(), kmsg.NewOffsetFetchRequestGroupTopic()
	g.Group, rt.Topic, rt.TopicID, rt.Partitions = group, topic.name, topic.id, []int32{0}
	g.Topics = append(g.Topics, rt)
	req.Groups = append(req.Groups, g)
	var at int64
	eventually(t, "a stable offset", func() bool {
		p := ask[*kmsg.OffsetFetchResponse](t, cl, req).Groups[0].Topics[0].Partitions[0]
		at = p.Offset
		return p.ErrorCode == 0
	})
	return at
}

// nobody is who commits without being a member.
func nobody(group string) classicMember { return classicMember{group: group, generation: -1} }

// Whose commits a group of the classic protocol takes (KAF-F-32, 33, 38).
func TestLocalClassicCommits(t *testing.T) {
	cl := raw(t, local(t))
	topic := rawTopic(t, cl)
	a := classicMember{group: topic.name}
	code(t, "before there is a group", commit(t, cl, topic, nobody(a.group), 1), 0)
	code(t, "join", a.join(t, cl).ErrorCode, 0)
	code(t, "while the group waits for its leader", commit(t, cl, topic, a, 2), kerr.RebalanceInProgress.Code)
	code(t, "sync", a.sync(t, cl), 0)
	code(t, "a member", commit(t, cl, topic, a, 3), 0)
	code(t, "the same again", commit(t, cl, topic, a, 3), 0)
	code(t, "nobody, into a group with members", commit(t, cl, topic, nobody(a.group), 9), kerr.UnknownMemberID.Code)
	stranger, late := a, a
	stranger.id, late.generation = "stranger", a.generation-1
	code(t, "a stranger", commit(t, cl, topic, stranger, 9), kerr.UnknownMemberID.Code)
	code(t, "an earlier generation", commit(t, cl, topic, late, 9), kerr.IllegalGeneration.Code)
	code(t, "an earlier generation's transaction", txnCommit(t, cl, topic, late, "late-"+topic.name, 9), kerr.IllegalGeneration.Code)
	if at := position(t, cl, topic, a.group); at != 3 {
		t.Errorf("the group is at %d, want 3", at)
	}
	code(t, "nobody's transaction, into a group with members", txnCommit(t, cl, topic, nobody(a.group), "nobody-"+topic.name, 7), 0)
	if at := position(t, cl, topic, a.group); at != 7 {
		t.Errorf("the group is at %d, want 7: a transaction without a member isn't fenced", at)
	}
	a.leave(t, cl)
	code(t, "one that left", commit(t, cl, topic, a, 9), kerr.UnknownMemberID.Code)
	code(t, "nobody, into an empty group", commit(t, cl, topic, nobody(a.group), 8), 0)

	// A static member whose name another took.
	name := "name"
	b := classicMember{group: topic.name + "-static", instance: &name}
	code(t, "join", b.join(t, cl).ErrorCode, 0)
	code(t, "sync", b.sync(t, cl), 0)
	twin := classicMember{group: b.group, instance: &name}
	code(t, "the twin's join", twin.join(t, cl).ErrorCode, 0)
	code(t, "who lost the name", commit(t, cl, topic, b, 1), kerr.FencedInstanceID.Code)
}

// A commit while others join is taken, the heartbeat says what goes on (KAF-F-32).
func TestLocalCommitWhileOthersJoin(t *testing.T) {
	k := local(t)
	cl := raw(t, k)
	topic := rawTopic(t, cl)
	a := classicMember{group: topic.name}
	code(t, "join", a.join(t, cl).ErrorCode, 0)
	code(t, "sync", a.sync(t, cl), 0)
	other := raw(t, k)
	joined := make(chan struct{})
	go func() {
		defer close(joined)
		b := classicMember{group: a.group}
		if resp := b.join(t, other); resp.ErrorCode == 0 {
			b.leave(t, other)
		}
	}()
	eventually(t, "the heartbeat tells of the rebalance", func() bool { return a.heartbeat(t, cl) == kerr.RebalanceInProgress.Code })
	code(t, "of the generation that ends", commit(t, cl, topic, a, 1), 0)
	a.leave(t, cl)
	<-joined
}

// Whose commits a group of the consumer protocol takes (KAF-F-32, 33).
func TestLocalConsumerCommits(t *testing.T) {
	cl := raw(t, local(t))
	topic := rawTopic(t, cl)
	m := classicMember{group: topic.name, id: "member-" + topic.name}
	beat := func(epoch int32) (int16, int32) {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = m.group, m.id, epoch, 20_000
		req.SubscribedTopicNames, req.Topics = []string{topic.name}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](t, cl, req)
		return resp.ErrorCode, resp.MemberEpoch
	}
	c, epoch := beat(0)
	code(t, "join", c, 0)
	m.generation = epoch
	code(t, "a member", commit(t, cl, topic, m, 3), 0)
	early, stranger := m, m
	early.generation, stranger.id = epoch-1, "stranger"
	code(t, "an earlier epoch", commit(t, cl, topic, early, 9), kerr.StaleMemberEpoch.Code)
	code(t, "a stranger", commit(t, cl, topic, stranger, 9), kerr.UnknownMemberID.Code)
	code(t, "nobody, into a group with members", commit(t, cl, topic, nobody(m.group), 9), kerr.UnknownMemberID.Code)
	code(t, "an earlier epoch's transaction", txnCommit(t, cl, topic, early, "early-"+topic.name, 9), kerr.IllegalGeneration.Code)
	c, _ = beat(epoch + 5)
	code(t, "a heartbeat with an epoch of the future", c, kerr.FencedMemberEpoch.Code)
	if at := position(t, cl, topic, m.group); at != 3 {
		t.Errorf("the group is at %d, want 3", at)
	}
	code(t, "nobody's transaction, into a group with members", txnCommit(t, cl, topic, nobody(m.group), "nobody-"+topic.name, 7), 0)
	if at := position(t, cl, topic, m.group); at != 7 {
		t.Errorf("the group is at %d, want 7: a transaction without a member isn't fenced", at)
	}
	c, _ = beat(-1)
	code(t, "leave", c, 0)
	code(t, "one that left", commit(t, cl, topic, m, 9), kerr.UnknownMemberID.Code)
	code(t, "nobody, into an empty group", commit(t, cl, topic, nobody(m.group), 4), 0)
}
