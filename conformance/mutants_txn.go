package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/broker/driver"
)

// txnMutants break the transactions of any adapter that has them.
func txnMutants() []Mutant {
	return []Mutant{
		{"acks-beside-the-transaction", "", transacting, "It acks an input as it is settled, and not with the transaction.",
			boundary.TxnScope, boundary.Publishes, mutation{txn: txnMutation{settle: settleBeside}}},
		{"commits-in-two-steps", "", transacting, "It acks the inputs first, and then commits the outputs.",
			boundary.TxnAtomic, boundary.InPart, mutation{txn: txnMutation{settle: settleLater, commit: ackThenCommit}}},
		{"makes-its-own-transactor-id", "", transacting, "It adds something random to the transactor's ID, as to a client's name, so that nobody is fenced.",
			boundary.TxnZombie, boundary.TakesEffect, mutation{txn: txnMutation{open: randomID}}},
		{"ignores-the-time", "", transacting, "It takes the wish for a transaction's time, and tells the broker nothing.",
			boundary.TxnTimeout, boundary.Ignored, mutation{txn: txnMutation{open: noTimeout}}},
		{"takes-a-lost-commit-for-an-abort", "", transacting, "It aborts when it hears no answer to a commit, and says that nothing took effect.",
			boundary.TxnCommitUnknown, boundary.ClaimedLost, mutation{txn: txnMutation{commit: unknownInstead(broker.LeaseLost)}}},
		{"takes-a-sent-commit-for-done", "", transacting, "It says Confirmed when it hears no answer to a commit.",
			boundary.TxnCommitUnknown, boundary.ClaimedDone, mutation{txn: txnMutation{commit: unknownInstead(broker.Confirmed)}}},
		{"publishes-beside-the-transaction", "", transacting, "It publishes by the publisher that it has already, which knows of no transaction.",
			boundary.TxnReadUncommitted, boundary.UncommittedDelivered, mutation{txn: txnMutation{publisher: publisherBeside}}},
		{"acks-what-it-aborts", "", transacting, "It acks the inputs at the end of each transaction, however that ends.",
			boundary.TxnExternalEffect, boundary.Once, mutation{txn: txnMutation{settle: settleLater, commit: commitThenAck, abort: ackAndAbort}}},
		{"keeps-what-it-aborts", "", transacting, "It aborts at the broker, and leaves the inputs in the receiver's hands.",
			boundary.TxnRewind, boundary.AfterLease, mutation{txn: txnMutation{settle: settleLater, commit: commitThenAck}}},
	}
}

// txnMutantsOf are those that one broker invites.
func txnMutantsOf() []Mutant {
	return []Mutant{
		{"a-transactional-id-for-each-start", "kafka-group", transacting, "It makes a transactional ID of the host and the time, so that a restarted or second instance fences nobody.",
			boundary.TxnZombie, boundary.TakesEffect, mutation{txn: txnMutation{open: randomID}}},
		{"goes-on-behind-an-abort", "kafka-group", transacting, "It aborts the transaction, and doesn't set the consumer back to the committed position.",
			boundary.TxnRewind, boundary.Never, mutation{txn: txnMutation{settle: settleLater, commit: commitThenAck}}},
	}
}

// txnMutation holds what a mutant's transactions do instead of the adapter's; nil
// leaves it.
type txnMutation struct {
	open      func(ctx context.Context, next driver.Transacting, id string, o broker.TransactorOptions) (driver.Transactor, error)
	publisher func(ctx context.Context, c driver.Conn, topic string) (driver.Publisher, error)
	settle    func(ctx context.Context, x *mutantTransaction, r driver.Receiver, ops []driver.Op)
	commit    func(ctx context.Context, x *mutantTransaction) broker.Outcome
	abort     func(ctx context.Context, x *mutantTransaction) error
}

// transactingMutant is a mutant of a connection that has transactions.
type transactingMutant struct{ *mutantConn }

func (c transactingMutant) OpenTransactor(ctx context.Context, id string, o broker.TransactorOptions) (driver.Transactor, error) {
	next := c.Conn.(driver.Transacting)
	open := next.OpenTransactor
	if c.m.txn.open != nil {
		open = func(ctx context.Context, id string, o broker.TransactorOptions) (driver.Transactor, error) {
			return c.m.txn.open(ctx, next, id, o)
		}
	}
	t, err := open(ctx, id, o)
	if err != nil {
		return nil, err
	}
	return &mutantTransactor{t, c.mutantConn}, nil
}

// RecoverTransaction is the adapter's, where it has one.
func (c transactingMutant) RecoverTransaction(ctx context.Context, token []byte, commit bool) broker.Outcome {
	if r, ok := c.Conn.(driver.Recovering); ok {
		return r.RecoverTransaction(ctx, token, commit)
	}
	return broker.Outcome{Err: broker.Errorf(broker.ErrUnsupported, nil, "recover transaction: its transactions can't be prepared")}
}

