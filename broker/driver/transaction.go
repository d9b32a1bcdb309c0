package driver

import (
	"context"
	"errors"
	"sync"

	"github.com/onceline/onceline/broker"
)

// The places of a transaction in its life.
const (
	opened      = iota
	preparedNow // grows no more, can be committed or aborted
	unresolved  // the answer to its commit was lost
	committed
	undone    // surely without effect
	forgotten // its answer was lost, and this broker can't be asked
)

// transaction is the broker.Transaction around an adapter's.
type transaction struct {
	driver Transaction
	of     *transactor

	grow sync.RWMutex // held for reading by Publish and Settle, for writing by what ends them
	end  sync.Mutex   // one call that ends it at a time

	mu     sync.Mutex
	place  int
	token  []byte
	answer broker.Outcome // of the commit
	poison error          // why it can only be aborted
	leases []*lease       // settled in it
}

func (x *transaction) at() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.place
}

// growing reports why the transaction takes nothing more, nil if it does.
func (x *transaction) growing(what string) error {
	switch x.at() {
	case opened:
		return nil
	case preparedNow:
		return broker.Errorf(broker.ErrConflict, nil, "%s in transaction of %s: it is prepared", what, x.of.id)
	}
	return broker.Errorf(broker.ErrConflict, nil, "%s in transaction of %s: it has ended", what, x.of.id)
}

func (x *transaction) Publish(ctx context.Context, topic string, msgs ...broker.Message) ([]broker.Receipt, error) {
	if len(msgs) == 0 {
		return nil, nil
	}
	receipts := make([]broker.Receipt, len(msgs))
	refuse := func(err error) ([]broker.Receipt, error) {
		for i := range receipts {
			receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: err}
		}
		return receipts, err
	}
	if !x.of.gate.enter() {
		return refuse(broker.Errorf(broker.ErrClosed, nil, "publish to %s in transaction of %s", topic, x.of.id))
	}
	defer x.of.gate.leave()
	x.grow.RLock()
	defer x.grow.RUnlock()
	if err := x.growing("publish to " + topic); err != nil {
		return refuse(err)
	}
	p, err := x.of.publisher(ctx, topic)
	if err != nil {
		return refuse(err)
	}
	receipts, err = p.Publish(ctx, msgs...)
	for i := range receipts {
		if r := &receipts[i]; !r.Verdict.OK() && !harmless(r) {
			x.spoil(r.Err)
			break
		}
	}
	return receipts, err
}

// harmless reports that a message was refused before anything of it was sent.
func harmless(r *broker.Receipt) bool {
	if r.Verdict != broker.Refused {
		return false
	}
	for _, kind := range [...]error{broker.ErrInvalid, broker.ErrTooLarge, broker.ErrNotFound, broker.ErrBusy, broker.ErrUnavailable, broker.ErrUnauthorized} {
		if errors.Is(r.Err, kind) {
			return true
		}
	}
	return false
}

// spoil notes why the transaction can only be aborted.
func (x *transaction) spoil(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.poison == nil {
		x.poison = err
	}
}

// Commit is broker.Transaction's.
func (x *transaction) Commit(ctx context.Context) (broker.Outcome, error) {
	x.end.Lock()
	defer x.end.Unlock()
	x.grow.Lock()
	defer x.grow.Unlock()
	o := x.commit(ctx)
	return o, o.Err
}

func (x *transaction) commit(ctx context.Context) broker.Outcome {
	x.mu.Lock()
	place, poison, answer := x.place, x.poison, x.answer
	x.mu.Unlock()
	switch {
	case place >= committed:
		return answer
	case place == unresolved:
		return x.resolve(ctx)
	case poison != nil:
		return broker.Outcome{Err: broker.Errorf(broker.ErrConflict, poison, "commit on %s: a publish failed; the transaction can only be aborted", x.of.id)}
	}
	if !x.of.gate.enter() {
		return broker.Outcome{Err: broker.Errorf(broker.ErrClosed, nil, "commit on %s", x.of.id)}
	}
	defer x.of.gate.leave()
	if ctx.Err() != nil {
		return broker.Outcome{Err: broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "commit on %s: nothing was done", x.of.id)}
	}
	return x.take(x.driver.Commit(ctx), "commit on "+x.of.id)
}

