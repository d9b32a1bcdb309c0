package targets

import (
	"context"
	"errors"
	"time"

	"github.com/onceline/onceline/adapters/nats"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

// localNATS returns the targets on the vendor's own server in other configurations
// than that of [NATS]. What differs is declared, so none has deviations.
func localNATS(p Progress) []conformance.Target {
	return []conformance.Target{
		natsVariant("nats-memory", natsBatches+"&storage=memory"),
		natsVariant("nats-workqueue", natsBatches+"&retention=workqueue"),
		natsVariant("nats-interest", natsBatches+"&retention=interest"),
		natsReplicated(p),
	}
}

// natsBoundary is the boundary of the configuration that a URL asks for.
func natsBoundary(raw string) boundary.Boundary {
	replicas := parameter(raw, "replicas")
	switch retention := parameter(raw, "retention"); {
	case parameter(raw, "storage") == "memory":
		return nats.BoundaryMemory()
	case retention == "workqueue":
		return nats.BoundaryWorkQueue()
	case retention == "interest":
		return nats.BoundaryInterest()
	case replicas != "" && replicas != "1":
		return nats.BoundaryReplicated()
	}
	return nats.Boundary()
}

// natsVariant is a single server, whose streams the query makes different. The
// server is part of this program; for probes that kill it, of a child process.
func natsVariant(name, query string) conformance.Target {
	t := natsTarget(name)
	t.Kind, t.Real, t.Like, t.Boundary = report.KindLocal, true, "nats", natsBoundary(query)
	t.Start = local(func(ctx context.Context) (*localstack.NATS, error) { return localstack.StartNATS(ctx) },
		func(e *localstack.NATS) *conformance.Instance {
			return guarded(natsInstance(network(e, query)), guardNATS())
		})
	t.Private = func(ctx context.Context) (*conformance.Instance, error) {
		e, err := localstack.StartChild(ctx, localstack.NATSName)
		if err != nil {
			return nil, err
		}
		return guarded(natsInstance(network(e, query)), guardNATS()), nil
	}
	return t
}

// natsReplicated is three servers, each a process of its own, that keep each stream
// three times. Kill strikes all three at once.
func natsReplicated(p Progress) conformance.Target {
	const name, query = "nats-3", natsBatches + "&replicas=3"
	tell := func(step string) {
		if p != nil {
			p(name, step)
		}
	}
	t := natsTarget(name)
	t.Kind, t.Real, t.Like, t.Boundary = report.KindLocal, true, "nats", natsBoundary(query)
	t.Lease = 4 * time.Second // three processes that replicate may be slow, and a lease must be longer
	t.Start = local(func(ctx context.Context) (*localstack.NATSCluster, error) {
		tell("NATS: starting three nodes")
		e, err := localstack.StartNATSCluster(ctx, 3)
		if err != nil {
			return nil, err
		}
		if err := placed(ctx, e.URL()+query); err != nil {
			return nil, errors.Join(err, e.Close(context.WithoutCancel(ctx)))
		}
		tell("NATS: ready")
		return e, nil
	}, func(e *localstack.NATSCluster) *conformance.Instance {
		i := guarded(natsInstance(network(e, query)), guardNATS())
		oneByOne(i, natsNodes{e}, natsHolders(e))
		return i
	})
	t.ProbeWithin = leaderProbe
	return long(t)
}

// placed waits until the cluster's leader knows enough nodes to place a stream on:
// it answers to everything else before.
func placed(ctx context.Context, url string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := broker.Open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	e := broker.Entity{Topic: "placed"}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.Ensure(ctx, e)
		if err == nil {
			return c.Delete(ctx, e)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
