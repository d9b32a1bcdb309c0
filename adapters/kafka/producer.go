package kafka

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/onceline/onceline/broker"
)

// producer is one client that publishes, with what is needed to judge it.
type producer struct {
	cl     *kgo.Client
	stop   context.CancelFunc // ends everything the client does
	room   *semaphore.Weighted
	size   int64
	chunk  int
	hangar hangar
	// doubts counts produce requests whose answer was lost. A refusal after one
	// doesn't rule out that the earlier attempt was stored.
	doubts atomic.Uint64
	dead   atomic.Bool
}

// defaultBuffer is how many records of all publishers of a connection may be on
// their way.
const defaultBuffer = 10_000

func (c *conn) newProducer(own ...kgo.Opt) (*producer, error) {
	ctx, stop := context.WithCancel(context.Background())
	p := &producer{stop: stop}
	opts := []kgo.Opt{
		kgo.WithContext(ctx),
		kgo.WithHooks(p),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(defaultBuffer),
		kgo.ProducerBatchMaxBytesFn(c.batchMaxOf),
		// A sequence that the broker doesn't know means that it lost records or
		// forgot the producer. Going on under a new epoch could store a second
		// copy without a word, so the client stops and we make a new one.
		kgo.StopProducerOnDataLossDetected(),
	}
	opts = append(opts, c.client()...)
	cl, err := kgo.NewClient(append(opts, own...)...)
	if err != nil {
		stop()
		return nil, broker.Errorf(broker.ErrInvalid, err, "kafka: producer")
	}
	p.cl, p.size = cl, defaultBuffer
	if n, ok := cl.OptValue(kgo.MaxBufferedRecords).(int64); ok && n > 0 {
		p.size = n
	}
	p.chunk = int(min(p.size, 4096))
	p.room = semaphore.NewWeighted(p.size)
	return p, nil
}

// OnBrokerE2E is kgo.HookBrokerE2E.
func (p *producer) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == 0 && (e2e.ReadErr != nil || e2e.WriteErr != nil && e2e.BytesWritten > 0) {
		p.doubts.Add(1)
	}
}

// OnBrokerDisconnect is kgo.HookBrokerDisconnect: a connection that dies with
// requests in flight reports none of them to OnBrokerE2E.
func (p *producer) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { p.doubts.Add(1) }

// close ends the client. What it still holds fails with kgo.ErrClientClosed.
func (p *producer) close(ctx context.Context) {
	_ = within(ctx, p.cl.Close) // everything in it ends by stop; nothing to report
}

// shared returns the connection's producer, a new one if the last is dead.
func (c *conn) shared() (*producer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, broker.Errorf(broker.ErrClosed, nil, "kafka: producer")
	}
	if p := c.producer; p != nil && !p.dead.Load() {
		return p, nil
	} else if p != nil {
		c.log.Warn("kafka: the broker refused the producer's sequence; going on with a new producer")
		c.retire(p)
	}
	p, err := c.newProducer()
	if err != nil {
		return nil, err
	}
	c.producer = p
	return p, nil
}

// retire closes a dead producer aside. Its records have failed or are failing.
// c.mu is held.
func (c *conn) retire(p *producer) {
	c.retiring.Go(func() {
		p.stop()
		p.cl.Close()
	})
}

// batchMaxOf is the largest batch for a topic: what the topic takes, or
// Kafka's default (KAF-F-12) until OpenPublisher has asked.
func (c *conn) batchMaxOf(topic string) int32 {
	if n, ok := c.batchMax.Load(topic); ok {
		return n.(int32)
	}
	return defaultBatchMax
}
