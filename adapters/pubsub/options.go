package pubsub

import (
	"time"

	"google.golang.org/api/option"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Option is an option of New and Dial.
type Option func(*options) error

// options are the settings of a connection.
type options struct {
	exactlyOnce *bool
	pullWait    time.Duration
	clock       driver.Clock
	endpoint    string
	plaintext   bool
	client      []option.ClientOption
}

// defaultPullWait is how long a pull asks the service to wait for a message. It
// is made again, so that the number only says how many requests an idle receiver
// costs, and how long Close may have to wait for the last of them.
const defaultPullWait = 2500 * time.Millisecond

func collect(opts []Option) (options, error) {
	o := options{pullWait: defaultPullWait}
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return options{}, err
		}
	}
	return o, nil
}

// ExactlyOnce makes Ensure wish for exactly-once delivery, or with false for
// plain delivery: new subscriptions get it, and an existing one that differs is
// broker.ErrConflict. Without this option new subscriptions are plain, and
// existing ones may be either. URL parameter exactly-once.
func ExactlyOnce(on bool) Option {
	return func(o *options) error { o.exactlyOnce = &on; return nil }
}

// PullWait is how long a pull asks the service to wait for a message, from 50 ms
// up. It is cut to a quarter of the subscription's lease. Default 2.5 s. URL
// parameter pull-wait.
func PullWait(d time.Duration) Option {
	return func(o *options) error {
		if d < minPullWait {
			return broker.Errorf(broker.ErrInvalid, nil, "pubsub: pull wait %s, want %s or more", d, minPullWait)
		}
		o.pullWait = d
		return nil
	}
}

const minPullWait = 50 * time.Millisecond

// Clock is the time by which leases are counted, for an emulator whose time is
// moved. Default: the real time.
func Clock(c driver.Clock) Option {
	return func(o *options) error {
		if c == nil {
			return broker.Errorf(broker.ErrInvalid, nil, "pubsub: no clock")
		}
		o.clock = c
		return nil
	}
}

// Endpoint is where Dial finds the service, as host:port: a regional endpoint, or
// an emulator. Default: the service's global endpoint, or what the environment's
// PUBSUB_EMULATOR_HOST says. URL: the host.
func Endpoint(hostPort string) Option {
	return func(o *options) error {
		if hostPort == "" {
			return broker.Errorf(broker.ErrInvalid, nil, "pubsub: empty endpoint")
		}
		o.endpoint = hostPort
		return nil
	}
}

// Plaintext makes Dial use neither TLS nor credentials, as emulators want it. An
// Endpoint on the loopback is used so without it. URL parameter plaintext.
func Plaintext() Option {
	return func(o *options) error { o.plaintext = true; return nil }
}

// ClientOptions are added to those of the client that Dial makes: credentials
// other than the application default ones, a proxy, a transport of the caller's.
func ClientOptions(opts ...option.ClientOption) Option {
	return func(o *options) error { o.client = append(o.client, opts...); return nil }
}
