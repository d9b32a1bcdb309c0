package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ackRange is what goes over the wire.
type ackRange struct {
	partition   int32
	first, last int64
	kind        int8
}

var errNoSession = errors.New("the share session is lost")

// rangesOf joins sorted acks into ranges.
func rangesOf(acks []*ack) []ackRange {
	var out []ackRange
	for _, x := range acks {
		rec := x.a.rec
		if n := len(out); n > 0 {
			if l := &out[n-1]; l.partition == rec.Partition && l.kind == x.kind && l.last+1 == rec.Offset {
				l.last++
				continue
			}
		}
		out = append(out, ackRange{rec.Partition, rec.Offset, rec.Offset, x.kind})
	}
	return out
}

// acknowledge sends one ShareAcknowledge. Ranges are sorted by partition and
// offset. It isn't tried again: a second try of an ack that took effect looks
// like a stale one. turn is held.
func (s *shareSession) acknowledge(ctx context.Context, ranges []ackRange) (*kmsg.ShareAcknowledgeResponse, error) {
	if s.epoch == 0 {
		return nil, errNoSession
	}
	req := s.ackRequest(s.epoch, ranges)
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	kresp, err := s.r.cl.Broker(int(s.broker)).Request(ctx, req)
	if err != nil {
		s.reset() // the broker may have counted the request or not
		return nil, err
	}
	resp := kresp.(*kmsg.ShareAcknowledgeResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		s.reset()
		return nil, err
	}
	s.next()
	return resp, nil
}

func (s *shareSession) ackRequest(epoch int32, ranges []ackRange) *kmsg.ShareAcknowledgeRequest {
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &s.r.group, &s.r.member, epoch
	t := kmsg.NewShareAcknowledgeRequestTopic()
	t.TopicID = s.r.id
	for _, x := range ranges {
		if n := len(t.Partitions); n == 0 || t.Partitions[n-1].Partition != x.partition {
			p := kmsg.NewShareAcknowledgeRequestTopicPartition()
			p.Partition = x.partition
			t.Partitions = append(t.Partitions, p)
		}
		b := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
		b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = x.first, x.last, []int8{x.kind}
		p := &t.Partitions[len(t.Partitions)-1]
		p.AcknowledgementBatches = append(p.AcknowledgementBatches, b)
		req.IsRenewAck = req.IsRenewAck || x.kind == ackRenew
	}
	if len(t.Partitions) > 0 {
		req.Topics = append(req.Topics, t)
	}
	return req
}

// close ends the session at the broker, which releases what is held.
func (s *shareSession) close(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	if s.epoch == 0 {
		return nil
	}
	kresp, err := s.r.cl.Broker(int(s.broker)).Request(ctx, s.ackRequest(-1, nil))
	s.reset()
	if err != nil {
		return err
	}
	err = kerr.ErrorForCode(kresp.(*kmsg.ShareAcknowledgeResponse).ErrorCode)
	if errors.Is(err, kerr.ShareSessionNotFound) {
		return nil
	}
	return err
}
