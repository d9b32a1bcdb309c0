package targets

import (
	"fmt"
	"strings"
	"time"

	"github.com/onceline/onceline/conformance"
)

// cloudRequests bounds the requests of one run of all claims against one target, by
// broker. It is three times what a run in real time asks of our models, rounded up,
// for a service is slower and empty answers are more; a test measures it.
var cloudRequests = map[string]int{"sqs": 4000, "pubsub": 4000, "servicebus": 10000}

// Bill says, in a few lines, what a run of all claims would make on the broker that
// a URL leads to and what it would ask of it, for somebody who has to agree to it
// first. It shows no secret.
func Bill(raw string) string {
	t, err := Cloud(raw, nil)
	if err != nil {
		return err.Error()
	}
	scheme, _, _ := strings.Cut(raw, "://")
	host := hostsOf(raw)
	if host == "" {
		host = "the vendor's service"
	}
	probes := len(conformance.Probes()) + 8 // three have a second entity for dead letters, one a second topic, four what a pipeline writes to
	things := fmt.Sprintf("%d queues", probes)
	switch t.Broker {
	case "pubsub", "nats", "kafka":
		things = fmt.Sprintf("%d topics and as many subscriptions", probes)
	case "rabbitmq":
		things = fmt.Sprintf("%d queues with what belongs to them", probes)
	}
	requests := "no bound of its requests is known"
	if n := cloudRequests[t.Broker]; n > 0 {
		requests = fmt.Sprintf("at most %d requests, with bodies of less than 1 KiB but for one of the broker's limit", n)
	}
	return fmt.Sprintf(`%s (%s, %s) is beyond this machine and its private networks.
A run of all claims would make up to %s there, named %sXXXXXXXX-…,
and delete them; %s;
each probe ends after %s at the latest.`,
		t.Name, scheme, host, things, cloudFamily, requests, t.ProbeWithin.Round(time.Second))
}
