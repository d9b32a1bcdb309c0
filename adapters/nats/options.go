package nats

import (
	"log/slog"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
)

// Option is an option of New and Dial. All but ClientOptions and Logger have a
// URL parameter of the same meaning.
type Option func(*options) error

// options are the settings of a connection. Storage, replicas and retention are
// wishes for streams that Ensure makes; unset, they are left to the server, and
// an existing stream may have any.
type options struct {
	domain        string
	replicas      int
	storage       *jetstream.StorageType
	retention     *jetstream.RetentionPolicy
	maxAckPending int
	maxInFlight   int
	batches       bool
	client        []natsgo.Option
	logger        *slog.Logger
}

// defaultInFlight messages without an answer keep a fast server busy over a
// round trip of some milliseconds, and stay below the 10,000 that a server
// queues for one stream.
const defaultInFlight = 4096

func collect(opts []Option) (options, error) {
	o := options{maxInFlight: defaultInFlight}
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return options{}, err
		}
	}
	return o, nil
}

// Domain uses the JetStream of that domain, as behind a leaf node. Default: the
// domain of the server that the client is connected to.
func Domain(name string) Option {
	return func(o *options) error {
		if !validName(name) {
			return broker.Errorf(broker.ErrInvalid, nil, "nats: domain %q", name)
		}
		o.domain = name
		return nil
	}
}

// Replicas is how many servers of a cluster keep each stream that Ensure makes,
// 1 to 5; an even number adds cost and no safety. Default: 1, the server's.
func Replicas(n int) Option {
	return func(o *options) error {
		if n < 1 || n > 5 {
			return broker.Errorf(broker.ErrInvalid, nil, "nats: replicas %d, want 1 to 5", n)
		}
		o.replicas = n
		return nil
	}
}

// FileStorage makes Ensure refuse an existing stream that is in memory. New
// streams are in files unless MemoryStorage is given.
func FileStorage() Option { return storage(jetstream.FileStorage) }

// MemoryStorage makes streams in memory: messages and dedup IDs are lost when
// the server stops (NATS-F-09).
func MemoryStorage() Option { return storage(jetstream.MemoryStorage) }

func storage(s jetstream.StorageType) Option {
	return func(o *options) error { o.storage = &s; return nil }
}

// LimitsRetention makes Ensure refuse an existing stream of another retention.
// New streams keep messages up to their limits unless WorkQueue or Interest is
// given.
func LimitsRetention() Option { return retention(jetstream.LimitsPolicy) }

// WorkQueue makes streams that drop a message once it is acked, and admit one
// subscription for each topic. After a restart the server knows only the dedup
// IDs of messages that are still stored, so the ID of an acked one is forgotten
// (NATS-F-07).
func WorkQueue() Option { return retention(jetstream.WorkQueuePolicy) }

// Interest makes streams that drop a message once each of their subscriptions has
// acked it, and keep none while there is no subscription: its receipt is Stored
// all the same (NATS-F-42). Dedup IDs are as with WorkQueue.
func Interest() Option { return retention(jetstream.InterestPolicy) }

func retention(r jetstream.RetentionPolicy) Option {
	return func(o *options) error { o.retention = &r; return nil }
}

// AtomicBatches makes streams that take atomic batches (allow_atomic), which
// broker.OpenTransactor needs, and has Ensure refuse an existing stream that takes
// none (NATS-F-300). It needs a server of 2.12 or later.
func AtomicBatches() Option { return func(o *options) error { o.batches = true; return nil } }

// MaxAckPending is how many deliveries of a subscription that Ensure makes may
// be unsettled at a time, over all its receivers; the server holds back the
// rest. Default: 1000, the server's (NATS-F-26). Entity.Ordered needs 1.
func MaxAckPending(n int) Option {
	return func(o *options) error {
		if n < 1 {
			return broker.Errorf(broker.ErrInvalid, nil, "nats: max-ack-pending %d, want at least 1", n)
		}
		o.maxAckPending = n
		return nil
	}
}

// MaxInFlight is how many messages of one publisher may wait for the server's
// answer at a time; Publish sends the rest as answers come. Default: 4096.
func MaxInFlight(n int) Option {
	return func(o *options) error {
		if n < 1 {
			return broker.Errorf(broker.ErrInvalid, nil, "nats: max-in-flight %d, want at least 1", n)
		}
		o.maxInFlight = n
		return nil
	}
}

// ClientOptions are added to those of the client that Dial makes. They may
// replace Dial's defaults, except that the reconnect buffer stays off, and the
// dialer, which must obey Dial's context, stays Dial's own.
func ClientOptions(opts ...natsgo.Option) Option {
	return func(o *options) error { o.client = append(o.client, opts...); return nil }
}

// Logger is where Dial's client reports what no call returns: disconnects and
// asynchronous errors of the server, such as a missing permission. Default:
// slog.Default().
func Logger(l *slog.Logger) Option {
	return func(o *options) error {
		if l == nil {
			return broker.Errorf(broker.ErrInvalid, nil, "nats: no logger")
		}
		o.logger = l
		return nil
	}
}
