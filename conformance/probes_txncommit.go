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

// injectCommit arms a fault on the commit of one transactor, or where the broker's
// commits have no name on all: the caller holds the lock of commits.
func (b *Bench) injectCommit(kind FaultKind, id, topic string, cut bool) (Injection, error) {
	f := Fault{Op: OnCommit, Kind: kind, Match: id, Topic: topic, Cut: cut}
	i, err := b.Instance.Inject(f)
	if err != nil {
		return nil, fmt.Errorf("inject %s: %w", f, err)
	}
	b.history.Add(report.Fault, "fault", "", "armed: %s", f)
	return i, nil
}

// probeTxnCommit. Anomaly: a commit whose answer is lost is taken for an abort, and done
// again, or taken for done where it never arrived. Experiment: lose the answer to a
// commit that the broker was seen to apply, and the request of another; end the
// caller's context; ask what became of them, and count the outputs.
func probeTxnCommit(ctx context.Context, b *Bench) error {
	id := boundary.TxnCommitUnknown
	c, _, ok, err := b.txnConn(ctx, "look", id)
	if !ok {
		return err
	}
	s, err := b.txnStage(ctx, c)
	if err != nil {
		return err
	}
	rank := []boundary.Answer{boundary.ClaimedDone, boundary.ClaimedLost, boundary.StaysUnknown, boundary.Resolved}
	worst, said := boundary.Resolved, ""
	var tried []lostCommit
	for _, kind := range []FaultKind{LoseResponse, LoseRequest} {
		l, err := b.loseCommit(ctx, s, kind)
		if errors.Is(err, broker.ErrUnsupported) || errors.Is(err, errNoTransactionsHere) {
			b.NotVerifiable(id, "%v", err)
			return nil
		}
		if err != nil {
			return err
		}
		tried = append(tried, l)
	}
	var there []string
	for _, l := range tried {
		if l.end.State == broker.Confirmed {
			there = append(there, l.m.ID)
		}
	}
	copies, err := b.copiesOf(ctx, s, there...)
	if err != nil {
		return err
	}
	for _, l := range tried {
		n := copies[l.m.ID]
		answer := boundary.Resolved
		switch {
		case l.kind == LoseResponse && n == 0:
			return fmt.Errorf("%q was committed, and isn't there", l.m.ID)
		case n > 1 || l.end.State == broker.Confirmed && n == 0:
			answer = boundary.ClaimedDone
		case l.end.State == broker.LeaseLost && n > 0:
			answer = boundary.ClaimedLost
		case l.end.State == broker.Unknown:
			answer = boundary.StaysUnknown
		}
		if slices.Index(rank, answer) < slices.Index(rank, worst) {
			worst = answer
		}
		said += fmt.Sprintf("; %s: first %s, in the end %s, and its output is there %s", l.kind, l.first, saidOf(l.end, l.end.Err), often(n))
	}
	b.Answer(id, worst, "%s", said[2:])
	return nil
}

// lostCommit is a commit that nobody heard an answer to.
type lostCommit struct {
	kind  FaultKind
	m     broker.Message
	first string // what Commit said
	end   broker.Outcome
}

// loseCommit commits one message over a connection of its own, under a fault, and asks
// until it is known what became of it or the adapter says that it can't be.
func (b *Bench) loseCommit(ctx context.Context, s txnStage, kind FaultKind) (l lostCommit, err error) {
	l.kind, l.m = kind, b.Message()
	c, err := b.Conn(ctx)
	if err != nil {
		return l, err
	}
	x, err := b.transactor(ctx, c, string(kind))
	if err != nil {
		return l, err
	}
	tx, err := x.Begin(ctx)
	if err != nil {
		return l, err
	}
	if err := b.publishIn(ctx, tx, s.out.Topic, l.m); err != nil {
		return l, errors.Join(err, tx.Abort(ctx))
	}
	b.commits.Lock()
	defer b.commits.Unlock()
	i, err := b.injectCommit(kind, b.txnID(string(kind)), s.out.Topic, true)
	if err != nil {
		return l, errors.Join(err, tx.Abort(ctx))
	}
	defer i.Remove()
	try, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan broker.Outcome, 1)
	go func() { ended <- b.commitNow(try, tx) }()
	if kind == LoseResponse {
		err = b.Applied(ctx, i)
	} else {
		err = b.Struck(ctx, i)
	}
	b.history.Add(report.Producer, "cancel", l.m.ID, "the caller gives up")
	cancel()
	l.end = <-ended
	l.first = l.end.State.String()
	if err != nil {
		return l, fmt.Errorf("%w; the commit said %s", err, saidOf(l.end, l.end.Err))
	}
	i.Remove()
	return l, b.resolve(ctx, x, tx, &l)
}

