package otel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
)

// relays are those of one topic.
type relays struct {
	past dedup.RelayStats // of those that are watched no more
	live map[int]*dedup.Relay
}

// Relay exports the counts of a relay; stop ends that, and what was counted stays.
func (t *Telemetry) Relay(r *dedup.Relay) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.relays[r.Topic()]
	if all == nil {
		all = &relays{live: map[int]*dedup.Relay{}}
		t.relays[r.Topic()] = all
	}
	id := t.next
	t.next++
	all.live[id] = r
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if all.live[id] != nil {
			delete(all.live, id)
			all.past = all.past.Add(r.Stats())
		}
	}
}

// Published makes what RelayOptions.Published of a relay of the topic is to be.
func (t *Telemetry) Published(topic string) func(dedup.RelayPublish) {
	options := []metric.RecordOption{metric.WithAttributes(destination(topic))}
	return func(p dedup.RelayPublish) {
		ctx := context.Background()
		t.publishDuration.Record(ctx, p.Took.Seconds(), options...)
		if p.Retried > 0 {
			t.retryAge.Record(ctx, p.RetryAge.Seconds(), options...)
		}
	}
}

// windowed are publishers of one topic.
type windowed struct {
	n      int
	window time.Duration
}

// Publisher exports how old the messages are that p sends to a topic, and how long its
// broker remembers their IDs: a message that is sent when the broker has forgotten its
// ID becomes a second one. The age is by the message's Time, which the first attempt
// sets and retries keep; where it is the time of a business event, as in an outbox, the
// age says nothing about retries. [broker.Retry] belongs around the result, so that each
// attempt is seen. Close ends the export.
func (t *Telemetry) Publisher(p broker.Publisher, topic string) broker.Publisher {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.windows[topic]
	if w == nil {
		w = &windowed{}
		t.windows[topic] = w
	}
	w.n++
	w.window = p.Limits().Window
	return &publisher{Publisher: p, t: t, topic: topic, options: []metric.RecordOption{metric.WithAttributes(destination(topic))}}
}

type publisher struct {
	broker.Publisher
	t       *Telemetry
	topic   string
	options []metric.RecordOption
	closed  bool // by t.mu
}

// Now is the clock of what is wrapped, which other wrappers ask for.
func (p *publisher) Now() time.Time {
	if c, ok := p.Publisher.(interface{ Now() time.Time }); ok {
		return c.Now()
	}
	return time.Now()
}

// Publish implements [broker.Publisher].
func (p *publisher) Publish(ctx context.Context, msgs ...broker.Message) ([]broker.Receipt, error) {
	if len(msgs) > 0 {
		now, oldest := p.Now(), time.Duration(0)
		for i := range msgs {
			if !msgs[i].Time.IsZero() {
				oldest = max(oldest, now.Sub(msgs[i].Time))
			}
		}
		p.t.publishAge.Record(ctx, oldest.Seconds(), p.options...)
	}
	return p.Publisher.Publish(ctx, msgs...)
}

// Close implements [broker.Publisher].
func (p *publisher) Close(ctx context.Context) error {
	p.t.mu.Lock()
	if !p.closed {
		p.closed = true
		p.t.windows[p.topic].n--
	}
	p.t.mu.Unlock()
	return p.Publisher.Close(ctx)
}

// group is a receiver's part in a consumer group.
type group struct{ sessions, gained, lost int64 }

// Rebalances makes an option of OpenReceiver that counts the rebalances of the
// subscription's consumer group, and the partitions that come and go, as
// [broker.WatchAssignment] sees them: with Kafka's consumer groups, and nowhere else. A
// receiver that is opened makes one of its own.
func (t *Telemetry) Rebalances(subscription string) broker.ReceiverOption {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[subscription]
	if g == nil {
		g = &group{}
		t.groups[subscription] = g
	}
	return broker.WatchAssignment(func(a broker.Assignment) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if a.Began {
			g.sessions++
		}
		g.gained += int64(a.Gained)
		g.lost += int64(a.Lost)
	})
}

// observeTopics observes relays, publishers and groups; mu is held.
func (t *Telemetry) observeTopics(o metric.Observer) {
	for topic, all := range t.relays {
		sum, window := all.past, time.Duration(0)
		for _, r := range all.live {
			sum, window = sum.Add(r.Stats()), max(window, r.Window())
		}
		name := metric.WithAttributes(destination(topic))
		for _, v := range []struct {
			name string
			n    uint64
		}{{"stored", sum.Stored}, {"duplicate", sum.Duplicate}, {"accepted", sum.Accepted}, {"refused", sum.Refused}, {"unknown", sum.Unknown}} {
			o.ObserveInt64(t.relayed, int64(v.n), name, metric.WithAttributes(verdictKey.String(v.name)))
		}
		o.ObserveInt64(t.stopped, int64(sum.Held), name, metric.WithAttributes(stateKey.String("held")))
		o.ObserveInt64(t.stopped, int64(sum.Parked), name, metric.WithAttributes(stateKey.String("parked")))
		o.ObserveInt64(t.publishes, int64(sum.Publishes), name)
		o.ObserveInt64(t.relayErrors, int64(sum.Errors), name)
		if window > 0 {
			o.ObserveFloat64(t.relayWindow, window.Seconds(), name)
		}
	}
	for topic, w := range t.windows {
		if w.n > 0 && w.window > 0 {
			o.ObserveFloat64(t.publishWindow, w.window.Seconds(), metric.WithAttributes(destination(topic)))
		}
	}
	for subscription, g := range t.groups {
		name := metric.WithAttributes(destination(subscription))
		o.ObserveInt64(t.rebalances, g.sessions, name)
		o.ObserveInt64(t.gained, g.gained, name)
		o.ObserveInt64(t.lost, g.lost, name)
	}
}
