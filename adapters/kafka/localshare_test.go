package kafka

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// shareMember is a member of a share group, by hand: one connection, one session.
type shareMember struct {
	t         *testing.T
	cl        *kgo.Client
	topic     topicInfo
	group, id string
	member    int32 // epoch of the membership
	session   int32 // epoch of the next request of the session
}

// shareGroup sets where a group begins and for how long its locks hold.
func shareGroup(t *testing.T, cl *kgo.Client, group string, configs map[string]string) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for name, value := range configs {
		kv := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		kv.Name, kv.Value = name, &value
		res.Configs = append(res.Configs, kv)
	}
	req.Resources = append(req.Resources, res)
	code(t, "configure the group", ask[*kmsg.IncrementalAlterConfigsResponse](t, cl, req).Resources[0].ErrorCode, 0)
}

// joinShare joins a share group and waits until it has partition 0.
func joinShare(t *testing.T, cl *kgo.Client, topic topicInfo, group, id string) *shareMember {
	t.Helper()
	m := &shareMember{t: t, cl: cl, topic: topic, group: group, id: id}
	eventually(t, "the partition is assigned", func() bool {
		req := kmsg.NewPtrShareGroupHeartbeatRequest()
		req.GroupID, req.MemberID, req.MemberEpoch = group, id, m.member
		if m.member == 0 {
			req.SubscribedTopicNames = []string{topic.name}
		}
		resp := ask[*kmsg.ShareGroupHeartbeatResponse](t, cl, req)
		if c := resp.ErrorCode; c == kerr.CoordinatorLoadInProgress.Code || c == kerr.CoordinatorNotAvailable.Code || c == kerr.NotCoordinator.Code {
			return false
		}
		code(t, "join", resp.ErrorCode, 0)
		m.member = resp.MemberEpoch
		return resp.Assignment != nil && len(resp.Assignment.TopicPartitions) > 0
	})
	return m
}

