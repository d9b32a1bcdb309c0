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
	ask asking
}

// asking returns how its answer is observed, which may be known also with an error.
type asking func(ctx context.Context) (func(o metric.Observer), error)

// query has a question asked with each collection, in place of an earlier one of that
// name.
func (t *Telemetry) query(name string, ask asking) (stop func()) {
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

// observe is what a collection calls. The stores are asked at a time, and must heed
// their context.
func (t *Telemetry) observe(ctx context.Context, o metric.Observer) error {
	t.mu.Lock()
	queries := make([]query, 0, len(t.queries))
	for _, q := range t.queries {
		queries = append(queries, q)
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, t.o.bound)
	defer cancel()
	var all sync.WaitGroup
	answers := make([]func(metric.Observer), len(queries))
	errs := make([]error, len(queries))
	for i, q := range queries {
		all.Go(func() { answers[i], errs[i] = q.ask(ctx) })
	}
	all.Wait()
	failed := uint64(0)
	for i := range queries {
		if answers[i] != nil {
			answers[i](o)
		}
		if errs[i] != nil {
			failed++
			t.o.failed(errs[i])
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errors += failed
	o.ObserveInt64(t.queryErrors, int64(t.errors))
	t.observeGuards(o)
	t.observeTopics(o)
	return nil
}

// openMost is how many open calls are counted.
const openMost = 1000

func openCalls(t *Telemetry, c *dedup.Calls) asking {
	with := metric.WithAttributeSet(guardAttributes(Calls, c.Consumer()))
	return func(ctx context.Context) (func(metric.Observer), error) {
		open, err := c.Open(ctx, dedup.Call{}, openMost)
		if err != nil {
			return nil, fmt.Errorf("open calls of %s: %w", c.Consumer(), err)
		}
		oldest := time.Duration(0)
		for i := range open {
			oldest = max(oldest, time.Since(open[i].First))
		}
		return func(o metric.Observer) {
			o.ObserveInt64(t.openCalls, int64(len(open)), with)
			o.ObserveFloat64(t.openAge, oldest.Seconds(), with)
		}, nil
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
	return t.query("outbox "+topic, func(ctx context.Context) (func(metric.Observer), error) {
		b, err := store.OutboxBacklog(ctx, topic)
		if err != nil {
			return nil, fmt.Errorf("outbox of %s: %w", topic, err)
		}
		return func(o metric.Observer) {
			name := metric.WithAttributes(destination(topic))
			for _, s := range []struct {
				name string
				n    int64
			}{{"waiting", b.Waiting - b.Retried}, {"retried", b.Retried}, {"held", b.Held}, {"parked", b.Parked}} {
				o.ObserveInt64(t.outbox, s.n, name, metric.WithAttributes(stateKey.String(s.name)))
			}
			o.ObserveFloat64(t.lag, b.Oldest.Seconds(), name)
		}, nil
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
	return t.query("applied "+consumer, func(ctx context.Context) (func(metric.Observer), error) {
		n, err := count(ctx)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			highest = max(highest, n)
		} else {
			err = fmt.Errorf("duplicates applied by %s: %w", consumer, err)
		}
		known := highest
		return func(o metric.Observer) {
			o.ObserveInt64(t.appliedTwice, known, metric.WithAttributes(consumerKey.String(consumer)))
		}, err
	})
}
