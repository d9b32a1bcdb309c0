package targets

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
)

// leaderProbe bounds a probe on a cluster that may have to elect a leader.
const leaderProbe = 3 * time.Minute

// holders tells who holds an entity.
type holders = func(context.Context, broker.Entity) (localstack.Replication, error)

func natsHolders(e *localstack.NATSCluster) holders {
	return func(ctx context.Context, entity broker.Entity) (localstack.Replication, error) {
		stream, _, _ := strings.Cut(entity.Subscription, "/")
		return e.Replication(ctx, stream)
	}
}

func kafkaHolders(e *localstack.KafkaServer) holders {
	return func(ctx context.Context, entity broker.Entity) (localstack.Replication, error) {
		return e.Replication(ctx, entity.Topic, 0)
	}
}

// rabbitHolders looks for the queue, which is the topic itself for streams.
func rabbitHolders(e *localstack.RabbitMQServer, streams bool) holders {
	return func(ctx context.Context, entity broker.Entity) (localstack.Replication, error) {
		if streams {
			return e.Replication(ctx, entity.Topic)
		}
		return e.Replication(ctx, entity.Subscription)
	}
}

// oneByOne lets probes kill the node that leads an entity. Nobody waits for replicas
// before the kill: what they don't have by then is what the probe looks for.
func oneByOne(i *conformance.Instance, n nodes, of holders) {
	d := disturbance{nodes: n, holders: of}
	i.KillLeader = func(ctx context.Context, e broker.Entity) (func(context.Context) error, error) {
		r, err := d.inSync(ctx, e, 1)
		if err != nil {
			return nil, err
		}
		if err := n.KillNode(r.Leader); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			if err := n.StartNode(ctx, r.Leader); err != nil {
				return fmt.Errorf("start node %d: %w", r.Leader, err)
			}
			_, err := d.inSync(ctx, e, clusterNodes)
			return err
		}, nil
	}
}
