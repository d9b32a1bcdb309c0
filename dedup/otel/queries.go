package otel

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/onceline/onceline/dedup"
)

// query asks a store for what a gauge is to say.
type query struct {
	id  int
	ask func(ctx context.Context, o metric.Observer) error
}

// query has a question asked with each collection, in place of an earlier one of that
// name.
func (t *Telemetry) query(name string, ask func(ctx context.Context, o metric.Observer) error) (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := t.next
	t.next++
	t.queries[name] = query{id, ask}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.queries[name].id == id {
			delete(t.queries, name)
		}
	}
}

// observe is what a collection calls.
func (t *Telemetry) observe(ctx context.Context, o metric.Observer) error {
	t.mu.Lock()
	queries := make([]query, 0, len(t.queries))
	for _, q := range t.queries {
		queries = append(queries, q)
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, t.o.bound)
	defer cancel()
	var asking sync.WaitGroup
	for _, q := range queries {
		asking.Go(func() {
			if err := q.ask(ctx, o); err != nil {
				t.mu.Lock()
				t.errors++
				t.mu.Unlock()
				t.o.failed(err)
			}
		})
	}
	asking.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	o.ObserveInt64(t.queryErrors, int64(t.errors))
	t.observeGuards(o)
	t.observeTopics(o)
	return nil
}

// openMost is how many open calls are counted.
const openMost = 1000

func openCalls(t *Telemetry, c *dedup.Calls) func(context.Context, metric.Observer) error {
	with := metric.WithAttributeSet(guardAttributes(Calls, c.Consumer()))
	return func(ctx context.Context, o metric.Observer) error {
		open, err := c.Open(ctx, dedup.Call{}, openMost)
		if err != nil {
			return fmt.Errorf("open calls of %s: %w", c.Consumer(), err)
		}
		oldest := time.Duration(0)
		for i := range open {
			oldest = max(oldest, time.Since(open[i].First))
		}
		o.ObserveInt64(t.openCalls, int64(len(open)), with)
		o.ObserveFloat64(t.openAge, oldest.Seconds(), with)
		return nil
	}
}

// Backlogged is what [Telemetry.Outbox] asks: any [dedup.OutboxStore].
type Backlogged interface {
	OutboxBacklog(ctx context.Context, topic string) (dedup.OutboxBacklog, error)
}

// Outbox exports the backlog of a topic's outbox, for which it asks the store with each
// collection; stop ends that. One process for an outbox is enough, and it need not be
// one of a relay: that a relay is down shows here. A second Outbox of a topic takes the
// first one's place; so it is with consumers of DuplicatesApplied.
func (t *Telemetry) Outbox(topic string, store Backlogged) (stop func()) {
	return t.query("outbox "+topic, func(ctx context.Context, o metric.Observer) error {
		b, err := store.OutboxBacklog(ctx, topic)
		if err != nil {
			return fmt.Errorf("outbox of %s: %w", topic, err)
		}
		name := metric.WithAttributes(destination(topic))
		for _, s := range []struct {
			name string
			n    int64
		}{{"waiting", b.Waiting - b.Retried}, {"retried", b.Retried}, {"held", b.Held}, {"parked", b.Parked}} {
			o.ObserveInt64(t.outbox, s.n, name, metric.WithAttributes(stateKey.String(s.name)))
		}
		o.ObserveFloat64(t.lag, b.Oldest.Seconds(), name)
		return nil
	})
}

// DuplicatesApplied exports duplicate_processing of a consumer: how many effects too
// many there are, as count finds by looking at the effects themselves, over a time
// longer than the markers are kept: how often a business key comes, less once. It is
// asked with each collection, so it has to be cheap (a view that a job refreshes, a
// number that "onceline audit" left), and may fail, which is counted. A number lower
// than one before, after a repair, doesn't lower the counter.
func (t *Telemetry) DuplicatesApplied(consumer string, count func(ctx context.Context) (int64, error)) (stop func()) {
	var mu sync.Mutex
	highest := int64(0)
	return t.query("applied "+consumer, func(ctx context.Context, o metric.Observer) error {
		n, err := count(ctx)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			highest = max(highest, n)
		}
		o.ObserveInt64(t.appliedTwice, highest, metric.WithAttributes(consumerKey.String(consumer)))
		if err != nil {
			return fmt.Errorf("duplicates applied by %s: %w", consumer, err)
		}
		return nil
	})
}
