package kafka

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"
)

// What a broker says to a batch that it has had, and to a gap (KAF-F-03, KAF-F-04).
func TestLocalRepeatedBatch(t *testing.T) {
	cl := raw(t, local(t))
	topic, p := rawTopic(t, cl), initProducer(t, cl, "")
	for seq := range int32(7) {
		if r := produce(t, cl, topic, "", batchOf(p, seq, false, "v")); r.ErrorCode != 0 || r.BaseOffset != int64(seq) {
			t.Fatalf("batch %d: %+v", seq, r)
		}
	}
	for seq := int32(2); seq < 7; seq++ {
		if r := produce(t, cl, topic, "", batchOf(p, seq, false, "v")); r.ErrorCode != 0 || r.BaseOffset != int64(seq) {
			t.Errorf("one of the last five, %d, again: code %d, offset %d", seq, r.ErrorCode, r.BaseOffset)
		}
	}
	code(t, "a batch before the last five, again", produce(t, cl, topic, "", batchOf(p, 1, false, "v")).ErrorCode, kerr.OutOfOrderSequenceNumber.Code)
	code(t, "a gap", produce(t, cl, topic, "", batchOf(p, 9, false, "v")).ErrorCode, kerr.OutOfOrderSequenceNumber.Code)
	if n := logEnd(t, cl, topic.name); n != 7 {
		t.Errorf("%d records, want 7", n)
	}
	// The broker looks at the numbers alone.
	if r := produce(t, cl, topic, "", batchOf(p, 6, false, "another body")); r.ErrorCode != 0 || r.BaseOffset != 6 {
		t.Errorf("another body under a known number: %+v", r)
	}
}

// A broker that forgot a producer stores again what it has had (KAF-F-07).
func TestLocalForgottenProducer(t *testing.T) {
	cl := raw(t, local(t))
	topic, p := rawTopic(t, cl), initProducer(t, cl, "")
	produce(t, cl, topic, "", batchOf(p, 0, false, "v"))
	expire := func(op kadm.IncrementalOp, ms string) {
		adm := kadm.NewClient(cl)
		rs, err := adm.AlterBrokerConfigs(ctxOf(t, 10*time.Second), []kadm.AlterConfig{{Op: op, Name: "producer.id.expiration.ms", Value: kadm.StringPtr(ms)}})
		if err != nil || rs[0].Err != nil {
			t.Fatal(err, rs)
		}
	}
	expire(kadm.SetConfig, "500")
	defer expire(kadm.DeleteConfig, "")
	eventually(t, "the producer is forgotten", func() bool {
		req := kmsg.NewPtrDescribeProducersRequest()
		rt := kmsg.NewDescribeProducersRequestTopic()
		rt.Topic, rt.Partitions = topic.name, []int32{0}
		req.Topics = append(req.Topics, rt)
		resp := ask[*kmsg.DescribeProducersResponse](t, cl.Broker(int(topic.leaders[0])), req)
		return len(resp.Topics[0].Partitions[0].ActiveProducers) == 0
	})
	if r := produce(t, cl, topic, "", batchOf(p, 0, false, "v")); r.ErrorCode != 0 || r.BaseOffset != 1 {
		t.Errorf("the same batch after the producer was forgotten: code %d, offset %d, want 0, 1", r.ErrorCode, r.BaseOffset)
	}
}

// KAF-F-08.
func TestLocalTransactionTimeout(t *testing.T) {
	cl := raw(t, local(t))
	code(t, "15 min", askInit(t, cl, "timeout", 15*time.Minute).ErrorCode, 0)
	code(t, "over 15 min", askInit(t, cl, "timeout", 15*time.Minute+time.Millisecond).ErrorCode, kerr.InvalidTransactionTimeout.Code)
}

// The limit is the batch's (KAF-F-12).
func TestLocalBatchLimit(t *testing.T) {
	cl := raw(t, local(t))
	topic, p := rawTopic(t, cl), producerID{-1, -1}
	full := strings.Repeat("x", 1<<20-100)
	full += full[:defaultBatchMax-len(batchOf(p, -1, false, full))]
	if n := len(batchOf(p, -1, false, full)); n != defaultBatchMax {
		t.Fatalf("a batch of %d", n)
	}
	code(t, "1,048,588 bytes", produce(t, cl, topic, "", batchOf(p, -1, false, full)).ErrorCode, 0)
	code(t, "one more", produce(t, cl, topic, "", batchOf(p, -1, false, full+"x")).ErrorCode, kerr.MessageTooLarge.Code)
}

