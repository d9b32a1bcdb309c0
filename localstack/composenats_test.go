package localstack_test

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// TestComposeNATS: the server itself understands what docker-compose.yml mounts, and keeps what it acknowledges.
func TestComposeNATS(t *testing.T) {
	o, err := server.ProcessConfigFile("compose/nats/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !o.JetStream || !o.SyncAlways || o.Port != 4222 || o.HTTPPort != 8222 {
		t.Errorf("JetStream %v, sync always %v, ports %d and %d", o.JetStream, o.SyncAlways, o.Port, o.HTTPPort)
	}
}
