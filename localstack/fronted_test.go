package localstack_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/localstack"
)

// fronted puts faults in front of an address, until the test ends.
func fronted(t *testing.T, broker, address string, options ...localstack.FrontOption) *localstack.Fronted {
	t.Helper()
	f, err := localstack.Front(t.Context(), broker, address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		for range 2 { // the second has nothing to do
			if err := f.Close(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	return f
}

func stopped(t *testing.T, e localstack.Emulator, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// TestFrontNATS: a publish whose answer is lost in front of a server is stored, and
// the client doesn't hear.
func TestFrontNATS(t *testing.T) {
	e, err := localstack.StartNATS(t.Context())
	stopped(t, e, err)
	f := fronted(t, localstack.NATSName, e.Address())
	nc, err := nats.Connect("nats://" + f.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{"s"}})
	if err != nil {
		t.Fatal(err)
	}
	i := f.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: "s", Times: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := js.Publish(ctx, "s", []byte("x"), jetstream.WithRetryAttempts(0)); err == nil {
		t.Error("the answer came")
	}
	if i.Hits() != 1 || i.Applied() != 1 {
		t.Errorf("%d hits, %d applied", i.Hits(), i.Applied())
	}
	info, err := s.Info(t.Context())
	if err != nil || info.State.Msgs != 1 {
		t.Errorf("%d messages, %v", info.State.Msgs, err)
	}
	if n := f.Disconnect(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// says is a server that says a line to whoever comes, and remembers nothing.
func says(t *testing.T, line string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprint(c, line)
			all.Go(func() {
				_, _ = c.Read(make([]byte, 1))
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); all.Wait() })
	return ln.Addr().String()
}

// TestFrontNATSCluster: a client behind the front doesn't hear of servers that it
// would reach around it.
func TestFrontNATSCluster(t *testing.T) {
	at := says(t, `INFO {"server_id":"x","max_payload":1048576,"connect_urls":["10.0.0.1:4222","10.0.0.2:4222"]}`+"\r\nPING\r\n")
	f := fronted(t, localstack.NATSName, at)
	c, err := net.Dial("tcp", f.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var info map[string]any
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "INFO ")), &info); err != nil {
		t.Fatal(err)
	}
	if _, told := info["connect_urls"]; told || info["server_id"] != "x" || info["max_payload"] != 1048576.0 {
		t.Errorf("it hears %s", line)
	}
	if next, err := in.ReadString('\n'); err != nil || next != "PING\r\n" {
		t.Errorf("then %q, %v", next, err)
	}
}

// TestFrontRefuses what it can't look into, or can't reach.
func TestFrontRefuses(t *testing.T) {
	for name, c := range map[string]struct{ broker, address, want string }{
		"a NATS with TLS": {localstack.NATSName, says(t, `INFO {"tls_required":true}`+"\r\n"), localstack.ErrNoFront.Error()},
		"no NATS":         {localstack.NATSName, says(t, "220 mail\r\n"), "doesn't speak its protocol"},
		"Service Bus":     {localstack.ServiceBusName, says(t, ""), localstack.ErrNoFront.Error()},
		"nobody":          {localstack.KafkaName, "127.0.0.1:1", "refused"},
		"one of two":      {localstack.KafkaName, says(t, "") + ",127.0.0.1:1", "refused"},
		"no address":      {localstack.SQSName, "", "missing"},
	} {
		f, err := localstack.Front(t.Context(), c.broker, c.address)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}

// TestFrontKafka: clients of a cluster get to each node through the front, though
// the nodes say where they are; the rest of their answers is what it was.
func TestFrontKafka(t *testing.T) {
	e, err := localstack.StartKafka(t.Context(), localstack.KafkaBrokers(3))
	stopped(t, e, err)
	f := fronted(t, localstack.KafkaName, strings.Split(e.Address(), ",")[0])
	var mu sync.Mutex
	var dialed []string
	client, err := kgo.NewClient(kgo.SeedBrokers(f.Address()), kgo.DefaultProduceTopic("t"), kgo.ConsumeTopics("t"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.Dialer(func(ctx context.Context, network, at string) (net.Conn, error) {
			mu.Lock()
			dialed = append(dialed, at)
			mu.Unlock()
			return new(net.Dialer).DialContext(ctx, network, at)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 3, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	for partition := range int32(3) { // a leader each
		if err := client.ProduceSync(t.Context(), &kgo.Record{Partition: partition, Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for got := 0; got < 3; {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		got += fetches.NumRecords()
	}
	nodes := strings.Split(e.Address(), ",")
	mu.Lock()
	for _, at := range dialed {
		if slices.Contains(nodes, at) {
			t.Errorf("the client went to %s, around the front", at)
		}
	}
	others := len(dialed)
	mu.Unlock()
	if others < 3 {
		t.Errorf("%d connections for three nodes", others)
	}
	i := f.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: "t", Times: 1, Cut: true})
	if err := client.ProduceSync(t.Context(), &kgo.Record{Partition: 2, Value: []byte("y")}).FirstErr(); err != nil {
		t.Fatal(err) // the client asks again, and the broker knows it
	}
	if i.Hits() != 1 || i.Applied() != 1 {
		t.Errorf("%d hits, %d applied", i.Hits(), i.Applied())
	}
	if err := f.Inject(localstack.Fault{Op: localstack.Any, API: "Nonsense", Kind: localstack.LoseRequest}).Err(); err == nil {
		t.Error("a request that Kafka hasn't is refused nowhere")
	}
	brokers, err := kadm.NewClient(client).ListBrokers(t.Context())
	if err != nil || len(brokers) != 3 {
		t.Errorf("%d nodes, %v", len(brokers), err)
	}
}

// TestFrontBytes: what nobody here can look into can be silenced and cut all the same,
// and says that no operation of it can be struck.
func TestFrontBytes(t *testing.T) {
	at := says(t, `INFO {"tls_required":true}`+"\r\n")
	f := fronted(t, localstack.NATSName, at, localstack.FrontBytes())
	if err := f.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse}).Err(); !errors.Is(err, localstack.ErrNoFront) {
		t.Errorf("a fault is armed that strikes nowhere: %v", err)
	}
	f.Freeze()
	c, err := net.Dial("tcp", f.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes in a frozen network: %v", n, err)
	}
	f.Thaw()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "INFO") {
		t.Errorf("%q, %v", line, err)
	}
	if n := f.Disconnect(); n != 1 {
		t.Errorf("%d connections were cut", n)
	}
	if _, err := r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection was cut, and reading from it ends with %v", err)
	}
	if n := f.Disconnect(); n != 0 {
		t.Errorf("%d connections were cut again", n)
	}
	if _, err := localstack.Front(t.Context(), localstack.KafkaName, at, localstack.FrontBytes()); !errors.Is(err, localstack.ErrNoFront) {
		t.Errorf("Kafka's clients would go to the nodes, past the front: %v", err)
	}
}

// TestFrontFreeze: what is frozen moves on after Thaw, and Close ends what waits.
func TestFrontFreeze(t *testing.T) {
	e, err := localstack.StartNATS(t.Context())
	stopped(t, e, err)
	f := fronted(t, localstack.NATSName, e.Address())
	nc, err := nats.Connect("nats://" + f.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	f.Freeze()
	flushed := make(chan error, 1)
	go func() { flushed <- nc.FlushTimeout(10 * time.Second) }()
	select {
	case err := <-flushed:
		t.Fatalf("an answer in a frozen network: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	f.Thaw()
	if err := <-flushed; err != nil {
		t.Error(err)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if c, err := net.Dial("tcp", f.Address()); err == nil {
		_ = c.Close()
		t.Error("it still listens")
	}
}
