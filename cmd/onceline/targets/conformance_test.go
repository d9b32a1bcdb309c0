package targets

import (
	"testing"
	"time"

	"github.com/onceline/onceline/conformance"
)

// TestConformance asks one target of each broker; "onceline verify" asks all, with a
// longer soak. The clouds' runs show which rights they need, besides.
func TestConformance(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	test := func(target conformance.Target, also func(t *testing.T)) {
		seen[target.Broker] = true
		target.Soak = quickSoak
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			conformance.Test(t, target, func(o *conformance.Options) { o.Timeout = 2 * time.Minute }) // all at once
			also(t)
		})
	}
	for _, r := range cloudRights {
		requests := new(counter)
		test(r.target(r.traced(requests)), func(t *testing.T) { r.check(t, requests) })
	}
	for _, target := range []conformance.Target{Memory(), RabbitMQQuorum(), NATS(), KafkaGroup()} {
		test(target, func(*testing.T) {})
	}
	for _, target := range Embedded() {
		if !seen[target.Broker] {
			t.Errorf("no target of %s is asked", target.Broker)
		}
	}
}
