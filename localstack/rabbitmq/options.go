package rabbitmq

import (
	"net"
	"slices"
	"time"

	"github.com/onceline/onceline/localstack/clock"
	"github.com/onceline/onceline/localstack/fault"
)

// Release is a line of RabbitMQ releases whose behaviour a [Server] has, where
// the lines differ.
type Release uint8

const (
	// V4 is RabbitMQ 4.3, the default: a basic.nack with requeue is no failed
	// delivery, quorum queues have a delivery limit of 20 and end a late consumer's
	// lease themselves, at the instant, with a basic.cancel; classic queues have no
	// consumer timeout; transient queues that are not exclusive are refused; a
	// message has at most 16 MiB (RMQ-F-13, RMQ-F-14, RMQ-F-15, RMQ-F-24, RMQ-F-25).
	V4 Release = iota

	// V3 is RabbitMQ 3.10 to 3.13: every requeue counts as a delivery, quorum
	// queues have no delivery limit unless one is set, a late ack on any queue ends
	// its channel at the next tick, transient queues are allowed, and a message has
	// at most 128 MiB.
	V3
)

// Version is what a server of that release says to be.
func (r Release) Version() string {
	if r == V3 {
		return "3.10.8"
	}
	return "4.3.5"
}

// ReleaseOf is the release that a server with these options behaves like.
func ReleaseOf(options ...Option) Release {
	var s settings
	for _, o := range options {
		o(&s)
	}
	return s.release
}

// User is one who may log in. Permissions are not modelled: who may log in to a
// virtual host may do all that the broker permits anyone.
type User struct {
	Name     string
	Password string
	VHosts   []string // the virtual hosts that the user may open; none means all
}

// StreamHandler serves connections that don't open with AMQP's header: those of
// the stream protocol. ServeConn returns when the connection has ended, and
// closes it.
type StreamHandler interface {
	ServeConn(net.Conn)
}

// Option is a setting of a [Server].
type Option func(*settings)

type settings struct {
	release       Release
	users         []User
	moreVHosts    []string
	clock         *clock.Clock
	ownClock      bool
	faults        *fault.Set
	streamHandler StreamHandler
	trace         func(line string)
	traceWhen     func() bool
	timeout       time.Duration // of consumers
	tick          time.Duration
	maxMessage    int
	transient     *bool
	heartbeat     uint16
	frameMax      int
	channelMax    uint16
}

// WithRelease chooses the releases to behave like. The default is [V4].
func WithRelease(r Release) Option { return func(s *settings) { s.release = r } }

// WithUsers sets who may log in. The default is guest with the password guest.
func WithUsers(users ...User) Option {
	return func(s *settings) { s.users = slices.Clone(users) }
}

// WithVHosts adds virtual hosts to the one that always is there, "/".
func WithVHosts(names ...string) Option {
	return func(s *settings) { s.moreVHosts = append(s.moreVHosts, names...) }
}

// WithClock makes the server count its times, except for heartbeats, by a clock
// that somebody else owns and closes. The default is a clock of its own.
func WithClock(c *clock.Clock) Option { return func(s *settings) { s.clock = c } }

// WithFaults takes faults from a set that it shares with another server. The
// default is a set of its own.
func WithFaults(set *fault.Set) Option { return func(s *settings) { s.faults = set } }

// WithStreams hands connections of other protocols to h. Without it they are
// answered with AMQP's header and closed.
func WithStreams(h StreamHandler) Option { return func(s *settings) { s.streamHandler = h } }

// Trace calls f with a line for each request, without message bodies and secrets.
// f is called while the broker holds still: it must return soon, and must not use
// the server.
func Trace(f func(line string)) Option { return func(s *settings) { s.trace = f } }

// TraceWhen makes lines for [Trace] only while on says so, and costs nothing else
// while it doesn't. The default is always.
func TraceWhen(on func() bool) Option { return func(s *settings) { s.traceWhen = on } }

// WithConsumerTimeout sets how long a delivery may stay unsettled where neither
// queue nor consumer says it; 0 is for ever. The default is 30 minutes
// (RMQ-F-13).
func WithConsumerTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// WithTick sets how often a channel of [V3] looks for deliveries that are past
// the consumer timeout. The default is a minute, as it is for RabbitMQ.
func WithTick(d time.Duration) Option { return func(s *settings) { s.tick = d } }

// WithMaxMessageSize sets the limit of a message's body in bytes. The default is
// 16 MiB, or 128 MiB for [V3] (RMQ-F-24).
func WithMaxMessageSize(n int) Option { return func(s *settings) { s.maxMessage = n } }

// PermitTransientQueues says whether queues may be declared that are neither
// durable nor exclusive. [V4] refuses them by default (RMQ-F-25).
func PermitTransientQueues(permit bool) Option {
	return func(s *settings) { s.transient = &permit }
}

// WithHeartbeat sets the interval that the server proposes, in whole seconds; 0
// proposes none. The default is 60 s. Heartbeats run by the real time, not by the
// movable clock: the peer doesn't know that it was moved.
func WithHeartbeat(d time.Duration) Option {
	return func(s *settings) { s.heartbeat = uint16(d / time.Second) }
}

const (
	mib             = 1 << 20
	defaultFrameMax = 128 << 10
	defaultChannels = 2047
)

func newSettings(options []Option) settings {
	s := settings{
		users: []User{{Name: "guest", Password: "guest"}}, timeout: 30 * time.Minute, tick: time.Minute,
		heartbeat: 60, frameMax: defaultFrameMax, channelMax: defaultChannels,
	}
	for _, o := range options {
		o(&s)
	}
	if s.maxMessage == 0 {
		s.maxMessage = 16 * mib
		if s.release == V3 {
			s.maxMessage = 128 * mib
		}
	}
	if s.transient == nil {
		permit := s.release == V3
		s.transient = &permit
	}
	if s.clock == nil {
		s.clock, s.ownClock = clock.New(), true
	}
	if s.faults == nil {
		s.faults = new(fault.Set)
	}
	return s
}