// Resolve is broker.Transaction's.
func (x *transaction) Resolve(ctx context.Context) (broker.Outcome, error) {
	x.end.Lock()
	defer x.end.Unlock()
	o := x.resolve(ctx)
	return o, o.Err
}

func (x *transaction) resolve(ctx context.Context) broker.Outcome {
	x.mu.Lock()
	place, answer := x.place, x.answer
	x.mu.Unlock()
	switch place {
	case committed, undone, forgotten:
		return answer
	case opened, preparedNow:
		return broker.Outcome{Err: broker.Errorf(broker.ErrConflict, nil, "resolve on %s: no commit was sent", x.of.id)}
	}
	if !x.of.gate.enter() {
		return broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, broker.ErrClosed, "resolve on %s", x.of.id)}
	}
	defer x.of.gate.leave()
	if ctx.Err() != nil {
		return answer
	}
	return x.take(x.driver.Resolve(ctx), "resolve on "+x.of.id)
}

// take takes in the adapter's answer to a commit.
func (x *transaction) take(o broker.Outcome, what string) broker.Outcome {
	o = explained(o, what)
	switch {
	case o.State == broker.Confirmed:
		x.conclude(committed, o)
	case o.State == broker.LeaseLost:
		x.conclude(undone, o)
	case errors.Is(o.Err, broker.ErrUnknownOutcome) && !x.of.driver.Scope().Resolves:
		x.conclude(forgotten, o)
	case errors.Is(o.Err, broker.ErrUnknownOutcome):
		x.mu.Lock()
		x.place, x.answer = unresolved, o
		x.mu.Unlock()
	}
	return o
}

// conclude is the end: the handles learn it.
func (x *transaction) conclude(place int, o broker.Outcome) {
	x.mu.Lock()
	x.place, x.answer = place, o
	leases := x.leases
	x.leases = nil
	x.mu.Unlock()
	known := broker.Confirmed
	switch place {
	case undone:
		known = broker.LeaseLost
	case forgotten:
		known = broker.Unknown
	}
	for _, l := range leases {
		was := l.status()
		l.state.Store(status{settled, was.action, known}.pack())
	}
}

// Prepare is broker.Transaction's.
func (x *transaction) Prepare(ctx context.Context) ([]byte, error) {
	x.end.Lock()
	defer x.end.Unlock()
	x.grow.Lock()
	defer x.grow.Unlock()
	x.mu.Lock()
	place, poison, token := x.place, x.poison, x.token
	x.mu.Unlock()
	switch {
	case place == preparedNow:
		return token, nil
	case place != opened:
		return nil, broker.Errorf(broker.ErrConflict, nil, "prepare on %s: the transaction has ended", x.of.id)
	case poison != nil:
		return nil, broker.Errorf(broker.ErrConflict, poison, "prepare on %s: a publish failed; the transaction can only be aborted", x.of.id)
	case !x.of.driver.Scope().Prepares:
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "prepare on %s: this broker's transactions end with their holder", x.of.id)
	}
	if !x.of.gate.enter() {
		return nil, broker.Errorf(broker.ErrClosed, nil, "prepare on %s", x.of.id)
	}
	defer x.of.gate.leave()
	token, err := x.driver.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	x.place, x.token = preparedNow, token
	x.mu.Unlock()
	return token, nil
}

// Abort is broker.Transaction's.
func (x *transaction) Abort(ctx context.Context) error {
	x.end.Lock()
	defer x.end.Unlock()
	if !x.of.gate.enter() {
		if x.at() == undone {
			return nil
		}
		return broker.Errorf(broker.ErrClosed, nil, "abort on %s", x.of.id)
	}
	defer x.of.gate.leave()
	return x.abort(ctx)
}

func (x *transaction) abort(ctx context.Context) error {
	x.grow.Lock()
	defer x.grow.Unlock()
	switch x.at() {
	case undone:
		return nil
	case forgotten:
		return broker.Errorf(broker.ErrConflict, broker.ErrUnknownOutcome, "abort on %s: its commit may have taken effect", x.of.id)
	case committed:
		return broker.Errorf(broker.ErrConflict, nil, "abort on %s: it is committed", x.of.id)
	case unresolved:
		return broker.Errorf(broker.ErrConflict, broker.ErrUnknownOutcome, "abort on %s: its commit may have taken effect; resolve it", x.of.id)
	}
	err := x.driver.Abort(ctx)
	x.conclude(undone, broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrAborted, nil, "transaction of %s", x.of.id)})
	return err
}
