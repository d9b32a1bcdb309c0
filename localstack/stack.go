// Package localstack runs message brokers inside the test process or in child
// processes of it, on free ports of 127.0.0.1, with faults that can be injected
// at the points of the protocol: a publish whose response is lost, an ack that
// never arrives, a connection that is cut before the broker sees a request.
//
// [Start] runs any of the brokers by name. StartNATS, StartKafka, StartSQS and so
// on take options, [StartChild] runs a broker in a process of its own that is
// killed by SIGKILL.
//
//	stack, err := localstack.Start(ctx, "nats", "sqs")
//	sqs := stack.Emulator("sqs")
//	lost := sqs.Inject(localstack.Fault{Op: localstack.Publish, Kind: localstack.LoseResponse, Times: 1})
//
// NATS is the real server, embedded; what is seen on it was measured on NATS.
// Kafka is kfake, a model of Kafka 4.x written by the authors of franz-go. SQS,
// Pub/Sub, Service Bus and RabbitMQ are models of our own, each in a package below
// this one: they speak the vendors' protocols to the vendors' clients, and each rule
// of theirs names the vendor's words that it follows. What is seen on a model is
// that model's behaviour; [Emulator.Real] tells them apart.
//
// StartKafkaServer, StartRabbitMQServer, StartNATSCluster, StartElasticMQ and others
// run servers that somebody else wrote, as processes, where they are installed or
// can be fetched; [ErrNotInstalled] says what is missing. Those of a broker stand
// behind proxies with the same faults. They are not in [Names].
//
// The address of an emulator stays the same for its life, so clients reconnect
// after a restart. While the broker is down, new connections are accepted and wait
// for it. NATS and Kafka stand behind a proxy that understands their protocol and
// acts between two frames; the models carry out faults themselves, and their time
// can be moved ([Clocked]).
package localstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Names of the emulators, for [Start], [StartChild] and [Stack.Emulator].
const (
	SQSName        = "sqs"
	PubSubName     = "pubsub"
	ServiceBusName = "servicebus"
	RabbitMQName   = "rabbitmq"
	NATSName       = "nats"
	KafkaName      = "kafka"
)

// Names returns the names of all emulators that [Start] knows, in their order.
func Names() []string {
	return []string{SQSName, PubSubName, ServiceBusName, RabbitMQName, NATSName, KafkaName}
}

// ErrClosed is returned by the methods of an emulator after its Close.
var ErrClosed = errors.New("localstack: emulator is closed")

// Emulator is one running broker. All methods are safe for concurrent use.
type Emulator interface {
	// Name returns the name by which the emulator was started.
	Name() string

	// URL returns what this toolkit's broker.Open takes: the emulator's name, "://",
	// the Address, and what else the adapter needs ("/?anonymous=true" for SQS, a
	// project for Pub/Sub). It holds no secrets and stays the same until Close.
	// RabbitMQ's streams need the query "queue=stream&stream-port=PORT" added, with
	// the same port.
	URL() string

	// Address returns host:port for clients, for Kafka one for each broker,
	// separated by commas. It stays the same until Close.
	Address() string

	// DirectURL returns an address of the same broker that goes around the fault
	// proxy, for measuring speed; no fault and no freeze concerns it, nor the
	// freeze that belongs to Kill. Where the broker can advertise one address
	// only (Kafka) it equals URL. It stays the same unless something else took
	// its port while the broker was down.
	DirectURL() string

	// Versions returns the versions of what runs, by component.
	Versions() map[string]string

	// Real says whether this is the vendor's own server, and not a model of it.
	Real() bool

	// Restart stops the broker cleanly and starts it again on its data. Clients
	// lose their connections. It returns when the broker is ready, or the
	// context's error; after an error the emulator can only be closed.
	Restart(ctx context.Context) error

	// Kill ends the broker as a crash would and starts it again on the data that
	// the crash left. It returns when the broker is ready, or the context's
	// error; after an error the emulator can only be closed.
	//
	// In process this is modelled: the traffic through the proxy is frozen, the
	// data directory is copied as it is on disk, the broker is stopped, and a new
	// one starts from the copy. So whatever the broker had not yet handed to the
	// operating system is lost, as in a crash of the process. Not modelled: the
	// loss of what the operating system had not written to the disk (a power
	// cut), and a write torn in the middle of a system call. A [Child] is killed
	// by a real SIGKILL.
	Kill(ctx context.Context) error

	// Inject arms a fault until it is used up or removed. It does not block. An
	// invalid fault is reported by [Injection.Err].
	Inject(f Fault) *Injection

	// Trace calls f with a line for each request of a client from now on, until it
	// is called with another f; nil ends it. f is called concurrently and must not
	// block. The lines are for people to read and hold no credentials.
	Trace(f func(line string))

	// Freeze stops all bytes in both directions on all connections, present and
	// future, without closing any: a black hole, as when the network is split.
	// Bytes that are just being passed on may still arrive. Nothing is lost: what
	// was held back moves on after Thaw. Freezing a frozen emulator does nothing.
	Freeze()

	// Thaw ends Freeze.
	Thaw()

	// Slow makes all connections, present and future, slow, until it is called again:
	// the zero value ends it. What is on its way keeps the pace that it set out with.
	Slow(s Slowness)

	// Disconnect closes all client connections and returns how many there were.
	// The broker goes on, and takes new ones at once.
	Disconnect() int

	// Close stops the broker, closes all connections, removes its temporary
	// directory, and waits for all of its goroutines, at most until the context
	// ends. Closing again returns nil.
	Close(ctx context.Context) error
}

