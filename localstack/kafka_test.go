package localstack_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func startKafka(t *testing.T, options ...localstack.KafkaOption) *localstack.Kafka {
	t.Helper()
	e, err := localstack.StartKafka(t.Context(), append([]localstack.KafkaOption{localstack.KafkaTopics(1, "a", "b")}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, e)
	return e
}

func kafkaClient(t *testing.T, url string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	seeds := strings.Split(strings.TrimPrefix(url, "kafka://"), ",")
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }),
		kgo.MetadataMinAge(10 * time.Millisecond),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.CloseAllowingRebalance)
	return cl
}

func produce(t *testing.T, cl *kgo.Client, topic, value string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr()
}

// logEnd returns the number of records in partition 0 of a topic.
func logEnd(t *testing.T, cl *kgo.Client, topic string) int64 {
	t.Helper()
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	o, ok := ends.Lookup(topic, 0)
	if !ok || o.Err != nil {
		t.Fatalf("end of %s: %v %v", topic, ok, o.Err)
	}
	return o.Offset
}

func poll(t *testing.T, cl *kgo.Client, wait time.Duration) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	return cl.PollRecords(ctx, 1).Records()
}

func TestKafkaPublishFaults(t *testing.T) {
	e := startKafka(t)
	admin := kafkaClient(t, e.URL())
	// An idempotent producer retries: its own retry hides a single fault, and the
	// broker's sequences keep the record single.
	cl := kafkaClient(t, e.URL())
	expect := func(step, topic string, n int64) {
		t.Helper()
		if got := logEnd(t, admin, topic); got != n {
			t.Fatalf("%s: %d records in %s, want %d", step, got, topic, n)
		}
	}
	lost := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: "a", Times: 1, Cut: true})
	if err := produce(t, cl, "b", "other"); err != nil {
		t.Fatal(err)
	}
	counts(t, lost, 0, 0, 0)
	if err := produce(t, cl, "a", "1"); err != nil {
		t.Fatal(err)
	}
	counts(t, lost, 1, 1, 0)
	expect("response lost, idempotent", "a", 1)

	// Without idempotence the same retry makes a second record.
	plain := kafkaClient(t, e.URL(), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	lost = inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: "a", Times: 1, Cut: true})
	if err := produce(t, plain, "a", "2"); err != nil {
		t.Fatal(err)
	}
	counts(t, lost, 1, 1, 0)
	expect("response lost, plain", "a", 3)

	single := func() *kgo.Client {
		return kafkaClient(t, e.URL(), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.RecordRetries(0))
	}
	for _, f := range []localstack.Fault{
		{Op: localstack.Publish, Kind: localstack.LoseRequest, Cut: true, Match: "a", Times: 1},
		{Op: localstack.Publish, Kind: localstack.Cut, Match: "a", Times: 1},
		{Op: localstack.Publish, Kind: localstack.Error, Code: 29, Match: "a", Times: 1},
	} {
		i := inject(t, e, f)
		err := produce(t, single(), "a", "3")
		if f.Kind == localstack.Error && !errors.Is(err, kerr.TopicAuthorizationFailed) || err == nil {
			t.Fatalf("%s: %v", f.Kind, err)
		}
		counts(t, i, 1, 0, 0)
		expect(f.Kind.String(), "a", 3)
	}

	late := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.Delay, Delay: short, Times: 1})
	start := time.Now()
	if err := produce(t, single(), "a", "4"); err != nil || time.Since(start) < short {
		t.Fatalf("delayed: %v after %v", err, time.Since(start))
	}
	counts(t, late, 1, 1, 0)
	expect("delay", "a", 4)

	// acks=0 has no response to lose.
	none := kafkaClient(t, e.URL(), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.NoAck()))
	zero := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse})
	for range 3 {
		if err := produce(t, none, "b", "zero"); err != nil {
			t.Fatal(err)
		}
	}
	counts(t, zero, 0, 0, 0)
}

