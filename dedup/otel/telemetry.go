package otel

import (
	"errors"
	"sync"
	"time"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

const scope = "github.com/onceline/onceline/dedup/otel"

// Option changes what [New] makes.
type Option func(*options)

type options struct {
	meters metric.MeterProvider
	bound  time.Duration
	failed func(error)
}

// WithMeterProvider says where metrics go. The default is the global provider at the
// time of New.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// WithQueryTimeout bounds what a collection waits for stores that are asked, for all of
// them together. A gauge whose store doesn't answer has no value in that collection.
// The default is 5 s, which is below what Prometheus waits for a scrape.
func WithQueryTimeout(d time.Duration) Option { return func(o *options) { o.bound = d } }

// WithErrorHook gets the errors of stores that are asked. They are counted anyway. The
// hook must not block; collections at the same time call it at the same time.
func WithErrorHook(f func(error)) Option { return func(o *options) { o.failed = f } }

// Telemetry exports the counts of what it is told to watch. It is safe for concurrent
// use.
type Telemetry struct {
	o            options
	registration metric.Registration

	mu      sync.Mutex
	guards  map[guardKey]*guard
	relays  map[string]*relays
	queries map[string]query
	windows map[string]*windowed // of publishers, by topic
	groups  map[string]*group
	errors  uint64
	next    int

	instruments
}

// New makes a Telemetry. The error is one of a meter that can't make an instrument.
func New(opts ...Option) (*Telemetry, error) {
	t := &Telemetry{o: options{meters: otelapi.GetMeterProvider(), bound: 5 * time.Second, failed: func(error) {}},
		guards: map[guardKey]*guard{}, relays: map[string]*relays{}, queries: map[string]query{}, windows: map[string]*windowed{}, groups: map[string]*group{}}
	for _, opt := range opts {
		opt(&t.o)
	}
	m := t.o.meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	if err := t.instruments.make(m); err != nil {
		return nil, err
	}
	var err error
	t.registration, err = m.RegisterCallback(t.observe, t.instruments.observed...)
	return t, err
}

// Close ends the export. What was returned by the methods of t may still be called.
func (t *Telemetry) Close() error { return t.registration.Unregister() }

const (
	consumerKey = attribute.Key("onceline.consumer")
	guardKind   = attribute.Key("onceline.guard")
	outcomeKey  = attribute.Key("onceline.outcome")
	decisionKey = attribute.Key("onceline.decision")
	reasonKey   = attribute.Key("onceline.reason")
	verdictKey  = attribute.Key("onceline.verdict")
	stateKey    = attribute.Key("onceline.state")
)

// destination names a topic or a subscription.
func destination(name string) attribute.KeyValue { return semconv.MessagingDestinationName(name) }

// instruments are all that a Telemetry has.
type instruments struct {
	observed []metric.Observable
	errs     []error
	m        metric.Meter

	caught, appliedTwice, stuck, rebalances                    metric.Int64ObservableCounter
	messages, decisions, ambiguous, retries, fenced, leaseLost metric.Int64ObservableCounter
	suspected, late, suspectIDs, queryErrors, unresolved       metric.Int64ObservableCounter
	gained, lost, relayed, stopped, publishes, relayErrors     metric.Int64ObservableCounter
	running, openCalls, outbox                                 metric.Int64ObservableUpDownCounter
	window, openAge, relayWindow, lag, publishWindow           metric.Float64ObservableGauge
	duration, retryAge, publishDuration, publishAge            metric.Float64Histogram
	batch                                                      metric.Int64Histogram
}

func (i *instruments) make(m metric.Meter) error {
	i.m = m
	i.caught = i.counter("duplicates_caught", "{message}", "Copies of messages whose effect was not applied again.")
	i.appliedTwice = i.counter("duplicate_processing", "{effect}", "Effects that were applied more than once, as an audit of the effects finds.")
	i.stuck = i.counter("stuck_processing_records", "{record}", "Messages found begun by somebody who crashed or froze before it was recorded how that went.")
	i.rebalances = i.counter("consumer_group_rebalance_count", "{rebalance}", "Sessions of a consumer group that began for this receiver.")

	i.messages = i.counter("onceline.dedup.messages", "{message}", "Messages by what became of their effect.")
	i.decisions = i.counter("onceline.dedup.decisions", "{message}", "What handlers told the broker to do with messages, and of dead letters why.")
	i.ambiguous = i.counter("onceline.dedup.ambiguous_commits", "{commit}", "Commits whose answer was lost.")
	i.retries = i.counter("onceline.dedup.retries", "{attempt}", "Transactions, and questions to a store, that were tried again.")
	i.fenced = i.counter("onceline.dedup.fenced", "{transaction}", "Transactions that were refused because another owner had moved the position.")
	i.leaseLost = i.counter("onceline.dedup.lease_lost", "{lease}", "Leases that were lost before it was recorded how their effect went.")
	i.suspected = i.counter("onceline.dedup.suspected_duplicates", "{effect}", "Effects that took place and that another may have applied too.")
	i.late = i.counter("onceline.dedup.late", "{message}", "Messages that were applied although they were older than markers are kept.")
	i.suspectIDs = i.counter("onceline.dedup.suspect_ids", "{message}", "Messages whose ID is a hash of the body, or looks made anew for each attempt.")
	i.queryErrors = i.counter("onceline.dedup.query_errors", "{error}", "Questions for metrics that a store did not answer.")
	i.unresolved = i.counter("onceline.calls.unresolved", "{call}", "Calls that came to wait for somebody to find out whether they took place.")
	i.gained = i.counter("onceline.partitions.assigned", "{partition}", "Partitions that a receiver was assigned.")
	i.lost = i.counter("onceline.partitions.lost", "{partition}", "Partitions that a receiver was assigned and that went elsewhere.")
	i.relayed = i.counter("onceline.relay.messages", "{message}", "Attempts to send messages of an outbox, by what the broker said.")
	i.stopped = i.counter("onceline.relay.stopped", "{message}", "Messages of an outbox that a relay stopped, until somebody decides.")
	i.publishes = i.counter("onceline.relay.publishes", "{call}", "Calls of Publish by a relay.")
	i.relayErrors = i.counter("onceline.relay.errors", "{error}", "Errors of a relay's store or broker.")

	i.running = i.upDown("onceline.dedup.running", "{message}", "Messages in calls that have not ended.")
	i.openCalls = i.upDown("onceline.calls.open", "{call}", "Calls that wait for somebody to decide, up to a thousand.")
	i.outbox = i.upDown("onceline.outbox.messages", "{message}", "Messages in an outbox.")
	i.window = i.gauge("onceline.dedup.window", "How long a store keeps markers.")
	i.openAge = i.gauge("onceline.calls.open_age", "Time since the call was begun that waits longest for somebody to decide.")
	i.relayWindow = i.gauge("onceline.relay.window", "How long the broker remembers IDs, as a relay takes it.")
	i.lag = i.gauge("onceline.outbox.lag", "Time since the oldest waiting message of an outbox was written.")
	i.publishWindow = i.gauge("onceline.publish.window", "How long the broker remembers IDs, as a publisher says.")

	short := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	long := []float64{.1, .5, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400}
	i.duration = i.histogram("onceline.dedup.duration", "Duration of calls, from claim to commit.", short)
	i.publishDuration = i.histogram("onceline.relay.publish.duration", "Duration of a relay's Publish.", short)
	i.retryAge = i.histogram("onceline.relay.retry_age", "How long before a relay's retry the broker may first have stored the oldest message.", long)
	i.publishAge = i.histogram("onceline.publish.age", "Age of the oldest message of a Publish when it was sent.", long)
	var err error
	i.batch, err = m.Int64Histogram("onceline.dedup.batch", metric.WithUnit("{message}"), metric.WithDescription("Messages of calls."),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500))
	return errors.Join(append(i.errs, err)...)
}

func (i *instruments) counter(name, unit, what string) metric.Int64ObservableCounter {
	c, err := i.m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
	i.observed, i.errs = append(i.observed, c), append(i.errs, err)
	return c
}

func (i *instruments) upDown(name, unit, what string) metric.Int64ObservableUpDownCounter {
	c, err := i.m.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
	i.observed, i.errs = append(i.observed, c), append(i.errs, err)
	return c
}

func (i *instruments) gauge(name, what string) metric.Float64ObservableGauge {
	g, err := i.m.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(what))
	i.observed, i.errs = append(i.observed, g), append(i.errs, err)
	return g
}

func (i *instruments) histogram(name, what string, bounds []float64) metric.Float64Histogram {
	h, err := i.m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
	i.errs = append(i.errs, err)
	return h
}
