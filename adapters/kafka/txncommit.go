package kafka

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// transaction is one transaction of a transactor.
type transaction struct {
	t     *transactor
	begun time.Time

	mu     sync.Mutex
	proof  proof // where to look for what became of it
	inputs map[*groupReceiver]*inputs
	alone  bool // committed as plain offsets: nothing was published
}

// note takes in a record that is part of the transaction. One is enough to find out
// later how the transaction ended; the last one, for retention takes the first.
func (x *transaction) note(topic string, at broker.Position) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.proof.Topic, x.proof.Partition, x.proof.Offset = topic, at.Partition, int64(at.Offset)
}

// identify notes under which epoch the transaction runs. The error says that the ID
// can't be used any more, so that the transaction surely isn't committed.
func (x *transaction) identify(ctx context.Context) error {
	id, epoch, err := x.t.prod.cl.ProducerID(ctx)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.proof.ID, x.proof.Producer, x.proof.Epoch, x.proof.Raises = x.t.id, id, epoch, x.t.epoch
	return nil
}

func (x *transaction) published() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.proof.Topic != ""
}

// Commit is driver.Transaction's.
func (x *transaction) Commit(ctx context.Context) broker.Outcome {
	if !x.published() {
		return x.commitAlone(ctx)
	}
	if o, ok := x.sendInputs(ctx); !ok {
		return o
	}
	if err := x.identify(ctx); err != nil {
		if ctx.Err() != nil {
			return x.still(err)
		}
		return x.lost(ctx, err)
	}
	if err := x.t.settled(ctx); err != nil {
		return x.still(err)
	}
	err := x.t.prod.cl.EndTransaction(ctx, kgo.TryCommit)
	switch {
	case err == nil:
		x.finish(true)
		x.t.mu.Lock()
		x.t.dirty = false
		x.t.mu.Unlock()
		return broker.Outcome{State: broker.Confirmed}
	case errors.Is(err, kerr.OperationNotAttempted), errors.Is(err, kerr.UnknownTopicID):
		return x.lost(ctx, err) // no request was sent
	}
	// Also a clear refusal may be the answer to the SDK's second request, after the
	// first took effect.
	return x.resolve(ctx, err)
}

// settled waits until the client counts the partitions that were written to. It answers
// for the first records of a topic before it has stored the topic's partitions, among
// which EndTransaction then finds none that was written to: it aborts, or does nothing,
// and says that all is well (KAF-F-302). Nothing is buffered any more; what the call does
// besides is to wait for the lock under which they are stored.
func (t *transactor) settled(ctx context.Context) error { return t.prod.cl.AbortBufferedRecords(ctx) }

// Resolve is driver.Transaction's.
func (x *transaction) Resolve(ctx context.Context) broker.Outcome {
	x.mu.Lock()
	alone := x.alone
	x.mu.Unlock()
	if alone {
		return x.commitAlone(ctx)
	}
	return x.resolve(ctx, nil)
}

func (x *transaction) resolve(ctx context.Context, first error) broker.Outcome {
	x.mu.Lock()
	p := x.proof
	x.mu.Unlock()
	done, err := endAs(ctx, x.t.prod.cl, x.t.conn, p, true)
	switch {
	case done == doneCommit:
		x.finish(true)
		if fencedProducer(err) { // committed, and somebody else goes on
			x.replaced(err)
		}
		return broker.Outcome{State: broker.Confirmed}
	case done == doneAbort:
		return x.lost(ctx, err)
	}
	return broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, errors.Join(first, err), "commit on %s", x.t.id)}
}

// still is the outcome of a commit before which nothing was done.
func (x *transaction) still(err error) broker.Outcome {
	return broker.Outcome{Err: broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "commit on %s: not sent", x.t.id)}
}

// lost ends a transaction that surely has no effect, because of err.
func (x *transaction) lost(ctx context.Context, err error) broker.Outcome {
	x.finish(false)
	kind := broker.ErrAborted
	switch {
	case errors.Is(err, broker.ErrLeaseLost):
		kind = broker.ErrLeaseLost
	case fencedProducer(err):
		kind = broker.ErrFenced
		x.replaced(err)
	}
	// What the broker has of it holds up committed readers. If it can't be told now
	// the next Begin tells it.
	if cerr := x.t.clear(ctx); cerr != nil && !errors.Is(cerr, broker.ErrFenced) {
		x.t.conn.log.Warn("kafka: aborting a transaction; the next one or its timeout does", "transactor", x.t.id, "err", cerr)
	}
	return broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(kind, err, "commit on %s", x.t.id)}
}

// replaced takes a refusal of the producer's epoch in. Before the transaction's time is
// over that is another holder. After it, it may be the broker itself, and then the
// next Begin is given a new epoch.
func (x *transaction) replaced(err error) {
	if time.Since(x.begun) < x.t.scope.Timeout {
		_ = x.t.failed(err, "")
	}
}

// Abort is driver.Transaction's.
func (x *transaction) Abort(ctx context.Context) error {
	x.finish(false)
	return x.t.clear(ctx)
}

// Prepare is driver.Transaction's.
func (x *transaction) Prepare(ctx context.Context) ([]byte, error) {
	if !x.published() {
		if x.settles() {
			return nil, broker.Errorf(broker.ErrUnsupported, nil, "prepare on %s: it has inputs and no output, which is no transaction in Kafka", x.t.id)
		}
		return proof{ID: x.t.id, Empty: true}.token(ctx, x.t.conn)
	}
	if o, ok := x.sendInputs(ctx); !ok {
		return nil, o.Err
	}
	if err := x.identify(ctx); err != nil {
		return nil, x.t.failed(err, "prepare on "+x.t.id)
	}
	x.mu.Lock()
	p := x.proof
	x.mu.Unlock()
	return p.token(ctx, x.t.conn)
}

var _ driver.Transaction = (*transaction)(nil)
