package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// opened is a transaction with one record, open under an identity that is known.
func opened(t *testing.T, s *stage, topic string) (*kgo.Client, producerID) {
	t.Helper()
	cl := s.client(t, append(versionsFor(s.raises), kgo.TransactionalID("raw-"+topic))...)
	if _, _, err := cl.ProducerID(ctxOf(t, mustCome)); err != nil {
		t.Fatal(err)
	}
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctxOf(t, mustCome), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	id, epoch, err := cl.ProducerID(ctxOf(t, mustCome))
	if err != nil {
		t.Fatal(err)
	}
	return cl, producerID{id, epoch}
}

// The request to end a transaction, repeated under its identity (KAF-F-301).
func TestTxnEndAgain(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		for _, commit := range []bool{true, false} {
			topic := s.topic(t, 1)
			cl, p := opened(t, s, topic)
			if err := cl.EndTransaction(ctxOf(t, mustCome), kgo.TransactionEndTry(commit)); err != nil {
				t.Fatal(err)
			}
			end := func(commit bool) (code int16) {
				eventually(t, "the markers are written", func() bool {
					code = endTxn(t, cl, "raw-"+topic, p, commit).ErrorCode
					return code != kerr.ConcurrentTransactions.Code
				})
				return code
			}
			code(t, "the same again", end(commit), 0)
			code(t, "the opposite", end(!commit), kerr.InvalidTxnState.Code)
			code(t, "the same again", end(commit), 0)
		}
	})
}

// A plain commit that is stored while an offset of a transaction is pending wins over
// it (KAF-F-300).
func TestTxnOffsetBesidePlain(t *testing.T) {
	onStages(t, func(t *testing.T, s *stage) {
		if !s.real {
			t.Skip("the model lets the transaction win")
		}
		topic := s.topic(t, 1)
		group := "g-" + topic
		cl, p := opened(t, s, topic)
		if !s.raises {
			req := kmsg.NewPtrAddOffsetsToTxnRequest()
			req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = "raw-"+topic, p.id, p.epoch, group
			code(t, "add", ask[*kmsg.AddOffsetsToTxnResponse](t, cl, req).ErrorCode, 0)
		}
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group, req.Generation = "raw-"+topic, p.id, p.epoch, group, -1
		rt, rp := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rt.Topic, rp.Offset = topic, 1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		code(t, "offset", ask[*kmsg.TxnOffsetCommitResponse](t, cl, req).Topics[0].Partitions[0].ErrorCode, 0)
		var plain kadm.Offsets
		plain.AddOffset(topic, 0, 0, -1)
		if err := kadm.NewClient(cl).CommitAllOffsets(ctxOf(t, mustCome), group, plain); err != nil {
			t.Fatal(err)
		}
		code(t, "commit", endTxn(t, cl, "raw-"+topic, p, true).ErrorCode, 0)
		s.committed(t, topic, 1) // so the markers are written, or about to be
		adm := kadm.NewClient(cl)
		eventually(t, "the transaction of the group has ended", func() bool {
			os, err := adm.ListCommittedOffsets(ctxOf(t, mustCome), "__consumer_offsets")
			if err != nil || os.Error() != nil {
				return false
			}
			ends, err := adm.ListEndOffsets(ctxOf(t, mustCome), "__consumer_offsets")
			a, _ := os.Lookup("__consumer_offsets", 0)
			b, _ := ends.Lookup("__consumer_offsets", 0)
			return err == nil && a.Offset == b.Offset
		})
		if at := s.position(t, topic, group, 0); at != 0 {
			t.Errorf("the position is %d, want the plain 0", at)
		}
	})
}
