package localstack

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestNATSRestartWithItsPortTaken: while the server is down anybody may get its
// port; the address for clients is the proxy's and stays.
func TestNATSRestartWithItsPortTaken(t *testing.T) {
	e, err := StartNATS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(context.Background())
	url, direct := e.URL(), e.DirectURL()
	b := e.backend.(*natsBackend)
	if err := b.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	thief, err := net.Listen("tcp", strings.TrimPrefix(direct, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer thief.Close()
	if err := e.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.URL() != url || e.DirectURL() == direct {
		t.Errorf("%s, %s", e.URL(), e.DirectURL())
	}
	for _, url := range []string{e.URL(), e.DirectURL()} {
		nc, err := nats.Connect(url)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		nc.Close()
	}
}

// TestFreePorts: a server's ports are none that a client's connection could take
// before the server listens.
func TestFreePorts(t *testing.T) {
	busy, err := listenLow()
	if err != nil {
		t.Fatal(err)
	}
	portAt.Add(^uint32(0)) // its port is the next one again
	defer busy.Close()
	seen := map[int]bool{busy.Addr().(*net.TCPAddr).Port: true}
	for range 3 {
		ports, err := freePorts(20)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range ports {
			if seen[p] || p < lowestPort || p >= 32768 {
				t.Errorf("port %d, of %v", p, ports)
			}
			seen[p] = true
		}
	}
}
