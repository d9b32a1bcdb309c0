package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// txnCase is one transaction whose holder is killed at a step.
type txnCase struct {
	txnOrder
	what   string // is done with it
	done   bool   // it is to take effect
	lose   FaultKind
	in     broker.Entity
	inputs []string
	token  []byte

	outCopies, inCopies map[string]int
}

// probeTxnCrash. Anomaly: a process dies within a transaction, and what it published is
// there while its inputs come again, or they are done and its outputs aren't there.
// Experiment: a process holds several transactions, each over a connection of its own,
// and is killed with all of them: one has its outputs, one its acks as well, one is
// prepared, of one the commit was sent and never arrived, of one the broker was seen to
// do it and nobody heard. A successor ends what was prepared by its token and opens the
// IDs of all; then the outputs are counted, and the inputs that come again.
func probeTxnCrash(ctx context.Context, b *Bench) error {
	c, s, scope, err := b.txnVictim(ctx, boundary.TxnAtomic)
	if c == nil {
		return err
	}
	cases, err := b.txnCases(ctx, c, scope, s)
	if err != nil {
		return err
	}
	h, err := b.holder(ctx, "the first instance")
	if err != nil {
		return err
	}
	defer h.end()
	if err := b.bringAll(ctx, h, cases); err != nil {
		return err
	}
	if err := b.killAtSteps(ctx, h, cases); err != nil {
		if errors.Is(err, broker.ErrUnsupported) {
			b.NotVerifiable(boundary.TxnAtomic, "%v", err)
			return nil
		}
		return err
	}
	if err := b.succeed(ctx, c, cases); err != nil {
		return err
	}
	if err := b.countCases(ctx, c, s, cases); err != nil {
		return err
	}
	b.answerAtomic(cases)
	return nil
}

// probeTxnZombie. Anomaly: a process that was taken for dead commits beside its
// successor. Experiment: freeze a process within a transaction, let another one open its
// ID, commit one of its own, continue the first and have it commit.
func probeTxnZombie(ctx context.Context, b *Bench) error {
	c, s, _, err := b.txnVictim(ctx, boundary.TxnZombie)
	if c == nil {
		return err
	}
	h, err := b.holder(ctx, "the first instance")
	if err != nil {
		return err
	}
	defer h.end()
	of := txnOrder{ID: b.txnID("zombie"), Out: s.out.Topic, Outputs: []string{b.ID()}, Key: b.Target.Key, Step: txnPublished}
	if err := b.bringAll(ctx, h, []*txnCase{{txnOrder: of}}); err != nil {
		return err
	}
	next := b.ID()
	o, err := b.overtakeTxn(ctx, h, s, of, next)
	if err != nil {
		return err
	}
	copies, err := b.copiesOf(ctx, s, next)
	if err != nil {
		return err
	}
	b.answerTxnZombie(o, copies[of.Outputs[0]], copies[next])
	return nil
}

// txnVictim sets the stage for an instance that is killed or frozen, on a connection
// that is nil where the claim is answered already.
func (b *Bench) txnVictim(ctx context.Context, id boundary.Claim) (broker.Conn, txnStage, broker.Scope, error) {
	c, x, ok, err := b.txnConn(ctx, "look", id)
	if !ok {
		return nil, txnStage{}, broker.Scope{}, err
	}
	if !b.canCrash() {
		b.NotVerifiable(id, "instances can't be killed or frozen here: the instance has no URL, or the program doesn't call RunIfWorker")
		return nil, txnStage{}, broker.Scope{}, nil
	}
	s, err := b.txnStage(ctx, c)
	if err == nil {
		err = b.takesTransactions(ctx, x, s)
	}
	if errors.Is(err, errNoTransactionsHere) {
		b.NotVerifiable(id, "%v", err)
		return nil, s, broker.Scope{}, nil
	}
	if err != nil {
		return nil, s, broker.Scope{}, err
	}
	return c, s, x.Scope(), nil
}

// takesTransactions shows that the entity for outputs takes a publish in one.
func (b *Bench) takesTransactions(ctx context.Context, x broker.Transactor, s txnStage) error {
	tx, err := x.Begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(b.publishIn(ctx, tx, s.out.Topic, b.Message()), tx.Abort(ctx))
}

