package targets

import (
	"context"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

// Clusters returns the brokers of three nodes on which the soaks run: Apache Kafka,
// RabbitMQ and NATS, each the vendor's own. Where something is missing the cluster
// is absent in the report.
func Clusters(p Progress) []conformance.Cluster {
	return []conformance.Cluster{threeNATS(p), threeKafka(p), threeRabbitMQ(p)}
}

// nodes is what all clusters of package localstack can do.
type nodes interface {
	KillNode(n int) error
	StopNode(ctx context.Context, n int) error
	StartNode(ctx context.Context, n int) error
	Partition(n int) error
	Heal(n int) error
}

// The disturbances, in the order in which they are done.
const (
	leaderKilled   = "leader killed"
	leaderCutOff   = "leader cut off"
	nodesRestarted = "all nodes restarted in turn"
)

var disturbances = []string{leaderKilled, leaderCutOff, nodesRestarted}

// clusterNodes is the number of nodes of each cluster.
const clusterNodes = 3

// disturbance makes the disturbances of a cluster from what its nodes can do.
type disturbance struct {
	nodes
	// holders returns who holds the entity.
	holders holders
	down    time.Duration // how long a killed node stays down
	up      time.Duration // how long the start of a node takes, about
	cut     time.Duration // how long a node is cut off: longer than the others need to notice
}

func (d disturbance) all() []conformance.Disturbance {
	all := []conformance.Disturbance{
		{Name: leaderKilled, Lasts: d.down + d.up, Strike: d.kill},
		{Name: leaderCutOff, Lasts: d.cut + d.up/2, Strike: d.cutOff},
		{Name: nodesRestarted, Lasts: clusterNodes * (d.up + time.Second), Strike: d.restart},
	}
	for i := range all {
		all[i].Elect = d.elect
	}
	return all
}

// elect restarts the leader's node, so that another one takes its place.
func (d disturbance) elect(ctx context.Context, e broker.Entity) error {
	r, err := d.inSync(ctx, e, clusterNodes)
	if err != nil {
		return err
	}
	if err := d.StopNode(ctx, r.Leader); err != nil {
		return fmt.Errorf("stop node %d: %w", r.Leader, err)
	}
	if err := d.StartNode(ctx, r.Leader); err != nil {
		return fmt.Errorf("start node %d: %w", r.Leader, err)
	}
	_, err = d.inSync(ctx, e, clusterNodes)
	return err
}

type teller = func(format string, args ...any)

// inSync waits until the entity has a leader and that many nodes have all of it, and
// returns who.
func (d disturbance) inSync(ctx context.Context, e broker.Entity, nodes int) (localstack.Replication, error) {
	ctx, cancel := context.WithTimeout(ctx, syncPatience)
	defer cancel()
	for {
		r, err := d.holders(ctx, e)
		switch {
		case err == nil && r.InSync >= nodes:
			return r, nil
		case err == nil:
			err = fmt.Errorf("%d of %d nodes have all of it", r.InSync, nodes)
		}
		if !pause(ctx, syncPoll) {
			return r, fmt.Errorf("replication: %w", err)
		}
	}
}

const (
	syncPatience = 40 * time.Second
	syncPoll     = 100 * time.Millisecond
)

// kill is SIGKILL to the leader's node, which is started again.
func (d disturbance) kill(ctx context.Context, e broker.Entity, tell teller) error {
	r, err := d.inSync(ctx, e, clusterNodes)
	if err != nil {
		return err
	}
	if err := d.KillNode(r.Leader); err != nil {
		return err
	}
	tell("node %d, the leader, was killed by SIGKILL", r.Leader)
	if !pause(ctx, d.down) {
		return context.Cause(ctx)
	}
	return d.start(ctx, e, r.Leader, tell)
}

// start starts a node and waits until all have all.
func (d disturbance) start(ctx context.Context, e broker.Entity, n int, tell teller) error {
	tell("node %d is started", n)
	if err := d.StartNode(ctx, n); err != nil {
		return fmt.Errorf("start node %d: %w", n, err)
	}
	tell("node %d is up", n)
	return d.whole(ctx, e, tell)
}

func (d disturbance) whole(ctx context.Context, e broker.Entity, tell teller) error {
	r, err := d.inSync(ctx, e, clusterNodes)
	if err == nil {
		tell("node %d leads, %d nodes are in sync", r.Leader, r.InSync)
	}
	return err
}

// cutOff parts the leader's node from the others, which clients don't notice by
// themselves: they go on to talk to it as well as to the others.
func (d disturbance) cutOff(ctx context.Context, e broker.Entity, tell teller) error {
	r, err := d.inSync(ctx, e, clusterNodes)
	if err != nil {
		return err
	}
	if err := d.Partition(r.Leader); err != nil {
		return err
	}
	tell("node %d, the leader, was cut off from the others", r.Leader)
	lasted := pause(ctx, d.cut)
	if err := d.Heal(r.Leader); err != nil {
		return err
	}
	if !lasted {
		return context.Cause(ctx)
	}
	tell("node %d was joined to the others again", r.Leader)
	return d.whole(ctx, e, tell)
}

// restart stops the nodes cleanly and starts them, one after the other, the leader
// first, each when all had all.
func (d disturbance) restart(ctx context.Context, e broker.Entity, tell teller) error {
	r, err := d.inSync(ctx, e, clusterNodes)
	if err != nil {
		return err
	}
	tell("node %d is the leader", r.Leader)
	for i := range clusterNodes {
		n := (r.Leader + i) % clusterNodes
		if err := d.StopNode(ctx, n); err != nil {
			return fmt.Errorf("stop node %d: %w", n, err)
		}
		tell("node %d was stopped", n)
		if err := d.start(ctx, e, n, tell); err != nil {
			return err
		}
	}
	return nil
}

// pause waits, and reports whether ctx lasted so long.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// onCluster is a target of a cluster: the vendor's own servers on this machine.
func onCluster(t conformance.Target) conformance.Target {
	t.Kind, t.Real = report.KindLocal, true
	return t
}

// threeNATS has streams of three replicas. Its leader is that of the stream.
func threeNATS(p Progress) conformance.Cluster {
	t := onCluster(natsTarget("nats-3"))
	t.Lease = 3 * time.Second
	return conformance.Cluster{
		Targets: []conformance.Target{t}, Disturbances: disturbances,
		Start: func(ctx context.Context) (*conformance.ClusterInstance, error) {
			if p != nil {
				p(t.Name, fmt.Sprintf("starting %d nodes", clusterNodes))
			}
			e, err := localstack.StartNATSCluster(ctx, clusterNodes, localstack.NATSPartitionable())
			if err != nil {
				return nil, absent(err)
			}
			d := disturbance{nodes: natsNodes{e}, down: 3 * time.Second, up: 4 * time.Second, cut: 12 * time.Second, holders: natsHolders(e)}
			return &conformance.ClusterInstance{
				Instances:    []*conformance.Instance{natsInstance(network(e, "?replicas=3"))},
				Disturbances: func(int) []conformance.Disturbance { return d.all() },
				Close:        e.Close,
			}, nil
		},
	}
}

// natsNodes kills without a context, as the others do.
type natsNodes struct{ *localstack.NATSCluster }

func (n natsNodes) KillNode(node int) error {
	return n.NATSCluster.KillNode(context.Background(), node) // it waits for the end of a process that gets SIGKILL
}

// threeKafka has topics of one partition with three replicas, two of them in sync.
func threeKafka(p Progress) conformance.Cluster {
	group, share := onCluster(kafkaGroupTarget("kafka-group-3")), onCluster(kafkaShareTarget("kafka-share-3"))
	group.Session, share.Lease = kafkaServerSession, kafkaServerLease
	return conformance.Cluster{
		Targets: []conformance.Target{group, share}, Disturbances: disturbances,
		Start: func(ctx context.Context) (*conformance.ClusterInstance, error) {
			e, err := localstack.StartKafkaServer(ctx, localstack.KafkaBrokers(clusterNodes), localstack.Partitionable(),
				localstack.KafkaConfig(map[string]string{"group.share.record.lock.duration.ms": fmt.Sprint(kafkaServerLease.Milliseconds())}), p.For("kafka-3"))
			if err != nil {
				return nil, absent(err)
			}
			d := disturbance{nodes: e, down: 4 * time.Second, up: 6 * time.Second, cut: 8 * time.Second, holders: kafkaHolders(e)}
			return &conformance.ClusterInstance{
				Instances:    []*conformance.Instance{network(e, "?mode=group&session="+kafkaServerSession.String()), network(e, "?mode=share")},
				Disturbances: func(int) []conformance.Disturbance { return d.all() },
				Close:        e.Close,
			}, nil
		},
	}
}