// Stack is a set of running emulators. Its methods are safe for concurrent use.
type Stack struct {
	emulators []Emulator
}

// Start starts the named emulators with their default options, or all of them
// when no name is given, and returns when they are ready for clients. If one
// fails to start, the others are closed again.
func Start(ctx context.Context, names ...string) (*Stack, error) {
	if len(names) == 0 {
		names = Names()
	}
	for i, name := range names {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("localstack: no emulator named %q, there are %s", name, strings.Join(Names(), ", "))
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("localstack: emulator %q is named twice", name)
		}
	}
	return startAll(ctx, names, nil)
}

// StartAt starts the emulators that ports names, with their default options, and
// returns when they are ready for clients, in the order of [Names]. The first port
// of each is where its URL points, 0 for a free one. RabbitMQ and Service Bus take
// clients on further ports too; NATS and Kafka have one. If one fails to start, the
// others are closed again.
func StartAt(ctx context.Context, ports map[string][]int) (*Stack, error) {
	var names []string
	for _, name := range Names() {
		if _, wanted := ports[name]; wanted {
			names = append(names, name)
		}
	}
	if len(names) < len(ports) {
		return nil, fmt.Errorf("localstack: there are only the emulators %s", strings.Join(Names(), ", "))
	}
	return startAll(ctx, names, ports)
}

func startAll(ctx context.Context, names []string, ports map[string][]int) (*Stack, error) {
	s := &Stack{emulators: make([]Emulator, len(names))}
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			// An interface that holds a nil pointer isn't nil.
			if e, err := startOne(ctx, name, ports[name]); err != nil {
				errs[i] = err
			} else {
				s.emulators[i] = e
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		s.emulators = slices.DeleteFunc(s.emulators, func(e Emulator) bool { return e == nil })
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func startOne(ctx context.Context, name string, ports []int) (Emulator, error) {
	first := 0
	if len(ports) > 0 {
		first = ports[0]
	}
	switch name {
	case SQSName:
		return startSQS(ctx, ports)
	case PubSubName:
		return startPubSub(ctx, ports)
	case ServiceBusName:
		return startServiceBus(ctx, ports)
	case RabbitMQName:
		return startRabbitMQ(ctx, ports)
	case NATSName:
		return StartNATS(ctx, NATSPort(first))
	default:
		return StartKafka(ctx, KafkaPort(first))
	}
}

// Emulator returns the emulator of that name, or nil if the stack has none.
func (s *Stack) Emulator(name string) Emulator {
	for _, e := range s.emulators {
		if e.Name() == name {
			return e
		}
	}
	return nil
}

// Emulators returns all emulators of the stack in the order of their names at Start.
func (s *Stack) Emulators() []Emulator { return slices.Clone(s.emulators) }

// URL returns the URL of the emulator of that name, or "" if the stack has none.
func (s *Stack) URL(name string) string {
	if e := s.Emulator(name); e != nil {
		return e.URL()
	}
	return ""
}

// Close closes all emulators side by side and returns their errors joined.
// Closing again returns nil.
func (s *Stack) Close(ctx context.Context) error {
	errs := make([]error, len(s.emulators))
	var wg sync.WaitGroup
	for i, e := range s.emulators {
		wg.Go(func() { errs[i] = e.Close(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
