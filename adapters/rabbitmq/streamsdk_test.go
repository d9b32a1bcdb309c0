package rabbitmq

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/logs"
	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/message"
	sdk "github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"

	"github.com/onceline/onceline/broker"
)

// sdkQuiet keeps what the vendor's client logs to itself.
type sdkQuiet struct{}

func (sdkQuiet) Info(string, ...any)  {}
func (sdkQuiet) Error(string, ...any) {}
func (sdkQuiet) Debug(string, ...any) {}
func (sdkQuiet) Warn(string, ...any)  {}

func init() { logs.SetLogger(sdkQuiet{}) }

func sdkEnvironment(t testing.TB, target string) *sdk.Environment {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.Atoi(u.Query().Get("stream-port"))
	// Its default buffers of 8 KiB stall a chunk of more than that for up to a
	// second; 0 leaves them to the system.
	env, err := sdk.NewEnvironment(sdk.NewEnvironmentOptions().SetRPCTimeout(30 * time.Second).SetHost(u.Hostname()).SetPort(port).SetReadBuffer(0).SetWriteBuffer(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { env.Close() })
	return env
}

// The vendor's client and the adapter read each other, compressed batches too.
func TestStreamWithTheVendorsClient(t *testing.T) {
	t.Parallel()
	_, target := streamServer(t)
	streamWithSDK(t, target)
}

func streamWithSDK(t *testing.T, target string) {
	c, env := dialStreams(t, target), sdkEnvironment(t, target)
	e := streamEntity(t, c)
	none := sdk.Compression{}
	var want []string
	for i, o := range []*sdk.ProducerOptions{
		sdk.NewProducerOptions(),
		sdk.NewProducerOptions().SetSubEntrySize(10).SetCompression(none.None()),
		sdk.NewProducerOptions().SetSubEntrySize(10).SetCompression(none.Gzip()),
		sdk.NewProducerOptions().SetSubEntrySize(10).SetCompression(none.Snappy()),
		sdk.NewProducerOptions().SetSubEntrySize(10).SetCompression(none.Lz4()),
		sdk.NewProducerOptions().SetSubEntrySize(10).SetCompression(none.Zstd()),
	} {
		p, err := env.NewProducer(e.Topic, o)
		if err != nil {
			t.Fatal(err)
		}
		confirms := p.NotifyPublishConfirmation()
		var batch []message.StreamMessage
		for n := range 25 {
			m := amqp.NewMessage(fmt.Appendf(nil, "body %d.%d", i, n))
			m.Properties = &amqp.MessageProperties{MessageID: fmt.Sprintf("%d.%d", i, n)}
			batch, want = append(batch, m), append(want, fmt.Sprintf("%d.%d", i, n))
		}
		if err := p.BatchSend(batch); err != nil {
			t.Fatal(err)
		}
		for left := len(batch); left > 0; {
			select {
			case cs := <-confirms:
				left -= len(cs)
			case <-time.After(5 * time.Second):
				t.Fatalf("%d confirms are missing", left)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r := streamRcv(t, c, e)
	ds := receiveN(t, r, len(want))
	if got := idsOf(ds); !slices.Equal(got, want) {
		t.Fatalf("got %v", got)
	}
	var raw *amqp.Message
	if !ds[30].As(&raw) || string(raw.GetData()) != "body 1.5" {
		t.Errorf("As: %v", raw)
	}
	ackAll(t, r, ds)
	if at, err := env.QueryOffset("billing", e.Topic); err != nil || uint64(at) != ds[len(ds)-1].Position.Offset {
		t.Errorf("stored offset %d, %v", at, err)
	}
	publishAll(t, streamPub(t, c, e), broker.Message{ID: "ours", Body: []byte("our body"), Headers: broker.Headers{{Key: "a", Value: "1"}}})
	got := make(chan *amqp.Message, 1000)
	consumer, err := env.NewConsumer(e.Topic, func(_ sdk.ConsumerContext, m *amqp.Message) { got <- m },
		sdk.NewConsumerOptions().SetOffset(sdk.OffsetSpecification{}.Last()))
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	for {
		select {
		case m := <-got:
			if string(m.GetData()) != "our body" {
				continue
			}
			if m.Properties.MessageID != "ours" || m.ApplicationProperties["a"] != "1" {
				t.Errorf("the vendor's client reads %v %v", m.Properties, m.ApplicationProperties)
			}
			return
		case <-time.After(5 * time.Second):
			t.Fatal("the vendor's client got nothing")
		}
	}
}

// Many publish at once and nobody reads notifications (amqp091-go#10); bodies
// around the sizes of frames arrive byte by byte (amqp091-go#160), over
// connections that take little at a time.
func TestStreamConcurrentPublishers(t *testing.T) {
	t.Parallel()
	_, url := streamServer(t)
	c := dialStreams(t, url, Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return piecemeal{nc}, err
	}))
	e := streamEntity(t, c)
	p := streamPub(t, c, e)
	sizes := []int{0, 1, 131_064, 131_065, 1_000_000}
	sums := make([][32]byte, 8*len(sizes))
	var publishing sync.WaitGroup
	for g := range 8 {
		publishing.Go(func() {
			for i, size := range sizes {
				n := g*len(sizes) + i
				body := make([]byte, size)
				for j := range body {
					body[j] = byte(n * (j + 1) >> 3)
				}
				sums[n] = sha256.Sum256(body)
				if _, err := p.Publish(t.Context(), broker.Message{ID: strconv.Itoa(n), Body: body}); err != nil {
					t.Errorf("%d: %v", n, err)
				}
			}
		})
	}
	publishing.Wait()
	r := streamRcv(t, c, e)
	for _, d := range receiveN(t, r, len(sums)) {
		if n, _ := strconv.Atoi(d.ID); sha256.Sum256(d.Body) != sums[n] {
			t.Errorf("%s: another body, of %d bytes", d.ID, len(d.Body))
		}
	}
	for range 200 {
		publishing.Go(func() {
			for range 50 {
				if _, err := p.Publish(t.Context(), broker.Message{ID: "x"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	publishing.Wait()
}

// piecemeal is a connection that takes 4,099 bytes at a time.
type piecemeal struct{ net.Conn }

func (p piecemeal) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		var m int
		m, err = p.Conn.Write(b[:min(len(b), 4099)])
		n, b = n+m, b[m:]
	}
	return n, err
}
