package driver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/onceline/onceline/broker"
)

// receiver is the broker.Receiver around an adapter's.
type receiver struct {
	driver Receiver
	name   string
	conn   *conn
	gate   gate
	busy   atomic.Bool // a Receive is under way
	late   error       // for the next Receive, which alone touches it
	once   sync.Once
	err    error // of Close
}

func (r *receiver) Receive(ctx context.Context, max int) ([]broker.Delivery, error) {
	if max <= 0 {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "receive from %s: max %d", r.name, max)
	}
	if !r.busy.CompareAndSwap(false, true) {
		return nil, broker.Errorf(broker.ErrConflict, nil, "receive from %s: another Receive is under way", r.name)
	}
	defer r.busy.Store(false)
	if !r.gate.enter() {
		return nil, broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name)
	}
	defer r.gate.leave()
	if err := r.late; err != nil {
		r.late = nil
		return nil, err
	}
	for {
		b := newBatch(r, max)
		err := r.driver.Receive(ctx, max, b)
		ds := b.seal(r.conn.now(), r.conn.fenced)
		if len(ds) > 0 {
			if ctx.Err() == nil {
				r.late = err // an adapter should keep it, but it must not get lost
			}
			return ds, nil
		}
		if err != nil {
			return nil, err
		}
		// All that came was expired: ask again, unless the caller is gone.
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

func (r *receiver) Settle(ctx context.Context, s []broker.Settlement) error {
	if len(s) == 0 {
		return nil
	}
	open := r.gate.enter()
	if open {
		defer r.gate.leave()
	}
	if r.settle(ctx, s, open) {
		// One delivery twice in a call, or in two at once: the first has its
		// answer by now, so the second can ask for it.
		for i := range s {
			if errors.Is(s[i].Outcome.Err, errUnderWay) {
				r.settle(ctx, s[i:i+1], open)
			}
		}
	}
	for i := range s {
		if s[i].Outcome.Err != nil {
			return s[i].Outcome.Err
		}
	}
	return nil
}

// settle does one pass and reports whether a settlement met an equal one.
func (r *receiver) settle(ctx context.Context, s []broker.Settlement, open bool) (met bool) {
	pooled := ops.Get().(*[]Op)
	todo := (*pooled)[:0]
	now := r.conn.now().UnixNano()
	for i := range s {
		l, err := r.leaseOf(&s[i])
		if err != nil {
			s[i].Outcome = broker.Outcome{Err: err}
			continue
		}
		if !open {
			// Close has committed what it could and ended the epochs. What is
			// still held is lost; of the rest the adapter knows the answer.
			ctx = closedContext
			if l.status().phase == held {
				s[i].Outcome = lost(&s[i], "its receiver is closed")
				continue
			}
		}
		if pass, again := l.admit(&s[i], now, r.conn.fenced); pass {
			s[i].Outcome = broker.Outcome{}
			todo = append(todo, Op{Settlement: &s[i], Token: &l.token, Again: again})
		} else {
			met = met || errors.Is(s[i].Outcome.Err, errUnderWay)
		}
	}
	if len(todo) > 0 {
		r.driver.Settle(ctx, todo)
		for i := range todo {
			l := todo[i].Settlement.Delivery.Handle.(*lease)
			l.conclude(&todo[i], r.conn.fenced)
		}
	}
	clear(todo)
	*pooled = todo[:0]
	ops.Put(pooled)
	return met
}

// closedContext has ended: an adapter that is asked with it after its Close
// answers from memory.
var closedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (r *receiver) leaseOf(s *broker.Settlement) (*lease, error) {
	if s.Delivery == nil {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "settle on %s: no delivery", r.name)
	}
	l, ok := s.Delivery.Handle.(*lease)
	if !ok || l.receiver != r {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "settle %q on %s: the delivery comes from another receiver", s.Delivery.ID, r.name)
	}
	if s.Action > broker.DeadLetter {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "settle %q on %s: %s", s.Delivery.ID, r.name, s.Action)
	}
	if s.Delay < 0 {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "settle %q on %s: delay %s", s.Delivery.ID, r.name, s.Delay)
	}
	return l, nil
}

func (r *receiver) As(target any) bool { return r.driver.As(target) }

func (r *receiver) Close(ctx context.Context) error {
	r.once.Do(func() {
		r.gate.shut()
		r.err = r.driver.Close(ctx)
		r.gate.wait(ctx)
		r.conn.forget(r)
	})
	return r.err
}
