package targets

import (
	"context"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
)

// leaderProbe bounds a probe on a cluster that may have to elect a leader.
const leaderProbe = 3 * time.Minute

// oneByOne lets probes kill the node that leads an entity. nobody waits for replicas
// before the kill: what they don't have by then is what the probe looks for.
func oneByOne(i *conformance.Instance, n nodes, holders func(context.Context, broker.Entity) (localstack.Replication, error)) {
	d := disturbance{nodes: n, holders: holders}
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
