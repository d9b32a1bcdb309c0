package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/onceline/onceline/internal/sidebyside"
	"github.com/onceline/onceline/localstack"
)

// The tests named TestLocal ask Apache Kafka itself what docs/facts.md says of it;
// they and those named TestReal run with ONCELINE_LOCAL=1 and need Java and, at
// the first time, Maven. The server is one node, shared and ended with the tests.

func TestMain(m *testing.M) {
	runIfMember()
	sidebyside.Tests(4)
	goleak.VerifyTestMain(withServer{m})
}

type withServer struct{ m *testing.M }

func (w withServer) Run() int {
	code := w.m.Run()
	server.mu.Lock()
	defer server.mu.Unlock()
	for _, k := range []*localstack.KafkaServer{server.kafka, oldServer.kafka} {
		if k == nil {
			continue
		}
		if err := k.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

var server struct {
	mu    sync.Mutex
	kafka *localstack.KafkaServer
}

// local returns the server that the tests share.
func local(t testing.TB) *localstack.KafkaServer {
	t.Helper()
	if os.Getenv("ONCELINE_LOCAL") != "1" {
		t.Skip("runs Apache Kafka: needs ONCELINE_LOCAL=1")
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if server.kafka == nil {
		server.kafka = startLocal(t, localstack.KafkaConfig(map[string]string{
			"producer.id.expiration.check.interval.ms": "250",
			"group.share.record.lock.duration.ms":      "3000",
		}))
		// The first question makes the topic of offsets, which takes a while.
		cl := raw(t, server.kafka)
		eventually(t, "a group coordinator", func() bool {
			return kadm.NewClient(cl).FindGroupCoordinators(ctxOf(t, 5*time.Second), "warm").Error() == nil
		})
	}
	return server.kafka
}

func startLocal(t testing.TB, options ...localstack.KafkaServerOption) *localstack.KafkaServer {
	t.Helper()
	k, err := localstack.StartKafkaServer(ctxOf(t, 5*time.Minute), append(options, localstack.Progress(func(s string) {
		fmt.Fprintln(os.Stderr, s) // the server outlives the test that started it
	}))...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func seedsOf(k *localstack.KafkaServer) kgo.Opt {
	return kgo.SeedBrokers(strings.Split(k.Address(), ",")...)
}

// raw is a client that sends requests as they are given.
func raw(t testing.TB, k *localstack.KafkaServer, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{seedsOf(k), kgo.DisableClientMetrics(), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	if err := cl.Ping(ctxOf(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	return cl
}

// ask sends a request and fails the test if there is no answer.
func ask[R kmsg.Response](t testing.TB, to kmsg.Requestor, req kmsg.Request) R {
	t.Helper()
	resp, err := to.Request(ctxOf(t, 15*time.Second), req)
	if err != nil {
		t.Fatalf("%s: %v", kmsg.NameForKey(req.Key()), err)
	}
	return resp.(R)
}

// code fails the test unless an answer's error code is the one that is wanted.
func code(t testing.TB, what string, got, want int16) {
	t.Helper()
	if got != want {
		t.Errorf("%s: code %d, want %d", what, got, want)
	}
}

// rawTopic makes a topic of one partition with a name of its own.
func rawTopic(t testing.TB, cl *kgo.Client) topicInfo {
	t.Helper()
	name := fmt.Sprintf("t-%d", time.Now().UnixNano())
	if _, err := kadm.NewClient(cl).CreateTopic(ctxOf(t, 10*time.Second), 1, -1, nil, name); err != nil {
		t.Fatal(err)
	}
	var info topicInfo
	eventually(t, "the topic's leader", func() (ok bool) {
		var err error
		info, err = describe(ctxOf(t, 5*time.Second), cl, name)
		if err != nil || !info.led() {
			return false
		}
		// The leader itself is the last to know.
		os, err := kadm.NewClient(cl).ListEndOffsets(ctxOf(t, 5*time.Second), name)
		return err == nil && os.Error() == nil
	})
	return info
}

// logEnd is the offset behind the last record of partition 0.
func logEnd(t testing.TB, cl *kgo.Client, topic string) int64 {
	t.Helper()
	os, err := kadm.NewClient(cl).ListEndOffsets(ctxOf(t, 10*time.Second), topic)
	if err != nil {
		t.Fatal(err)
	}
	o, ok := os.Lookup(topic, 0)
	if !ok || o.Err != nil {
		t.Fatalf("end of %s: %v", topic, o.Err)
	}
	return o.Offset
}

// producerID is an identity that the broker gave out.
type producerID struct {
	id    int64
	epoch int16
}

// initProducer asks for an identity; txn is "" for one without transactions.
func initProducer(t testing.TB, cl kmsg.Requestor, txn string) producerID {
	t.Helper()
	resp := askInit(t, cl, txn, time.Minute)
	code(t, "InitProducerId", resp.ErrorCode, 0)
	return producerID{resp.ProducerID, resp.ProducerEpoch}
}

func askInit(t testing.TB, cl kmsg.Requestor, txn string, timeout time.Duration) *kmsg.InitProducerIDResponse {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	if txn != "" {
		req.TransactionalID, req.TransactionTimeoutMillis = &txn, int32(timeout.Milliseconds())
	}
	var resp *kmsg.InitProducerIDResponse
	eventually(t, "a transaction coordinator", func() bool {
		resp = ask[*kmsg.InitProducerIDResponse](t, cl, req)
		return resp.ErrorCode != 14 && resp.ErrorCode != 15 && resp.ErrorCode != 16 && resp.ErrorCode != 51 // loading, or the last transaction is being ended
	})
	return resp
}

// produce sends one batch to partition 0 and returns the answer for it.
func produce(t testing.TB, cl *kgo.Client, topic topicInfo, txn string, batch []byte) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	if txn != "" {
		req.TransactionID = &txn
	}
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic.name, topic.id
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = batch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp := ask[*kmsg.ProduceResponse](t, cl.Broker(int(topic.leaders[0])), req)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("produce: %+v", resp)
	}
	return resp.Topics[0].Partitions[0]
}

// batchOf encodes a batch of the protocol, as a producer sends it.
func batchOf(p producerID, sequence int32, transactional bool, values ...string) []byte {
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(len(values) - 1), FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: p.id, ProducerEpoch: p.epoch, FirstSequence: sequence, NumRecords: int32(len(values))}
	if transactional {
		b.Attributes = 1 << 4
	}
	for i, v := range values {
		r := kmsg.Record{OffsetDelta: int32(i), Value: []byte(v)}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // the length itself is one byte as long as it is zero
		b.Records = r.AppendTo(b.Records)
	}
	b.Length = int32(len(b.AppendTo(nil)) - 12) // without the first offset and the length
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}
