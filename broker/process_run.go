package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// processor is one run of Process. Nothing of it is shared: batches follow each other.
type processor struct {
	r        Receiver
	x        Transactor
	h        ProcessHandler
	o        ProcessOptions
	size     int // of the next batch
	attempts attempts
	doomed   map[string]string // to be dead-lettered when they come again, and why
	failures int               // in a row
	rest     time.Duration     // at least, before the next batch: a Postpone
}

// errAgain ends a batch whose inputs come again; it has been told to the hook.
var errAgain = errors.New("again")

func (p *processor) run(ctx context.Context) error {
	// life outlives ctx by DrainTimeout: for the batch under way.
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(p.o.DrainTimeout, func() { cancel(errDrained) })
	})
	defer stop()
	for ctx.Err() == nil {
		ds, err := p.r.Receive(ctx, p.size)
		switch {
		case len(ds) > 0:
			err = p.batch(life, ds)
		case ctx.Err() != nil:
			return nil
		case err != nil && final(err):
			return err
		case err != nil:
			p.o.ErrorHook(fmt.Errorf("process: %w", err))
			err = errAgain
		default:
			err = errAgain // nothing, without an error: no hot loop
		}
		switch {
		case err == nil:
			p.failures = 0
			p.size = min(2*p.size, p.o.Batch)
		case errors.Is(err, errAgain):
			p.failures++
			sleep(ctx, max(p.rest, p.o.Backoff.pause(p.failures, p.o.Rand)), nil)
			p.rest = 0
		default:
			return err
		}
	}
	return nil
}

// batch is one transaction. errAgain: its inputs come again. Another error ends
// Process.
func (p *processor) batch(life context.Context, ds []Delivery) error {
	ctx, cancel := context.WithTimeout(life, p.bound(ds))
	defer cancel()
	tx, err := p.x.Begin(ctx)
	if err != nil {
		p.giveBack(life, ds)
		if errors.Is(err, ErrFenced) || final(err) || errors.Is(err, ErrUnknownOutcome) {
			return err
		}
		p.o.ErrorHook(fmt.Errorf("process: %w", err))
		return errAgain
	}
	in, err := p.join(ctx, tx, ds)
	if err == nil && len(in) > 0 {
		err = p.handle(ctx, tx, in)
	}
	if err != nil {
		p.o.ErrorHook(fmt.Errorf("process: %w", err))
		return p.abort(life, tx)
	}
	return p.commit(ctx, life, tx, ds)
}

// bound is how long the transaction may take.
func (p *processor) bound(ds []Delivery) time.Duration {
	d := p.o.MaxTime
	for i := range ds {
		if end := ds[i].Lease; !end.IsZero() {
			d = min(d, time.Until(end)*2/3)
		}
	}
	return max(d, time.Millisecond)
}

// join settles the inputs in the transaction, before anything is done for them: what
// isn't this consumer's any more is left out. It returns those to handle.
func (p *processor) join(ctx context.Context, tx Transaction, ds []Delivery) ([]Delivery, error) {
	ss := make([]Settlement, len(ds))
	for i := range ds {
		ss[i].Delivery = &ds[i]
		if why, doomed := p.doomed[countKey(&ds[i])]; doomed {
			ss[i].Action, ss[i].Reason = DeadLetter, why
		}
	}
	_ = tx.Settle(ctx, ss) // each says how it ended
	in := make([]Delivery, 0, len(ds))
	for i := range ss {
		switch o := &ss[i].Outcome; {
		case o.State == Pending && ss[i].Action == Ack:
			in = append(in, ds[i])
		case o.State == Pending:
		case o.State == LeaseLost:
			p.o.ErrorHook(fmt.Errorf("process: %w", o.Err))
		case ss[i].Action == DeadLetter:
			// It stays, and is tried as if it hadn't failed yet.
			delete(p.doomed, countKey(&ds[i]))
			return nil, fmt.Errorf("dead-letter %q: %w", ds[i].ID, o.Err)
		default:
			return nil, o.Err
		}
	}
	return in, nil
}

// handle runs the handler and publishes what it returns.
func (p *processor) handle(ctx context.Context, tx Transaction, in []Delivery) error {
	out, err := p.call(ctx, in)
	if err == nil && ctx.Err() != nil {
		err = fmt.Errorf("the handler took longer than a transaction may: %w", context.Cause(ctx))
	}
	if err == nil {
		err = p.publish(ctx, tx, out)
	}
	if err != nil && ctx.Err() == nil {
		p.blame(in, err)
	} else if err != nil && len(in) > 1 {
		p.size = max(1, len(in)/2) // less at a time
	}
	return err
}