// txnCases makes a transaction for each step that the broker's transactions have, with
// inputs where acks can be in one.
func (b *Bench) txnCases(ctx context.Context, c broker.Conn, scope broker.Scope, s txnStage) ([]*txnCase, error) {
	all := []*txnCase{
		{what: "killed with its outputs published", txnOrder: txnOrder{Step: txnPublished}},
		{what: "killed as its commit was on its way, which never arrived", lose: LoseRequest},
		{what: "killed when the broker had committed it, before it heard so", lose: LoseResponse, done: true},
	}
	if scope.Settles {
		all = append(all, &txnCase{what: "killed with its inputs acked within it", txnOrder: txnOrder{Step: txnSettled}})
	}
	if scope.Prepares {
		all = append(all, &txnCase{what: "killed when it was prepared, and committed by its token", txnOrder: txnOrder{Step: txnPrepared}, done: true})
	}
	for i, k := range all {
		name := fmt.Sprintf("case%d", i)
		k.ID, k.Out, k.Outputs, k.Key = b.txnID(name), s.out.Topic, []string{b.ID(), b.ID()}, b.Target.Key
		if k.Step == "" {
			k.Step = txnPublished
			if scope.Settles {
				k.Step = txnSettled
			}
		}
		if !scope.Settles {
			continue
		}
		var err error
		if k.in, err = b.ensureOn(ctx, c, name); err != nil {
			return nil, err
		}
		p, err := c.OpenPublisher(ctx, k.in.Topic)
		if err != nil {
			return nil, err
		}
		ms := b.Messages(2)
		for i := range ms {
			ms[i].Key = "k" // they come together
		}
		if _, err := b.MustPublish(ctx, p, ms...); err != nil {
			return nil, err
		}
		k.In, k.Inputs = k.in.Subscription, len(ms)
	}
	return all, nil
}

// bringAll has the instance bring its transactions to their steps.
func (b *Bench) bringAll(ctx context.Context, h holder, cases []*txnCase) error {
	var orders []txnOrder
	for _, k := range cases {
		orders = append(orders, k.txnOrder)
	}
	held, err := h.bring(ctx, orders)
	if err != nil {
		return err
	}
	if len(held) != len(orders) {
		return fmt.Errorf("the instance holds %s, not %d", amount(len(held), "transaction", "transactions"), len(orders))
	}
	for i, k := range cases {
		k.inputs, k.token = held[i].Inputs, held[i].Token
		b.history.Add(report.Producer, string(k.Step), "", "transaction %s: inputs %q, outputs %q", k.ID, k.inputs, k.Outputs)
	}
	return nil
}

// overtakeTxn freezes the instance, uses the ID of one of its transactions, continues it,
// and returns what its own commit says.
func (b *Bench) overtakeTxn(ctx context.Context, h holder, s txnStage, of txnOrder, next string) (broker.Outcome, error) {
	h.freeze()
	err := func() error {
		c, err := b.Conn(ctx)
		if err != nil {
			return err
		}
		x, err := broker.OpenTransactor(ctx, c, of.ID)
		if err != nil {
			return err
		}
		tx, err := x.Begin(ctx)
		if err != nil {
			return err
		}
		if err := b.publishIn(ctx, tx, s.out.Topic, broker.Message{ID: next, Key: b.Target.Key, Body: []byte("body of " + next)}); err != nil {
			return err
		}
		return b.mustCommit(ctx, tx)
	}()
	h.thaw()
	if err != nil {
		return broker.Outcome{}, fmt.Errorf("the successor of the frozen instance: %w", err)
	}
	b.commits.RLock()
	defer b.commits.RUnlock()
	o, err := h.commit(ctx, of.ID)
	b.history.Add(report.Broker, "commit", "", "of the instance that was frozen: %s", saidOf(o, o.Err))
	return o, err
}

func (b *Bench) answerTxnZombie(o broker.Outcome, n, next int) {
	said := fmt.Sprintf("its commit says %s; its output is there %s, and its successor's %s", saidOf(o, o.Err), often(n), often(next))
	answer := boundary.Refused
	switch {
	case o.State == broker.Confirmed && n > 0:
		answer = boundary.TakesEffect
	case o.State == broker.Confirmed:
		answer = boundary.ClaimedDone
	case n > 0:
		answer = boundary.ClaimedLost
	case o.State != broker.LeaseLost || !errors.Is(o.Err, broker.ErrFenced):
		answer = boundary.RefusedOtherwise
	}
	b.Answer(boundary.TxnZombie, answer, "%s", said)
}

