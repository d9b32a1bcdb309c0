package rabbitmq

import (
	"context"
	"errors"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// transactor collects what is published and acked, and does it in one tx.commit. A
// channel that is in tx mode stays so, and every ack on it waits for a commit; so the
// receiver's channel is closed behind each transaction.
type transactor struct {
	c    *conn
	id   string
	mu   sync.Mutex
	open *transaction
}

// OpenTransactor is driver.Transacting's.
func (c *conn) OpenTransactor(_ context.Context, id string, o broker.TransactorOptions) (driver.Transactor, error) {
	if o.Timeout != 0 {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "open transactor %s: RabbitMQ's transactions have no timeout", id)
	}
	return &transactor{c: c, id: id}, nil
}

func (t *transactor) Scope() broker.Scope {
	return broker.Scope{Publishes: true, Settles: true, Isolated: true,
		Note: "AMQP's tx on the channel of the deliveries, of one receiver. It is atomic for one queue; a node that crashes in the midst of a commit can leave some of its queues with their part and others without (RMQ-F-300). " +
			"A message that no queue takes is lost at the commit, and told (ErrUnroutable). A dead letter is published before, and stays after an abort. " +
			"A lost answer can't be asked about: what comes again was not committed. Behind each transaction the receiver's channel is closed, and what else it had in hand goes back. The ID is a name: nobody is fenced."}
}

func (t *transactor) As(target any) bool { return t.c.As(target) }

// Begin is driver.Transactor's.
func (t *transactor) Begin(context.Context) (driver.Transaction, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = &transaction{t: t}
	return t.open, nil
}

// Close is driver.Transactor's.
func (t *transactor) Close(context.Context) error { return nil }

// OpenPublisher is driver.Transactor's.
func (t *transactor) OpenPublisher(ctx context.Context, topic string) (driver.Publisher, error) {
	p, err := t.c.OpenPublisher(ctx, topic, broker.PublisherOptions{})
	if err != nil {
		return nil, err
	}
	return &txnPublisher{p.(*publisher), t}, nil
}

// txnPublisher collects what is published for the commit.
type txnPublisher struct {
	*publisher
	t *transactor
}

// Publish is driver.Publisher's.
func (p *txnPublisher) Publish(_ context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	x := p.t.open
	for i := range msgs {
		if err := p.collect(x, msgs[i]); err != nil {
			receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: err}
		} else {
			receipts[i].Verdict = broker.Accepted
		}
	}
}

// collect adds one message. t.mu is held.
func (p *txnPublisher) collect(x *transaction, m broker.Message) error {
	if x == nil {
		return broker.Errorf(broker.ErrConflict, nil, "publish to %s: no transaction is open", p.topic)
	}
	if limit := int(p.limit.Load()); limit > 0 && len(m.Body) > limit {
		return broker.Errorf(broker.ErrTooLarge, nil, "publish %q: the body has %d bytes, over the node's %d", m.ID, len(m.Body), limit)
	}
	m.Body = append([]byte(nil), m.Body...)
	e := encoder{room: int(p.frame.Load()) - frameRoom/2}
	out := output{to: p.to}
	if err := e.set(&m, &out.msg); err != nil {
		return err
	}
	x.out = append(x.out, out)
	return nil
}

type output struct {
	to  place
	msg amqp.Publishing
}

// transaction is what the commit is to do.
type transaction struct {
	t   *transactor
	out []output
	mu  sync.Mutex
	r   *receiver
	in  []*held
}

// Settle is driver.Transaction's.
func (x *transaction) Settle(ctx context.Context, d driver.Receiver, ops []driver.Op) {
	r, ok := d.(*receiver)
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range ops {
		s := ops[i].Settlement
		refuse := func(kind error, why string) {
			s.Outcome.Err = broker.Errorf(kind, nil, "%s %q in transaction of %s: %s", s.Action, s.Delivery.ID, x.t.id, why)
		}
		switch {
		case !ok:
			refuse(broker.ErrUnsupported, "a stream's offsets can't be in one")
			continue
		case x.r != nil && x.r != r:
			refuse(broker.ErrUnsupported, "it has deliveries of another receiver, and a transaction is of one channel")
			continue
		case r.wish.Ordered:
			refuse(broker.ErrUnsupported, "an ordered subscription has a standing consumer, whose channel has to stay")
			continue
		case s.Action == broker.DeadLetter && r.wish.DeadLetter == "":
			refuse(broker.ErrUnsupported, "Ensure named no dead-letter topic on this connection")
			continue
		}
		h := ops[i].Token.Ref.(*held)
		if len(x.in) > 0 && x.in[0].ch != h.ch {
			s.Outcome = r.gone(s)
			continue
		}
		if s.Action == broker.DeadLetter && x.bury(ctx, r, h, s) != nil {
			continue
		}
		x.r, x.in = r, append(x.in, h)
		s.Outcome.State = broker.Pending
	}
}

