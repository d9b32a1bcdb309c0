package servicebus

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Option is an option of New, Dial, FromConnectionString and FromCredential.
type Option func(*options) error

type options struct {
	sessions      bool
	noDuplicates  bool // Ensure leaves duplicate detection off
	settleTimeout time.Duration
	sessionIdle   time.Duration
	now           func() time.Time
	admin         *admin.Client

	// Of those that make a client.
	makes         bool // one of these was given
	adminEndpoint string
	dial          func(ctx context.Context) (net.Conn, error)
	tls           *tls.Config
	credential    azcore.TokenCredential
	applicationID string
}

const (
	defaultSettleTimeout = 15 * time.Second
	defaultSessionIdle   = 50 * time.Millisecond
)

func collect(opts []Option) (options, error) {
	o := options{settleTimeout: defaultSettleTimeout, sessionIdle: defaultSessionIdle, now: time.Now}
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return options{}, err
		}
	}
	return o, nil
}

// RequireSessions makes Ensure give sessions to all that it makes, as with
// Entity.Ordered, and messages without a key the session with the empty ID. A
// publisher finds out by itself for a queue, whose service refuses a message
// without one; a topic takes it, and the subscription dead-letters it (SB-F-19).
// URL: sessions=true. Default: off.
func RequireSessions() Option { return func(o *options) error { o.sessions = true; return nil } }

// WithoutDuplicateDetection makes Ensure leave duplicate detection off, which the
// service's Basic tier lacks, and which can't be switched later (SB-F-02). URL:
// duplicate-detection=false. Default: Ensure switches it on.
func WithoutDuplicateDetection() Option {
	return func(o *options) error { o.noDuplicates = true; return nil }
}

// SettleTimeout bounds each Settle, over the caller's own context: what has no
// answer by then is Unknown. URL: settle-timeout=DURATION. Default: 15 s.
func SettleTimeout(d time.Duration) Option {
	return func(o *options) error {
		if d <= 0 {
			return broker.Errorf(broker.ErrInvalid, nil, "servicebus: settle timeout %s, want more than 0", d)
		}
		o.settleTimeout = d
		return nil
	}
}

// SessionIdle is how long Receive waits for another message of the session that
// it holds before it turns to the next one; where its first message took more than a
// quarter of that to come, four times as long as that. URL: session-idle=DURATION.
// Default: 50 ms.
func SessionIdle(d time.Duration) Option {
	return func(o *options) error {
		if d <= 0 {
			return broker.Errorf(broker.ErrInvalid, nil, "servicebus: session idle time %s, want more than 0", d)
		}
		o.sessionIdle = d
		return nil
	}
}

// Clock is the time by which leases are counted, for an emulator whose time is
// moved. Default: the real time.
func Clock(c driver.Clock) Option {
	return func(o *options) error {
		if c == nil {
			return broker.Errorf(broker.ErrInvalid, nil, "servicebus: no clock")
		}
		o.now = c.Now
		return nil
	}
}

// AdminClient is what Ensure and Delete use, and what opening asks for an
// entity's settings. Default: for the constructors that make a client, one with
// the same credentials; for New none.
func AdminClient(c *admin.Client) Option {
	return func(o *options) error { o.admin = c; return nil }
}

// AdminEndpoint is the host and port of the HTTP interface that Ensure and Delete
// use, if it isn't that of the namespace: an emulator's. With a plaintext
// connection it is plaintext too, and must be on the loopback. URL:
// admin=HOST:PORT. Default: the namespace; of a plaintext loopback its port, and
// 5300, the vendor's emulator's, where that is 5672.
func AdminEndpoint(hostport string) Option {
	return maker(func(o *options) error {
		if _, _, err := net.SplitHostPort(hostport); err != nil {
			return broker.Errorf(broker.ErrInvalid, nil, "servicebus: admin endpoint %q, want HOST:PORT", hostport)
		}
		o.adminEndpoint = hostport
		return nil
	})
}

// Dialer makes the network connections, ready for AMQP (TLS included). Default:
// TCP, with TLS unless the namespace is a plaintext loopback.
func Dialer(dial func(ctx context.Context) (net.Conn, error)) Option {
	return maker(func(o *options) error { o.dial = dial; return nil })
}

// TLS is the configuration for the connections. URL: ca=FILE for its roots.
// Default: the system's roots.
func TLS(c *tls.Config) Option {
	return maker(func(o *options) error { o.tls = c; return nil })
}

// Credential is used by Dial for a URL without a key. Default: azidentity's
// chain of environment, workload identity, managed identity and developer tools.
func Credential(c azcore.TokenCredential) Option {
	return maker(func(o *options) error { o.credential = c; return nil })
}

// ApplicationID goes into the user agent that the service logs, at most 24
// characters. URL: application-id=NAME.
func ApplicationID(name string) Option {
	return maker(func(o *options) error {
		if name == "" || len(name) > 24 {
			return broker.Errorf(broker.ErrInvalid, nil, "servicebus: application ID %q, want 1 to 24 characters", name)
		}
		o.applicationID = name
		return nil
	})
}

// maker marks an option that New has no use for.
func maker(set Option) Option {
	return func(o *options) error { o.makes = true; return set(o) }
}
