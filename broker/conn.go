package broker

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Conn is a connection to one broker. It is safe for concurrent use.
type Conn interface {
	Admin
	// OpenPublisher opens topic for publishing. It checks that the topic
	// exists where the broker can tell (ErrNotFound).
	OpenPublisher(ctx context.Context, topic string, opts ...PublisherOption) (Publisher, error)
	// OpenReceiver opens subscription for receiving. How a subscription is
	// named is the broker's own business: the adapter's documentation says it.
	OpenReceiver(ctx context.Context, subscription string, opts ...ReceiverOption) (Receiver, error)
	// As sets target, a non-nil pointer, to the SDK's own client where the
	// adapter's documentation names that type, and reports whether it did.
	As(target any) bool
	// Close closes what was opened through the connection and, where the
	// adapter made it, the SDK's client. Idempotent, bounded by ctx.
	Close(ctx context.Context) error
}

// Admin makes and removes what a broker needs before it can be used.
type Admin interface {
	// Ensure creates what e names and the broker lacks. A wish that the broker
	// can't meet is ErrUnsupported; one that clashes with what exists is
	// ErrConflict and names both values. No wish is ever ignored.
	Ensure(ctx context.Context, e Entity) error
	// Delete removes what Ensure made for e, messages included. What doesn't
	// exist is no error.
	Delete(ctx context.Context, e Entity) error
}

// Entity is a topic and, where Subscription isn't empty, one subscription of
// it, with the wishes for both. A zero wish leaves the broker's own default.
type Entity struct {
	Topic         string        // the name for OpenPublisher
	Subscription  string        // the name for OpenReceiver
	Window        time.Duration // dedup window
	Lease         time.Duration // of a delivery
	MaxDeliveries int           // then the message is dead-lettered
	DeadLetter    string        // topic of dead-lettered messages, made along with the rest
	Ordered       bool          // deliveries of one key keep their order, over redelivery too
	Partitions    int           // where a topic has them
	MaxBody       int           // bytes
}

// PublisherOptions is what PublisherOption functions set; adapters read it.
type PublisherOptions struct {
	Semantics Semantics
}

// PublisherOption is an option of OpenPublisher.
type PublisherOption func(*PublisherOptions)

// PublishAtMostOnce sends each message once: neither this package nor the SDK
// retries, so that a lost message is never a double one. For telemetry and
// hints. The default is AtLeastOnce, where the SDK retries as long as that adds
// no copy.
func PublishAtMostOnce() PublisherOption {
	return func(o *PublisherOptions) { o.Semantics = AtMostOnce }
}

// ReceiverOptions is what ReceiverOption functions set; adapters read it.
type ReceiverOptions struct {
	// StartFrom, where not nil, is asked for each partition as it is assigned.
	StartFrom func(partition string) (Position, bool)
	// Assigned, where not nil, is told of each change of what is assigned.
	Assigned func(Assignment)
}

// ReceiverOption is an option of OpenReceiver.
type ReceiverOption func(*ReceiverOptions)

// StartFrom lets the caller say where to start in each partition, at the time
// it is assigned: what a store that keeps positions needs. ask returns the
// position of the first message to deliver; false leaves it to the broker. It is
// called by the receiver's goroutines, also when a connection that was lost is back.
// An adapter whose broker can't do it refuses to open with ErrUnsupported.
func StartFrom(ask func(partition string) (Position, bool)) ReceiverOption {
	return func(o *ReceiverOptions) { o.StartFrom = ask }
}

// Assignment is a change of the partitions that a receiver has.
type Assignment struct {
	// Began says that a session of the receiver's group began: the group was
	// rebalanced, with a change for this receiver or without.
	Began bool
	// Gained and Lost are how many partitions came and went. What was in hand of
	// those that went comes again elsewhere.
	Gained, Lost int
}

