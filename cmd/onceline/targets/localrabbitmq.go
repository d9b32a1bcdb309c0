package targets

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack"
)

const (
	// localRabbitLease is the nodes' consumer timeout. Each channel looks for what
	// is late in intervals, by default a minute (RMQ-F-13); these nodes look every
	// localRabbitTick.
	localRabbitLease = 4 * time.Second
	localRabbitTick  = 200 * time.Millisecond

	// localRabbitBody is the nodes' limit of a body's size, which is one of theirs
	// and not a queue's; the adapter has to be told the same (RMQ-F-24).
	localRabbitBody = 1 << 20

	// localRabbitSettle is how long a node is let alone before it is killed: until
	// then it may not have written down that a new queue exists, and the queue comes
	// back empty and takes nothing (RMQ-F-42). The boundary says so, and
	// TestMeasuredYoungQueue of adapters/rabbitmq shows it.
	localRabbitSettle = 4 * time.Second
)

// localRabbitMQ returns the targets on a RabbitMQ that is installed here: one node
// and three, with each kind of queue. A node takes a few seconds to start, so that all
// of them share one.
func localRabbitMQ(p Progress) []conformance.Target {
	classic, quorum, stream := rabbitMQClassicTarget(), rabbitMQQuorumTarget(), rabbitMQStreamTarget()
	// Before 4.3 classic queues have the nodes' timeout too.
	classic.Session, classic.Lease, quorum.Lease = 0, localRabbitLease, localRabbitLease
	one, three := rabbitMQNodes(p, "rabbitmq", 1), rabbitMQNodes(p, "rabbitmq-3", 3)
	return []conformance.Target{
		onRabbitMQ(one, classic, classic.Name+"-local", "?queue=classic"),
		onRabbitMQ(one, quorum, quorum.Name+"-local", "?queue=quorum"),
		onRabbitMQ(one, stream, stream.Name+"-local", "?queue=stream"),
		long(onRabbitMQ(three, quorum, quorum.Name+"-3", "?queue=quorum")),
		long(onRabbitMQ(three, stream, stream.Name+"-3", "?queue=stream")),
	}
}

// rabbitMQNodes is a RabbitMQ of so many nodes.
func rabbitMQNodes(p Progress, name string, nodes int) *sharedServer[*localstack.RabbitMQServer] {
	return &sharedServer[*localstack.RabbitMQServer]{name: name, start: func(ctx context.Context) (*localstack.RabbitMQServer, error) {
		return localstack.StartRabbitMQServer(ctx, p.For(name), localstack.RabbitMQNodes(nodes),
			localstack.RabbitMQChannelTick(localRabbitTick),
			localstack.RabbitMQConfig(map[string]string{
				"consumer_timeout": strconv.FormatInt(localRabbitLease.Milliseconds(), 10),
				"max_message_size": strconv.Itoa(localRabbitBody),
			}))
	}}
}

// onRabbitMQ completes a target on a real RabbitMQ.
func onRabbitMQ(s *sharedServer[*localstack.RabbitMQServer], t conformance.Target, name, query string) conformance.Target {
	t.Like, t.Name = t.Name, name
	t.Kind, t.Real, t.Patience = report.KindLocal, true, 2*time.Second
	t.ProbeWithin = leaderProbe
	query += fmt.Sprintf("&heartbeat=1s&max-body=%d", localRabbitBody)
	if t.Lease > 0 {
		query += "&consumer-timeout=" + t.Lease.String()
	}
	return s.runs(t, func(_ context.Context, e *localstack.RabbitMQServer) (*conformance.Instance, error) {
		q := query
		if t.Exclusive { // streams: the first node tells where the others are
			_, port, _ := net.SplitHostPort(strings.Split(e.Address(), ",")[0]) // it is one of ours
			q += "&stream-port=" + port
		}
		i := network(e, q)
		i.Entity, i.Guarded = twoNames("/"), guardRabbitMQ(i)
		if !t.Exclusive { // a stream has room always, and drops its oldest
			i.Fill = fillRabbitMQ
		}
		if several := len(e.Pids()) > 1; several {
			if t.Exclusive { // by the port of one node nobody reaches the others when that is killed
				i.Open = streamInstance(e, fmt.Sprintf("heartbeat=1s&max-body=%d", localRabbitBody)).Open
			}
			oneByOne(i, e, rabbitHolders(e, t.Exclusive))
		}
		i.Kill = func(ctx context.Context) error {
			select {
			case <-time.After(localRabbitSettle):
				return e.Kill(ctx)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return i, nil
	})
}
