package driver

import (
	"context"

	"github.com/onceline/onceline/broker"
)

// Transacting is implemented by a Conn whose broker has transactions.
type Transacting interface {
	// OpenTransactor opens id, fences its earlier holder and aborts what that left
	// open. A wish of o that can't be met is broker.ErrUnsupported.
	OpenTransactor(ctx context.Context, id string, o broker.TransactorOptions) (Transactor, error)
}

// Recovering is implemented by a Transacting Conn whose transactions can be prepared.
type Recovering interface {
	// RecoverTransaction is broker.RecoverTransaction. A token that isn't one of
	// this adapter's is broker.ErrInvalid.
	RecoverTransaction(ctx context.Context, token []byte, commit bool) broker.Outcome
}

// NoTransactions is implemented by a Conn whose broker has no transactions, to say
// why.
type NoTransactions interface{ NoTransactions() string }

// Transactor begins transactions. New sees to it that there is one at a time.
type Transactor interface {
	// Begin is called when no transaction is open.
	Begin(ctx context.Context) (Transaction, error)
	// OpenPublisher opens topic for publishing within the transaction that is open
	// at the time of each Publish; Publish is not called without one. It is called
	// once for a topic. New closes what it returns before the Transactor.
	OpenPublisher(ctx context.Context, topic string) (Publisher, error)
	Scope() broker.Scope
	As(target any) bool
	// Close is called once, after the open transaction was aborted.
	Close(ctx context.Context) error
}

// Transaction is one transaction. New sees to the order of the calls: after Prepare
// no Publish and Settle, nothing after an end, Resolve only after a Commit whose
// outcome was Unknown with broker.ErrUnknownOutcome.
type Transaction interface {
	// Settle makes ops part of the transaction, all of one receiver of the same
	// Conn, Ack and DeadLetter only, and sets each Outcome: Pending, or why not. It
	// may run beside Publish and other Settles.
	Settle(ctx context.Context, r Receiver, ops []Op)
	// Prepare, Commit, Resolve and Abort are broker.Transaction's. When Commit or
	// Resolve answers LeaseLost, and when Abort returns, also with an error, what
	// was settled comes again from its receivers, and the adapter needs no Abort.
	Prepare(ctx context.Context) ([]byte, error)
	Commit(ctx context.Context) broker.Outcome
	Resolve(ctx context.Context) broker.Outcome
	Abort(ctx context.Context) error
}
