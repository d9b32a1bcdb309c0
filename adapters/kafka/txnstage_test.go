package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"
)

// stage is a broker with faults that transactions are tried on: the model and, with
// ONCELINE_LOCAL=1, Apache Kafka, each with and without epochs that rise.
type stage struct {
	localstack.Emulator
	raises bool
	real   bool
	names  atomic.Int64
}

// onStages runs a test on each of them.
func onStages(t *testing.T, f func(t *testing.T, s *stage)) {
	for _, version := range []int{2, 1} {
		t.Run(fmt.Sprintf("model/%d", version), func(t *testing.T) {
			k, err := localstack.StartKafka(ctxOf(t, mustCome), localstack.KafkaConfig(quick))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := k.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
			s := &stage{Emulator: k, raises: version == 2}
			if version == 1 {
				s.lower(t)
			}
			f(t, s)
		})
	}
	if os.Getenv("ONCELINE_LOCAL") != "1" {
		return
	}
	t.Run("4.2/2", func(t *testing.T) { f(t, &stage{Emulator: local(t), raises: true, real: true}) })
	t.Run("4.2/1", func(t *testing.T) { f(t, &stage{Emulator: localOld(t), real: true}) })
}

// lower sets the model's transaction.version to 1.
func (s *stage) lower(t *testing.T) {
	req := kmsg.NewPtrUpdateFeaturesRequest()
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType = "transaction.version", 1, 2
	req.FeatureUpdates = append(req.FeatureUpdates, u)
	if resp := ask[*kmsg.UpdateFeaturesResponse](t, s.client(t), req); resp.ErrorCode != 0 {
		t.Fatalf("%+v", resp)
	}
}

func (s *stage) seeds() []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(s.Address()), kgo.DisableClientMetrics(), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond })}
}

func (s *stage) client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append(s.seeds(), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// dial opens a connection that is closed at the end of the test.
func (s *stage) dial(t testing.TB, change ...func(*Options)) broker.Conn {
	o := Options{Client: s.seeds(), Logger: slog.New(slog.DiscardHandler), Session: 6 * time.Second}
	for _, f := range change {
		f(&o)
	}
	c, err := New(ctxOf(t, mustCome), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(ctxOf(t, mustCome)); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// topic makes a topic with a name of its own.
func (s *stage) topic(t testing.TB, partitions int32) string {
	name := fmt.Sprintf("x-%d-%d", time.Now().UnixNano(), s.names.Add(1))
	cl := s.client(t)
	eventually(t, "the topic", func() bool { // a broker that was just started knows no other yet, itself included
		_, err := kadm.NewClient(cl).CreateTopic(ctxOf(t, mustCome), partitions, -1, nil, name)
		return err == nil || errors.Is(err, kerr.TopicAlreadyExists)
	})
	eventually(t, "the topic's leader", func() bool {
		os, err := kadm.NewClient(cl).ListEndOffsets(ctxOf(t, 5*time.Second), name)
		return err == nil && os.Error() == nil
	})
	return name
}

func (s *stage) open(t testing.TB, c broker.Conn, id string, opts ...broker.TransactorOption) broker.Transactor {
	t.Helper()
	x, err := broker.OpenTransactor(ctxOf(t, mustCome), c, id, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close(ctxOf(t, 5*time.Second)) })
	return x
}

// committed reads a topic's committed messages, n of them, and fails if there are more
// below the stable offset.
func (s *stage) committed(t testing.TB, topic string, n int) []string {
	t.Helper()
	var got []string
	s.records(t, topic, func(r *kgo.Record) { got = append(got, string(r.Value)) })
	if len(got) != n {
		t.Fatalf("%s has %d committed messages, want %d: %q", topic, len(got), n, got)
	}
	return got
}

// records calls f for a topic's committed records, those of a partition in their order,
// when all transactions have ended.
func (s *stage) records(t testing.TB, topic string, f func(*kgo.Record)) {
	t.Helper()
	cl := s.client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	adm := kadm.NewClient(cl)
	ends := map[int32]int64{}
	eventually(t, "all transactions have ended", func() bool {
		stable, err := adm.ListCommittedOffsets(ctxOf(t, 5*time.Second), topic)
		if err != nil {
			return false
		}
		high, err := adm.ListEndOffsets(ctxOf(t, 5*time.Second), topic)
		if err != nil {
			return false
		}
		done := true
		stable.Each(func(o kadm.ListedOffset) {
			h, _ := high.Lookup(topic, o.Partition)
			done = done && o.Err == nil && h.Err == nil && h.Offset == o.Offset
			ends[o.Partition] = o.Offset
		})
		return done
	})
	next := map[int32]int64{}
	left := func() bool {
		for p, end := range ends {
			if next[p] < end {
				return true
			}
		}
		return false
	}
	for ctx := ctxOf(t, mustCome); left(); {
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("reading %s: at %v of %v", topic, next, ends)
		}
		fs.EachRecord(func(r *kgo.Record) {
			next[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				f(r)
			}
		})
	}
}

// position is a group's committed offset; -1: none.
func (s *stage) position(t testing.TB, topic, group string, partition int32) int64 {
	t.Helper()
	var os kadm.OffsetResponses
	cl := s.client(t)
	eventually(t, "the group's offsets", func() (ok bool) {
		var err error
		os, err = kadm.NewClient(cl).FetchOffsets(ctxOf(t, mustCome), group)
		return err == nil
	})
	if o, ok := os.Lookup(topic, partition); ok {
		return o.At
	}
	return -1
}

func begin(t testing.TB, x broker.Transactor) broker.Transaction {
	t.Helper()
	tx, err := x.Begin(ctxOf(t, mustCome))
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func publishIn(t testing.TB, tx broker.Transaction, topic string, ms ...broker.Message) []broker.Receipt {
	t.Helper()
	rs, err := tx.Publish(ctxOf(t, mustCome), topic, ms...)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

// ackIn settles within a transaction and returns the settlements.
func ackIn(t testing.TB, tx broker.Transaction, ds ...broker.Delivery) []broker.Settlement {
	t.Helper()
	ss := make([]broker.Settlement, len(ds))
	for i := range ds {
		ss[i] = broker.Settlement{Delivery: &ds[i]}
	}
	if err := tx.Settle(ctxOf(t, mustCome), ss); err != nil {
		t.Fatal(err)
	}
	for i := range ss {
		if ss[i].Outcome.State != broker.Pending {
			t.Fatalf("settled in a transaction: %+v", ss[i].Outcome)
		}
	}
	return ss
}

func commitTx(t testing.TB, tx broker.Transaction, want broker.State) error {
	t.Helper()
	o, err := tx.Commit(ctxOf(t, mustCome))
	if o.State != want {
		t.Fatalf("commit: %v (%v), want %v", o.State, err, want)
	}
	return err
}

// oldServer is Kafka with transaction.version 1, shared as the other.
var oldServer struct{ kafka *localstack.KafkaServer }

func localOld(t testing.TB) *localstack.KafkaServer {
	t.Helper()
	local(t) // or skip
	server.mu.Lock()
	defer server.mu.Unlock()
	if oldServer.kafka == nil {
		oldServer.kafka = startLocal(t, localstack.KafkaTransactionVersion(1))
		cl := raw(t, oldServer.kafka)
		eventually(t, "a group coordinator", func() bool {
			return kadm.NewClient(cl).FindGroupCoordinators(ctxOf(t, 5*time.Second), "warm").Error() == nil
		})
	}
	return oldServer.kafka
}
