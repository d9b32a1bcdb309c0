package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// txnProbes are those of transactions.
func txnProbes() []Probe {
	return []Probe{
		{"txn-crash", claims(boundary.TxnAtomic), NeedFault, probeTxnCrash},
		{"txn-zombie", claims(boundary.TxnZombie), 0, probeTxnZombie},
		{"txn-commit", claims(boundary.TxnCommitUnknown), NeedFault, probeTxnCommit},
		{"txn-timeout", claims(boundary.TxnTimeout), 0, probeTxnTimeout},
		{"txn", claims(boundary.TxnScope, boundary.TxnReadUncommitted, boundary.TxnExternalEffect, boundary.TxnRewind), 0, probeTxn},
	}
}

// glimpse is for how long a reader is watched that should get nothing: one that gets
// uncommitted messages has them at once, and also later.
const glimpse = 300 * time.Millisecond

// txnPlay is what probeTxn finds out in its course.
type txnPlay struct {
	txnStage
	in       broker.Entity
	inputs   broker.Receiver
	ms       []broker.Message // the first two are in the transaction, the last one follows
	o1, o2   broker.Message   // to the outputs' topic, and to the inputs'
	two      bool             // a transaction takes both
	settles  bool             // and acks
	seen     []string         // of what wasn't committed
	again    []string         // what came after the abort, in its order
	late     boundary.Answer  // of inputs that didn't come at once
	held     []broker.Delivery
	o1Copies int
	o2Copies int
	undone   bool     // inputs whose ack was committed came again
	rows     []string // under which each attempt wrote a row for the first input
}

// probeTxn. Anomaly: what was taken to be in a transaction isn't. An abort leaves an
// output or an ack in place; readers see what was never committed; the receiver goes on
// behind the inputs of what was aborted; and a row that the handler wrote to a database
// is written twice. Experiment: receive two of three inputs; within a transaction write
// a row for each, publish to two topics and ack the inputs; watch the reader; abort;
// watch what comes again. Then handle it anew, commit, and count what is there. Where
// acks can't be in a transaction the inputs are given back instead.
func probeTxn(ctx context.Context, b *Bench) error {
	ids := claims(boundary.TxnScope, boundary.TxnReadUncommitted, boundary.TxnExternalEffect, boundary.TxnRewind)
	c, x, ok, err := b.txnConn(ctx, "x", ids...)
	if !ok {
		return err
	}
	beside, err := b.openKind(ctx, Inbox, false) // before a lease begins: it may have to be started
	if err != nil {
		return err
	}
	p, err := b.txnPlay(ctx, c)
	if err != nil {
		return err
	}
	err = b.playAborted(ctx, x, p)
	if errors.Is(err, errNoTransactionsHere) {
		b.unverifiable(err.Error(), ids...)
		return nil
	}
	if err == nil {
		err = b.playCommitted(ctx, x, p)
	}
	if err != nil {
		return err
	}
	b.answerScope(p, x.Scope())
	b.answerRewind(p)
	if len(p.seen) > 0 {
		b.Answer(boundary.TxnReadUncommitted, boundary.UncommittedDelivered, "before anything was committed the reader got %q", p.seen)
	} else {
		b.Answer(boundary.TxnReadUncommitted, boundary.CommittedAlone, "the reader got nothing while the transaction was open nor after its abort, and once it was committed it did")
	}
	return b.answerExternal(ctx, p, beside)
}