// resolve asks until an answer is there, or the adapter has none.
func (b *Bench) resolve(ctx context.Context, x broker.Transactor, tx broker.Transaction, l *lostCommit) error {
	end := time.Now().Add(max(answerWithin, b.Target.busy()))
	for l.end.State == broker.Unknown {
		if !errors.Is(l.end.Err, broker.ErrUnknownOutcome) {
			return fmt.Errorf("a commit without an answer: %w", l.end.Err)
		}
		try, cancel := context.WithTimeout(ctx, answerWithin)
		o, err := tx.Resolve(try)
		cancel()
		b.history.Add(report.Broker, "resolve", l.m.ID, "%s", saidOf(o, err))
		o.Err = err
		l.end = o
		if !x.Scope().Resolves || time.Now().After(end) || o.State == broker.Unknown && !sleep(ctx, 50*time.Millisecond) {
			break
		}
	}
	return context.Cause(ctx)
}

// txnTime is the time that a transaction is asked to be bound to.
const txnTime = time.Second

// probeTxnTimeout. Anomaly: the broker aborts a transaction that took too long, and the
// commit says that all is well; or nobody ever aborts what a dead instance left open.
// Experiment: ask for a short time, publish, and publish another message behind it
// outside of the transaction, which readers of committed messages may have to wait for.
// When it has come and the time is over, commit, and see what is there.
func probeTxnTimeout(ctx context.Context, b *Bench) error {
	id := boundary.TxnTimeout
	c, _, ok, err := b.txnConn(ctx, "look", id)
	if !ok {
		return err
	}
	x, err := b.transactor(ctx, c, "x", broker.TransactionTimeout(txnTime))
	if errors.Is(err, broker.ErrUnsupported) {
		b.Answer(id, boundary.Unsupported, "a wish for %s: %v", txnTime, err)
		return nil
	}
	if err != nil {
		return err
	}
	s, err := b.txnStage(ctx, c)
	if err != nil {
		return err
	}
	m, behind := b.Message(), b.Message()
	m.Key, behind.Key = "k", "k"
	begun := b.Now()
	tx, err := x.Begin(ctx)
	if err != nil {
		return err
	}
	if err := b.publishIn(ctx, tx, s.out.Topic, m); err != nil {
		if errors.Is(err, errNoTransactionsHere) {
			b.unverifiable(err.Error(), id)
			err = nil
		}
		return errors.Join(err, tx.Abort(ctx))
	}
	if _, err := b.MustPublish(ctx, s.pub, behind); err != nil {
		return err
	}
	waited, early, err := b.untilBehind(ctx, s, behind.ID, begun)
	if err != nil {
		return err
	}
	if left := txnTime + slack(txnTime) - b.Now().Sub(begun); left > 0 {
		if err := b.Wait(ctx, left); err != nil {
			return err
		}
	}
	o := b.commit(ctx, tx)
	copies, err := b.copiesOf(ctx, s)
	if err != nil {
		return err
	}
	n := copies[m.ID] + early
	said := fmt.Sprintf("asked for %s; a message behind it was delivered %s after the begin; the commit then says %s, and the output is there %s", txnTime, waited.Round(10*time.Millisecond), saidOf(o, o.Err), often(n))
	switch {
	case o.State == broker.Confirmed && n > 0:
		b.Answer(id, boundary.Ignored, "%s", said)
	case o.State == broker.Confirmed:
		b.Answer(id, boundary.ClaimedDone, "%s", said)
	case o.State != broker.LeaseLost:
		return fmt.Errorf("no answer: %s", said)
	case n > 0:
		b.Answer(id, boundary.ClaimedLost, "%s", said)
	default:
		b.Answer(id, boundary.AbortedTold, "%s", said)
	}
	return nil
}

// untilBehind receives until the message behind the open transaction has come, and says
// how long after the begin, and what of the transaction came before.
func (b *Bench) untilBehind(ctx context.Context, s txnStage, id string, begun time.Time) (waited time.Duration, early int, err error) {
	// A broker may look for what is too old at intervals only.
	ds, err := b.Receive(ctx, s.rcv, 1, txnTime+15*time.Second+b.Target.busy())
	for ; err == nil && len(ds) > 0; ds, err = b.Receive(ctx, s.rcv, 1, b.Target.busy()) {
		if err := b.MustAck(ctx, s.rcv, &ds[0]); err != nil {
			return 0, 0, err
		}
		if ds[0].ID == id {
			return b.Now().Sub(begun), early, nil
		}
		early++
	}
	if err == nil {
		err = errors.New("what was published behind the open transaction never came")
	}
	return 0, 0, err
}
