package memory

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// holder is what the broker knows of a transactor ID. Its lock guards it.
type holder struct {
	epoch    uint64                  // of who opened it last
	number   uint64                  // of the last transaction
	prepared map[uint64]*transaction // that nobody has ended
	ended    map[uint64]bool         // committed or aborted, of the last ones
}

// keptEnds is how many ends of transactions the broker remembers for one ID.
const keptEnds = 1000

func (h *holder) end(number uint64, committed bool) {
	delete(h.prepared, number)
	h.ended[number] = committed
	delete(h.ended, number-keptEnds)
}

// transactor is a driver.Transactor.
type transactor struct {
	c     *conn
	id    string
	epoch uint64
	done  chan struct{}
	open  *transaction // guarded by the broker's lock
}

// OpenTransactor is driver.Transacting's.
func (c *conn) OpenTransactor(_ context.Context, id string, o broker.TransactorOptions) (driver.Transactor, error) {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := c.ready("open transactor", id); err != nil {
		return nil, err
	}
	if o.Timeout != 0 {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "open transactor %s: a transaction has no timeout here", id)
	}
	h := b.holders[id]
	if h == nil {
		h = &holder{prepared: map[uint64]*transaction{}, ended: map[uint64]bool{}}
		b.holders[id] = h
	}
	h.epoch++
	now := b.begin()
	for _, x := range h.prepared {
		x.undo(now)
	}
	b.arm(now)
	return &transactor{c: c, id: id, epoch: h.epoch, done: make(chan struct{})}, nil
}

func (t *transactor) Scope() broker.Scope {
	return broker.Scope{Publishes: true, Settles: true, Atomic: true, Isolated: true, Fences: true, Resolves: true, Prepares: true,
		Note: "What is published gets its place, and is known by its ID, at the commit. Leases run on meanwhile."}
}

func (t *transactor) As(target any) bool { return t.c.b.as(target) }

// Begin is driver.Transactor's.
func (t *transactor) Begin(context.Context) (driver.Transaction, error) {
	b := t.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := t.c.ready("begin on", t.id); err != nil {
		return nil, err
	}
	h := b.holders[t.id]
	if h.epoch != t.epoch {
		return nil, broker.Errorf(broker.ErrFenced, nil, "begin on %s: somebody else opened it", t.id)
	}
	h.number++
	t.open = &transaction{t: t, number: h.number, link: t.c.link}
	return t.open, nil
}

// OpenPublisher is driver.Transactor's.
func (t *transactor) OpenPublisher(ctx context.Context, topic string) (driver.Publisher, error) {
	p, err := t.c.OpenPublisher(ctx, topic, broker.PublisherOptions{})
	if err != nil {
		return nil, err
	}
	return &txnPublisher{p.(*publisher), t}, nil
}

// Close is driver.Transactor's.
func (t *transactor) Close(context.Context) error {
	close(t.done)
	return nil
}

// txnPublisher collects what is published for the commit.
type txnPublisher struct {
	*publisher
	t *transactor
}

// Publish is driver.Publisher's.
func (p *txnPublisher) Publish(_ context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	b := p.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	x := p.t.open
	switch {
	case b.closed:
		refuse(receipts, broker.Errorf(broker.ErrClosed, nil, "publish to %s", p.name))
		return
	case x == nil:
		refuse(receipts, broker.Errorf(broker.ErrConflict, nil, "publish to %s: no transaction is open", p.name))
		return
	case b.topics[p.name] == nil:
		refuse(receipts, broker.Errorf(broker.ErrNotFound, nil, "publish to topic %s", p.name))
		return
	}
	bodies, headers := roomFor(msgs)
	for i := range msgs {
		if err := b.topics[p.name].refuse(&msgs[i]); err != nil {
			receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: err}
			continue
		}
		m := msgs[i]
		m.Body, m.Headers = bodies.copy(m.Body), headers.copy(m.Headers)
		x.out = append(x.out, output{p.name, m})
		receipts[i].Verdict = broker.Accepted
	}
}

type output struct {
	topic string
	msg   broker.Message
}

// RecoverTransaction is driver.Recovering's.
func (c *conn) RecoverTransaction(_ context.Context, token []byte, commit bool) broker.Outcome {
	id, number, ok := parseToken(string(token))
	if !ok {
		return broker.Outcome{Err: broker.Errorf(broker.ErrInvalid, nil, "recover transaction: not a token of this adapter")}
	}
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := c.ready("recover transaction of", id); err != nil {
		return broker.Outcome{Err: err}
	}
	what := fmt.Sprintf("recover transaction %d of %s", number, id)
	h := b.holders[id]
	if h == nil {
		return broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, nil, "%s: the broker doesn't know the ID", what)}
	}
	if x := h.prepared[number]; x != nil {
		now := b.begin()
		defer b.arm(now)
		if commit {
			return x.apply(what, now)
		}
		x.undo(now)
	}
	committed, known := h.ended[number]
	switch {
	case !known:
		return broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, nil, "%s: the broker has forgotten it", what)}
	case committed == commit:
		return broker.Outcome{State: broker.Confirmed}
	case commit:
		return broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrAborted, nil, "%s", what)}
	}
	return broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrConflict, nil, "%s: it is committed", what)}
}

const tokenKind = "onceline/memory/transaction/1 "

func (x *transaction) token() []byte {
	return []byte(tokenKind + strconv.FormatUint(x.number, 10) + " " + x.t.id)
}

func parseToken(s string) (id string, number uint64, ok bool) {
	s, ok = strings.CutPrefix(s, tokenKind)
	if !ok {
		return "", 0, false
	}
	digits, id, ok := strings.Cut(s, " ")
	if !ok || id == "" {
		return "", 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return id, number, err == nil
}
