package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// Target is a place the suite runs against. The smallest one, for an adapter
// of one's own, has a Name, a Boundary and a Start that returns an Instance
// with Open.
type Target struct {
	Name   string      // tells targets of a report apart: "kafka-share"
	Broker string      // the product: "kafka"
	Kind   report.Kind // emulator, local or cloud; emulator if empty
	// Real is true where the vendor's own code answers, if only embedded: its
	// findings are measured. Otherwise they are modelled.
	Real bool
	// Boundary is what the adapter declares of the real broker. It is held
	// against the target as of the release that Instance.Versions has under
	// Broker.
	Boundary boundary.Boundary
	// Like is the name of the embedded target of the same configuration, whose
	// answers are compared with this one's. Empty for none.
	Like string
	// Deviations are the known differences of an emulator from it.
	Deviations []Deviation

	// Start starts or connects to the broker that all probes share, each with
	// entities of its own.
	// An error that is ErrAbsent makes the target absent: shown, no failure.
	Start func(ctx context.Context) (*Instance, error)
	// Server names the broker, where the target shares it with all others of the same
	// name: what disturbs it disturbs all of them, so that their probes take turns.
	Server string
	// StartWithin bounds Start, default 30 s; EndWithin bounds the instance's
	// Close, default 20 s.
	StartWithin, EndWithin time.Duration
	// Long says that its probes take minutes: it is among the first that are asked
	// where Options.Servers says that not all are at a time.
	Long bool
	// ProbeWithin bounds each probe where this target needs longer than
	// Options.Timeout.
	ProbeWithin time.Duration
	// Private starts a broker for one probe alone, which may restart it, kill
	// it or move its clock. Without it such probes run on the shared
	// instance after all others, one at a time; but those that restart it do that
	// once, together, and so do those that kill it.
	Private func(ctx context.Context) (*Instance, error)

	// Lease is the shortest lease that the broker admits, for probes to wish
	// and to wait for; zero means that deliveries have none. WishLease is false
	// where it is configured elsewhere and can't be wished for.
	Lease     time.Duration
	WishLease bool
	// Session is after how long a silent consumer loses what it was assigned,
	// where that is not the lease.
	Session time.Duration
	// Window is the shortest dedup window that the broker admits; zero means
	// that it can't be wished for.
	Window time.Duration
	// Exclusive is set where a message is assigned to one receiver as long as
	// that lives, as in Kafka groups: another can have it only after it closed.
	Exclusive bool
	// CutLost is set where a client waits for long on an answer that is lost
	// while its connection lives, as Kafka's do: then the connection is cut
	// along with the answer.
	CutLost bool
	// CutLostSettle is the same for settles, where the adapter asks no second
	// time by itself.
	CutLostSettle bool
	// FaultsByQueue is set where faults on receives and settles know an entity by its
	// subscription's name, as those of RabbitMQ's queues do, and not by its topic's.
	FaultsByQueue bool
	// Key is what all messages have as ordering key that a probe gives none to: a
	// broker that keeps the order of keys does so only among messages with one.
	Key string
	// Stores guard effects in the probes of hop 3; without one of a kind the claims about
	// it are not verifiable. They must be given to RunIfWorker too.
	Stores []Store
	// Soak is how many messages the soak for the label exactly-once sends. Default
	// 10,000; fewer for a server that is too slow for so many.
	Soak int
	// Patience is how long a probe waits for a message before it says that
	// there is none. Default 2 s.
	Patience time.Duration
	// SlowStart is how much longer a message is waited for that has to come, where a
	// new subscription can be slow to deliver its first.
	SlowStart time.Duration
}

// ErrAbsent is what Start returns where this machine lacks what the target needs.
var ErrAbsent = errors.New("conformance: not here")

// Deviation is a known difference of an emulator from the real broker.
type Deviation struct {
	Claim  boundary.Claim
	Answer boundary.Answer
	Reason string
}