func TestKafkaGroupFaults(t *testing.T) {
	e := startKafka(t)
	cl := kafkaClient(t, e.URL(), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("a"), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fetch := inject(t, e, localstack.Fault{Op: localstack.Receive, Kind: localstack.LoseResponse, Match: "a", Times: 2, Cut: true})
	if err := produce(t, cl, "a", "1"); err != nil {
		t.Fatal(err)
	}
	rs := poll(t, cl, 5*time.Second)
	if len(rs) != 1 {
		t.Fatalf("%d records", len(rs))
	}
	counts(t, fetch, 2, 2, 0)

	adm := kadm.NewClient(kafkaClient(t, e.URL()))
	committed := func() int64 {
		offsets, err := adm.FetchOffsets(t.Context(), "g")
		if err != nil {
			t.Fatal(err)
		}
		o, _ := offsets.Lookup("a", 0)
		return o.At
	}
	refused := inject(t, e, localstack.Fault{Op: localstack.Settle, Kind: localstack.Error, Code: int(kerr.FencedInstanceID.Code), Match: "g", Times: 1})
	if err := cl.CommitRecords(t.Context(), rs...); !errors.Is(err, kerr.FencedInstanceID) {
		t.Fatalf("refused commit: %v", err)
	}
	counts(t, refused, 1, 0, 0)
	if n := committed(); n != 0 {
		t.Fatalf("committed %d after a refusal", n)
	}
	lost := inject(t, e, localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseResponse, Match: "g", Times: 1, Cut: true})
	if err := cl.CommitRecords(t.Context(), rs...); err != nil {
		t.Log("commit whose response was lost:", err)
	}
	counts(t, lost, 1, 1, 0)
	if n := committed(); n != 1 {
		t.Fatalf("committed %d after a lost response, want 1", n)
	}
}

// setEarliest makes a share group start at the beginning, over the wire.
func setEarliest(t *testing.T, cl *kgo.Client, group string) {
	t.Helper()
	earliest := "earliest"
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "share.auto.offset.reset", &earliest
	resource.Configs = append(resource.Configs, config)
	alter.Resources = append(alter.Resources, resource)
	if resp, err := alter.RequestWith(t.Context(), cl); err != nil || resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("group config over the wire: %+v %v", resp, err)
	}
}