// killAtSteps begins the commits that are to be under way, and kills the instance.
func (b *Bench) killAtSteps(ctx context.Context, h holder, cases []*txnCase) error {
	b.commits.Lock()
	defer b.commits.Unlock()
	for _, kind := range []FaultKind{LoseResponse, LoseRequest} {
		for _, k := range cases {
			if k.lose != kind {
				continue
			}
			i, err := b.injectCommit(kind, k.ID, k.Out, false)
			if err != nil {
				return err
			}
			defer i.Remove()
			if err := h.beginCommit(ctx, k.ID); err != nil {
				return err
			}
			if kind == LoseRequest {
				err = b.Struck(ctx, i) // it stays: a client may send it again
			} else if err = b.Applied(ctx, i); err == nil {
				i.Remove()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", k.what, err)
			}
		}
	}
	h.kill()
	return nil
}

// succeed is the next instance: it ends what was prepared and opens the IDs, which
// aborts what was left open.
func (b *Bench) succeed(ctx context.Context, c broker.Conn, cases []*txnCase) error {
	for _, k := range cases {
		if k.token != nil {
			o, err := broker.RecoverTransaction(ctx, c, k.token, true)
			b.history.Add(report.Broker, "recover", "", "%s: %s", k.ID, saidOf(o, err))
			if err != nil {
				return fmt.Errorf("recover %s: %w", k.ID, err)
			}
		}
	}
	errs := make([]error, len(cases))
	var all sync.WaitGroup
	for i, k := range cases {
		all.Go(func() {
			_, err := broker.OpenTransactor(ctx, c, k.ID)
			b.history.Add(report.Producer, "open transactor", "", "%s by its next instance: %s", k.ID, orSo(err))
			errs[i] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// countCases counts the outputs that are there, and the inputs that come again.
func (b *Bench) countCases(ctx context.Context, c broker.Conn, s txnStage, cases []*txnCase) error {
	var expected []string
	for _, k := range cases {
		if k.done {
			expected = append(expected, k.Outputs...)
		}
	}
	if bound := max(b.askingLease(), b.Target.Session); b.Instance.Advance != nil {
		if err := b.Wait(ctx, bound+slack(bound)); err != nil {
			return err
		}
	}
	errs := make([]error, len(cases)+1)
	var all sync.WaitGroup
	all.Go(func() {
		copies, err := b.copiesOf(ctx, s, expected...)
		errs[len(cases)] = err
		for _, k := range cases {
			k.outCopies = copies
		}
	})
	for i, k := range cases {
		if k.In != "" {
			all.Go(func() { errs[i] = b.countInputs(ctx, c, k) })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

func (b *Bench) countInputs(ctx context.Context, c broker.Conn, k *txnCase) error {
	p, err := c.OpenPublisher(ctx, k.in.Topic)
	if err != nil {
		return err
	}
	r, err := c.OpenReceiver(ctx, k.in.Subscription)
	if err != nil {
		return err
	}
	var expected []string
	if !k.done {
		expected = k.inputs
	}
	k.inCopies, err = b.copiesOf(ctx, txnStage{pub: p, rcv: r}, expected...)
	return err
}

// answerAtomic holds outputs against inputs.
func (b *Bench) answerAtomic(cases []*txnCase) {
	answer := boundary.AllOrNone
	var lines []string
	for _, k := range cases {
		outs, ins, twice := 0, 0, false
		for _, id := range k.Outputs {
			outs += min(k.outCopies[id], 1)
			twice = twice || k.outCopies[id] > 1
		}
		for _, id := range k.inputs {
			ins += min(k.inCopies[id], 1)
		}
		all, none := outs == len(k.Outputs) && ins == 0, outs == 0 && ins == len(k.inputs)
		switch {
		case k.done && outs == 0 && ins == 0: // also where there are no inputs
			answer = boundary.Lost
		case (twice || !all && !none || all != k.done) && answer != boundary.Lost:
			answer = boundary.InPart
		}
		line := fmt.Sprintf("%s: %d of %s are there", k.what, outs, amount(len(k.Outputs), "output", "outputs"))
		if twice {
			line += ", not all of them once"
		}
		if k.In != "" {
			line += fmt.Sprintf(", %d of %s come again", ins, amount(len(k.inputs), "input", "inputs"))
		}
		lines = append(lines, line)
	}
	b.Answer(boundary.TxnAtomic, answer, "%s", strings.Join(lines, "; "))
}
