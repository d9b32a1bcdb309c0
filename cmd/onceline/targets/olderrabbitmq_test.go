package targets

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
	"github.com/onceline/onceline/localstack/rabbitmq"
)

// quickSoak is what deliver.exactly-once publishes here; verify's ten thousand take
// the race detector minutes.
const quickSoak = 500

// ofTheBroker are the claims that a release of the broker decides, and not how the
// toolkit guards an effect on it.
var ofTheBroker = []string{"publish.*", "deliver.*", "settle.*", "fence.*", "vendor.*"}

// TestOlderRabbitMQModel: the model of RabbitMQ 3.10 answers as the real one of that
// release does, by what the adapter declares of it.
func TestOlderRabbitMQModel(t *testing.T) {
	t.Parallel()
	const lease, tick = 2 * time.Second, 50 * time.Millisecond
	for _, c := range []struct {
		target conformance.Target
		query  string
	}{
		{rabbitMQClassicTarget(), "?queue=classic"},
		{rabbitMQQuorumTarget(), "?queue=quorum"},
		{rabbitMQStreamTarget(), "?queue=stream&stream-port=PORT"},
	} {
		query := c.query + "&heartbeat=1s"
		c.target.Patience = time.Second
		c.target.Soak = quickSoak
		if !c.target.Exclusive {
			c.target.Session, c.target.Lease = 0, lease
			query += "&consumer-timeout=" + lease.String()
		}
		c.target.Start = func(ctx context.Context) (*conformance.Instance, error) {
			e, err := localstack.StartRabbitMQ(ctx, rabbitmq.WithRelease(rabbitmq.V3), rabbitmq.WithConsumerTimeout(lease), rabbitmq.WithTick(tick),
				rabbitmq.WithMaxMessageSize(localRabbitBody))
			if err != nil {
				return nil, err
			}
			_, port, err := net.SplitHostPort(e.Address())
			if err != nil {
				return nil, err
			}
			i := network(e, strings.ReplaceAll(query, "PORT", port)+"&max-body="+strconv.Itoa(localRabbitBody))
			i.Entity = twoNames("/")
			return i, nil
		}
		c.target.Private = c.target.Start
		t.Run(c.target.Name, func(t *testing.T) {
			t.Parallel()
			conformance.Test(t, c.target, func(o *conformance.Options) { o.Claims = ofTheBroker })
		})
	}
}
