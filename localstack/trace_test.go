package localstack_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/onceline/onceline/localstack"
)

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestPortAndTrace(t *testing.T) {
	np, kp := freePort(t), freePort(t)
	n, err := localstack.StartNATS(t.Context(), localstack.NATSPort(np))
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, n)
	k, err := localstack.StartKafka(t.Context(), localstack.KafkaPort(kp), localstack.KafkaTopics(1, "a"))
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, k)
	if n.URL() != "nats://127.0.0.1:"+strconv.Itoa(np) || k.URL() != "kafka://127.0.0.1:"+strconv.Itoa(kp) {
		t.Errorf("at %s and %s", n.URL(), k.URL())
	}
	if _, err := localstack.StartNATS(context.Background(), localstack.NATSPort(np)); err == nil {
		t.Error("two emulators on one port")
	}

	var mu sync.Mutex
	var lines []string
	note := func(line string) { mu.Lock(); defer mu.Unlock(); lines = append(lines, line) }
	n.Trace(note)
	k.Trace(note)
	c := natsStream(t, n.URL())
	c.mustPublish("s.a", "1")
	if err := produce(t, kafkaClient(t, k.URL()), "a", "1"); err != nil {
		t.Fatal(err)
	}
	n.Trace(nil)
	k.Trace(nil)
	mu.Lock()
	seen := len(lines)
	all := strings.Join(lines, "\n")
	mu.Unlock()
	if !strings.Contains(all, "PUB s.a, 1 bytes") || !strings.Contains(all, "Produce v") {
		t.Errorf("traced:\n%s", all)
	}
	c.mustPublish("s.a", "2")
	mu.Lock()
	defer mu.Unlock()
	for _, line := range lines[seen:] {
		if strings.HasPrefix(line, "PUB s.a") {
			t.Errorf("traced after its end: %s", line)
		}
	}
}
