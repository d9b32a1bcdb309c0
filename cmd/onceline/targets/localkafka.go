package targets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

// kafkaServerSession and kafkaServerLease are what the suite asks of Kafka itself,
// with its lower bounds lowered: shorter ones would end while a machine with two
// cores is busy with something else.
const (
	kafkaServerSession = 3 * time.Second
	kafkaServerLease   = 5 * time.Second
)

// localKafka returns the targets on real servers of this broker.
func localKafka(p Progress) []conformance.Target {
	session := "&session=" + kafkaServerSession.String()
	lock := map[string]string{
		"group.share.record.lock.duration.ms": strconv.FormatInt(kafkaServerLease.Milliseconds(), 10),
		// A new group whose state couldn't be made at the first attempt gets nothing
		// until the next one, 30 s later (KAF-F-57). The other setting is the least
		// that this one may be.
		"group.share.initialize.retry.interval.ms": "2000",
		"offsets.commit.timeout.ms":                "2000",
	}
	// Three nodes at once on a busy machine miss the short sessions by which
	// localstack makes restarts quick. These are Kafka's own, and more.
	patient := map[string]string{"broker.session.timeout.ms": "9000", "controller.quorum.fetch.timeout.ms": "5000"}
	config := map[string]string{
		"group.consumer.session.timeout.ms": strconv.FormatInt(kafkaServerSession.Milliseconds(), 10),
		// A transaction that is out of time is aborted when the broker looks next (KAF-F-420).
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
	}
	maps.Copy(config, lock)
	one := kafkaServer(p, "kafka", localstack.KafkaConfig(config))
	// Killed under load beside the groups of others, a new group of this protocol was seen
	// to be unknown afterwards, and whoever joined it to get nothing for 40 s.
	consumer := kafkaServer(p, "kafka-848", localstack.KafkaConfig(config))
	first := kafkaServer(p, "kafka-tv1", localstack.KafkaConfig(config), localstack.KafkaTransactionVersion(1))
	three := kafkaServer(p, "kafka-3", localstack.KafkaConfig(config), localstack.KafkaConfig(patient), localstack.KafkaBrokers(3))
	return []conformance.Target{
		onKafka(one, kafkaGroupTarget("kafka-group-local"), "?mode=group"+session),
		onKafka(consumer, kafkaGroupTarget("kafka-group-848-local"), "?mode=group&protocol=consumer"),
		onKafka(first, kafkaGroupTarget("kafka-group-tv1-local"), "?mode=group"+session),
		onKafka(one, kafkaShareTarget("kafka-share-local"), "?mode=share"),
		long(onKafka(three, kafkaGroupTarget("kafka-group-3"), "?mode=group"+session)),
		long(onKafka(three, kafkaShareTarget("kafka-share-3"), "?mode=share")),
	}
}

// kafkaServer is an Apache Kafka.
func kafkaServer(p Progress, name string, options ...localstack.KafkaServerOption) *sharedServer[*localstack.KafkaServer] {
	return &sharedServer[*localstack.KafkaServer]{name: name, start: func(ctx context.Context) (*localstack.KafkaServer, error) {
		return localstack.StartKafkaServer(ctx, append([]localstack.KafkaServerOption{p.For(name)}, options...)...)
	}}
}

// onKafka completes a target on Apache Kafka itself. query is added to the URL that its
// clients use.
func onKafka(s *sharedServer[*localstack.KafkaServer], t conformance.Target, query string) conformance.Target {
	t.Kind, t.Real, t.ProbeWithin = report.KindLocal, true, leaderProbe
	if t.Lease > 0 {
		// A share group that is new may be late by seconds, and by half a minute where the
		// broker's first attempt to make its state fails (KAF-F-57).
		t.Like, t.Lease, t.Patience, t.SlowStart = "kafka-share", kafkaServerLease, 4*time.Second, 45*time.Second
	} else {
		// Three targets' groups come back to one broker at once.
		t.Like, t.Session, t.SlowStart = "kafka-group", kafkaServerSession, 20*time.Second
	}
	return s.runs(t, func(ctx context.Context, e *localstack.KafkaServer) (*conformance.Instance, error) {
		i := network(e, query)
		nodes := len(e.Pids())
		i.Versions["nodes"] = strconv.Itoa(nodes)
		if nodes > 1 {
			oneByOne(i, e, kafkaHolders(e))
		}
		if err := warmKafka(ctx, i, "warm-"+t.Name); err != nil {
			return nil, fmt.Errorf("the first message: %w", err)
		}
		return i, nil
	})
}

// warmKafka sends a message and acks it. That makes the topics in which a new
// cluster keeps offsets and the state of groups, which takes seconds that no probe
// has in mind.
func warmKafka(ctx context.Context, i *conformance.Instance, name string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	c, err := i.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	e := broker.Entity{Topic: name, Subscription: name + "/" + name}
	if err := c.Ensure(ctx, e); err != nil {
		return err
	}
	p, err := c.OpenPublisher(ctx, e.Topic)
	if err != nil {
		return err
	}
	if _, err := p.Publish(ctx, broker.Message{ID: "warm", Body: []byte("warm")}); err != nil {
		return err
	}
	r, err := c.OpenReceiver(ctx, e.Subscription)
	if err != nil {
		return err
	}
	ds, err := r.Receive(ctx, 1)
	if err != nil {
		return err
	}
	if _, err := ds[0].Ack(ctx); err != nil {
		return err
	}
	return errors.Join(p.Close(ctx), r.Close(ctx), c.Delete(ctx, e))
}
