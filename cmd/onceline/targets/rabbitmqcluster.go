package targets

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/onceline/onceline/adapters/rabbitmq"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
)

// threeRabbitMQ has quorum queues and streams of three replicas.
func threeRabbitMQ(p Progress) conformance.Cluster {
	quorum, stream := onCluster(rabbitMQQuorumTarget()), onCluster(rabbitMQStreamTarget())
	quorum.Name, stream.Name = "rabbitmq-quorum-3", "rabbitmq-stream-3"
	quorum.Lease = 0 // one can't be wished for, and that of the node is half an hour
	stream.Session = 0
	return conformance.Cluster{
		Targets: []conformance.Target{quorum, stream}, Disturbances: disturbances,
		Start: func(ctx context.Context) (*conformance.ClusterInstance, error) {
			e, err := localstack.StartRabbitMQServer(ctx, localstack.RabbitMQNodes(clusterNodes), localstack.Partitionable(), p.For("rabbitmq-3"))
			if err != nil {
				return nil, absent(err)
			}
			onQueue := network(e, "?queue=quorum&heartbeat=2s")
			onQueue.URL = strings.Replace(onQueue.URL, "?", "/?", 1)
			onQueue.Open = func(ctx context.Context) (broker.Conn, error) { return broker.Open(ctx, onQueue.URL) }
			onQueue.Entity = twoNames("/")
			onStream := streamInstance(e, "heartbeat=2s")
			of := func(streams bool) disturbance {
				return disturbance{nodes: e, down: 3 * time.Second, up: 9 * time.Second, cut: 2*localstack.RabbitMQPartitionTick + 2*time.Second,
					holders: rabbitHolders(e, streams)}
			}
			kinds := []disturbance{of(false), of(true)}
			return &conformance.ClusterInstance{
				Instances:    []*conformance.Instance{onQueue, onStream},
				Sole:         []string{"", noTurns(e.Versions()["rabbitmq"])},
				Disturbances: func(target int) []conformance.Disturbance { return kinds[target].all() },
				Close:        e.Close,
			}, nil
		},
	}
}

// noTurns says why a stream of that release can have but one receiver of a name;
// empty if the receivers take turns (RMS-F-16).
func noTurns(version string) string {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil || major > 3 || major == 3 && minor >= 11 {
		return ""
	}
	return "one consumer: before RabbitMQ 3.11 each receiver of a stream gets every message"
}

// streamInstance opens streams on a cluster on one machine, whose nodes differ by
// their ports: an address has one port for streams on all hosts, so the hosts get
// names here that the dialer knows. parameters are added to the URL.
func streamInstance(e *localstack.RabbitMQServer, parameters string) *conformance.Instance {
	nodes := map[string]string{}
	var hosts []string
	for n, addr := range strings.Split(e.Address(), ",") {
		name := fmt.Sprintf("node-%d.localhost:1", n)
		nodes[name] = addr
		hosts = append(hosts, name)
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if known, ok := nodes[addr]; ok {
			addr = known
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	url := "rabbitmq://" + strings.Join(hosts, ",") + "/?queue=stream&stream-port=1&insecure-credentials=true&" + parameters
	i := network(e, "")
	i.URL = ""
	i.Open = func(ctx context.Context) (broker.Conn, error) { return rabbitmq.Dial(ctx, url, rabbitmq.Dialer(dial)) }
	i.Entity = twoNames("/")
	return i
}