// Instance is one running broker.
type Instance struct {
	// Open opens a new connection, with a client of its own.
	Open func(ctx context.Context) (broker.Conn, error)
	// URL is what broker.Open takes in another process. Empty: consumers can't
	// be run in processes of their own, and a crash is modelled by a consumer
	// that is abandoned.
	URL string
	// Versions are those of broker, SDK and emulator.
	Versions map[string]string
	// Entity names what a probe uses. Default: topic name, subscription
	// name/name.
	Entity func(name string) broker.Entity
	// Sibling returns a second topic that shares e's store of dedup IDs, or "".
	Sibling func(e broker.Entity) string
	// Inject arms a fault. Nil: probes that need one are not verifiable.
	Inject func(f Fault) (Injection, error)
	// Cut closes all connections between clients and the broker, which goes on, and
	// returns how many there were. It is used where there is no Inject, by probes that
	// need no more than a cut, or than a request which is lost with its connection: sent
	// into a silent Network, and cut off there. Nil: they are not verifiable then.
	Cut func() (connections int, err error)
	// Network changes the network between all clients and the broker. Nil: probes that
	// need it are not verifiable.
	Network func(n Network) error
	// Restart stops the broker cleanly and starts it with its durable state at
	// the same address; Kill does so without the clean stop. Nil: not
	// verifiable.
	Restart func(ctx context.Context) error
	Kill    func(ctx context.Context) error
	// Purge removes all messages of an entity by the broker's own command for that,
	// which package broker has none for. It is ErrUnsupported where the broker has
	// none either. Nil: not verifiable.
	Purge func(ctx context.Context, e broker.Entity) error
	// Advance moves the broker's clock. Nil: its time is real and waited for.
	Advance func(d time.Duration)
	// Now is the broker's clock; time.Now if nil.
	Now func() time.Time
	// Fill makes e, which was ensured on c, one that has no room for a second message,
	// and says so by refusing it. Nil: a fault of kind PushBack is tried instead.
	Fill func(ctx context.Context, c broker.Conn, e broker.Entity) error
	// FullSubscription subscribes to e's topic, which was ensured on c, once more: with
	// room for a message or few, and so that the broker refuses what is over that. It
	// returns the subscription's name; the suite deletes it. It is ErrUnsupported, with the
	// reason, where no subscription of a topic can refuse by itself. Nil: not verifiable.
	FullSubscription func(ctx context.Context, c broker.Conn, e broker.Entity) (string, error)
	// KillLeader kills the node that answers for e and leaves it down. revive starts
	// it again and waits until it has caught up. Nil: there is no other node.
	KillLeader func(ctx context.Context, e broker.Entity) (revive func(context.Context) error, err error)
	// Guarded returns two instances of one broker of the same kind, which asks for
	// credentials: the first shows the right ones, the second wrong ones. Closing the
	// first stops what had to be started. Nil: the target asks for none.
	Guarded func(ctx context.Context) (friend, stranger *Instance, err error)
	// Close stops what Start started.
	Close func(ctx context.Context) error
}

// FaultOp says which requests a fault strikes.
type FaultOp string

// The operations that a fault strikes.
const (
	OnPublish FaultOp = "publish"
	OnReceive FaultOp = "receive"
	OnSettle  FaultOp = "settle"
	// OnCommit is the request that commits a transaction. Match is the transactor's ID
	// then, and Topic one that the transaction publishes to. A broker whose commits name
	// neither may have all of them struck: the suite commits nothing else meanwhile.
	OnCommit FaultOp = "commit"
)

// FaultKind says what becomes of them.
type FaultKind string

// The kinds of fault.
const (
	LoseRequest  FaultKind = "lose-request"  // it never reaches the broker
	LoseResponse FaultKind = "lose-response" // the broker applies it and nobody hears
	DelayRequest FaultKind = "delay"         // it is held back for Fault.Delay and arrives then
	CutRequest   FaultKind = "cut"           // the connection is closed instead of passing it on
	PushBack     FaultKind = "push-back"     // it is answered as by a broker that is full or throttles
)

// Fault strikes requests at a protocol point.
type Fault struct {
	Op    FaultOp
	Kind  FaultKind
	Match string        // the entity's name
	Topic string        // of OnCommit alone
	Times int           // 0: until removed
	Cut   bool          // the connection that carried it is closed as well
	Delay time.Duration // of DelayRequest alone
}

func (f Fault) String() string {
	s := fmt.Sprintf("%s of %s", f.Kind, f.Op)
	if f.Cut {
		s += " and cut"
	}
	return s
}

// Injection is an armed fault.
type Injection interface {
	// Hits is how many requests were struck, Applied how many of them the
	// broker was seen to apply.
	Hits() int
	Applied() int
	// WaitApplied blocks until Applied is at least 1 or ctx ends.
	WaitApplied(ctx context.Context) error
	// Remove disarms it.
	Remove()
}

func (t *Target) patience() time.Duration {
	if t.Patience > 0 {
		return t.Patience
	}
	return 2 * time.Second
}

func (t *Target) basis() report.Basis {
	if t.Real {
		return report.Measured
	}
	return report.Modelled
}

func (i *Instance) entity(name string) broker.Entity {
	if i.Entity != nil {
		return i.Entity(name)
	}
	return broker.Entity{Topic: name, Subscription: name + "/" + name}
}