func (b *Bench) txnPlay(ctx context.Context, c broker.Conn) (*txnPlay, error) {
	s, err := b.txnStage(ctx, c)
	if err != nil {
		return nil, err
	}
	p := &txnPlay{txnStage: s, ms: b.Messages(3), o1: b.Message(), o2: b.Message()}
	for _, m := range []*broker.Message{&p.ms[0], &p.ms[1], &p.ms[2], &p.o1, &p.o2} {
		m.Key = "k" // so that a partitioned log has them in one place
	}
	if p.in, err = b.ensureOn(ctx, c, "in"); err != nil {
		return nil, err
	}
	pub, err := c.OpenPublisher(ctx, p.in.Topic)
	if err != nil {
		return nil, err
	}
	if p.inputs, err = c.OpenReceiver(ctx, p.in.Subscription); err != nil {
		return nil, err
	}
	if _, err := b.MustPublish(ctx, pub, p.ms...); err != nil {
		return nil, err
	}
	for len(p.held) < 2 {
		d, err := b.MustReceive(ctx, p.inputs)
		if err != nil {
			return nil, err
		}
		if d.ID != p.ms[len(p.held)].ID {
			return nil, fmt.Errorf("%q came instead of %q", d.ID, p.ms[len(p.held)].ID)
		}
		p.held = append(p.held, d)
	}
	return p, nil
}

// work is the handler, within a transaction: a row for each input in a database, outputs
// to two topics where one transaction takes them, and the acks.
func (b *Bench) work(ctx context.Context, tx broker.Transaction, p *txnPlay, who string) error {
	for i := range p.held {
		if err := b.handle(ctx, &p.held[i], who); err != nil {
			return err
		}
		if p.held[i].ID == p.ms[0].ID {
			if err := b.writeRow(ctx, p, p.held[i], who); err != nil {
				return err
			}
		}
	}
	if err := b.publishIn(ctx, tx, p.out.Topic, p.o1); err != nil {
		return err
	}
	err := b.publishIn(ctx, tx, p.in.Topic, p.o2)
	p.two = err == nil
	if err != nil && !errors.Is(err, broker.ErrInvalid) && !errors.Is(err, errNoTransactionsHere) {
		return err
	}
	ss := make([]broker.Settlement, len(p.held))
	for i := range p.held {
		ss[i].Delivery = &p.held[i]
	}
	err = tx.Settle(ctx, ss)
	p.settles = err == nil
	if err != nil && !errors.Is(err, broker.ErrUnsupported) {
		return fmt.Errorf("settle in a transaction: %w", err)
	}
	b.history.Add(report.Consumer, "settle in transaction", "", "%s: %v", amount(len(ss), "input", "inputs"), orSo(err))
	return nil
}

// writeRow writes a row for the input to the database, if one is there, as a handler
// does without a marker: the store takes each attempt for a message of its own.
func (b *Bench) writeRow(ctx context.Context, p *txnPlay, d broker.Delivery, who string) error {
	if len(b.stores) == 0 {
		return nil
	}
	d.Message.ID = fmt.Sprintf("%s by %s", d.ID, who)
	p.rows = append(p.rows, d.Message.ID)
	s := b.stores[0]
	if err := s.keepAt(ctx, &d, nil); err != nil {
		return fmt.Errorf("write a row on %s: %w", s.Name, err)
	}
	return nil
}

func orSo(err error) string {
	if err == nil {
		return "taken"
	}
	return err.Error()
}

func (b *Bench) playAborted(ctx context.Context, x broker.Transactor, p *txnPlay) error {
	tx, err := x.Begin(ctx)
	if err != nil {
		return err
	}
	if err := b.work(ctx, tx, p, "the first attempt"); err != nil {
		return errors.Join(err, tx.Abort(ctx))
	}
	ds, err := b.Receive(ctx, p.rcv, 8, glimpse)
	if err != nil {
		return err
	}
	if err := b.uncommitted(ctx, p, ds); err != nil {
		return err
	}
	b.history.Add(report.Producer, "abort", "", "asked for")
	if err := tx.Abort(ctx); err != nil {
		return fmt.Errorf("abort: %w", err)
	}
	if !p.settles {
		for i := range p.held {
			// On a busy machine a lease may have ended: then it comes again by itself.
			if o := b.Settle(ctx, p.inputs, &p.held[i], broker.Nack, 0); !o.State.OK() && o.State != broker.LeaseLost {
				return fmt.Errorf("nack %q: %s: %w", p.held[i].ID, o.State, o.Err)
			}
		}
	}
	// A message behind it shows that nothing of it comes later.
	last := b.Message()
	last.Key = "k"
	if _, err := b.MustPublish(ctx, p.pub, last); err != nil {
		return err
	}
	for came := false; !came; {
		d, err := b.MustReceive(ctx, p.rcv)
		if err != nil {
			return err
		}
		if came = d.ID == last.ID; came {
			err = b.MustAck(ctx, p.rcv, &d)
		} else {
			err = b.uncommitted(ctx, p, []broker.Delivery{d})
		}
		if err != nil {
			return err
		}
	}
	return b.playAgain(ctx, p)
}