// Defaults by which guarantees end (KAF-F-07, 08, 11, 12, 37, 41, 42, 43, 44).
func TestLocalDefaults(t *testing.T) {
	cl := raw(t, local(t))
	rs, err := kadm.NewClient(cl).DescribeBrokerConfigs(ctxOf(t, 10*time.Second), 0)
	if err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{}
	for _, kv := range rs[0].Configs {
		for _, s := range kv.Synonyms {
			if s.Source == kmsg.ConfigSourceDefaultConfig && s.Value != nil {
				defaults[kv.Key] = *s.Value
			}
		}
	}
	for name, want := range map[string]string{
		"log.flush.interval.messages":             "9223372036854775807",
		"min.insync.replicas":                     "1",
		"message.max.bytes":                       "1048588",
		"producer.id.expiration.ms":               "86400000",
		"transactional.id.expiration.ms":          "604800000",
		"transaction.max.timeout.ms":              "900000",
		"offsets.retention.minutes":               "10080",
		"group.share.record.lock.duration.ms":     "30000",
		"group.share.min.record.lock.duration.ms": "15000",
		"group.share.max.record.lock.duration.ms": "60000",
		"group.share.delivery.count.limit":        "5",
		"group.share.partition.max.record.locks":  "2000",
		"group.share.max.size":                    "200",
	} {
		if got, ok := defaults[name]; got != want {
			t.Errorf("%s: %q (%v), want %s", name, got, ok, want)
		}
	}
}

// A publish whose answers are all lost is stored, and its client can't know
// (KAF-F-10).
func TestLocalLostAnswersOfPublish(t *testing.T) {
	k := local(t)
	t.Setenv("ONCELINE_KAFKA", "")
	conn := realConn(t)
	e := realEntity(t, conn, broker.Entity{Partitions: 1})
	p := openPublisher(t, conn, e.Topic)
	publish(t, p, messages(1, 0)...)
	lost := k.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: e.Topic, Cut: true})
	ms := messages(1, 1)
	rs, err := p.Publish(ctxOf(t, 2*time.Second), ms...)
	if err == nil || rs[0].Verdict != broker.Unknown {
		t.Fatalf("with every answer lost: %v (%v)", rs[0].Verdict, err)
	}
	if lost.Applied() < 2 {
		t.Errorf("the client sent it %d times, want some more", lost.Applied())
	}
	lost.Remove()
	var cl *kgo.Client
	conn.As(&cl)
	if n := logEnd(t, cl, e.Topic); n != 2 {
		t.Errorf("%d records, want 2: the one whose outcome is unknown is stored, once", n)
	}
	// Asked again by the same publisher it is the same record.
	if rs := publish(t, p, ms...); rs[0].Verdict != broker.Stored || rs[0].Position.Offset != 1 {
		t.Errorf("again: %+v", rs[0])
	}
	if n := logEnd(t, cl, e.Topic); n != 2 {
		t.Errorf("%d records after the retry, want 2", n)
	}
}

