package broker

import (
	"context"
	"fmt"
	"time"
)

// Transactor begins transactions under one identity. Not every broker has one:
// [OpenTransactor] returns ErrUnsupported with the reason where there is none, and
// [Transactor.Scope] says what a transaction covers where there is. Nothing outside
// of the broker is ever part of it: a row in a database that is written between
// Begin and Commit stays when the transaction is aborted, and is written again when
// its inputs come again.
//
// A Transactor has one open transaction at a time. It is safe for concurrent use.
type Transactor interface {
	// Begin begins a transaction. ErrConflict: one is open, or prepared.
	// ErrUnknownOutcome: the last one's commit has no answer yet; resolve it first,
	// for nothing of it may be processed again before. ErrFenced: somebody else
	// opened the ID; this Transactor is of no use any more.
	Begin(ctx context.Context) (Transaction, error)
	// Scope is what a transaction covers on this broker. It doesn't block.
	Scope() Scope
	// As sets target, a non-nil pointer, to the SDK's own handle where the
	// adapter's documentation names that type, and reports whether it did.
	As(target any) bool
	// Close aborts what is open and is bounded by ctx. A prepared transaction is
	// left as it is, for [RecoverTransaction]. Idempotent.
	Close(ctx context.Context) error
}

// Transaction is one unit of publishes and settles that takes effect as a whole, as
// far as [Scope] promises it. Publish and Settle are safe for concurrent use; the
// calls that end it are made by one caller.
type Transaction interface {
	// Publish is Publisher.Publish within the transaction. An OK verdict says that
	// the message is part of it, no more: what is promised is promised by Commit.
	// Once a message is Unknown, or the broker refused one, the transaction can
	// only be aborted; a message that is refused before it is sent (ErrInvalid,
	// ErrTooLarge, ErrNotFound) harms nothing.
	Publish(ctx context.Context, topic string, msgs ...Message) ([]Receipt, error)
	// Settle makes settles part of the transaction: Ack, and DeadLetter, whose
	// copy is published within it. The deliveries come from receivers of the
	// connection that the Transactor was opened on. Their Outcome is Pending until
	// Commit; afterwards the same settle on the receiver asks: Confirmed, or
	// LeaseLost. Nack and Extend are ErrUnsupported here: they are the receiver's.
	Settle(ctx context.Context, s []Settlement) error
	// Prepare ends the transaction's growth and returns a token with which
	// [RecoverTransaction] commits or aborts it after this process has died. All
	// that was published and settled is with the broker when it returns. It
	// doesn't stop the broker's clock: see Scope.Timeout. ErrUnsupported where
	// Scope.Prepares is false. Asked again, it returns the same token.
	Prepare(ctx context.Context) ([]byte, error)
	// Commit makes all of it take effect. Confirmed: it did. LeaseLost: surely
	// nothing did, and the inputs come again; the error says why: ErrFenced,
	// ErrAborted or, where an input's assignment was taken away, ErrLeaseLost.
	// Unknown with ErrUnknownOutcome: the answer was lost; Resolve asks. Confirmed
	// with ErrUnroutable: it did, but for messages that no queue takes. Unknown
	// with another error: nothing was done, and the transaction is as it was.
	// Asked again after an answer, it repeats the answer.
	Commit(ctx context.Context) (Outcome, error)
	// Resolve asks the broker what became of a commit whose answer was lost, until
	// it knows or ctx ends. It answers as Commit does. Where the commit hasn't
	// reached the broker, it reaches it now.
	Resolve(ctx context.Context) (Outcome, error)
	// Abort undoes all of it. What it settled comes again from its receivers,
	// without a gap; those handles are LeaseLost. An error says that the broker
	// couldn't be told; nothing will be committed all the same. ErrConflict: it is
	// committed, or its commit is unresolved. Idempotent.
	Abort(ctx context.Context) error
}

