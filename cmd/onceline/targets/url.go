package targets

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// ByURL returns a target for a broker that runs elsewhere, by the URL that
// broker.Open takes. Its boundary is the one which the scheme's adapter
// declares, for the release that the broker says it is. Probes that need restarts are
// not verifiable on it. Those that need faults are where it listens on this machine's
// loopback without TLS and there are fault proxies for its protocol; with TLS, or
// another protocol than these, connections can be silenced and cut, and no more.
func ByURL(raw string) (conformance.Target, error) {
	scheme, _, ok := strings.Cut(raw, "://")
	// What mem names lives in one process, so it is no broker that runs elsewhere.
	schemes := slices.DeleteFunc(broker.Schemes(), func(s string) bool { return s == "mem" })
	if !ok || !slices.Contains(schemes, scheme) {
		return conformance.Target{}, fmt.Errorf("target: %w: not a URL of a known scheme; there are: %s",
			broker.ErrInvalid, strings.Join(schemes, ", "))
	}
	t, err := targetOf(scheme, raw)
	if err != nil {
		return conformance.Target{}, err
	}
	t.Kind, t.Real, t.Stores = report.KindLocal, true, Stores()
	t.Start = func(ctx context.Context) (*conformance.Instance, error) {
		i, err := startElsewhere(ctx, t.Broker, raw)
		if err != nil {
			return nil, err
		}
		i.Entity = t.entity
		if t.Broker == "nats" {
			i = natsInstance(i)
		}
		return i, nil
	}
	return t.Target, nil
}

// remote is a target of a URL, and how it names entities.
type remote struct {
	conformance.Target
	entity func(name string) broker.Entity
}

// targetOf is the target for a scheme, by the parameters that say which of an
// adapter's boundaries holds.
func targetOf(scheme, raw string) (remote, error) {
	is := func(name, value string) bool { return parameter(raw, name) == value }
	switch scheme {
	case "sqs":
		if is("fifo", "true") {
			return remote{named(sqsFIFOTarget(), 4*time.Second, 0), oneName(".fifo")}, nil
		}
		return remote{named(sqsStandardTarget(), 4*time.Second, 0), oneName("")}, nil
	case "pubsub":
		if is("exactly-once", "true") {
			return remote{named(pubsubExactlyOnceTarget(), 10*time.Second, 0), oneName("")}, nil
		}
		return remote{named(pubsubTarget(), 10*time.Second, 0), oneName("")}, nil
	case "servicebus":
		if is("sessions", "true") {
			return remote{named(serviceBusSessionsTarget(), 5*time.Second, 20*time.Second), oneName("")}, nil
		}
		return remote{named(serviceBusQueueTarget(), 5*time.Second, 20*time.Second), oneName("")}, nil
	case "rabbitmq", "rabbitmq+tls":
		switch {
		case is("queue", "classic"):
			return remote{named(rabbitMQClassicTarget(), 0, 0), twoNames("/")}, nil
		case is("queue", "stream"):
			return remote{named(rabbitMQStreamTarget(), 0, 0), twoNames("/")}, nil
		}
		return remote{named(rabbitMQQuorumTarget(), time.Minute, 0), twoNames("/")}, nil
	case "nats", "nats+tls":
		t := natsTarget("nats-url")
		t.Boundary = natsBoundary(raw)
		return remote{t, nil}, nil
	case "kafka":
		if is("mode", "share") {
			return remote{kafkaShareTarget("kafka-share-url"), nil}, nil
		}
		return remote{kafkaGroupTarget("kafka-group-url"), nil}, nil
	}
	return remote{}, fmt.Errorf("target: %w: scheme %q has no target", broker.ErrInvalid, scheme)
}

// named is a target that runs elsewhere, with a lease and a dedup window that are
// waited for in real time; zero is for none, or for one that is too long to wait for.
func named(t conformance.Target, lease, window time.Duration) conformance.Target {
	t.Name += "-url"
	t.Lease, t.WishLease, t.Window, t.Patience = lease, lease > 0, window, 2*time.Second
	if t.Session > 0 {
		t.Session = 2 * time.Minute // missed heartbeats of the default, a minute
	}
	return t
}

// parameter reads one parameter of a URL whose host may be a list.
func parameter(raw, name string) string {
	_, query, _ := strings.Cut(raw, "?")
	v, err := url.ParseQuery(query)
	if err != nil {
		return ""
	}
	return v.Get(name)
}
