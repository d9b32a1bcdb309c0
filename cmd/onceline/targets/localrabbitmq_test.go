package targets_test

import "testing"

// TestLocalRabbitMQ: the installed RabbitMQ answers as the adapter declares for its
// release.
func TestLocalRabbitMQ(t *testing.T) {
	t.Parallel()
	for _, target := range localTargets(t, "rabbitmq") {
		t.Run(target.Name, func(t *testing.T) { equalLocal(t, target) })
	}
}
