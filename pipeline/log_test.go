package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/pipeline"
)

// log is a topic of partitions in memory, whose receivers start where they are told.
type log struct {
	mu         sync.Mutex
	parts      map[string][]broker.Message
	acked      map[string]uint64 // the next offset
	changed    chan struct{}
	opens      int
	openErr    error
	breakAt    int     // the Receive after so many messages fails, once; 0 never
	reader     *reader // the last one that was opened
	reassigned int
	ignore     bool // begin at 0 whatever the caller says
}

func newLog(parts ...string) *log {
	l := &log{parts: map[string][]broker.Message{}, acked: map[string]uint64{}, changed: make(chan struct{})}
	for _, p := range parts {
		l.parts[p] = nil
	}
	return l
}

func (l *log) add(partition string, msgs ...broker.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parts[partition] = append(l.parts[partition], msgs...)
	l.signal()
}

func (l *log) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// fill adds n messages of a few keys to each partition, whose ID and body tell them
// apart.
func (l *log) fill(n int) {
	for _, p := range l.names() {
		have := len(l.parts[p])
		msgs := make([]broker.Message, n)
		for i := range msgs {
			id := fmt.Sprintf("%s-%04d", p, have+i)
			msgs[i] = broker.Message{ID: id, Key: fmt.Sprintf("%s-k%d", p, i%3), Body: []byte(id)}
		}
		l.add(p, msgs...)
	}
}

func (l *log) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for p := range l.parts {
		names = append(names, p)
	}
	slices.Sort(names)
	return names
}

// reassign takes a partition away from the open receiver and gives it back at once,
// which asks where to begin; what it has handed out stays where it is.
func (l *log) reassign(partition string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reader.next[partition] = 0 // where a group that knows nothing would begin
	l.reader.assign(partition)
	l.reassigned++
	l.signal()
}

func (l *log) source(name string) pipeline.Source {
	return pipeline.Source{Name: name, Batch: 7, Open: func(_ context.Context, opts ...broker.ReceiverOption) (broker.Receiver, error) {
		var o broker.ReceiverOptions
		for _, opt := range opts {
			opt(&o)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := l.openErr; err != nil {
			l.openErr = nil
			return nil, err
		}
		l.opens++
		r := &reader{log: l, from: o.StartFrom, next: map[string]uint64{}}
		for p := range l.parts {
			r.next[p] = l.acked[p]
		}
		l.reader = r
		return r, nil
	}}
}

type reader struct {
	log      *log
	from     func(string) (broker.Position, bool)
	next     map[string]uint64
	assigned bool
}

func (r *reader) assign(p string) {
	if pos, ok := r.from(p); ok && !r.log.ignore {
		r.next[p] = pos.Offset
	}
}

func (r *reader) Receive(ctx context.Context, limit int) ([]broker.Delivery, error) {
	for {
		r.log.mu.Lock()
		if !r.assigned {
			r.assigned = true
			for p := range r.next {
				r.assign(p)
			}
		}
		var out []broker.Delivery
		names := make([]string, 0, len(r.next))
		for p := range r.next {
			names = append(names, p)
		}
		slices.Sort(names)
		for _, p := range names {
			for r.next[p] < uint64(len(r.log.parts[p])) && len(out) < limit {
				at := r.next[p]
				out = append(out, broker.Delivery{Message: r.log.parts[p][at], Position: broker.Position{Partition: p, Offset: at}, Handle: handle{r}})
				r.next[p]++
			}
		}
		if r.log.breakAt > 0 {
			if r.log.breakAt -= len(out); r.log.breakAt <= 0 {
				r.log.breakAt = 0
				r.log.mu.Unlock()
				return nil, broker.Errorf(broker.ErrUnavailable, nil, "log: broken")
			}
		}
		changed := r.log.changed
		r.log.mu.Unlock()
		if len(out) > 0 {
			return out, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (r *reader) Settle(_ context.Context, s []broker.Settlement) error {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	for i := range s {
		pos := s[i].Delivery.Position
		r.log.acked[pos.Partition] = max(r.log.acked[pos.Partition], pos.Offset+1)
		s[i].Outcome.State = broker.Confirmed
	}
	return nil
}

func (r *reader) As(any) bool                 { return false }
func (r *reader) Close(context.Context) error { return nil }

type handle struct{ *reader }
