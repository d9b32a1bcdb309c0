package targets

import (
	"context"
	"time"

	"github.com/onceline/onceline/adapters/nats"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

// NATS is the vendor's own server, embedded; for probes that kill it, in a
// child process.
func NATS() conformance.Target {
	t := natsTarget("nats")
	t.Kind, t.Real, t.Stores = report.KindEmulator, true, Stores()
	t.Start = func(ctx context.Context) (*conformance.Instance, error) {
		e, err := localstack.StartNATS(ctx)
		if err != nil {
			return nil, err
		}
		return guarded(natsInstance(network(e, natsBatches)), guardNATS()), nil
	}
	t.Private = func(ctx context.Context) (*conformance.Instance, error) {
		e, err := localstack.StartChild(ctx, localstack.NATSName)
		if err != nil {
			return nil, err
		}
		return guarded(natsInstance(network(e, natsBatches)), guardNATS()), nil
	}
	return t
}

// natsBatches has streams take transactions, without which none can be asked about.
const natsBatches = "?atomic-batches=true"

// natsTarget is what holds for any NATS.
func natsTarget(name string) conformance.Target {
	return conformance.Target{Name: name, Broker: "nats", Boundary: nats.Boundary(),
		Lease: time.Second, WishLease: true, Window: 2 * time.Second, Patience: time.Second}
}

func natsInstance(i *conformance.Instance) *conformance.Instance {
	i.Fill = fillNATS
	i.Sibling = func(e broker.Entity) string { return e.Topic + ".sibling" }
	return i
}
