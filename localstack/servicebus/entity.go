package servicebus

import (
	"fmt"
	"strings"
	"time"
)

// The limits and defaults of the service (SB-F-03, SB-F-13, SB-F-18, SB-F-32).
const (
	DefaultLock          = time.Minute
	MinLock              = 5 * time.Second
	MaxLock              = 5 * time.Minute
	DefaultWindow        = 10 * time.Minute
	MinWindow            = 20 * time.Second
	MaxWindow            = 7 * 24 * time.Hour
	DefaultMaxDeliveries = 10
	MaxID                = 128     // characters of a message or session ID (SB-F-01, SB-F-23)
	StandardSize         = 262144  // bytes of a message on the standard tier (SB-F-11)
	PremiumSize          = 1048576 // bytes of a message on the premium tier, by default (SB-F-11)
	MaxHops              = 4       // forwards of a message before it is dead-lettered (SB-F-19)
)

// QueueProperties describe a queue. The zero value is the service's defaults.
type QueueProperties struct {
	// LockDuration is how long a receiver holds a message or session: [MinLock] to
	// [MaxLock], [DefaultLock] if 0 (SB-F-13).
	LockDuration time.Duration

	// MaxDeliveries is the number of failed deliveries at which a message is
	// dead-lettered, [DefaultMaxDeliveries] if 0 (SB-F-18).
	MaxDeliveries uint32

	// RequiresSession makes the queue hand out sessions alone. Fixed at creation.
	RequiresSession bool

	// DuplicateDetection drops a message whose ID was taken within Window, which
	// is [MinWindow] to [MaxWindow], [DefaultWindow] if 0 (SB-F-02, SB-F-03).
	// Whether there is any is fixed at creation; the window isn't.
	DuplicateDetection bool
	Window             time.Duration

	// TimeToLive bounds that of each message; 0 is no bound. DeadLetterExpired
	// moves what expires to the dead-letter sub-queue (SB-F-19).
	TimeToLive        time.Duration
	DeadLetterExpired bool

	// ForwardTo and ForwardDeadLettersTo name a queue or topic that gets the
	// messages, or those that are dead-lettered, in place of this entity. It may be
	// written as a URL, as the service tells it.
	ForwardTo, ForwardDeadLettersTo string

	// DeadLetterFilterErrors dead-letters, in a subscription, messages whose filters
	// could not be evaluated.
	DeadLetterFilterErrors bool

	// Partitioned makes the partition key part of what is unique (SB-F-05).
	Partitioned bool

	// MaxMessageSize in bytes; 0 is the server's.
	MaxMessageSize int

	// Disabled refuses sends, receives or both.
	SendDisabled, ReceiveDisabled bool

	// AutoDeleteOnIdle and UserMetadata are kept, and mean nothing here.
	AutoDeleteOnIdle time.Duration
	UserMetadata     string

	kept kept
}

// complete sets the defaults and returns what is wrong with the properties.
func (p *QueueProperties) complete() error {
	if p.LockDuration == 0 {
		p.LockDuration = DefaultLock
	}
	if p.MaxDeliveries == 0 {
		p.MaxDeliveries = DefaultMaxDeliveries
	}
	if p.Window == 0 {
		p.Window = DefaultWindow
	}
	switch {
	case p.LockDuration < MinLock || p.LockDuration > MaxLock:
		return fmt.Errorf("the lock duration %v is not between %v and %v", p.LockDuration, MinLock, MaxLock)
	case p.Window < MinWindow || p.Window > MaxWindow:
		return fmt.Errorf("the duplicate detection history time window %v is not between %v and %v", p.Window, MinWindow, MaxWindow)
	case p.TimeToLive < 0 || p.TimeToLive > 0 && p.TimeToLive < time.Second:
		return fmt.Errorf("the default time to live %v is less than a second", p.TimeToLive)
	case p.MaxMessageSize < 0 || p.MaxMessageSize > 100<<20:
		return fmt.Errorf("the maximum message size %d is not between 1 and 100 MiB", p.MaxMessageSize)
	case p.RequiresSession && p.ForwardTo != "":
		return fmt.Errorf("an entity that requires sessions can't forward its messages")
	}
	return nil
}

// The names of sub-queues below their entity.
const (
	deadLetterName = "$DeadLetterQueue"
	transferName   = "$Transfer/$DeadLetterQueue"
)

// checkName returns what is wrong with the name of an entity: at most 260
// characters, or 50 of a subscription and a rule, in segments of letters, digits
// and . - _ ~.
func checkName(name string, limit int) error {
	if name == "" || len(name) > limit {
		return fmt.Errorf("the name %q is empty or longer than %d characters", name, limit)
	}
	for _, part := range strings.Split(name, "/") {
		if part == "" {
			return fmt.Errorf("the name %q has an empty segment", name)
		}
	}
	for _, c := range name {
		if !strings.ContainsRune("/.-_~", c) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return fmt.Errorf("the name %q has a character that is not allowed: %q", name, c)
		}
	}
	return nil
}

// key is an address as the server's maps have it: entities are found whatever the
// case of their names.
func key(address string) string {
	if i := strings.Index(address, "://"); i >= 0 { // clients may write a whole URL
		rest := address[i+3:]
		if j := strings.IndexByte(rest, '/'); j >= 0 {
			address = rest[j:]
		} else {
			address = ""
		}
	}
	return strings.ToLower(strings.Trim(address, "/"))
}
