package targets

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/localstack/compose"
)

// What the services of docker-compose.yml are configured for, beside what their URLs
// say.
const (
	composeRabbitLease = 10 * time.Second // the node's timeout, which the URLs say too
	composeStart       = 30 * time.Second
	composeReached     = 2 * time.Second
	composePatience    = 2 * time.Second
)

// Compose returns the targets on the services that docker-compose.yml brings up. One
// that isn't up is absent. Each is asked through this program's fault proxies where
// there is one for its protocol, so that claims about lost answers can be told; that
// nobody restarts a container makes those about restarts not verifiable.
func Compose() []conformance.Target {
	var ts []conformance.Target
	for _, e := range compose.Endpoints() {
		if e.Name != "" {
			ts = append(ts, composeTarget(e))
		}
	}
	return ts
}

// composeTarget is the target on one configuration of a service.
func composeTarget(e compose.Endpoint) conformance.Target {
	scheme, _, _ := strings.Cut(e.URL, "://")
	r, err := targetOf(scheme, e.URL)
	if err != nil {
		panic(fmt.Sprintf("compose: %s: %v", e.Name, err)) // a test reads the list
	}
	t := r.Target
	t.Like = strings.TrimSuffix(t.Name, "-url")
	t.Name = e.Name + "-compose"
	t.Kind, t.StartWithin, t.Stores = report.KindLocal, composeStart, Stores()
	switch e.Service {
	case "rabbitmq":
		t.Real = true
		if t.Exclusive { // streams, which have no lease
			t.Session = rabbitSession
		} else { // before 4.3 classic queues have the node's timeout too
			t.Lease, t.WishLease, t.Session = composeRabbitLease, false, 0
		}
	case "nats":
		t.Real = true
	case "kafka":
		t.Real = true
		if t.Lease > 0 {
			t.Lease = kafkaServerLease
		} else {
			t.Session = kafkaServerSession
		}
	case "localstack", "elasticmq": // SQS by others
		t.Deviations = sqsDeviations[e.Name]
	case "pubsub": // Google's own, and not the service
		if t.Like == "pubsub" {
			t.Deviations = []conformance.Deviation{lateAck}
		}
	case "servicebus":
		// Microsoft's own, and not the service. Nobody has run the suite on it here:
		// what it answers otherwise is found by who does, and is no known deviation.
	}
	if t.Patience == 0 {
		t.Patience = composePatience
	}
	t.Start = func(ctx context.Context) (*conformance.Instance, error) {
		if err := reached(ctx, e.URL); err != nil {
			return nil, fmt.Errorf("%w: %w; bring it up with: docker compose --profile %s up --wait", conformance.ErrAbsent, err, e.Service)
		}
		i, err := startElsewhere(ctx, t.Broker, e.URL)
		if err != nil {
			return nil, err
		}
		i.Entity = r.entity
		if t.Broker == "nats" {
			i = natsInstance(i)
		}
		return i, nil
	}
	return t
}

// reached asks whether anybody listens where a URL leads.
func reached(ctx context.Context, raw string) error {
	ctx, cancel := context.WithTimeout(ctx, composeReached)
	defer cancel()
	for _, at := range strings.Split(hostsOf(raw), ",") {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
		if err != nil {
			return fmt.Errorf("nothing listens at %s: %w", at, err)
		}
		_ = c.Close() // it was asked whether it is there, and no more
	}
	return nil
}