// uncommitted takes down what a reader got of a transaction that wasn't committed.
func (b *Bench) uncommitted(ctx context.Context, p *txnPlay, ds []broker.Delivery) error {
	for i := range ds {
		p.seen = append(p.seen, ds[i].ID)
	}
	if len(ds) == 0 {
		return nil
	}
	return b.mustAckAll(ctx, p.rcv, ds)
}

// playAgain takes what comes after the abort: at once, or after the lease.
func (b *Bench) playAgain(ctx context.Context, p *txnPlay) error {
	p.held = nil
	look := func(within time.Duration) error { // for each: a busy machine takes its time
		for len(p.again) < len(p.ms) {
			ds, err := b.Receive(ctx, p.inputs, 1, within)
			if err != nil || len(ds) == 0 {
				return err
			}
			if ds[0].ID == p.o2.ID {
				p.seen = append(p.seen, ds[0].ID)
				if err := b.MustAck(ctx, p.inputs, &ds[0]); err != nil {
					return err
				}
				continue
			}
			if i := slices.Index(p.again, ds[0].ID); i >= 0 {
				p.held[i] = ds[0] // its lease has ended meanwhile
				continue
			}
			p.again, p.held = append(p.again, ds[0].ID), append(p.held, ds[0])
		}
		return nil
	}
	if err := look(b.Target.patience()); err != nil || len(p.again) == len(p.ms) {
		return err
	}
	p.late = boundary.Never
	bound := max(b.askingLease(), b.Target.Session)
	within := 2*bound + 2*b.Target.patience()
	if b.Instance.Advance != nil {
		if err := b.Wait(ctx, bound+slack(bound)); err != nil {
			return err
		}
		within = b.Target.busy()
		p.held = nil // their leases have ended too: they are taken as they come again
		p.again = nil
	}
	if err := look(within); err != nil {
		return err
	}
	if len(p.again) == len(p.ms) {
		p.late = boundary.AfterLease
	}
	return nil
}

func (b *Bench) playCommitted(ctx context.Context, x broker.Transactor, p *txnPlay) error {
	tx, err := x.Begin(ctx)
	if err != nil {
		return err
	}
	if err := b.work(ctx, tx, p, "the second attempt"); err != nil {
		return errors.Join(err, tx.Abort(ctx))
	}
	if err := b.mustCommit(ctx, tx); err != nil {
		return err
	}
	if !p.settles {
		if err := b.mustAckAll(ctx, p.inputs, p.held); err != nil && !errors.Is(err, broker.ErrLeaseLost) {
			return err
		}
	}
	pub, err := p.conn.OpenPublisher(ctx, p.in.Topic)
	if err != nil {
		return err
	}
	var out, in map[string]int
	var errOut, errIn error
	var both sync.WaitGroup
	both.Go(func() { out, errOut = b.copiesOf(ctx, p.txnStage, p.o1.ID) })
	both.Go(func() {
		var expected []string
		if p.two {
			expected = append(expected, p.o2.ID)
		}
		in, errIn = b.copiesOf(ctx, txnStage{pub: pub, rcv: p.inputs}, expected...)
	})
	both.Wait()
	p.o1Copies, p.o2Copies = out[p.o1.ID], in[p.o2.ID]
	for i := range p.ms[:2] {
		p.undone = p.undone || p.settles && in[p.ms[i].ID] > 0
	}
	return errors.Join(errOut, errIn)
}