func TestKafkaShareFaults(t *testing.T) {
	e := startKafka(t)
	cl := kafkaClient(t, e.URL())
	setEarliest(t, cl, "sg")
	for n := range 4 {
		if err := produce(t, cl, "a", fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	var results []error
	share := kafkaClient(t, e.URL(), kgo.ShareGroup("sg"), kgo.ConsumeTopics("a"), kgo.ShareMaxRecordsStrict(), kgo.ShareMaxRecords(1),
		kgo.ShareAckCallback(func(_ *kgo.Client, rs kgo.ShareAckResults) {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range rs {
				results = append(results, r.Err)
			}
		}))
	flush := func() []error {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := share.FlushAcks(ctx); err != nil {
			t.Log("flush:", err)
		}
		mu.Lock()
		defer mu.Unlock()
		r := results
		results = nil
		return r
	}
	got := func() *kgo.Record {
		t.Helper()
		rs := poll(t, share, 5*time.Second)
		if len(rs) != 1 {
			t.Fatalf("%d records", len(rs))
		}
		return rs[0]
	}

	got().Ack(kgo.AckAccept)
	if r := flush(); len(r) != 1 || r[0] != nil {
		t.Fatalf("ack: %v", r)
	}
	for match, code := range map[string]int16{"sg": kerr.InvalidRecordState.Code, "a": kerr.InvalidRecordState.Code} {
		refused := inject(t, e, localstack.Fault{Op: localstack.Settle, Kind: localstack.Error, Code: int(code), Match: match, Times: 1})
		got().Ack(kgo.AckAccept)
		if r := flush(); len(r) != 1 || !errors.Is(r[0], kerr.InvalidRecordState) {
			t.Fatalf("refused ack: %v", r)
		}
		counts(t, refused, 1, 0, 0)
	}
	lost := inject(t, e, localstack.Fault{Op: localstack.Settle, Kind: localstack.LoseResponse, Match: "sg", Times: 1, Cut: true})
	got().Ack(kgo.AckAccept)
	t.Log("ack response lost:", flush())
	if err := lost.WaitApplied(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts(t, lost, 1, 1, 0)
}

func TestKafkaGroupConfigSurvivesKill(t *testing.T) {
	e := startKafka(t)
	cl := kafkaClient(t, e.URL())
	if err := produce(t, cl, "a", "1"); err != nil {
		t.Fatal(err)
	}
	setEarliest(t, cl, "sg")
	if err := e.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	share := kafkaClient(t, e.URL(), kgo.ShareGroup("sg"), kgo.ConsumeTopics("a"), kgo.ShareMaxRecordsStrict())
	if rs := poll(t, share, 5*time.Second); len(rs) != 1 {
		t.Fatalf("%d records, want the one before the group", len(rs))
	}
}

func TestKafkaAdminFaults(t *testing.T) {
	e := startKafka(t)
	adm := kadm.NewClient(kafkaClient(t, e.URL()))
	i := inject(t, e, localstack.Fault{Op: localstack.Admin, Kind: localstack.Error, Code: int(kerr.PolicyViolation.Code), API: "CreateTopics", Match: "new"})
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, "new"); !errors.Is(err, kerr.PolicyViolation) {
		t.Fatalf("refused topic: %v", err)
	}
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, "newer"); err != nil {
		t.Fatal(err)
	}
	counts(t, i, 1, 0, 0)
	if err := e.Inject(localstack.Fault{Kind: localstack.Cut, API: "Nonsense"}).Err(); err == nil {
		t.Error("an unknown API was taken")
	}
}

func TestKafkaTransactionFault(t *testing.T) {
	e := startKafka(t)
	cl := kafkaClient(t, e.URL(), kgo.TransactionalID("tx"))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := produce(t, cl, "a", "1"); err != nil {
		t.Fatal(err)
	}
	lost := inject(t, e, localstack.Fault{Kind: localstack.LoseResponse, API: "EndTxn", Match: "tx", Times: 1, Cut: true})
	if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	counts(t, lost, 1, 1, 0)
}

func TestKafkaRestartAndKill(t *testing.T) {
	e := startKafka(t, localstack.KafkaBrokers(3))
	url := e.URL()
	if strings.Count(url, ",") != 2 {
		t.Fatalf("three brokers at %s", url)
	}
	cl := kafkaClient(t, url)
	for n, again := range []func(context.Context) error{e.Restart, e.Kill, e.Restart} {
		if err := produce(t, cl, "a", "x"); err != nil {
			t.Fatal(err)
		}
		if err := again(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := logEnd(t, cl, "a"); got != int64(n+1) {
			t.Fatalf("step %d: %d records, want %d", n, got, n+1)
		}
		if e.URL() != url || e.DirectURL() != url {
			t.Fatalf("address moved to %s", e.URL())
		}
	}
}

func TestKafkaFreeze(t *testing.T) {
	e := startKafka(t)
	cl := kafkaClient(t, e.URL())
	if err := produce(t, cl, "a", "1"); err != nil {
		t.Fatal(err)
	}
	e.Freeze()
	done := make(chan error, 1)
	go func() { done <- produce(t, cl, "a", "2") }()
	select {
	case err := <-done:
		t.Fatalf("produce through a frozen proxy: %v", err)
	case <-time.After(short):
	}
	e.Thaw()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := logEnd(t, cl, "a"); got != 2 {
		t.Fatalf("%d records, want 2", got)
	}
}

func TestKafkaUser(t *testing.T) {
	e := startKafka(t, localstack.KafkaUser("me", "secret"), localstack.KafkaSyncWrites(), localstack.KafkaDataDir(t.TempDir()))
	cl := kafkaClient(t, e.URL(), scramOpt("me", "secret"))
	if err := produce(t, cl, "a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := e.SetGroupConfigs("g", map[string]string{"share.auto.offset.reset": "earliest"}); err != nil {
		t.Fatal(err)
	}
	// A stranger is told why, as by Kafka (KAF-F-120), and not just cut off.
	for name, password := range map[string]string{"me": "a guess", "somebody": "secret"} {
		stranger := kafkaClient(t, e.URL(), scramOpt(name, password))
		if err := stranger.Ping(t.Context()); !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKafkaRefusesOtherProtocols: what is no frame of Kafka never reaches the
// broker, which would make room for the size that its first bytes say.
func TestKafkaRefusesOtherProtocols(t *testing.T) {
	e := startKafka(t)
	for _, hello := range []string{"GET / HTTP/1.1\r\n\r\n", "AMQP\x00\x00\x09\x01", "\x7f\xff\xff\xff", "\xff\xff\xff\xff", "\x00\x00\x00\x01a"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(e.URL(), "kafka://"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, hello); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: %d bytes, %v; want the end", hello, n, err)
		}
		c.Close()
	}
}
