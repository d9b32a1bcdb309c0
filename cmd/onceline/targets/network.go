package targets

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
)

// network is the instance of an emulator that is reached over loopback. query is
// added to its URL.
func network(e localstack.Emulator, query string) *conformance.Instance {
	url := join(e.URL(), query)
	i := &conformance.Instance{
		Open:     func(ctx context.Context) (broker.Conn, error) { return broker.Open(ctx, url) },
		URL:      url,
		Versions: e.Versions(),
		Inject:   func(f conformance.Fault) (conformance.Injection, error) { return inject(e, f) },
		Network:  func(n conformance.Network) error { carry(e, n); return nil },
		Restart:  e.Restart,
		Kill:     e.Kill,
		Close:    e.Close,
	}
	scheme, _, _ := strings.Cut(url, ":")
	i.Purge, i.FullSubscription = purger(scheme, i), subscriberWithoutRoom(scheme, i)
	return i
}

// carry changes the network of an emulator, or of a front.
func carry(e interface {
	Slow(localstack.Slowness)
	Freeze()
	Thaw()
}, n conformance.Network) {
	e.Slow(localstack.Slowness{Delay: n.Delay, BytesPerSecond: n.BytesPerSecond})
	if n.Silent {
		e.Freeze()
	} else {
		e.Thaw()
	}
}

// join adds a query, with its question mark, to a URL that may have one.
func join(url, query string) string {
	if query != "" && strings.Contains(url, "?") {
		query = "&" + query[1:]
	}
	return url + query
}

// inject translates the suite's fault into the emulator's.
func inject(e interface {
	Inject(localstack.Fault) *localstack.Injection
}, f conformance.Fault) (conformance.Injection, error) {
	ops := map[conformance.FaultOp]localstack.Op{
		conformance.OnPublish: localstack.Publish,
		conformance.OnReceive: localstack.Receive,
		conformance.OnSettle:  localstack.Settle,
		conformance.OnCommit:  localstack.Any,
	}
	kinds := map[conformance.FaultKind]localstack.Kind{
		conformance.LoseRequest:  localstack.LoseRequest,
		conformance.LoseResponse: localstack.LoseResponse,
		conformance.DelayRequest: localstack.Delay,
		conformance.CutRequest:   localstack.Cut,
	}
	op, known := ops[f.Op]
	kind, also := kinds[f.Kind]
	code := 0
	if f.Kind == conformance.PushBack {
		kind = localstack.Error
		code, also = pushBack[nameOf(e)]
	}
	if !known || !also {
		return nil, fmt.Errorf("%s: %w", f, broker.ErrUnsupported)
	}
	what := localstack.Fault{Op: op, Kind: kind, Code: code, Match: f.Match, Times: f.Times, Cut: f.Cut, Delay: f.Delay}
	if f.Op == conformance.OnCommit {
		what = onCommit(nameOf(e), f, what)
	}
	i := e.Inject(what)
	return i, i.Err()
}

// onCommit makes a fault one of the request that commits a transaction: Kafka's names
// the transactional ID, an atomic batch of NATS the subject of its last message, and
// RabbitMQ's nothing.
func onCommit(broker string, f conformance.Fault, what localstack.Fault) localstack.Fault {
	switch broker {
	case localstack.KafkaName:
		what.API = "EndTxn"
	case localstack.NATSName:
		what.Op, what.Match = localstack.Publish, f.Topic
	default:
		what.API, what.Match = "tx.commit", ""
	}
	return what
}

// pushBack is by which code of its protocol a broker says that it takes no more for
// now. Kafka says it by answering late, and RabbitMQ by a nack or by not reading any
// more, for which there are no faults.
var pushBack = map[string]int{
	localstack.NATSName:       10047, // insufficient storage resources available
	localstack.SQSName:        http.StatusForbidden,
	localstack.PubSubName:     int(codes.ResourceExhausted),
	localstack.ServiceBusName: http.StatusServiceUnavailable,
}

// nameOf is the broker's name, where an emulator tells it.
func nameOf(e any) string {
	if n, ok := e.(interface{ Name() string }); ok {
		return n.Name()
	}
	return ""
}