// WatchAssignment has watch told of each change of the partitions that the receiver
// is assigned, so that rebalances can be counted. Watch must not block; the receiver
// waits for it. Only a broker that assigns partitions to the members of a group, and
// whose client sees it (Kafka's consumer groups), ever calls it; on others it is no
// error. Given twice, both are told.
func WatchAssignment(watch func(Assignment)) ReceiverOption {
	return func(o *ReceiverOptions) {
		first := o.Assigned
		if first == nil {
			o.Assigned = watch
			return
		}
		o.Assigned = func(a Assignment) { first(a); watch(a) }
	}
}

// Semantics says which of the two failures a caller would rather have.
type Semantics uint8

// The two semantics. Effects exactly once are AtLeastOnce with a dedup store.
const (
	AtLeastOnce Semantics = iota // nothing is lost, copies may come
	AtMostOnce                   // nothing comes twice, messages may be lost
)

func (s Semantics) String() string {
	switch s {
	case AtLeastOnce:
		return "at-least-once"
	case AtMostOnce:
		return "at-most-once"
	}
	return fmt.Sprintf("Semantics(%d)", uint8(s))
}

// Opener opens a connection by URL. It must not put secrets into its errors.
type Opener func(ctx context.Context, u *url.URL) (Conn, error)

var openers = struct {
	sync.RWMutex
	m map[string]Opener
}{m: map[string]Opener{}}

// Register makes an adapter known to Open. Adapters call it in init. It panics
// for a scheme that is taken or isn't in lower case, and for a nil open.
func Register(scheme string, open Opener) {
	if scheme == "" || scheme != strings.ToLower(scheme) || open == nil {
		panic("broker: register " + scheme + ": the scheme is not in lower case, or there is no opener")
	}
	openers.Lock()
	defer openers.Unlock()
	if _, taken := openers.m[scheme]; taken {
		panic("broker: scheme " + scheme + " registered twice")
	}
	openers.m[scheme] = open
}

// Schemes returns the registered schemes, sorted.
func Schemes() []string {
	openers.RLock()
	defer openers.RUnlock()
	names := make([]string, 0, len(openers.m))
	for name := range openers.m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Open opens a connection by URL with the adapter registered for its scheme,
// which the program must import (for its side effect, if nothing else):
//
//	import _ "github.com/onceline/onceline/adapters/nats"
//
// A parameter that the adapter doesn't know is an error. No error of Open shows
// the URL's password or parameters. Several hosts are separated by commas.
func Open(ctx context.Context, rawURL string) (Conn, error) {
	u, err := parseURL(rawURL)
	if err != nil {
		// The cause would print the URL and what is secret in it.
		return nil, fmt.Errorf("open: %w: not a URL", ErrInvalid)
	}
	openers.RLock()
	open := openers.m[u.Scheme]
	openers.RUnlock()
	if open == nil {
		// Only the scheme is shown: with a password that isn't escaped, part of
		// it is taken for the host.
		return nil, fmt.Errorf("open: %w: no adapter for scheme %q; this program imports: %s",
			ErrInvalid, u.Scheme, strings.Join(Schemes(), ", "))
	}
	return open(ctx, u)
}

// parseURL is url.Parse for URLs that may list several hosts, each with a port,
// which url.Parse refuses. The returned URL's Host is the whole list.
func parseURL(raw string) (*url.URL, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return url.Parse(raw)
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority := rest[:end]
	at := strings.LastIndexByte(authority, '@') + 1
	hosts := strings.Split(authority[at:], ",")
	for i := range hosts {
		if len(hosts) > 1 && hosts[i] == "" {
			return nil, fmt.Errorf("empty host: %w", ErrInvalid)
		}
		if _, err := url.Parse(scheme + "://" + hosts[i]); err != nil {
			return nil, err
		}
	}
	u, err := url.Parse(scheme + "://" + authority[:at] + hosts[0] + rest[end:])
	if err != nil {
		return nil, err
	}
	u.Host = authority[at:]
	return u, nil
}
