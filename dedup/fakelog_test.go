package dedup_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/onceline/onceline/broker"
)

// fakeLog is a topic of partitions, whose receivers start where they are told. The
// messages of a partition are numbered from 0, less those that were compacted away.
type fakeLog struct {
	mu      sync.Mutex
	cond    *sync.Cond
	parts   map[string][]int64 // the offsets that there are
	opened  []map[string]int64 // for each receiver, where its partitions began
	open    *fakeLogReceiver
	letters []string
	refuse  error  // of the next OpenReceiver
	noDLQ   int    // how many dead-letters are refused
	before  func() // called by the next Receive when it has what it returns
}

func newFakeLog(sizes map[string]int64) *fakeLog {
	l := &fakeLog{parts: map[string][]int64{}}
	l.cond = sync.NewCond(&l.mu)
	for name, n := range sizes {
		for o := range n {
			l.parts[name] = append(l.parts[name], o)
		}
	}
	return l
}

// fakeLogReceiver has all partitions.
type fakeLogReceiver struct {
	log    *fakeLog
	from   func(string) (broker.Position, bool)
	next   map[string]int64
	epoch  map[string]int
	acked  map[string]int64
	closed bool
}

type fakeHandle struct {
	r     *fakeLogReceiver
	epoch int
}

func (fakeHandle) Settle(context.Context, []broker.Settlement) error { panic("by the handle") }
func (fakeHandle) As(any) bool                                       { return false }

func (l *fakeLog) OpenReceiver(_ context.Context, opts ...broker.ReceiverOption) (broker.Receiver, error) {
	l.mu.Lock()
	if err := l.refuse; err != nil {
		l.refuse = nil
		l.mu.Unlock()
		return nil, err
	}
	l.mu.Unlock()
	var o broker.ReceiverOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.StartFrom == nil {
		return nil, broker.ErrInvalid
	}
	r := &fakeLogReceiver{log: l, from: o.StartFrom, next: map[string]int64{}, epoch: map[string]int{}, acked: map[string]int64{}}
	began := map[string]int64{}
	for name := range l.parts {
		r.assign(name)
		began[name] = r.next[name]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened = append(l.opened, began)
	l.open = r
	return r, nil
}

// assign begins an assignment of a partition.
func (r *fakeLogReceiver) assign(name string) {
	r.log.mu.Lock()
	r.epoch[name]++ // what is in hand of the earlier one isn't any more
	delete(r.next, name)
	r.log.mu.Unlock()
	at, ok := r.from(name)
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.next[name] = 0; ok {
		r.next[name] = int64(at.Offset)
	}
	r.log.cond.Broadcast()
}

func (r *fakeLogReceiver) Receive(ctx context.Context, limit int) ([]broker.Delivery, error) {
	defer context.AfterFunc(ctx, func() {
		r.log.mu.Lock()
		defer r.log.mu.Unlock()
		r.log.cond.Broadcast()
	})()
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	for {
		var ds []broker.Delivery
		for name, offsets := range r.log.parts {
			next, have := r.next[name]
			if !have {
				continue
			}
			i, _ := slices.BinarySearch(offsets, next)
			for ; i < len(offsets) && len(ds) < limit; i++ {
				o := offsets[i]
				ds = append(ds, broker.Delivery{Message: broker.Message{ID: fmt.Sprint(name, o)},
					Position: broker.Position{Partition: name, Offset: uint64(o)}, Handle: fakeHandle{r, r.epoch[name]}})
				r.next[name] = o + 1
			}
		}
		switch {
		case len(ds) > 0:
			if f := r.log.before; f != nil {
				r.log.before = nil
				r.log.mu.Unlock()
				f()
				r.log.mu.Lock()
			}
			return ds, nil
		case r.closed:
			return nil, broker.ErrClosed
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		r.log.cond.Wait()
	}
}

func (r *fakeLogReceiver) Settle(_ context.Context, s []broker.Settlement) error {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	for i := range s {
		d, o := s[i].Delivery, &s[i].Outcome
		name := d.Position.Partition
		switch {
		case d.Handle.(fakeHandle).r != r || d.Handle.(fakeHandle).epoch != r.epoch[name] || r.closed:
			*o = broker.Outcome{State: broker.LeaseLost, Err: broker.ErrLeaseLost}
		case s[i].Action == broker.DeadLetter && r.log.noDLQ > 0:
			r.log.noDLQ--
			*o = broker.Outcome{Err: broker.ErrUnavailable}
		case s[i].Action == broker.DeadLetter:
			r.log.letters = append(r.log.letters, d.ID)
			o.State = broker.Confirmed
		case s[i].Action == broker.Ack:
			r.acked[name] = int64(d.Position.Offset)
			o.State = broker.Confirmed
		case s[i].Action == broker.Extend:
			o.State = broker.Confirmed
		default:
			panic("a log's message was given back: what is behind it would come first")
		}
	}
	return nil
}

func (r *fakeLogReceiver) Limits() broker.Limits { return broker.Limits{} }
func (r *fakeLogReceiver) As(any) bool           { return false }
func (r *fakeLogReceiver) Close(context.Context) error {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.closed = true
	r.log.cond.Broadcast()
	return nil
}
