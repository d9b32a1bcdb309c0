package localstack

import (
	"context"
	"errors"

	"github.com/onceline/onceline/localstack/pubsub"
	"github.com/onceline/onceline/localstack/rabbitmq"
	"github.com/onceline/onceline/localstack/rabbitmq/stream"
	"github.com/onceline/onceline/localstack/servicebus"
	"github.com/onceline/onceline/localstack/sqs"
)

// Model is a broker of our own, running in this process. It implements [Clocked].
type Model struct{ *modelled }

// asDocumented dates what the vendors' services are modelled on.
const asDocumented = "model, as documented in November 2026"

// StartSQS runs a model of Amazon SQS, standard and FIFO queues, and returns when
// it takes clients. What package localstack/sqs says holds.
func StartSQS(ctx context.Context, options ...sqs.Option) (*Model, error) {
	return startSQS(ctx, nil, options...)
}

func startSQS(_ context.Context, ports []int, options ...sqs.Option) (*Model, error) {
	trace := new(tracer)
	return start(SQSName, queues{sqs.New(append(options, sqs.Trace(trace.line), sqs.TraceWhen(trace.on))...)}, trace, map[string]string{"sqs": asDocumented}, ports)
}

// queues is SQS, which refuses faults on operations that it doesn't have.
type queues struct{ *sqs.Server }

// Inject arms a fault.
func (q queues) Inject(f Fault) *Injection {
	var err error
	if f.API != "" {
		err = sqs.CheckAPI(f.API)
	}
	return q.Faults().Inject(f, err)
}

// Project is the Google Cloud project in the URL of Pub/Sub's model and emulator, which
// take any.
const Project = "onceline"

// StartPubSub runs a model of Google Pub/Sub and returns when it takes clients.
// What package localstack/pubsub says holds.
func StartPubSub(ctx context.Context, options ...pubsub.Option) (*Model, error) {
	return startPubSub(ctx, nil, options...)
}

func startPubSub(_ context.Context, ports []int, options ...pubsub.Option) (*Model, error) {
	trace := new(tracer)
	return start(PubSubName, pubsub.New(append(options, pubsub.Trace(trace.line), pubsub.TraceWhen(trace.on))...), trace, map[string]string{"pubsub": asDocumented}, ports)
}

// StartServiceBus runs a model of Azure Service Bus: AMQP 1.0 and the
// administration's HTTP interface on one port. It returns when it takes clients.
// What package localstack/servicebus says holds.
func StartServiceBus(ctx context.Context, options ...servicebus.Option) (*Model, error) {
	return startServiceBus(ctx, nil, options...)
}

func startServiceBus(_ context.Context, ports []int, options ...servicebus.Option) (*Model, error) {
	trace := new(tracer)
	return start(ServiceBusName, servicebus.New(append(options, servicebus.Trace(trace.line), servicebus.TraceWhen(trace.on))...), trace, map[string]string{"servicebus": asDocumented}, ports)
}

// StartRabbitMQ runs a model of RabbitMQ 4, or of the release that is chosen by
// rabbitmq.WithRelease: AMQP 0-9-1 and the stream protocol on one port. It returns when it takes clients. What the packages
// localstack/rabbitmq and its stream say holds.
func StartRabbitMQ(ctx context.Context, options ...rabbitmq.Option) (*Model, error) {
	return startRabbitMQ(ctx, nil, options...)
}

func startRabbitMQ(_ context.Context, ports []int, options ...rabbitmq.Option) (*Model, error) {
	trace := new(tracer)
	m := new(rabbit)
	release, version := rabbitmq.ReleaseOf(options...), "model of 4.x"
	if release == rabbitmq.V3 {
		version = release.Version() + ", model"
	}
	m.streams = stream.New(stream.Version(release.Version()), stream.Trace(trace.line), stream.TraceWhen(trace.on), stream.Authenticate(func(user, password string) bool {
		return m.Authenticate(user, password)
	}))
	m.Server = rabbitmq.New(append([]rabbitmq.Option{rabbitmq.WithClock(m.streams.Clock()), rabbitmq.WithFaults(m.streams.Faults()),
		rabbitmq.WithStreams(m.streams), rabbitmq.Trace(trace.line), rabbitmq.TraceWhen(trace.on)}, options...)...)
	return start(RabbitMQName, m, trace, map[string]string{"rabbitmq": version}, ports)
}

// rabbit is both protocols of RabbitMQ, with one clock and one set of faults.
type rabbit struct {
	*rabbitmq.Server
	streams *stream.Server
}

// Restart restarts both.
func (r *rabbit) Restart(kill bool) {
	r.Server.Restart(kill)
	r.streams.Restart(kill)
}

// Close closes both.
func (r *rabbit) Close(ctx context.Context) error {
	return errors.Join(r.Server.Close(ctx), r.streams.Close(ctx))
}

func start(name string, m model, trace *tracer, versions map[string]string, ports []int) (*Model, error) {
	e, err := serve(name, m, trace, versions, ports...)
	if err != nil {
		return nil, err
	}
	return &Model{e}, nil
}
