package rabbitmq

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Kind is the kind of queue behind a subscription.
type Kind uint8

// The three kinds.
const (
	Quorum  Kind = iota // replicated, counts deliveries; the default
	Classic             // one node, counts nothing
	Stream              // a log, read by the stream protocol
)

func (k Kind) String() string {
	switch k {
	case Quorum:
		return "quorum"
	case Classic:
		return "classic"
	case Stream:
		return "stream"
	}
	return "unknown"
}

// Option is an option of Dial and New. Those with a URL parameter name it.
type Option func(*settings) error

// settings are all that URL and options say. Both protocols read them.
type settings struct {
	hosts    []address // tried in order, from the last good one on
	vhost    string
	user     string // "" with external
	password string
	external bool        // SASL EXTERNAL: the certificate is the credential
	tls      *tls.Config // nil: plaintext

	kind       Kind
	streamPort int // 0: 5552
	name       string
	heartbeat  time.Duration
	clock      driver.Clock // nil: real time
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
	logger     *slog.Logger

	maxInFlight     int
	maxBody         int
	window          int           // 0: exact receive
	consumerTimeout time.Duration // 0: none
}

// address is one node. Its port is the AMQP port.
type address struct {
	host string
	port int
}

const (
	// defaultInFlight unconfirmed messages keep a node busy while it writes
	// to disk, or to a majority.
	defaultInFlight = 1024
	// defaultMaxBody is a node's own default limit since 4.0 (RMQ-F-24).
	defaultMaxBody = 16 << 20
	// defaultConsumerTimeout is a node's own default (RMQ-F-13).
	defaultConsumerTimeout = 30 * time.Minute
	defaultHeartbeat       = 10 * time.Second
)

func defaults() settings {
	return settings{heartbeat: defaultHeartbeat, maxInFlight: defaultInFlight, maxBody: defaultMaxBody,
		consumerTimeout: defaultConsumerTimeout}
}

func (s *settings) apply(opts []Option) error {
	for _, o := range opts {
		if err := o(s); err != nil {
			return err
		}
	}
	if s.logger == nil {
		s.logger = slog.Default()
	}
	return nil
}

// now is the clock's time, or real time.
func (s *settings) now() time.Time {
	if s.clock != nil {
		return s.clock.Now()
	}
	return time.Now()
}

// Queues sets the kind of queue that Ensure makes; Stream makes the connection
// speak the stream protocol. Parameter queue. Default: Quorum.
func Queues(k Kind) Option {
	return func(s *settings) error {
		if k > Stream {
			return broker.Errorf(broker.ErrInvalid, nil, "rabbitmq: queue kind %d", k)
		}
		s.kind = k
		return nil
	}
}

// StreamPort is the port of the stream protocol, on every host of the URL.
// Parameter stream-port. Default: 5552.
func StreamPort(port int) Option {
	return func(s *settings) error {
		if port < 1 || port > 65535 {
			return broker.Errorf(broker.ErrInvalid, nil, "rabbitmq: stream port %d", port)
		}
		s.streamPort = port
		return nil
	}
}

// Window makes receivers keep a standing consumer with n messages prefetched,
// instead of asking the broker for what each Receive asks for. It saves two
// round trips for a Receive; what is prefetched is out of other consumers'
// reach, and its lease runs. Parameter window. Default: 0, exact receive.
func Window(n int) Option {
	return func(s *settings) error {
		if n < 0 || n > 65535 {
			return broker.Errorf(broker.ErrInvalid, nil, "rabbitmq: window %d, want 0 to 65535", n)
		}
		s.window = n
		return nil
	}
}

// MaxInFlight is how many messages of one publisher may wait for the broker's
// confirm at a time; Publish sends the rest as confirms come. Parameter
// max-in-flight. Default: 1024.
func MaxInFlight(n int) Option {
	return func(s *settings) error {
		if n < 1 {
			return broker.Errorf(broker.ErrInvalid, nil, "rabbitmq: max-in-flight %d, want at least 1", n)
		}
		s.maxInFlight = n
		return nil
	}
}

// MaxBody is the longest body, in bytes, that Publish takes. The protocol
// doesn't tell a node's own limit, and over it the node closes the channel, which
// makes every message in flight Unknown; so it should not be set above that.
// Parameter max-body. Default: 16 MiB, the default of a node since 4.0
// (RMQ-F-24).
func MaxBody(n int) Option {
	return func(s *settings) error {
		if n < 1 {
			return broker.Errorf(broker.ErrInvalid, nil, "rabbitmq: max-body %d, want at least 1", n)
		}
		s.maxBody = n
		return nil
	}
}

// ConsumerTimeout is the nodes' consumer timeout, from which leases are counted
// where no Entity.Lease set one; zero means that they have none. The protocol
// doesn't tell it. Parameter consumer-timeout. Default: 30 minutes, the default
// of a node (RMQ-F-13).
func ConsumerTimeout(d time.Duration) Option {
	return func(s *settings) error {
		if d < 0 {
			return broker.Errorf(broker.ErrInvalid, nil, "rabbitmq: consumer timeout %s", d)
		}
		s.consumerTimeout = d
		return nil
	}
}

// Heartbeat is how often either side says that it lives; after two without a
// word the connection is taken for dead. Whole seconds. Parameter heartbeat.
// Default: 10 s.
func Heartbeat(d time.Duration) Option {
	return func(s *settings) error {
		if d < time.Second || d%time.Second != 0 {
			return broker.Errorf(broker.ErrInvalid, nil, "rabbitmq: heartbeat %s, want whole seconds", d)
		}
		s.heartbeat = d
		return nil
	}
}

// Name is the connection's name, as the broker's management shows it. Parameter
// name.
func Name(name string) Option {
	return func(s *settings) error { s.name = name; return nil }
}

// Clock is where leases are counted from: a test's movable clock. Default: real
// time.
func Clock(c driver.Clock) Option {
	return func(s *settings) error { s.clock = c; return nil }
}

// TLS is the configuration of rabbitmq+tls connections, in place of the one that
// the URL's parameters make. It turns TLS on.
func TLS(c *tls.Config) Option {
	return func(s *settings) error {
		if c == nil {
			return broker.Errorf(broker.ErrInvalid, nil, "rabbitmq: no TLS configuration")
		}
		s.tls = c
		return nil
	}
}

// Dialer replaces the TCP dialer, for tests and proxies.
func Dialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(s *settings) error { s.dial = dial; return nil }
}

// Logger is where the connection reports what no call returns: lost connections
// and failed attempts to come back. Default: slog.Default().
func Logger(l *slog.Logger) Option {
	return func(s *settings) error {
		if l == nil {
			return broker.Errorf(broker.ErrInvalid, nil, "rabbitmq: no logger")
		}
		s.logger = l
		return nil
	}
}
