package localstack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// admin returns a client on the brokers' own listeners. The caller closes it.
func (b *kafkaServer) admin() (*kgo.Client, error) {
	seeds := make([]string, len(b.nodes))
	for n := range seeds {
		seeds[n] = loopback(b.port(n, kafkaInnerPort))
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DialTimeout(time.Second), kgo.RequestRetries(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return serverPoll }))
	if err != nil {
		return nil, fmt.Errorf("localstack: kafka: %w", err)
	}
	return cl, nil
}

// kafkaNodes asks how many brokers take part in the cluster; 0 when nobody answers.
func kafkaNodes(ctx context.Context, cl *kgo.Client) int {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil || resp.ControllerID < 0 {
		return 0
	}
	return len(resp.Brokers)
}

// settle makes the topics and group configs of the options, at the first start.
func (b *kafkaServer) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serverReady)
	defer cancel()
	cl, err := b.admin()
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, topics := range b.config.kafka.Topics {
		if err := createTopics(ctx, cl, topics); err != nil {
			return err
		}
	}
	for group, configs := range b.config.kafka.GroupConfigs {
		if err := setGroupConfigs(ctx, cl, group, configs); err != nil {
			return err
		}
	}
	return nil
}

func createTopics(ctx context.Context, cl *kgo.Client, topics kafkaTopics) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(serverReady / time.Millisecond)
	for _, name := range topics.Names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, topics.Partitions, -1
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("localstack: kafka: create topics: %w", err)
	}
	for _, t := range resp.Topics {
		// Data that were there before may hold the topics.
		if t.ErrorCode != 0 && t.ErrorCode != kerr.TopicAlreadyExists.Code {
			return kafkaRefused("create topic "+t.Topic, t.ErrorCode, t.ErrorMessage)
		}
	}
	return nil
}

func setGroupConfigs(ctx context.Context, cl *kgo.Client, group string, configs map[string]string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, groupResource(group, configs))
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("localstack: kafka: configure group %s: %w", group, err)
	}
	for _, r := range resp.Resources {
		if r.ErrorCode != 0 {
			return kafkaRefused("configure group "+group, r.ErrorCode, r.ErrorMessage)
		}
	}
	return nil
}

func kafkaCode(code int16) error { return kerr.ErrorForCode(code) }

// SetGroupConfigs sets configs of one group now, as [KafkaGroupConfig] does for the
// first start. Kafka keeps them.
func (k *KafkaServer) SetGroupConfigs(ctx context.Context, group string, configs map[string]string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.usable(); err != nil {
		return err
	}
	cl, err := k.backend.admin()
	if err != nil {
		return err
	}
	defer cl.Close()
	return setGroupConfigs(ctx, cl, group, configs)
}

// kafkaRefused returns the error of a code in an answer.
func kafkaRefused(what string, code int16, message *string) error {
	text := ""
	if message != nil {
		text = ": " + *message
	}
	return fmt.Errorf("localstack: kafka: %s: %s%s", what, kafkaCode(code), text)
}

func groupResource(group string, configs map[string]string) kmsg.IncrementalAlterConfigsRequestResource {
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for name, value := range configs {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = name, &value
		r.Configs = append(r.Configs, c)
	}
	return r
}

// Replication returns who holds a partition of a topic. It is an error that nobody
// leads it, and that the nodes which run don't agree.
func (k *KafkaServer) Replication(ctx context.Context, topic string, partition int) (Replication, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.usable(); err != nil {
		return Replication{}, err
	}
	cl, err := k.backend.admin()
	if err != nil {
		return Replication{}, err
	}
	defer cl.Close()
	var agreed *Replication
	for n, p := range k.backend.running() {
		if !p.alive() {
			continue
		}
		r, err := kafkaReplication(ctx, cl.Broker(n), topic, partition)
		switch {
		case err != nil:
			return Replication{}, fmt.Errorf("localstack: kafka: replication of %s: node %d: %w", topic, n, err)
		case agreed == nil:
			agreed = &r
		case *agreed != r:
			return Replication{}, fmt.Errorf("localstack: kafka: replication of %s: the nodes don't agree", topic)
		}
	}
	if agreed == nil {
		return Replication{}, errors.New("localstack: kafka: no node runs")
	}
	return *agreed, nil
}

// kafkaReplication asks one node, which knows the whole cluster, if perhaps late.
func kafkaReplication(ctx context.Context, node kmsg.Requestor, topic string, partition int) (Replication, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = []kmsg.MetadataRequestTopic{t}
	resp, err := req.RequestWith(ctx, node)
	if err != nil {
		return Replication{}, err
	}
	for _, t := range resp.Topics {
		if t.ErrorCode != 0 {
			return Replication{}, kafkaCode(t.ErrorCode)
		}
		for _, p := range t.Partitions {
			if int(p.Partition) == partition && p.ErrorCode == 0 && p.Leader >= 0 {
				return Replication{Leader: int(p.Leader), InSync: len(p.ISR)}, nil
			}
		}
	}
	return Replication{}, fmt.Errorf("partition %d has no leader", partition)
}
