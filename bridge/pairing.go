package bridge

import (
	"fmt"
	"time"

	"github.com/onceline/onceline/broker/boundary"
)

// Pairing is what is known of a bridge before it moves a message.
type Pairing struct {
	From, To boundary.Boundary
	// Inbox: the messages go through the inbox and outbox of [Through].
	Inbox bool
	// Transactions: the relay behind the inbox sends in transactions of the far side
	// ([dedup.NewTransactionalRelay]).
	Transactions bool
	// Stays: they stay in the database, for consumers to read there. To isn't used.
	Stays bool
	// Window is how long the far side's topic remembers an ID, of its publisher's
	// Limits; 0 is none.
	Window time.Duration
}

// Grade is how often a message is at the far side.
type Grade uint8

// The grades, the weakest first.
const (
	// Copies: at least once, with copies under the same ID.
	Copies Grade = iota
	// WithinWindow: once, if the bridge is never away for longer than the window.
	WithinWindow
	// OnceOrHeld: once; what the far side may have forgotten is held for somebody to
	// decide.
	OnceOrHeld
	// Once.
	Once
)

func (g Grade) String() string {
	names := [...]string{"at least once", "exactly once, within the window", "exactly once, or held", "exactly once"}
	if int(g) < len(names) {
		return names[g]
	}
	return fmt.Sprintf("Grade(%d)", uint8(g))
}

// Promise is what a pairing gives.
type Promise struct {
	Grade Grade
	// Why says what it rests on, and what to do about it, in sentences.
	Why []string
	// Notes are what changes on the way beside the number of copies.
	Notes []string
	// Together is what [Options].Together may be: the far side keeps the order of a key in
	// one Publish over a failure.
	Together bool
}

// Remembers reports whether a far side knows IDs over a producer's restart, by its
// declared boundary and the window of its topic.
func Remembers(b boundary.Boundary, window time.Duration) bool {
	return window > 0 && b.Entries[boundary.PublishDedupNewProducer].Declared == boundary.Once
}

// Transacts reports whether a far side has transactions that a relay can prepare, so that
// an inbox in front of it makes each message exactly one, by its declared boundary.
func Transacts(b boundary.Boundary) bool {
	return b.Entries[boundary.TxnAtomic].Declared == boundary.AllOrNone && b.Entries[boundary.TxnZombie].Declared == boundary.Refused &&
		b.Entries[boundary.TxnTimeout].Declared == boundary.AbortedTold
}

// Judge says what a pairing gives, by what the adapters declare.
func Judge(p Pairing) Promise {
	out := Promise{Together: p.Stays || p.Inbox || p.To.Entries[boundary.PublishOrderKey].Declared == boundary.OverFailure}
	remembers := Remembers(p.To, p.Window)
	say := func(format string, a ...any) { out.Why = append(out.Why, fmt.Sprintf(format, a...)) }
	switch {
	case p.Stays:
		out.Grade = Once
		say("Each message is added to the outbox in one transaction with a mark of its ID, so it is there once, however often the source brings it and whatever is killed, as long as the marks are kept.")
	case p.Inbox && remembers:
		out.Grade = OnceOrHeld
		say("What the source brings twice the inbox finds, however late. What the relay sends twice, because an answer was lost or it was killed, %s finds by its ID within %v; the relay notes when it sent a message first, and holds one whose time is over rather than send it again (onceline relay held).", p.To.Broker, p.Window)
	case p.Inbox && p.Transactions:
		out.Grade = Once
		say("What the source brings twice the inbox finds, however late. The relay sends in transactions of %s, and notes in the database what it has prepared before it commits: what was under way at a kill is committed by that note, or was not and is sent again.", p.To.Broker)
		say("Consumers of %s must read committed messages only, and wait for what is open: after a kill, until the bridge is there again or the transaction's time is over.", p.To.Broker)
	case p.Inbox:
		out.Grade = Copies
		say("What the source brings twice the inbox finds, however late. But the relay's publish and the removal from the outbox aren't one transaction, and %s doesn't know IDs over a producer's restart: for each answer that is lost, and for what was under way at each kill, there is one more copy with the same ID.", p.To.Broker)
		say("The consumers behind it need an inbox of their own, which makes their effects happen once.")
		if Transacts(p.To) {
			say("In transactions of %s the relay would make no copies: with a database that can keep a record of them, and without --no-transactions.", p.To.Broker)
		}
	case remembers:
		out.Grade = WithinWindow
		say("A message is acked when %s has it. One that comes again, because the bridge was killed or the ack was lost, is published under the same ID, and %s finds the copy within %v.", p.To.Broker, p.To.Broker, p.Window)
		say("So the bridge may not be away, nor the source keep a message back, for longer than that between a publish and the next one of the same message: a bridge that was killed knows nothing of what it sent. Within one process it notes the time, and what is late it doesn't send again. An inbox (--inbox) has no such limit.")
	default:
		out.Grade = Copies
		say("%s doesn't know IDs over a producer's restart: for each answer that is lost, and for what was under way at each kill, there is one more copy with the same ID.", p.To.Broker)
		say("The consumers behind it need an inbox, which makes their effects happen once.")
		if Transacts(p.To) {
			say("An inbox of the bridge's own (--inbox) makes it exactly once: what is behind it is sent in transactions of %s.", p.To.Broker)
		} else {
			say("An inbox of the bridge's own (--inbox) keeps what the source brings twice from becoming copies, but not those of the bridge's own publishes.")
		}
	}
	note := func(format string, a ...any) { out.Notes = append(out.Notes, fmt.Sprintf(format, a...)) }
	switch p.From.Entries[boundary.DeliverOrderRedelivery].Declared {
	case boundary.None, boundary.Overtaken:
		note("%s brings the messages of a key in no order; they are moved in the order in which they come.", p.From.Broker)
	default:
		if text := p.From.Entries[boundary.DeliverOrderRedelivery].Note; text != "" {
			note("The order of a key at the source, when messages come again: %s", text)
		}
	}
	if p.Stays {
		return out
	}
	if p.To.Entries[boundary.PublishOrderKey].Declared == boundary.None {
		note("%s keeps no order of a key.", p.To.Broker)
	}
	if from, to := p.From.Limits[boundary.LimitBody], p.To.Limits[boundary.LimitBody]; from.Narrower(to) {
		note("%s takes bodies of %s, %s of %s: larger ones are refused.", p.From.Broker, boundary.LimitBody.Text(from), p.To.Broker, boundary.LimitBody.Text(to))
	}
	return out
}