// answerScope answers by what an abort undid and a commit did.
func (b *Bench) answerScope(p *txnPlay, s broker.Scope) {
	came := slices.Contains(p.again, p.ms[0].ID) && slices.Contains(p.again, p.ms[1].ID)
	acks := p.settles && came && !p.undone
	answer, found := boundary.Unsupported, "no publish"
	switch {
	case len(p.seen) > 0 || p.o1Copies != 1 || p.two && p.o2Copies != 1:
	case p.two && acks:
		answer, found = boundary.PublishesAndSettles, "publishes to several topics, and acks"
	case p.two:
		answer, found = boundary.Publishes, "publishes to several topics, and no acks"
	default:
		answer, found = boundary.PublishesToOne, "publishes to one topic, and no acks"
	}
	of := fmt.Sprintf("an abort undid and a commit did: %s. The outputs are there %s and %s", found, often(p.o1Copies), often(p.o2Copies))
	if !p.two {
		of = fmt.Sprintf("an abort undid and a commit did: %s. A publish to a second topic was refused", found)
	}
	if p.settles && !acks {
		of += "; inputs whose ack was in the transaction didn't follow it"
	}
	if s.Publishes != (answer != boundary.Unsupported) || s.Settles != acks {
		of += fmt.Sprintf("; but Scope says: %s", s)
	}
	b.Answer(boundary.TxnScope, answer, "%s", of)
}

func (b *Bench) answerRewind(p *txnPlay) {
	want := []string{p.ms[0].ID, p.ms[1].ID, p.ms[2].ID}
	come := "there came " + strings.Join(p.again, ", ")
	switch {
	case !p.settles:
		b.NotApplicable(boundary.TxnRewind, "acks can't be in a transaction here, so that an abort has none to give back")
	case p.late != "":
		b.Answer(boundary.TxnRewind, p.late, "after the abort %s; not all of %s at once", come, strings.Join(want, ", "))
	case slices.Equal(p.again, want):
		b.Answer(boundary.TxnRewind, boundary.AtOnce, "after the abort %s, the last of which wasn't in the transaction", come)
	default:
		b.Answer(boundary.TxnRewind, boundary.Behind, "after the abort %s; they were published in the order %s", come, strings.Join(want, ", "))
	}
}

// answerExternal counts the rows.
func (b *Bench) answerExternal(ctx context.Context, p *txnPlay, noStore string) error {
	id := p.ms[0].ID
	n := CheckEffects(b.history.Events())[id]
	if noStore != "" {
		b.Answer(boundary.TxnExternalEffect, times(n), "the effect of %q is %s, in the transactions that were aborted and committed; its output is there %s; no database was there to write a row to: %s", id, applied(n), often(p.o1Copies), noStore)
		return nil
	}
	s := b.stores[0]
	count := func(ids ...string) (n int, err error) {
		for _, id := range ids {
			k, err := s.guard.Effects(ctx, id)
			if err != nil {
				return 0, fmt.Errorf("count the rows on %s: %w", s.Name, err)
			}
			n += k
		}
		return n, nil
	}
	rows, err := count(p.rows...)
	if err != nil {
		return err
	}
	guarded, err := count(id)
	if err != nil {
		return err
	}
	if rows != n {
		return fmt.Errorf("%s handled %q, and %s on %s", amount(n, "attempt", "attempts"), id, amount(rows, "row is", "rows are"), s.Name)
	}
	b.Answer(boundary.TxnExternalEffect, times(rows), "%s for %q on %s, of the transactions that were aborted and committed; its output is there %s; with a marker beside it in one transaction of the database it is %s", amount(rows, "row is there", "rows are there"), id, s.Name, often(p.o1Copies), applied(guarded))
	return nil
}