// bury publishes the dead-letter copy of a delivery, with a confirm and not in the
// transaction, where a copy that no queue takes would be lost. An abort leaves it.
func (x *transaction) bury(ctx context.Context, r *receiver, h *held, s *broker.Settlement) error {
	to, _ := placeOf(r.wish.DeadLetter) // Ensure has read it
	one := settling{r: r, ops: []driver.Op{{Settlement: s, Token: &driver.Token{Ref: h}}},
		copies: []letter{{to: to, reason: s.Reason, attempts: attemptOf(&h.d).Number}}}
	one.copy(ctx)
	return s.Outcome.Err
}

// Prepare is driver.Transaction's; New refuses it by the scope.
func (x *transaction) Prepare(context.Context) ([]byte, error) {
	return nil, broker.Errorf(broker.ErrUnsupported, nil, "prepare on %s", x.t.id)
}

// Resolve is driver.Transaction's; by the scope nobody asks.
func (x *transaction) Resolve(context.Context) broker.Outcome {
	return broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, nil, "resolve on %s: RabbitMQ can't be asked", x.t.id)}
}

func (x *transaction) over() {
	x.t.mu.Lock()
	defer x.t.mu.Unlock()
	if x.t.open == x {
		x.t.open = nil
	}
}

// Abort is driver.Transaction's. Nothing was sent; the deliveries go back.
func (x *transaction) Abort(context.Context) error {
	x.over()
	if len(x.in) > 0 {
		back := make([]held, len(x.in))
		for i, h := range x.in {
			back[i] = *h
		}
		x.in[0].ch.giveBack(back)
	}
	return nil
}

// Commit is driver.Transaction's.
func (x *transaction) Commit(ctx context.Context) broker.Outcome {
	switch {
	case len(x.in) > 0:
		return x.commitOver(ctx, x.in[0].ch)
	case len(x.out) == 0:
		x.over()
		return broker.Outcome{State: broker.Confirmed}
	}
	s, err := x.t.c.publish.session(ctx)
	if err != nil {
		return x.still(err)
	}
	ch, err := s.channel(ctx)
	if err != nil {
		return x.still(err)
	}
	return x.run(ctx, s, ch, func() error { return nil })
}

// commitOver commits on the channel of the deliveries. It is the receiver's, so a
// Receive that waits is waited for.
func (x *transaction) commitOver(ctx context.Context, c *channel) broker.Outcome {
	select {
	case x.r.token <- struct{}{}:
		defer func() { <-x.r.token }()
	case <-ctx.Done():
		return x.still(context.Cause(ctx))
	}
	return x.run(ctx, c.s, c.ch, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		acks := make([]uint64, 0, len(x.in))
		for _, h := range x.in {
			if c.epoch.Ended() || !c.tags.mark(h.d.DeliveryTag) {
				return errChannelOver
			}
			acks = append(acks, h.d.DeliveryTag)
		}
		return c.ack(acks)
	})
}

func (x *transaction) still(err error) broker.Outcome {
	return broker.Outcome{Err: broker.Errorf(broker.ErrUnavailable, err, "commit on %s: not sent", x.t.id)}
}

// errNotCommitted is why a commit wasn't sent: closing the channel undoes the rest.
type errNotCommitted struct{ error }

func (e errNotCommitted) Unwrap() error { return e.error }

// run does it all on one channel, which is closed then: that ends tx mode, and undoes
// what wasn't committed.
func (x *transaction) run(ctx context.Context, s *session, ch *amqp.Channel, ack func() error) broker.Outcome {
	lost, err := await(ctx, s.line, func() (int, error) {
		defer func() { _ = ch.Close() }() // an error means that it has ended
		returns := ch.NotifyReturn(make(chan amqp.Return, len(x.out)+1))
		if err := ch.Tx(); err != nil {
			return 0, errNotCommitted{err}
		}
		for i := range x.out {
			o := &x.out[i]
			if err := ch.PublishWithContext(context.WithoutCancel(ctx), o.to.exchange, o.to.key, true, false, o.msg); err != nil {
				return 0, errNotCommitted{err}
			}
		}
		if err := ack(); err != nil {
			return 0, errNotCommitted{err}
		}
		if err := ch.TxCommit(); err != nil {
			return 0, err
		}
		if x.r != nil {
			// A quorum queue can lose acks that a channel's end overtakes.
			_, _ = ch.QueueDeclarePassive(x.r.queue, true, false, false, false, nil)
		}
		return len(returns), nil
	}, nil)
	x.over()
	var before errNotCommitted
	switch {
	case errors.As(err, &before):
		kind := broker.ErrAborted
		if errors.Is(err, errChannelOver) || len(x.in) > 0 && x.in[0].ch.epoch.Ended() {
			kind = broker.ErrLeaseLost
		}
		return broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(kind, err, "commit on %s", x.t.id)}
	case err != nil:
		return broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, err, "commit on %s", x.t.id)}
	case lost > 0:
		return broker.Outcome{State: broker.Confirmed, Err: broker.Errorf(broker.ErrUnroutable, errNoQueue, "commit on %s: %d of its messages", x.t.id, lost)}
	}
	return broker.Outcome{State: broker.Confirmed}
}

var _ driver.Transacting = (*conn)(nil)

// NoTransactions is driver.NoTransactions'.
func (c *streamConn) NoTransactions() string {
	return "a stream of RabbitMQ has no transactions: a publish is known by its publishing ID, and an offset is stored by itself"
}
