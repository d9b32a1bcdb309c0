package dedup

import (
	"context"
	"fmt"
	"time"
)

// OutboxStore is the side of a store that a [Relay] works on, and who looks after
// what it couldn't send. All methods are safe for concurrent use.
type OutboxStore interface {
	// VerifyOutbox reports what in the store would lose messages or turn their order,
	// as an error that is [ErrVerify].
	VerifyOutbox(ctx context.Context) error
	// RelayOutbox takes up to turn.Lanes lanes of the topic that no other relay has,
	// and rows in them that are to be sent, in order; hands these to send, of which
	// it is the only caller for these lanes as long as the turn takes no longer than
	// turn.Bound; and does with each row what send returned for it. It returns how
	// many rows there were.
	//
	// A row that isn't to be sent yet (OutboxAgain), or is stopped, also keeps back
	// the later ones of its Hash, unless that is 0.
	//
	// If it fails, the rows that were sent may still be there, and are handed out
	// again. Under turn.Guard they then have the Age of their first attempt, which
	// the store commits before it calls send.
	RelayOutbox(ctx context.Context, turn OutboxTurn, send func(rows []OutboxRow) []OutboxFate) (int, error)
	// OutboxBacklog counts the rows of a topic.
	OutboxBacklog(ctx context.Context, topic string) (OutboxBacklog, error)
	// NotifyOutbox tells relays in other processes that there are new rows, where
	// the store can.
	NotifyOutbox(ctx context.Context, topic string) error
	// StoppedOutbox lists rows of a topic that are held or parked, from the first one
	// whose Seq is over after, limit at most.
	StoppedOutbox(ctx context.Context, topic string, after int64, limit int) ([]StoppedRow, error)
	// ReleaseOutbox lets stopped rows of a topic be sent again, under their old IDs,
	// as if they had never been tried, and returns how many there were. Of one that
	// was held the consumers may get a second copy.
	ReleaseOutbox(ctx context.Context, topic string, seqs ...int64) (int, error)
	// DropOutbox removes stopped rows of a topic, and returns how many there were.
	// The later messages of their keys go on.
	DropOutbox(ctx context.Context, topic string, seqs ...int64) (int, error)
}

// OutboxTurn is one turn of a relay.
type OutboxTurn struct {
	Topic string
	First int // the lane to begin the search with
	Lanes int // at most
	Rows  int // at most
	Bytes int // of bodies together, at most; one row there may always be
	// Bound is how long send may take.
	Bound time.Duration
	// Guard says that rows have to have an Age.
	Guard bool
	// Pass sends the later rows of a key that has stopped ones.
	Pass bool
	// Owner, if not 0, is the relay's term ([RelayRecords]). Lanes that an earlier owner
	// has taken are free, for what it does with their rows has no effect any more.
	Owner int64
}

// OutboxFate is what is to become of a row.
type OutboxFate struct {
	State OutboxState
	// Maybe: the broker may have stored the message now.
	Maybe bool
	// Delay, with OutboxAgain, is how long the row waits.
	Delay time.Duration
	// Reason is why it wasn't sent.
	Reason string
}

// OutboxState is what became of a row in a turn.
type OutboxState uint8

// The states. Of those, rows are kept as OutboxAgain, OutboxHeld and OutboxParked.
const (
	// OutboxLeft: it was not tried.
	OutboxLeft OutboxState = iota
	// OutboxSent: the broker has it, and it is removed.
	OutboxSent
	// OutboxAgain: it is tried again later.
	OutboxAgain
	// OutboxHeld: the broker may have stored it so long ago that it doesn't remember
	// the ID any more, so that to try again could make a second message.
	OutboxHeld
	// OutboxParked: the broker refuses it for good.
	OutboxParked
)

func (s OutboxState) String() string {
	names := [...]string{"left", "sent", "again", "held", "parked"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("OutboxState(%d)", uint8(s))
}

// StoppedRow is a message that a relay doesn't send any more until somebody decides.
type StoppedRow struct {
	Seq      int64
	ID, Key  string
	State    OutboxState // OutboxHeld or OutboxParked
	Reason   string
	Attempts int
	Time     time.Time // the message's
}

// OutboxBacklog is how much of a topic waits.
type OutboxBacklog struct {
	Waiting int64 // to be sent, those that were tried included
	Retried int64 // of those, tried without success
	Held    int64
	Parked  int64
	// Oldest is how long the oldest waiting one has been there: the relay's lag.
	Oldest time.Duration
}

func (b OutboxBacklog) String() string {
	return fmt.Sprintf("%d waiting (%d retried, oldest %v), %d held, %d parked", b.Waiting, b.Retried, b.Oldest.Round(time.Millisecond), b.Held, b.Parked)
}