// fetch asks once for up to n records and returns the acquired ranges.
func (m *shareMember) fetch(n int) []kmsg.ShareFetchResponseTopicPartitionAcquiredRecord {
	m.t.Helper()
	req := kmsg.NewPtrShareFetchRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &m.group, &m.id, m.session
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.MaxRecords, req.BatchSize, req.ShareAcquireMode = 100, 1, 1<<20, int32(n), int32(n), 1
	if m.session == 0 {
		rt, rp := kmsg.NewShareFetchRequestTopic(), kmsg.NewShareFetchRequestTopicPartition()
		rt.TopicID, rp.PartitionMaxBytes = m.topic.id, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	resp := ask[*kmsg.ShareFetchResponse](m.t, m.cl.Broker(int(m.topic.leaders[0])), req)
	code(m.t, "fetch", resp.ErrorCode, 0)
	m.session++
	if len(resp.Topics) == 0 {
		return nil
	}
	p := resp.Topics[0].Partitions[0]
	code(m.t, "fetch of the partition", p.ErrorCode, 0)
	return p.AcquiredRecords
}

// take fetches until it has got something, and returns its first offset and count.
func (m *shareMember) take(n int) (offset int64, deliveries int) {
	m.t.Helper()
	eventually(m.t, "a record", func() bool {
		got := m.fetch(n)
		if len(got) > 0 {
			offset, deliveries = got[0].FirstOffset, int(got[0].DeliveryCount)
		}
		return len(got) > 0
	})
	return offset, deliveries
}

// ackAt acknowledges one offset in a session of that epoch, and returns the
// answer's code and the partition's.
func (m *shareMember) ackAt(session int32, offset int64, kind int8) (whole, partition int16) {
	m.t.Helper()
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &m.group, &m.id, session
	rt, rp, b := kmsg.NewShareAcknowledgeRequestTopic(), kmsg.NewShareAcknowledgeRequestTopicPartition(), kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
	b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = offset, offset, []int8{kind}
	rp.AcknowledgementBatches = append(rp.AcknowledgementBatches, b)
	rt.TopicID, rt.Partitions = m.topic.id, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp := ask[*kmsg.ShareAcknowledgeResponse](m.t, m.cl.Broker(int(m.topic.leaders[0])), req)
	if resp.ErrorCode != 0 || len(resp.Topics) == 0 {
		return resp.ErrorCode, -1
	}
	return 0, resp.Topics[0].Partitions[0].ErrorCode
}

// ack acknowledges one offset in the session and returns the code for it.
func (m *shareMember) ack(offset int64, kind int8) int16 {
	m.t.Helper()
	whole, partition := m.ackAt(m.session, offset, kind)
	code(m.t, "acknowledge", whole, 0)
	m.session++
	return partition
}

// shareOf makes a topic with n records and a share group that begins with them.
func shareOf(t *testing.T, cl *kgo.Client, n int, lock time.Duration) topicInfo {
	t.Helper()
	topic := rawTopic(t, cl)
	shareGroup(t, cl, topic.name, map[string]string{cfgReset: "earliest", cfgLock: strconv.FormatInt(lock.Milliseconds(), 10)})
	for range n {
		code(t, "produce", produce(t, cl, topic, "", batchOf(producerID{-1, -1}, -1, false, "v")).ErrorCode, 0)
	}
	return topic
}

// What a late ack does (KAF-F-46, KAF-F-47).
func TestLocalStaleShareAck(t *testing.T) {
	k := local(t)
	one, two := raw(t, k), raw(t, k)
	topic := shareOf(t, one, 1, time.Second)
	a := joinShare(t, one, topic, topic.name, "a-"+topic.name)
	if at, n := a.take(1); at != 0 || n != 1 {
		t.Fatalf("offset %d, delivery %d", at, n)
	}
	// The lock ends, and the same member gets the record again: what it says then
	// of the first delivery settles the second.
	if at, n := a.take(1); at != 0 || n != 2 {
		t.Fatalf("offset %d, delivery %d after the lock", at, n)
	}
	code(t, "the same member's ack, of whichever delivery", a.ack(0, ackAccept), 0)
	code(t, "produce", produce(t, one, topic, "", batchOf(producerID{-1, -1}, -1, false, "v")).ErrorCode, 0)
	if at, _ := a.take(1); at != 1 {
		t.Fatalf("offset %d after the ack, want 1", at)
	}
	// The lock ends, and another member gets it.
	b := joinShare(t, two, topic, topic.name, "b-"+topic.name)
	if at, n := b.take(1); at != 1 || n != 2 {
		t.Fatalf("offset %d, delivery %d to the other", at, n)
	}
	code(t, "an ack of what another holds", a.ack(1, ackAccept), kerr.InvalidRecordState.Code)
	code(t, "its holder's ack", b.ack(1, ackAccept), 0)
	// Now the group begins behind it, and an ack of it is a success that means
	// nothing.
	code(t, "an ack below the group's start", a.ack(1, ackAccept), 0)
	code(t, "a release below the group's start", a.ack(0, ackRelease), 0)
}

// What the broker says to an ack that it has had (KAF-F-48).
func TestLocalRepeatedShareAck(t *testing.T) {
	cl := raw(t, local(t))
	topic := shareOf(t, cl, 3, 20*time.Second)
	m := joinShare(t, cl, topic, topic.name, "a-"+topic.name)
	for range 3 {
		m.take(1)
	}
	code(t, "ack of the second", m.ack(1, ackAccept), 0)
	code(t, "again, with the next epoch of the session", m.ack(1, ackAccept), kerr.InvalidRecordState.Code)
	whole, _ := m.ackAt(m.session-1, 1, ackAccept)
	code(t, "again, with the session's old epoch", whole, kerr.InvalidShareSessionEpoch.Code)
	// A new session of the member over the same connection gives nothing back.
	m.session = 0
	if got := m.fetch(1); len(got) > 0 {
		t.Errorf("offset %d came to the new session", got[0].FirstOffset)
	}
	code(t, "again, in a new session", m.ack(1, ackAccept), kerr.InvalidRecordState.Code)
	code(t, "ack of the first", m.ack(0, ackAccept), 0)
	code(t, "again, below the group's start now", m.ack(0, ackAccept), 0)
	code(t, "the second again, which was refused before", m.ack(1, ackAccept), 0)
}

// A record that was released at its last delivery comes no more (KAF-F-42).
func TestLocalShareLimit(t *testing.T) {
	cl := raw(t, local(t))
	topic := shareOf(t, cl, 2, 20*time.Second)
	m := joinShare(t, cl, topic, topic.name, "a-"+topic.name)
	for want := 1; want <= 5; want++ {
		if at, n := m.take(1); at != 0 || n != want {
			t.Fatalf("offset %d, delivery %d; want 0, %d", at, n, want)
		}
		code(t, "release", m.ack(0, ackRelease), 0)
	}
	if at, n := m.take(1); at != 1 || n != 1 {
		t.Errorf("after five releases of the first comes offset %d, delivery %d; want 1, 1", at, n)
	}
}

// Where a group begins by default (KAF-F-44), and what the end of a connection
// gives back (KAF-F-50).
func TestLocalShareBeginAndEnd(t *testing.T) {
	k := local(t)
	one := raw(t, k)
	topic := rawTopic(t, one)
	shareGroup(t, one, topic.name, map[string]string{cfgLock: "20000"})
	code(t, "produce", produce(t, one, topic, "", batchOf(producerID{-1, -1}, -1, false, "before")).ErrorCode, 0)
	a := joinShare(t, one, topic, topic.name, "a-"+topic.name)
	if got := a.fetch(1); len(got) > 0 {
		t.Errorf("offset %d came, which was there before the group", got[0].FirstOffset)
	}
	code(t, "produce", produce(t, one, topic, "", batchOf(producerID{-1, -1}, -1, false, "after")).ErrorCode, 0)
	if at, n := a.take(1); at != 1 || n != 1 {
		t.Fatalf("offset %d, delivery %d", at, n)
	}
	two := raw(t, k)
	b := joinShare(t, two, topic, topic.name, "b-"+topic.name)
	one.Close() // the lock would hold for 20 s
	if at, n := b.take(1); at != 1 || n != 2 {
		t.Errorf("offset %d, delivery %d after its holder's connection ended; want 1, 2", at, n)
	}
}

// A delivery count is written when the record is released, not when it is
// acquired: what was out when the broker was killed isn't counted (KAF-F-49).
func TestLocalShareCountOverKill(t *testing.T) {
	k := local(t)
	one := raw(t, k)
	topic := shareOf(t, one, 2, 20*time.Second)
	a := joinShare(t, one, topic, topic.name, "a-"+topic.name)
	a.take(1)
	code(t, "release", a.ack(0, ackRelease), 0)
	if at, n := a.take(1); at != 0 || n != 2 {
		t.Fatalf("offset %d, delivery %d", at, n)
	}
	if at, n := a.take(1); at != 1 || n != 1 {
		t.Fatalf("offset %d, delivery %d", at, n)
	}
	if err := k.Kill(context.Background()); err != nil {
		t.Fatal(err)
	}
	one.Close()
	two := raw(t, k)
	b := joinShare(t, two, topic, topic.name, "b-"+topic.name)
	counts := map[int64]int{}
	for len(counts) < 2 {
		at, n := b.take(1)
		counts[at] = n
	}
	// The first came for the third time, the second for the second.
	if counts[0] != 2 || counts[1] != 1 {
		t.Errorf("counts %v after the kill, want one less than the truth: 0:2, 1:1", counts)
	}
}