// What becomes of a commit whose answer is lost (KAF-F-23).
func TestLocalLostAnswerOfCommit(t *testing.T) {
	k := local(t)
	topic := rawTopic(t, raw(t, k))
	committed := func() int64 {
		req := kmsg.NewPtrListOffsetsRequest()
		req.IsolationLevel = 1
		rt, rp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
		rt.Topic, rp.Timestamp = topic.name, -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		return ask[*kmsg.ListOffsetsResponse](t, raw(t, k), req).Topics[0].Partitions[0].Offset
	}
	transact := func(times int, within time.Duration) (*localstack.Injection, error) {
		txn := topic.name + "-" + within.String()
		cl := raw(t, k, kgo.TransactionalID(txn))
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(ctxOf(t, 10*time.Second), &kgo.Record{Topic: topic.name, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		lost := k.Inject(localstack.Fault{API: "EndTxn", Kind: localstack.LoseResponse, Match: txn, Times: times, Cut: true})
		t.Cleanup(lost.Remove)
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		return lost, cl.EndTransaction(ctx, kgo.TryCommit)
	}
	lost, err := transact(1, 10*time.Second)
	if err != nil || lost.Applied() != 1 {
		t.Errorf("one lost answer: %v, %d applied; the client's repeat is answered as a success", err, lost.Applied())
	}
	eventually(t, "the transaction is committed", func() bool { return committed() == 2 }) // and its marker
	_, err = transact(0, 2*time.Second)
	t.Logf("every answer lost: %v", err)
	if err == nil {
		t.Error("every answer lost, and the client says that it committed")
	}
	eventually(t, "the transaction that its client gave up is committed", func() bool { return committed() == 4 })
}

// How a fenced producer learns of it (KAF-F-27, KAF-F-28).
func TestLocalFencedProducer(t *testing.T) {
	cl := raw(t, local(t))
	topic := rawTopic(t, cl)
	txn := topic.name
	old := initProducer(t, cl, txn)
	if r := produce(t, cl, topic, txn, batchOf(old, 0, true, "open")); r.ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	now := initProducer(t, cl, txn)
	if now.id != old.id || now.epoch <= old.epoch {
		t.Errorf("%+v after %+v", now, old)
	}
	code(t, "the old one's batch", produce(t, cl, topic, txn, batchOf(old, 1, true, "late")).ErrorCode, kerr.InvalidProducerEpoch.Code)
	code(t, "the old one's commit", endTxn(t, cl, txn, old, true).ErrorCode, kerr.ProducerFenced.Code)
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &txn, 60_000, old.id, old.epoch
	code(t, "the old one asks for a new epoch", ask[*kmsg.InitProducerIDResponse](t, cl, req).ErrorCode, kerr.ProducerFenced.Code)
	// What it had open was aborted.
	reader := raw(t, local(t), kgo.ConsumeTopics(topic.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if r := produce(t, cl, topic, txn, batchOf(now, 0, true, "new")); r.ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	code(t, "the new one's commit", endTxn(t, cl, txn, now, true).ErrorCode, 0)
	if rs := reader.PollRecords(ctxOf(t, 10*time.Second), 10).Records(); len(rs) != 1 || string(rs[0].Value) != "new" {
		t.Errorf("committed are %d records", len(rs))
	}
}

func endTxn(t *testing.T, cl kmsg.Requestor, txn string, p producerID, commit bool) *kmsg.EndTxnResponse {
	t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = txn, p.id, p.epoch, commit
	return ask[*kmsg.EndTxnResponse](t, cl, req)
}

// A batch of a transaction that was aborted comes late (KAF-F-18, KAF-F-19). With
// transaction.version 2 it is refused by its epoch; before, a transaction that the
// producer has opened since takes it in.
func TestLocalLateWrite(t *testing.T) {
	t.Run("2", func(t *testing.T) {
		cl := raw(t, local(t))
		topic := rawTopic(t, cl)
		txn := topic.name
		p := initProducer(t, cl, txn)
		produce(t, cl, topic, txn, batchOf(p, 0, true, "aborted"))
		end := endTxn(t, cl, txn, p, false)
		code(t, "abort", end.ErrorCode, 0)
		next := producerID{end.ProducerID, end.ProducerEpoch}
		if next.id != p.id || next.epoch != p.epoch+1 {
			t.Errorf("after %+v comes %+v, want the next epoch", p, next)
		}
		eventually(t, "the abort's marker", func() bool { return logEnd(t, cl, topic.name) == 2 })
		code(t, "the next transaction", produceSoon(t, cl, topic, txn, batchOf(next, 0, true, "next")).ErrorCode, 0)
		code(t, "late", produce(t, cl, topic, txn, batchOf(p, 1, true, "late")).ErrorCode, kerr.InvalidProducerEpoch.Code)
		code(t, "commit", endTxn(t, cl, txn, next, true).ErrorCode, 0)
	})
	t.Run("1", func(t *testing.T) {
		local(t) // or skip
		k := startLocal(t, localstack.KafkaTransactionVersion(1))
		t.Cleanup(func() {
			if err := k.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		old := kversion.V3_9_0()
		cl := raw(t, k, kgo.MaxVersions(old))
		topic := rawTopic(t, cl)
		txn := topic.name
		add := func(p producerID) {
			req := kmsg.NewPtrAddPartitionsToTxnRequest()
			req.TransactionalID, req.ProducerID, req.ProducerEpoch = txn, p.id, p.epoch
			rt := kmsg.NewAddPartitionsToTxnRequestTopic()
			rt.Topic, rt.Partitions = topic.name, []int32{0}
			req.Topics = append(req.Topics, rt)
			eventually(t, "the partition is added", func() bool {
				resp := ask[*kmsg.AddPartitionsToTxnResponse](t, cl, req)
				c := resp.Topics[0].Partitions[0].ErrorCode
				if c != 0 && c != kerr.ConcurrentTransactions.Code {
					t.Fatalf("add: %v", kerr.ErrorForCode(c))
				}
				return c == 0
			})
		}
		p := initProducer(t, cl, txn)
		add(p)
		code(t, "the first", produce(t, cl, topic, txn, batchOf(p, 0, true, "aborted")).ErrorCode, 0)
		code(t, "abort", endTxn(t, cl, txn, p, false).ErrorCode, 0)
		eventually(t, "the abort's marker", func() bool { return logEnd(t, cl, topic.name) == 2 })
		var late int16
		eventually(t, "the leader has asked the coordinator", func() bool {
			late = produce(t, cl, topic, txn, batchOf(p, 1, true, "late")).ErrorCode
			return late != kerr.NotEnoughReplicas.Code
		})
		code(t, "late, while no transaction is open", late, kerr.TransactionAbortable.Code)
		add(p)
		code(t, "late, in the next transaction", produce(t, cl, topic, txn, batchOf(p, 1, true, "late")).ErrorCode, 0)
		code(t, "commit", endTxn(t, cl, txn, p, true).ErrorCode, 0)
		reader := raw(t, k, kgo.ConsumeTopics(topic.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		if rs := reader.PollRecords(ctxOf(t, 10*time.Second), 10).Records(); len(rs) != 1 || string(rs[0].Value) != "late" {
			t.Errorf("committed are %d records, want the late one", len(rs))
		}
	})
}

// produceSoon produces when the transaction before is over.
func produceSoon(t *testing.T, cl *kgo.Client, topic topicInfo, txn string, batch []byte) (r kmsg.ProduceResponseTopicPartition) {
	t.Helper()
	eventually(t, "the transaction before is over", func() bool {
		r = produce(t, cl, topic, txn, batch)
		return r.ErrorCode != kerr.ConcurrentTransactions.Code
	})
	return r
}

// Two-phase commit isn't there (KAF-F-26); what is on in a new cluster (KAF-F-18,
// 39, 40).
func TestLocalFeatures(t *testing.T) {
	cl := raw(t, local(t))
	resp := ask[*kmsg.ApiVersionsResponse](t, cl, kmsg.NewPtrApiVersionsRequest())
	for _, k := range resp.ApiKeys {
		if k.ApiKey == int16(kmsg.InitProducerID) && k.MaxVersion > 5 {
			t.Errorf("InitProducerId up to version %d: with two-phase commit", k.MaxVersion)
		}
	}
	on := map[string]int16{}
	for _, f := range resp.FinalizedFeatures {
		on[f.Name] = f.MaxVersionLevel
	}
	for name, want := range map[string]int16{"transaction.version": 2, "share.version": 1, "eligible.leader.replicas.version": 1} {
		if on[name] != want {
			t.Errorf("%s is %d, want %d", name, on[name], want)
		}
	}
	group := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res, kv, limit := kmsg.NewIncrementalAlterConfigsRequestResource(), kmsg.NewIncrementalAlterConfigsRequestResourceConfig(), "7"
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, "some-share-group"
	kv.Name, kv.Value = cfgCount, &limit
	res.Configs = append(res.Configs, kv)
	group.Resources = append(group.Resources, res)
	got := kerr.ErrorForCode(ask[*kmsg.IncrementalAlterConfigsResponse](t, cl, group).Resources[0].ErrorCode)
	if !errors.Is(got, kerr.InvalidConfig) {
		t.Errorf("a limit of deliveries for one group on 4.2: %v, want %v", got, kerr.InvalidConfig)
	}
}
