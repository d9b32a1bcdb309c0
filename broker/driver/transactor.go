package driver

import (
	"context"
	"errors"
	"sync"

	"github.com/onceline/onceline/broker"
)

// OpenTransactor is broker.TransactorOpener's.
func (c *conn) OpenTransactor(ctx context.Context, id string, opts ...broker.TransactorOption) (broker.Transactor, error) {
	if err := c.enter("open transactor", id); err != nil {
		return nil, err
	}
	defer c.gate.leave()
	var o broker.TransactorOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.Timeout < 0 {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "open transactor %s: timeout %s", id, o.Timeout)
	}
	a, ok := own(c.driver).(Transacting)
	if !ok {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "open transactor %s: %s", id, c.whyNone())
	}
	d, err := a.OpenTransactor(ctx, id, o)
	if err != nil {
		return nil, err
	}
	t := &transactor{driver: d, id: id, conn: c, publishers: map[string]*publisher{}}
	if err := c.remember(ctx, t, "open transactor", id); err != nil {
		return nil, err
	}
	return t, nil
}

// RecoverTransaction is broker.TransactorOpener's.
func (c *conn) RecoverTransaction(ctx context.Context, token []byte, commit bool) (broker.Outcome, error) {
	fail := func(err error) (broker.Outcome, error) { return broker.Outcome{Err: err}, err }
	if !c.gate.enter() {
		return fail(broker.Errorf(broker.ErrClosed, nil, "recover transaction"))
	}
	defer c.gate.leave()
	a, ok := own(c.driver).(Recovering)
	if !ok {
		return fail(broker.Errorf(broker.ErrUnsupported, nil, "recover transaction: %s", c.whyNone()))
	}
	if len(token) == 0 {
		return fail(broker.Errorf(broker.ErrInvalid, nil, "recover transaction: empty token"))
	}
	o := explained(a.RecoverTransaction(ctx, token, commit), "recover transaction")
	return o, o.Err
}

func (c *conn) whyNone() string {
	switch a := own(c.driver).(type) {
	case NoTransactions:
		return a.NoTransactions()
	case Transacting:
		return "its transactions can't be prepared"
	}
	return "the adapter has no transactions"
}

// explained sees to it that nothing which is no success looks like one.
func explained(o broker.Outcome, what string) broker.Outcome {
	if o.Err != nil || o.State == broker.Confirmed {
		return o
	}
	kind := broker.ErrUnknownOutcome
	if o.State == broker.LeaseLost {
		kind = broker.ErrAborted
	} else {
		o.State = broker.Unknown
	}
	o.Err = broker.Errorf(kind, nil, "%s: no reason given", what)
	return o
}

// transactor is the broker.Transactor around an adapter's.
type transactor struct {
	driver Transactor
	id     string
	conn   *conn
	gate   gate // of the calls that reach the driver

	begin sync.Mutex // one Begin at a time
	mu    sync.Mutex
	open  *transaction // the last one begun
	once  sync.Once
	err   error // of Close

	topics     sync.Mutex
	publishers map[string]*publisher
}

func (t *transactor) Scope() broker.Scope { return t.driver.Scope() }

func (t *transactor) As(target any) bool { return t.driver.As(target) }

func (t *transactor) Begin(ctx context.Context) (broker.Transaction, error) {
	if !t.gate.enter() {
		return nil, broker.Errorf(broker.ErrClosed, nil, "begin on %s", t.id)
	}
	defer t.gate.leave()
	t.begin.Lock()
	defer t.begin.Unlock()
	if last := t.last(); last != nil {
		switch last.at() {
		case opened, preparedNow:
			return nil, broker.Errorf(broker.ErrConflict, nil, "begin on %s: a transaction is open", t.id)
		case unresolved:
			return nil, broker.Errorf(broker.ErrUnknownOutcome, nil, "begin on %s: what became of the last commit isn't known; resolve it first", t.id)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "begin on %s", t.id)
	}
	d, err := t.driver.Begin(ctx)
	if err != nil {
		return nil, err
	}
	x := &transaction{driver: d, of: t}
	t.mu.Lock()
	t.open = x
	t.mu.Unlock()
	return x, nil
}

func (t *transactor) last() *transaction {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open
}

// publisher is the one to topic, opened by the first that asks.
func (t *transactor) publisher(ctx context.Context, topic string) (*publisher, error) {
	if topic == "" {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "publish in transaction of %s: empty topic", t.id)
	}
	t.topics.Lock()
	defer t.topics.Unlock()
	if p := t.publishers[topic]; p != nil {
		return p, nil
	}
	d, err := t.driver.OpenPublisher(ctx, topic)
	if err != nil {
		return nil, err
	}
	p := &publisher{driver: d, topic: topic, limits: d.Limits(), conn: t.conn}
	t.publishers[topic] = p
	return p, nil
}

func (t *transactor) Close(ctx context.Context) error {
	t.once.Do(func() {
		t.gate.shut()
		t.gate.wait(ctx)
		var aborted error
		if x := t.last(); x != nil && x.at() == opened {
			aborted = x.abort(ctx)
		}
		var errs []error
		t.topics.Lock()
		for _, p := range t.publishers {
			errs = append(errs, p.Close(ctx))
		}
		t.topics.Unlock()
		t.err = errors.Join(aborted, errors.Join(errs...), t.driver.Close(ctx))
		t.conn.forget(t)
	})
	return t.err
}
