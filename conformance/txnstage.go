package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// txnStage is where transactions are played: an entity for outputs on a connection of
// its own, with a reader.
type txnStage struct {
	conn broker.Conn
	out  broker.Entity
	pub  broker.Publisher // of the outputs' entity, outside of any transaction
	rcv  broker.Receiver
}

// txnConn opens a connection, and on it a transactor, as the target's transactions are
// begun. Where there are none it answers the claims, and ok is false.
func (b *Bench) txnConn(ctx context.Context, name string, ids ...boundary.Claim) (c broker.Conn, x broker.Transactor, ok bool, err error) {
	if c, err = b.Conn(ctx); err != nil {
		return nil, nil, false, err
	}
	x, err = b.transactor(ctx, c, name)
	if errors.Is(err, broker.ErrUnsupported) {
		for _, id := range ids {
			if id == boundary.TxnScope {
				b.Answer(id, boundary.Unsupported, "%v", err)
			} else {
				b.NotApplicable(id, "there are no transactions: %v", err)
			}
		}
		return nil, nil, false, nil
	}
	return c, x, err == nil, err
}

// transactor opens one under an ID that no other probe has.
func (b *Bench) transactor(ctx context.Context, c broker.Conn, name string, opts ...broker.TransactorOption) (broker.Transactor, error) {
	x, err := broker.OpenTransactor(ctx, c, b.txnID(name), opts...)
	if err == nil {
		b.history.Add(report.Producer, "open transactor", "", "%s: a transaction covers %s", name, x.Scope())
	}
	return x, err
}

func (b *Bench) txnID(name string) string { return b.name + "-" + name }

// ensureOn creates one more entity of the probe, over c.
func (b *Bench) ensureOn(ctx context.Context, c broker.Conn, name string) (broker.Entity, error) {
	e := b.Instance.entity(b.name + name)
	if b.Target.WishLease {
		e.Lease = b.askingLease()
	}
	if err := c.Ensure(ctx, e); err != nil {
		return e, fmt.Errorf("ensure %s: %w", e.Topic, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ensured = append(b.ensured, e)
	return e, nil
}

// txnStage makes the entity for outputs and shows that its reader is at work.
func (b *Bench) txnStage(ctx context.Context, c broker.Conn) (s txnStage, err error) {
	s.conn = c
	if s.out, err = b.ensureOn(ctx, c, "out"); err != nil {
		return s, err
	}
	if s.pub, err = c.OpenPublisher(ctx, s.out.Topic); err != nil {
		return s, err
	}
	if s.rcv, err = c.OpenReceiver(ctx, s.out.Subscription); err != nil {
		return s, err
	}
	return s, b.witness(ctx, s.pub, s.rcv)
}

// errNoTransactionsHere is why an entity takes none, where others of the broker do.
var errNoTransactionsHere = errors.New("this entity takes no transactions")

// publishIn publishes within a transaction.
func (b *Bench) publishIn(ctx context.Context, tx broker.Transaction, topic string, m broker.Message) error {
	b.history.Record(report.Event{Actor: report.Producer, Kind: "publish in transaction", ID: m.ID, Note: "to " + topic})
	rs, err := tx.Publish(ctx, topic, m)
	switch {
	case errors.Is(err, broker.ErrUnsupported):
		return fmt.Errorf("%w: %w", errNoTransactionsHere, err)
	case err != nil:
		return fmt.Errorf("publish %q in a transaction: %s: %w", m.ID, rs[0].Verdict, err)
	}
	return nil
}

// commit commits while no fault may strike it, and tries again where nothing was done.
func (b *Bench) commit(ctx context.Context, tx broker.Transaction) broker.Outcome {
	b.commits.RLock()
	defer b.commits.RUnlock()
	return b.commitNow(ctx, tx)
}

func (b *Bench) commitNow(ctx context.Context, tx broker.Transaction) broker.Outcome {
	for {
		b.history.Add(report.Producer, "commit", "", "asked for")
		o, err := tx.Commit(ctx)
		b.history.Add(report.Broker, "commit", "", "%s", saidOf(o, err))
		o.Err = err
		passes := errors.Is(err, broker.ErrUnavailable) || errors.Is(err, broker.ErrBusy)
		if o.State != broker.Unknown || errors.Is(err, broker.ErrUnknownOutcome) || !passes || !sleep(ctx, 50*time.Millisecond) {
			return o
		}
	}
}

func saidOf(o broker.Outcome, err error) string {
	if err == nil {
		return o.State.String()
	}
	return fmt.Sprintf("%s (%v)", o.State, err)
}

// mustCommit is commit where its success is the premise.
func (b *Bench) mustCommit(ctx context.Context, tx broker.Transaction) error {
	if o := b.commit(ctx, tx); o.State != broker.Confirmed || o.Err != nil {
		return fmt.Errorf("commit: %s", saidOf(o, o.Err))
	}
	return nil
}

// copiesOf reads the outputs until the reader has shown that there are no more, and
// counts them.
func (b *Bench) copiesOf(ctx context.Context, s txnStage, expected ...string) (map[string]int, error) {
	copies := map[string]int{}
	err := b.drain(ctx, s.pub, s.rcv, func(d *broker.Delivery) { copies[d.ID]++ }, func() bool {
		return !slices.ContainsFunc(expected, func(id string) bool { return copies[id] == 0 })
	})
	return copies, err
}