// call contains the handler's panics.
func (p *processor) call(ctx context.Context, in []Delivery) (out []Output, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic in the handler: %v\n%s", v, debug.Stack())
		}
	}()
	return p.h(ctx, in)
}

// publish sends the outputs, those of one topic in their order.
func (p *processor) publish(ctx context.Context, tx Transaction, out []Output) error {
	if len(out) == 0 {
		return nil
	}
	var topics []string
	byTopic := map[string][]Message{}
	for i := range out {
		if _, known := byTopic[out[i].Topic]; !known {
			topics = append(topics, out[i].Topic)
		}
		byTopic[out[i].Topic] = append(byTopic[out[i].Topic], out[i].Message)
	}
	for _, topic := range topics {
		if _, err := tx.Publish(ctx, topic, byTopic[topic]...); err != nil {
			return err
		}
	}
	return nil
}

// blame counts the failure against the message at fault, if that is known.
func (p *processor) blame(in []Delivery, err error) {
	at := -1
	var f *failedAt
	if errors.As(err, &f) && f.at >= 0 && f.at < len(in) {
		at = f.at
	} else if len(in) == 1 {
		at = 0
	}
	if delay, ok := Postponed(err); ok {
		p.rest, at = max(delay, p.o.Backoff.Min), -1
	} else if transient(err) {
		at = -1
	} else if at < 0 {
		p.size = 1
	}
	for i := range in {
		if i != at {
			p.attempts.spare(&in[i])
		}
	}
	if at < 0 {
		return
	}
	n := p.attempts.fail(&in[at])
	if IsPoison(err) || p.o.MaxAttempts > 0 && n >= p.o.MaxAttempts {
		p.doomed[countKey(&in[at])] = err.Error()
	}
}

// transient reports that the broker, not a message, is why it failed.
func transient(err error) bool {
	for _, kind := range [...]error{ErrFenced, ErrAborted, ErrUnavailable, ErrUnknownOutcome, ErrBusy, ErrClosed, ErrLeaseLost} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// abort gives the inputs back.
func (p *processor) abort(life context.Context, tx Transaction) error {
	ctx, cancel := context.WithTimeout(life, p.o.DrainTimeout)
	defer cancel()
	switch err := tx.Abort(ctx); {
	case errors.Is(err, ErrFenced):
		return err
	case err != nil:
		p.o.ErrorHook(fmt.Errorf("process: %w", err))
	}
	return errAgain // also when fenced: the next Begin says whether this is still the holder
}

// giveBack returns what is in hand and in no transaction.
func (p *processor) giveBack(life context.Context, ds []Delivery) {
	ctx, cancel := context.WithTimeout(life, p.o.DrainTimeout)
	defer cancel()
	ss := make([]Settlement, len(ds))
	for i := range ds {
		ss[i] = Settlement{Delivery: &ds[i], Action: Nack}
	}
	if err := p.r.Settle(ctx, ss); err != nil && !errors.Is(err, ErrLeaseLost) {
		p.o.ErrorHook(fmt.Errorf("process: %w", err))
	}
}

// commit commits, and resolves until the answer is known.
func (p *processor) commit(ctx, life context.Context, tx Transaction, ds []Delivery) error {
	o, err := tx.Commit(ctx)
	for n := 1; errors.Is(err, ErrUnknownOutcome) && o.State == Unknown && p.x.Scope().Resolves; n++ {
		p.o.ErrorHook(fmt.Errorf("process: %w", err))
		if !sleep(life, p.o.Backoff.pause(n, p.o.Rand), nil) {
			return err
		}
		attempt, cancel := context.WithTimeout(life, p.o.DrainTimeout)
		o, err = tx.Resolve(attempt)
		cancel()
	}
	switch {
	case o.State == Confirmed:
		if err != nil { // an output that nobody took
			p.o.ErrorHook(fmt.Errorf("process: %w", err))
		}
		for i := range ds {
			p.attempts.forget(&ds[i])
			if len(p.doomed) > 0 {
				delete(p.doomed, countKey(&ds[i]))
			}
		}
		return nil
	case o.State == LeaseLost, errors.Is(err, ErrUnknownOutcome): // what comes again wasn't committed
		p.o.ErrorHook(fmt.Errorf("process: %w", err))
		return errAgain
	}
	// Nothing was done.
	p.o.ErrorHook(fmt.Errorf("process: %w", err))
	return p.abort(life, tx)
}
