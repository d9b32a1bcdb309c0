package localstack_test

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/localstack"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/logs"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/message"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
)

// quiet keeps what the vendor's client of streams logs to itself.
type quiet struct{}

func (quiet) Info(string, ...any)  {}
func (quiet) Error(string, ...any) {}
func (quiet) Debug(string, ...any) {}
func (quiet) Warn(string, ...any)  {}

// silenced sets the SDK's logger, which its goroutines read, once.
var silenced sync.Once

func streamEnvironment(t *testing.T, url string) *stream.Environment {
	t.Helper()
	silenced.Do(func() { logs.SetLogger(quiet{}) })
	host, port, err := net.SplitHostPort(strings.TrimPrefix(url, "rabbitmq://"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	env, err := stream.NewEnvironment(stream.NewEnvironmentOptions().SetRPCTimeout(30 * time.Second).SetHost(host).SetPort(n).SetUser("guest").SetPassword("guest").
		SetRPCTimeout(2 * time.Second).                                  // also of what it asks of a connection that was cut
		SetAddressResolver(stream.AddressResolver{Host: host, Port: n})) // the model knows no proxy
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// streamSend publishes the IDs in one request and returns those that are confirmed
// before there is none for a while.
func streamSend(t *testing.T, p *stream.Producer, confirms stream.ChannelPublishConfirm, want int, ids ...int64) []int64 {
	t.Helper()
	var batch []message.StreamMessage
	for _, id := range ids {
		m := amqp.NewMessage([]byte(strconv.FormatInt(id, 10)))
		m.SetPublishingId(id)
		batch = append(batch, m)
	}
	if err := p.BatchSend(batch); err != nil {
		t.Fatal(err)
	}
	var confirmed []int64
	late := time.After(10 * time.Second)
	for len(confirmed) < want {
		select {
		case cs := <-confirms:
			for _, c := range cs {
				if c.IsConfirmed() {
					confirmed = append(confirmed, c.GetPublishingId())
				} else {
					want--
				}
			}
		case <-late:
			t.Fatalf("%v confirmed, want %d", confirmed, want)
		}
	}
	return confirmed
}

// rabbitStreamFaults asks a RabbitMQ behind the proxy for faults on streams.
func rabbitStreamFaults(t *testing.T, e localstack.Emulator) {
	env := streamEnvironment(t, e.URL())
	defer env.Close()
	if err := env.DeclareStream("s", stream.NewStreamOptions()); err != nil {
		t.Fatal(err)
	}
	p, err := env.NewProducer("s", stream.NewProducerOptions().SetProducerName("p"))
	if err != nil {
		t.Fatal(err)
	}
	confirms := p.NotifyPublishConfirmation()
	streamSend(t, p, confirms, 2, 1, 2)
	lost := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Match: "s", Times: 1})
	streamSend(t, p, confirms, 0, 3, 4)
	if err := lost.WaitApplied(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts(t, lost, 1, 1, 0)
	if got := streamSend(t, p, confirms, 1, 5); !slices.Equal(got, []int64{5}) {
		t.Errorf("%v confirmed, want 5 alone", got)
	}
	refused := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.Error, Match: "s", Times: 1})
	if got := streamSend(t, p, confirms, 1, 6); len(got) != 0 {
		t.Errorf("%v confirmed against an injected refusal", got)
	}
	counts(t, refused, 1, 0, 0)
	dropped := inject(t, e, localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseRequest, Match: "s", Times: 1})
	streamSend(t, p, confirms, 0, 7)
	if got := streamSend(t, p, confirms, 1, 8); !slices.Equal(got, []int64{8}) {
		t.Errorf("%v confirmed, want 8 alone", got)
	}
	counts(t, dropped, 1, 0, 0)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if got := streamRead(t, env, 6); !slices.Equal(got, []string{"1", "2", "3", "4", "5", "8"}) {
		t.Errorf("stored %v", got)
	}

	none := inject(t, e, localstack.Fault{Op: localstack.Settle, API: "QueryOffset", Kind: localstack.Error, Match: "s", Times: 1})
	if _, err := env.QueryOffset("c", "s"); err == nil {
		t.Error("an injected refusal was not seen")
	}
	counts(t, none, 1, 0, 0)
	cut := inject(t, e, localstack.Fault{Op: localstack.Receive, Kind: localstack.LoseResponse, Match: "s", Times: 1})
	// The connection ends right behind the answer to this, and the SDK may see its end first.
	_, err = env.NewConsumer("s", func(stream.ConsumerContext, *amqp.Message) {}, stream.NewConsumerOptions().SetOffset(stream.OffsetSpecification{}.First()))
	if err := errors.Join(err, cut.WaitApplied(t.Context())); cut.Applied() == 0 {
		t.Fatal(err)
	}
	counts(t, cut, 1, 1, 0)
	if got := streamRead(t, env, 6); len(got) != 6 {
		t.Errorf("read %v after a lost chunk", got)
	}
}

// streamRead returns the first n messages of stream s.
func streamRead(t *testing.T, env *stream.Environment, n int) []string {
	t.Helper()
	got := make(chan string, 100)
	// The SDK may subscribe on a connection that a fault has just cut, and then waits two
	// seconds in vain.
	var c *stream.Consumer
	for tries := 3; ; tries-- {
		var err error
		c, err = env.NewConsumer("s", func(_ stream.ConsumerContext, m *amqp.Message) { got <- string(m.GetData()) },
			stream.NewConsumerOptions().SetOffset(stream.OffsetSpecification{}.First()))
		if err == nil {
			break
		}
		if tries == 1 {
			t.Fatal(err)
		}
	}
	defer c.Close()
	var all []string
	late := time.After(10 * time.Second)
	for len(all) < n {
		select {
		case s := <-got:
			all = append(all, s)
		case <-late:
			t.Fatalf("read %v, want %d", all, n)
		}
	}
	return all
}

func TestRabbitMQStreamProxyOnTheModel(t *testing.T) {
	m, err := localstack.StartRabbitMQ(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, m)
	e := localstack.ProxyOfRabbitMQ(t, m.Address())
	closeAtEnd(t, e)
	rabbitStreamFaults(t, e)
}
