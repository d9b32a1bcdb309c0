package localstack

import (
	"context"
	_ "embed" // the project file
	"errors"
	"fmt"
	"maps"
	"strings"
)

//go:embed kafka/pom.xml
var kafkaPOM string

// kafkaRelease is what is run when no other release is asked for, and stands in
// the project file.
const kafkaRelease = "4.2.0"

// kafkaServerConfig is what a real Kafka is started with.
type kafkaServerConfig struct {
	serverConfig
	kafka       kafkaConfig
	release     string
	transaction int
	jvm         []string
}

// KafkaServerOption is an option of [StartKafkaServer]: a [ServerOption], a
// [KafkaOption], or one of the functions that return a KafkaServerOption.
type KafkaServerOption interface{ kafkaServer(*kafkaServerConfig) }

func (o ServerOption) kafkaServer(c *kafkaServerConfig) { o(&c.serverConfig) }
func (o KafkaOption) kafkaServer(c *kafkaServerConfig)  { o(&c.kafka) }

type kafkaServerOption func(*kafkaServerConfig)

func (o kafkaServerOption) kafkaServer(c *kafkaServerConfig) { o(c) }

// KafkaRelease runs that release of Apache Kafka, 4.0.0 or later. The default is
// 4.2.0, the first whose share groups are finished.
func KafkaRelease(release string) KafkaServerOption {
	return kafkaServerOption(func(c *kafkaServerConfig) { c.release = release })
}

// KafkaTransactionVersion sets the feature transaction.version of a new cluster:
// 2, the default, is with the epochs that each transaction raises (KIP-890), 1 and
// 0 are without.
func KafkaTransactionVersion(version int) KafkaServerOption {
	return kafkaServerOption(func(c *kafkaServerConfig) { c.transaction = version })
}

// KafkaJVM adds arguments of the Java virtual machines, behind this package's:
// -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1, which start a broker soon on
// little memory. For measuring speed -XX:TieredStopAtLevel=4 lets it compile.
func KafkaJVM(args ...string) KafkaServerOption {
	return kafkaServerOption(func(c *kafkaServerConfig) { c.jvm = append(c.jvm, args...) })
}

// kafkaServerDefaults are the broker configs over which the caller's go.
func kafkaServerDefaults(brokers int) map[string]string {
	copies := fmt.Sprint(min(brokers, 3))
	inSync := fmt.Sprint(min(brokers, 2))
	return map[string]string{
		"num.partitions":                                   "1",
		"default.replication.factor":                       copies,
		"min.insync.replicas":                              inSync,
		"offsets.topic.num.partitions":                     "1",
		"offsets.topic.replication.factor":                 copies,
		"transaction.state.log.num.partitions":             "1",
		"transaction.state.log.replication.factor":         copies,
		"transaction.state.log.min.isr":                    inSync,
		"share.coordinator.state.topic.num.partitions":     "1",
		"share.coordinator.state.topic.replication.factor": copies,
		"share.coordinator.state.topic.min.isr":            inSync,
		"group.initial.rebalance.delay.ms":                 "0",
		"group.min.session.timeout.ms":                     "100",
		"group.consumer.min.session.timeout.ms":            "100",
		"group.consumer.min.heartbeat.interval.ms":         "50",
		"group.consumer.heartbeat.interval.ms":             "100",
		"group.share.min.session.timeout.ms":               "100",
		"group.share.min.heartbeat.interval.ms":            "50",
		"group.share.heartbeat.interval.ms":                "100",
		"group.share.min.record.lock.duration.ms":          "1000",
		"max.incremental.fetch.session.cache.slots":        "0",
		"broker.heartbeat.interval.ms":                     "500",
		"broker.session.timeout.ms":                        "3000",
	}
}

// KafkaServer is Apache Kafka itself, one process for each node. It implements
// [Emulator].
type KafkaServer struct {
	*emulator
	backend *kafkaServer
}