// Scope is what a transaction of one broker covers.
type Scope struct {
	// Publishes and Settles say what can be in it.
	Publishes, Settles bool
	// Atomic: all of it takes effect or nothing, also when the broker crashes in
	// between. Where it is false, Note says what can be torn.
	Atomic bool
	// Isolated: receivers of this toolkit, unless they are opened to read
	// uncommitted messages, see nothing of it before the commit or after an abort.
	Isolated bool
	// Fences: opening the ID elsewhere ends this Transactor.
	Fences bool
	// Resolves: Resolve can find out what became of a commit. Where it is false a
	// lost answer stays Unknown, and what comes again was not committed.
	Resolves bool
	// Prepares: Transaction.Prepare and RecoverTransaction work.
	Prepares bool
	// Timeout is after what time the broker aborts a transaction by itself; Limit
	// the longest that the broker allows. Zero: none, or not known.
	Timeout, Limit time.Duration
	// Messages is the most messages of one transaction; zero: no limit of its own.
	Messages int
	// Note says in words what the fields can't.
	Note string
}

// TransactorOptions is what TransactorOption functions set; adapters read it.
type TransactorOptions struct {
	Timeout time.Duration
}

// TransactorOption is an option of OpenTransactor.
type TransactorOption func(*TransactorOptions)

// TransactionTimeout asks the broker to abort a transaction that is open for longer.
// An adapter whose broker can't, or doesn't allow that much, refuses to open with
// ErrUnsupported. The default is the adapter's: 60 s for Kafka.
func TransactionTimeout(d time.Duration) TransactorOption {
	return func(o *TransactorOptions) { o.Timeout = d }
}

// TransactorOpener is implemented by connections that may have transactions. Call
// [OpenTransactor] and [RecoverTransaction] instead, which know the others too.
type TransactorOpener interface {
	OpenTransactor(ctx context.Context, id string, opts ...TransactorOption) (Transactor, error)
	RecoverTransaction(ctx context.Context, token []byte, commit bool) (Outcome, error)
}

// OpenTransactor opens a Transactor. id is the same across restarts of one instance
// of the program and unlike that of any other instance: opening it again ends the
// earlier holder (ErrFenced) and aborts what it left open, prepared transactions too:
// recover those first. ErrUnsupported: the broker has no transactions; the error says
// why. It blocks until the broker has answered or ctx ends.
func OpenTransactor(ctx context.Context, c Conn, id string, opts ...TransactorOption) (Transactor, error) {
	o, ok := c.(TransactorOpener)
	if !ok {
		return nil, Errorf(ErrUnsupported, nil, "open transactor %s: a %T has no transactions", id, c)
	}
	return o.OpenTransactor(ctx, id, opts...)
}

// RecoverTransaction ends a prepared transaction whose process has died, by the token
// that Transaction.Prepare returned: with commit it answers as Transaction.Resolve
// does, without it aborts and answers Confirmed when that is sure, LeaseLost with
// ErrConflict if it turns out to be committed. Asked again it answers the same, as
// long as the broker remembers. It must be called before the ID is opened again,
// which would abort the transaction; where that has happened the answer says so
// (LeaseLost, ErrAborted). The token holds no secret.
func RecoverTransaction(ctx context.Context, c Conn, token []byte, commit bool) (Outcome, error) {
	o, ok := c.(TransactorOpener)
	if !ok {
		err := Errorf(ErrUnsupported, nil, "recover transaction: a %T has no transactions", c)
		return Outcome{Err: err}, err
	}
	return o.RecoverTransaction(ctx, token, commit)
}

func (s Scope) String() string {
	var covers string
	switch {
	case s.Publishes && s.Settles:
		covers = "publishes and settles"
	case s.Publishes:
		covers = "publishes"
	case s.Settles:
		covers = "settles"
	default:
		return "nothing"
	}
	if !s.Atomic {
		covers += ", not atomic"
	}
	if s.Timeout > 0 {
		covers += fmt.Sprintf(", at most %s", s.Timeout)
	}
	return covers
}