type mutantTransactor struct {
	driver.Transactor
	c *mutantConn
}

func (t *mutantTransactor) OpenPublisher(ctx context.Context, topic string) (driver.Publisher, error) {
	if t.c.m.txn.publisher != nil {
		return t.c.m.txn.publisher(ctx, t.c.Conn, topic)
	}
	return t.Transactor.OpenPublisher(ctx, topic)
}

func (t *mutantTransactor) Begin(ctx context.Context) (driver.Transaction, error) {
	x, err := t.Transactor.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &mutantTransaction{Transaction: x, m: t.c.m.txn}, nil
}

type mutantTransaction struct {
	driver.Transaction
	m    txnMutation
	mu   sync.Mutex
	acks []keptAck
}

// keptAck is an ack that a mutant has kept for later.
type keptAck struct {
	r driver.Receiver
	s broker.Settlement
	t driver.Token
}

func (x *mutantTransaction) Settle(ctx context.Context, r driver.Receiver, ops []driver.Op) {
	if broken, ok := r.(*mutantReceiver); ok {
		r = broken.Receiver
	}
	if x.m.settle == nil {
		x.Transaction.Settle(ctx, r, ops)
		return
	}
	x.m.settle(ctx, x, r, ops)
}

func (x *mutantTransaction) Commit(ctx context.Context) broker.Outcome {
	if x.m.commit == nil {
		return x.Transaction.Commit(ctx)
	}
	return x.m.commit(ctx, x)
}

func (x *mutantTransaction) Abort(ctx context.Context) error {
	if x.m.abort == nil {
		return x.Transaction.Abort(ctx)
	}
	return x.m.abort(ctx, x)
}

// ack sends what was kept.
func (x *mutantTransaction) ack(ctx context.Context) {
	x.mu.Lock()
	acks := x.acks
	x.acks = nil
	x.mu.Unlock()
	for i := range acks {
		acks[i].r.Settle(ctx, []driver.Op{{Settlement: &acks[i].s, Token: &acks[i].t}})
	}
}

// settleBeside settles as the receiver does, and says that it is in the transaction.
func settleBeside(ctx context.Context, _ *mutantTransaction, r driver.Receiver, ops []driver.Op) {
	r.Settle(ctx, ops)
	for i := range ops {
		if ops[i].Settlement.Outcome.State.OK() {
			ops[i].Settlement.Outcome = broker.Outcome{State: broker.Pending}
		}
	}
}

// settleLater keeps acks for the end of the transaction.
func settleLater(_ context.Context, x *mutantTransaction, r driver.Receiver, ops []driver.Op) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range ops {
		x.acks = append(x.acks, keptAck{r, *ops[i].Settlement, *ops[i].Token})
		ops[i].Settlement.Outcome = broker.Outcome{State: broker.Pending}
	}
}

func ackThenCommit(ctx context.Context, x *mutantTransaction) broker.Outcome {
	x.ack(ctx)
	return x.Transaction.Commit(ctx)
}

func commitThenAck(ctx context.Context, x *mutantTransaction) broker.Outcome {
	o := x.Transaction.Commit(ctx)
	if o.State == broker.Confirmed {
		x.ack(ctx)
	}
	return o
}

func ackAndAbort(ctx context.Context, x *mutantTransaction) error {
	x.ack(ctx)
	return x.Transaction.Abort(ctx)
}

// unknownInstead says that a commit without an answer is decided.
func unknownInstead(said broker.State) func(context.Context, *mutantTransaction) broker.Outcome {
	return func(ctx context.Context, x *mutantTransaction) broker.Outcome {
		o := x.Transaction.Commit(ctx)
		switch {
		case o.State != broker.Unknown || !errors.Is(o.Err, broker.ErrUnknownOutcome):
		case said == broker.Confirmed:
			o = broker.Outcome{State: said}
		default:
			o = broker.Outcome{State: said, Err: broker.Errorf(broker.ErrAborted, nil, "commit: no answer")}
		}
		return o
	}
}

// randomID opens another ID than it was given.
func randomID(ctx context.Context, next driver.Transacting, id string, o broker.TransactorOptions) (driver.Transactor, error) {
	return next.OpenTransactor(ctx, id+"-"+rand.Text(), o)
}

// noTimeout forgets the wish for a time.
func noTimeout(ctx context.Context, next driver.Transacting, id string, o broker.TransactorOptions) (driver.Transactor, error) {
	o.Timeout = 0
	return next.OpenTransactor(ctx, id, o)
}

// publisherBeside is one that knows of no transaction.
func publisherBeside(ctx context.Context, c driver.Conn, topic string) (driver.Publisher, error) {
	return c.OpenPublisher(ctx, topic, broker.PublisherOptions{})
}
