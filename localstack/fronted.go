package localstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// ErrNoFront is returned by [Front] where faults can't be put in front of a broker:
// this package has no proxy that knows its protocol, or the broker wants TLS, into
// which no proxy looks. [FrontBytes] can be, for most.
var ErrNoFront = errors.New("localstack: no fault proxy")

// frontDial bounds how long a connection to the broker may take.
const frontDial = 5 * time.Second

// Fronted is a broker that runs elsewhere, behind fault proxies of this package. Its
// methods are those of [Emulator] that need no power over the broker itself, and are
// safe for concurrent use.
type Fronted struct {
	e      *emulator
	behind serverFront // nil where the proxies do all
	bytes  bool        // no proxy looks at what it carries

	mu     sync.Mutex // guards the emulator's proxies, of which Kafka's come to be
	closed bool
	nodes  *frontNodes // Kafka's; else nil
	direct []string
}

// FrontOption is an option of [Front].
type FrontOption func(*frontConfig)

type frontConfig struct {
	streamPort int
	bytes      bool
}

// FrontStreamPort is where RabbitMQ takes clients of streams: connections that begin
// in their protocol are passed on to this port of the same host. By default they get
// to the port of AMQP.
func FrontStreamPort(port int) FrontOption { return func(c *frontConfig) { c.streamPort = port } }

// FrontBytes passes bytes on as they are, which is all that can be done for TLS and for
// protocols that no proxy here knows: connections can be frozen, slow and closed, and
// [Fronted.Inject] returns an injection with [ErrNoFront]. Clients check certificates
// against the name they dial, which is to be one that the broker's is made out for. Not
// for Kafka, whose nodes send their clients to addresses of their own.
func FrontBytes() FrontOption { return func(c *frontConfig) { c.bytes = true } }

// Front puts the fault proxies that [StartNATSCluster], [StartKafkaServer],
// [StartRabbitMQServer], [StartPubSubEmulator] and [StartElasticMQ] use in front of a
// broker that runs already and speaks its protocol without TLS. broker is one of the
// names (NATSName and so on), address its host:port, for NATS, Kafka and RabbitMQ
// several, separated by commas. It connects to each of them once, and returns an
// error if that fails; for Service Bus, whose protocol no proxy here knows, and for a
// NATS that wants TLS it is [ErrNoFront].
//
// Clients use [Fronted.Address]. What the broker tells them of other addresses of its
// own is rewritten where they would follow it: Kafka's nodes get a proxy each as they
// are heard of, NATS's other servers are not mentioned. Streams of a RabbitMQ cluster
// lead clients from one node to another, past the proxies: front one node.
func Front(ctx context.Context, broker, address string, options ...FrontOption) (*Fronted, error) {
	var c frontConfig
	for _, o := range options {
		o(&c)
	}
	f := &Fronted{e: &emulator{name: broker, checkAPI: func(string) error { return nil }}, direct: strings.Split(address, ","), bytes: c.bytes}
	for _, at := range f.direct {
		if err := frontReached(ctx, broker, at, c.bytes); err != nil {
			return nil, err
		}
	}
	if err := f.open(broker, c); err != nil {
		return nil, errors.Join(err, f.Close(context.WithoutCancel(ctx)))
	}
	return f, nil
}

// open makes the proxies.
func (f *Fronted) open(broker string, c frontConfig) error {
	e := f.e
	if c.bytes {
		if broker == KafkaName {
			return fmt.Errorf("%w that passes bytes for %s", ErrNoFront, broker)
		}
		return f.each(servePlain, frontTo)
	}
	var err error
	switch broker {
	case NATSName:
		e.checkAPI = func(string) error { return errNoAPI }
		return f.each(func(l *link) { serveNATSFront(l, e) }, frontTo)
	case KafkaName:
		e.checkAPI = checkKafkaAPI
		f.nodes = newFrontNodes(f)
		return f.each(f.nodes.serve, frontTo)
	case RabbitMQName:
		e.checkAPI = checkRabbitAPI
		front := &rabbitFront{faults: &e.faults, trace: &e.trace}
		return f.each(func(l *link) { serveRabbit(l, front) }, func(at string) func(net.Addr) (net.Conn, error) {
			return frontToRabbit(at, c.streamPort)
		})
	case PubSubName:
		e.checkAPI = checkPubSubAPI
		f.behind, err = newPubSubFront(f.direct[0], e)
	case SQSName:
		e.checkAPI = checkSQSAPI
		f.behind = newSQSFront(f.direct[0], &e.faults, &e.trace)
	default:
		return fmt.Errorf("%w for %s", ErrNoFront, broker)
	}
	if err != nil {
		return err
	}
	return f.add(f.behind.dial, servePlain)
}

