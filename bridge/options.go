package bridge

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/onceline/onceline/broker"
)

// Policy says what becomes of a message that can't be moved.
type Policy uint8

// The policies. Each keeps the later messages of the key behind it until it is carried
// out.
const (
	// Stop ends the bridge with a [StopError]. The message, and what else was in hand, is
	// given back to the source, which brings it again.
	Stop Policy = iota
	// DeadLetter moves it to the dead letters of the source's subscription, with the
	// reason. Where the source has none the bridge stops.
	DeadLetter
	// Send sends it again, and perhaps adds a copy. It is for [Options].Late alone.
	Send
)

func (p Policy) String() string {
	names := [...]string{"stop", "dead-letter", "send"}
	if int(p) < len(names) {
		return names[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// Options says how a [Bridge] works. The zero value is a good start.
type Options struct {
	// Batch is how many messages one Publish has at most. Zero means 100.
	Batch int
	// Lanes is how many Publishes are under way at a time. Zero means 4. The messages of
	// a key are in one of them at a time.
	Lanes int
	// InFlight is how many messages are held at most, from their reception to their
	// settle. Zero means 2 * Batch * Lanes. It is the back-pressure: no more are asked
	// for, so that their leases don't run while they wait.
	InFlight int
	// Bytes bounds the bodies that are held together, counted as they come, so one
	// reception may go over it. Zero means 64 MiB.
	Bytes int
	// Together sends several messages of a key in one Publish. That keeps their order
	// only where the far side keeps it over a failure (claim publish.order.key:
	// over-failure); a message that is refused for good is passed by those behind it all
	// the same. Without it a Publish has one message of a key at most, and few keys take
	// as many round trips.
	Together bool

	// Window is how long the far side remembers a dedup ID. Zero takes that of the
	// publisher's Limits. Where that is zero too, a message without an answer is sent
	// again however late.
	Window time.Duration
	// Margin is kept free at the window's end. Zero means a tenth of it, 10 s at most;
	// no more than half is taken.
	Margin time.Duration
	// Late says what becomes of a message that the far side may have stored so long ago
	// that it may have forgotten the ID.
	Late Policy
	// Refused says what becomes of a message that the far side refuses for good (too
	// large, say), or that has no ID. Send is taken for Stop.
	Refused Policy
	// ID gives an ID to a message that comes without one, from another's producer. It
	// must be the same on each delivery of the message and differ from those of all
	// others. Nil, or an empty result, is a refusal. [FromPosition] is one.
	ID func(d *broker.Delivery) string

	// From and To name the two places, the same in each bridge that touches them. Where
	// both are set, each message gets the header [PathHeader] with the places it has
	// left, and one that has been at To is acked without being sent: bridges in both
	// directions would move it around for ever.
	From, To string
	// Hops is how many places a message may have left; one more is a refusal. Zero means
	// 16.
	Hops int

	// HoldOff is waited for before the first message is taken. Where a source brings what
	// a consumer held that was killed only when its lease is over, and what is behind it
	// at once (NATS, Service Bus, Pub/Sub), more than the lease makes it rare that keys
	// lose their order over a restart. A subscription that keeps it itself
	// (broker.Entity.Ordered) makes it impossible.
	HoldOff time.Duration
	// Count ends the bridge after so many messages were moved or skipped. Zero sets no
	// limit.
	Count uint64
	// Idle ends the bridge when the source had nothing for so long and nothing is in
	// hand. Zero means never.
	Idle time.Duration
	// Patience ends the bridge with the last error when messages are in hand and none
	// was done with for so long. Zero means never: brokers come back.
	Patience time.Duration

	// PublishTimeout bounds one Publish. Zero means 10 s.
	PublishTimeout time.Duration
	// SettleTimeout bounds one Settle. Zero means 10 s.
	SettleTimeout time.Duration
	// StopTimeout bounds the end: Publishes under way and the settles of what they
	// moved. Zero means 15 s.
	StopTimeout time.Duration
	// Backoff is the pause before a message, or a side that isn't there, is tried again.
	// Zero means 100 ms to 10 s.
	Backoff broker.Backoff
	// Remember is how many messages the bridge knows to have moved, so that one that
	// comes again, because its ack was lost, is acked without being sent. It is memory
	// of this process: what a restart makes of it, a far side that dedups or an inbox
	// knows. Zero means 100,000; a negative number none.
	Remember int
	// ErrorHook gets what went wrong and will be tried again. It may be called
	// concurrently. Nil logs a warning by slog.
	ErrorHook func(error)
	// Rand returns numbers in [0, 1) for the jitter. Nil takes math/rand/v2.
	Rand func() float64
}

func (o Options) withDefaults(p broker.Publisher) Options {
	positive := func(n *int, zero int) {
		if *n <= 0 {
			*n = zero
		}
	}
	some := func(d *time.Duration, zero time.Duration) {
		if *d <= 0 {
			*d = zero
		}
	}
	positive(&o.Batch, 100)
	positive(&o.Lanes, 4)
	positive(&o.InFlight, 2*o.Batch*o.Lanes)
	positive(&o.Bytes, 64<<20)
	positive(&o.Hops, 16)
	if o.Remember == 0 {
		o.Remember = 100_000
	}
	some(&o.Window, p.Limits().Window)
	some(&o.Margin, min(o.Window/10, 10*time.Second))
	o.Margin = min(o.Margin, o.Window/2)
	some(&o.PublishTimeout, 10*time.Second)
	some(&o.SettleTimeout, 10*time.Second)
	some(&o.StopTimeout, 15*time.Second)
	some(&o.Backoff.Min, 100*time.Millisecond)
	some(&o.Backoff.Max, 10*time.Second)
	o.Backoff.Max = max(o.Backoff.Max, o.Backoff.Min)
	if o.Refused == Send {
		o.Refused = Stop
	}
	if o.ErrorHook == nil {
		o.ErrorHook = func(err error) { slog.Warn("bridge", "error", err) }
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	return o
}

// delay is the pause after so many failures, counted from 1.
func (o *Options) delay(failures int) time.Duration {
	bound := o.Backoff.Max
	if shift := max(failures-1, 0); shift < 40 && o.Backoff.Min <= bound>>shift {
		bound = o.Backoff.Min << shift
	}
	return time.Duration((1 + o.Rand()) / 2 * float64(bound))
}

// FromPosition makes an [Options].ID of where the source keeps a message: source, which
// names the source's topic, and partition and offset, or the broker's own token. Where
// the source has neither (a RabbitMQ queue) it is empty. A topic that was deleted and
// made anew counts from the start: give source another name then, or its messages are
// taken for those that were moved before.
func FromPosition(source string) func(d *broker.Delivery) string {
	return func(d *broker.Delivery) string {
		switch p := d.Position; {
		case p.Token != "":
			return source + "/" + p.Token
		case p != (broker.Position{}):
			return fmt.Sprintf("%s/%s/%d", source, p.Partition, p.Offset)
		}
		return ""
	}
}
