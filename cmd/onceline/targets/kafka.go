package targets

import (
	"context"
	"time"

	"github.com/onceline/onceline/adapters/kafka"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

// The times that the suite asks of the model of Kafka, which admits shorter
// ones than Kafka does.
const (
	kafkaSession = 2 * time.Second
	kafkaLease   = 2 * time.Second
)

// KafkaGroup is the model of Kafka with consumer groups.
func KafkaGroup() conformance.Target {
	t := kafkaGroupTarget("kafka-group")
	t.Kind = report.KindEmulator
	t.Session = kafkaSession
	kafkaModel(&t, "?mode=group&session="+kafkaSession.String())
	return t
}

// KafkaShare is the model of Kafka with share groups.
func KafkaShare() conformance.Target {
	t := kafkaShareTarget("kafka-share")
	t.Kind = report.KindEmulator
	t.Lease = kafkaLease
	t.Deviations = []conformance.Deviation{{Claim: boundary.SettleDurable, Answer: boundary.Redelivered,
		Reason: "The model forgets the acks of share groups when it is killed. Kafka writes them to a log of its own before it answers, and the real one was killed too: none came again."}}
	kafkaModel(&t, "?mode=share")
	return t
}

// kafkaGroupTarget and kafkaShareTarget are what holds for any Kafka.
func kafkaGroupTarget(name string) conformance.Target {
	return conformance.Target{Name: name, Broker: "kafka", Boundary: kafka.GroupBoundary(),
		Session: 10 * time.Second, Exclusive: true, CutLost: true, Patience: 2 * time.Second}
}

func kafkaShareTarget(name string) conformance.Target {
	return conformance.Target{Name: name, Broker: "kafka", Boundary: kafka.ShareBoundary(),
		Lease: 30 * time.Second, CutLost: true, CutLostSettle: true, Patience: 2 * time.Second}
}

func kafkaModel(t *conformance.Target, params string) {
	t.Stores = Stores()
	config := localstack.KafkaConfig(map[string]string{
		"group.share.record.lock.duration.ms": "2000",
	})
	t.Start = func(ctx context.Context) (*conformance.Instance, error) {
		e, err := localstack.StartKafka(ctx, config)
		if err != nil {
			return nil, err
		}
		return guarded(network(e, params), guardKafka(params)), nil
	}
	t.Private = func(ctx context.Context) (*conformance.Instance, error) {
		e, err := localstack.StartChild(ctx, localstack.KafkaName, config)
		if err != nil {
			return nil, err
		}
		return guarded(network(e, params), guardKafka(params)), nil
	}
}