// each makes a proxy for each address.
func (f *Fronted) each(serve func(*link), dial func(at string) func(net.Addr) (net.Conn, error)) error {
	for _, at := range f.direct {
		if err := f.add(dial(at), serve); err != nil {
			return err
		}
	}
	return nil
}

// add makes one proxy and lets clients in.
func (f *Fronted) add(dial func(net.Addr) (net.Conn, error), serve func(*link)) error {
	_, err := f.addAt(dial, serve)
	return err
}

func (f *Fronted) addAt(dial func(net.Addr) (net.Conn, error), serve func(*link)) (string, error) {
	p, err := listen(0, dial, serve)
	if err != nil {
		return "", err
	}
	f.mu.Lock()
	closed := f.closed
	if !closed {
		f.e.proxies = append(f.e.proxies, p)
	}
	f.mu.Unlock()
	if closed {
		return "", errors.Join(ErrClosed, p.close(context.Background()))
	}
	p.resume()
	return p.addr(), nil
}

// frontTo dials an address.
func frontTo(at string) func(net.Addr) (net.Conn, error) {
	return func(net.Addr) (net.Conn, error) { return net.DialTimeout("tcp", at, frontDial) }
}

// frontToRabbit dials the port of the protocol that the client begins to speak.
func frontToRabbit(at string, streamPort int) func(net.Addr) (net.Conn, error) {
	if streamPort == 0 {
		return frontTo(at)
	}
	host, _, _ := net.SplitHostPort(at) // it has been reached
	streams := net.JoinHostPort(host, strconv.Itoa(streamPort))
	return func(net.Addr) (net.Conn, error) {
		return newChosenConn(func(first []byte) (net.Conn, error) {
			if len(first) > 0 && first[0] == amqp.Protocol[0] {
				return net.DialTimeout("tcp", at, frontDial)
			}
			return net.DialTimeout("tcp", streams, frontDial)
		}), nil
	}
}

// frontReached connects to a broker once.
func frontReached(ctx context.Context, broker, at string, bytes bool) error {
	d := net.Dialer{Timeout: frontDial}
	c, err := d.DialContext(ctx, "tcp", at)
	if err != nil {
		return fmt.Errorf("localstack: %s: %w", broker, err)
	}
	defer c.Close()
	if broker == NATSName && !bytes {
		return natsPlain(c)
	}
	return nil
}

// Name returns the broker's name.
func (f *Fronted) Name() string { return f.e.name }

// Address returns where clients connect to: host:port for each address that was
// given, in their order, separated by commas. It stays the same until Close.
func (f *Fronted) Address() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var addrs []string
	for _, p := range f.e.proxies[:min(len(f.direct), len(f.e.proxies))] {
		addrs = append(addrs, p.addr())
	}
	return strings.Join(addrs, ",")
}

// Inject arms a fault until it is used up or removed, as [Emulator] says.
func (f *Fronted) Inject(what Fault) *Injection {
	if f.bytes {
		return f.e.faults.Inject(what, fmt.Errorf("%w: it passes bytes", ErrNoFront))
	}
	return f.e.Inject(what)
}

// Trace calls to with a line for each request from now on, as [Emulator] says.
func (f *Fronted) Trace(to func(line string)) { f.e.Trace(to) }

// all calls do with each proxy.
func (f *Fronted) all(do func(*proxy)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.e.each(do)
}

// Freeze stops all bytes in both directions on all connections.
func (f *Fronted) Freeze() { f.all(func(p *proxy) { p.gate.close() }) }

// Thaw ends Freeze.
func (f *Fronted) Thaw() { f.all(func(p *proxy) { p.gate.open() }) }

// Slow makes all connections slow, until it is called again.
func (f *Fronted) Slow(s Slowness) { f.all(func(p *proxy) { p.gate.slowDown(s) }) }

// Disconnect closes all client connections and returns how many there were. The
// broker goes on.
func (f *Fronted) Disconnect() int {
	n := 0
	f.all(func(p *proxy) { n += p.disconnect() })
	return n
}

// Close closes all connections and waits for the proxies' goroutines, at most until
// the context ends. The broker goes on. Closing again returns nil.
func (f *Fronted) Close(ctx context.Context) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	proxies := f.e.proxies
	f.mu.Unlock()
	var errs []error
	for _, p := range proxies {
		errs = append(errs, p.close(ctx))
	}
	if f.behind != nil {
		errs = append(errs, f.behind.close(ctx))
	}
	return errors.Join(errs...)
}
