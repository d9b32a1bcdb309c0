// Package memory is the reference implementation of package driver: a broker in
// this process that has every capability of the contract and keeps every
// promise, unless an option switches that promise off.
//
// It serves three readers. Tests of an application use it instead of a broker,
// with real time, in testing/synctest or on a [Clock] that the test moves. An
// adapter's author reads here what the contract means. The conformance suite
// proves its probes on it, for each promise can be broken on purpose.
//
//	b := memory.New()
//	defer b.Close()
//	conn := b.Conn()
//	err := conn.Ensure(ctx, broker.Entity{Topic: "orders", Subscription: "orders/billing"})
//
// # Names
//
// A topic's name is any text without "/" and without control characters. A
// subscription's name, for Entity.Subscription and OpenReceiver, is the topic's
// name, "/" and a name of its own: "orders/billing". Each subscription gets a
// copy of every message published after it was made. The first subscription of
// a topic also gets what was published before, so that a dead-letter topic loses
// nothing while nobody reads it.
//
// # What else it promises
//
// A delivery counts as an attempt when it is handed out, whatever becomes of it:
// one that Receiver.Close gives back was an attempt too. A cancelled Receive has
// taken nothing and costs none. After MaxDeliveries attempts, by whatever end of
// the last one, the message goes to the dead-letter topic, or is parked where
// there is none ([Stats]): it is kept and not delivered again.
//
// A dead letter keeps ID, Copy, key, headers and body and gets the three headers
// of package driver. The dead-letter topic dedups it by its ID and subscription,
// apart from what is published there, and doesn't apply its limit of the body.
//
// With Entity.Ordered one message of a key is out at a time; the next one comes
// when it is acked, dead-lettered or parked. Messages without a key wait for none.
//
// A lost connection ends no lease: what a consumer held when its process, the
// connection or the broker went down comes again after the lease.
//
// Admin.Delete of a subscription also removes the topic and the dead-letter topic
// it names, if no other subscription needs them. StartFrom and Partitions over 1
// are ErrUnsupported. A subscription's wish in an Entity without one is ErrInvalid.
//
// # Transactions
//
// A broker.Transactor keeps what is published and settled until the commit, which does
// all of it in one step or nothing. Opening an ID again fences its earlier holder and
// aborts what that prepared. A fault on Commit strikes a commit.
//
// # URL
//
//	mem://NAME?window=2m&lease=30s&max-deliveries=5&max-body=1048576
//
// Open with this URL returns a connection to the broker of that name in this
// process, which the first Open makes; [Named] returns the broker itself. The
// parameters are the defaults of [WithWindow], [WithLease], [WithMaxDeliveries]
// and [WithMaxBody]; values that differ from those of an earlier Open are
// ErrConflict.
//
// # Time
//
// Without [WithClock] the broker lives in real time, by timers only, so that it
// works inside a synctest bubble. What was made in a bubble stays in it: a broker
// that is used in a bubble must be made there, a named one too.
//
// # As
//
// Conn, Publisher and Receiver set a **Broker. A delivery has no handle of an
// SDK.
package memory