// StartKafkaServer runs Apache Kafka 4.x in KRaft mode, by default one node, in
// child processes, and returns when it is ready for clients. It needs Java 17 and,
// at the first time, Maven, which brings Kafka from Maven Central; without them it
// returns an error that is [ErrNotInstalled]. A node takes some 3 s to start and
// 300 MB of memory. At the first start, which takes 10 s more, its classes are
// archived in the cache directory, 50 MB, so that later ones need half of the CPU time.
//
// Share groups are on, transaction.version is 2. The lower bounds of sessions,
// heartbeats and locks are lowered, so that options and group configs can ask for
// short ones: group.share.record.lock.duration.ms from 1000 on (Kafka's own bound),
// sessions from 100 ms. Internal topics have one partition. Offsets, transactions
// and share groups have as many replicas as there are nodes, at most 3. All other
// configs are Kafka's, unless [KafkaConfig] sets them.
//
// [KafkaSyncWrites] sets log.flush.interval.messages to 1. [KafkaUser] is refused.
//
// Kill sends SIGKILL to all nodes at once; what Kafka promised to keep it then has
// from the operating system's cache. The brokers talk to each other on listeners of
// their own, so neither faults nor Freeze concern that. DirectURL leads to these.
// After Kill a node registers anew when its former session, 3 s, has run out.
func StartKafkaServer(ctx context.Context, options ...KafkaServerOption) (*KafkaServer, error) {
	c := kafkaServerConfig{release: kafkaRelease, transaction: 2}
	c.kafka = kafkaConfig{Brokers: 1, Configs: map[string]string{}, GroupConfigs: map[string]map[string]string{}}
	for _, o := range options {
		o.kafkaServer(&c)
	}
	switch {
	case c.kafka.Brokers < 1:
		return nil, fmt.Errorf("localstack: kafka: %d brokers, must be at least 1", c.kafka.Brokers)
	case c.kafka.User != "":
		return nil, errors.New("localstack: kafka: a real server is run without users")
	}
	configs := kafkaServerDefaults(c.kafka.Brokers)
	maps.Copy(configs, c.kafka.Configs)
	if c.kafka.SyncWrites {
		configs["log.flush.interval.messages"] = "1"
	}
	c.kafka.Configs = configs

	java, version, err := findJava(ctx, 17, "Apache Kafka")
	if err != nil {
		return nil, err
	}
	pom := strings.Replace(kafkaPOM, "<release>"+kafkaRelease+"</release>", "<release>"+c.release+"</release>", 1)
	classPath, err := c.classPath(ctx, "Apache Kafka "+c.release, []byte(pom))
	if err != nil {
		return nil, err
	}
	b := &kafkaServer{config: c, java: java, classPath: classPath, nodes: make([]*serverProcess, c.kafka.Brokers)}
	b.classes = b.archive(version)
	b.groups.init(c.kafka.GroupConfigs)
	if err := b.between(); err != nil {
		return nil, errors.Join(err, b.mesh.close(context.WithoutCancel(ctx)))
	}
	front := c.port
	if front == 0 {
		front = c.kafka.front
	}
	e, addrs, err := newKafka(b, &b.groups, c.kafka.Brokers, front, b.dial)
	if err != nil {
		return nil, errors.Join(err, b.mesh.close(context.WithoutCancel(ctx)))
	}
	e.between = b.mesh
	e.real, e.versions = true, map[string]string{"kafka": c.release, "java": version}
	b.config.kafka.Advertise = addrs
	dir := c.dataDir
	if dir == "" {
		dir = c.kafka.dataDir
	}
	if err := e.open(ctx, dir); err != nil {
		return nil, err
	}
	return &KafkaServer{e, b}, nil
}

// Pids returns the process IDs of the nodes, 0 for one that does not run.
func (k *KafkaServer) Pids() []int { return pids(k.backend.running()) }

// KillNode sends SIGKILL to a node, counted from 0, and leaves it down.
func (k *KafkaServer) KillNode(n int) error {
	return k.atNode(n, func() error { return k.backend.node(n).kill() })
}

// StopNode stops a node cleanly and leaves it down.
func (k *KafkaServer) StopNode(ctx context.Context, n int) error {
	return k.atNode(n, func() error { return k.backend.node(n).stop(ctx) })
}

// PauseNode stops a node's process without ending it, which to the others looks
// like a broken network until [KafkaServer.ResumeNode].
func (k *KafkaServer) PauseNode(n int) error {
	return k.atNode(n, func() error { return k.backend.node(n).pause() })
}

// ResumeNode ends [KafkaServer.PauseNode].
func (k *KafkaServer) ResumeNode(n int) error {
	return k.atNode(n, func() error { return k.backend.node(n).unpause() })
}

// Partition cuts a node off from the others, in both directions, until
// [KafkaServer.Heal]: what they send to each other is held back, and nobody is told.
// Clients reach all nodes as before. The cluster must be [Partitionable].
func (k *KafkaServer) Partition(n int) error {
	return k.atNode(n, func() error { return k.backend.mesh.isolate(n) })
}

// Heal ends [KafkaServer.Partition].
func (k *KafkaServer) Heal(n int) error {
	return k.atNode(n, func() error { k.backend.mesh.rejoin(n); return nil })
}

// StartNode starts a node that is down on its data, and returns when the cluster
// has all nodes that run.
func (k *KafkaServer) StartNode(ctx context.Context, n int) error {
	return k.atNode(n, func() error {
		if k.backend.node(n).alive() {
			return nil
		}
		return k.backend.startNodes(ctx, k.dir, n)
	})
}

func (k *KafkaServer) atNode(n int, do func() error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.usable(); err != nil {
		return err
	}
	if n < 0 || n >= len(k.proxies) {
		return fmt.Errorf("localstack: kafka: no node %d, there are %d", n, len(k.proxies))
	}
	return do()
}
