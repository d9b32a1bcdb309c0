package rabbitmq

import (
	"context"
	"sync"
	"time"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/amqp"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// streamReceiver reads one stream under one name, at which the broker keeps the
// offset of the last settled message. From RabbitMQ 3.11 on the receivers of a
// name take turns, as a single active consumer (RMS-F-16); before, each gets all
// messages.
//
// Messages pass through two places: the queue here, and the caller's hands. Only
// the second counts as a delivery. The protocol sends whole chunks, as they were
// written, one for each credit. A Receive that finds nothing here gives credit
// for about as many chunks as hold what it asks for; one that nearly empties the
// queue gives it for one chunk ahead. What lies here costs memory and nothing
// else: no lease runs, and the messages stay in the stream.
type streamReceiver struct {
	conn    *streamConn
	stream  string
	ref     string // the consumer's name
	name    string // the subscription's
	wishes  streamWishes
	from    func(string) (broker.Position, bool)
	life    context.Context // ended by Close
	end     context.CancelCauseFunc
	done    chan struct{}       // the session's goroutine has returned
	updates chan consumerUpdate // for the session's goroutine
	wake    chan struct{}       // one token: something changed that Receive waits for
	commits chan struct{}       // holds a token while somebody commits
	warned  bool                // that nobody takes turns; of the session's goroutine

	mu       sync.Mutex
	bye      context.Context // of Close
	part     *streamPart     // nil: not our turn, or no connection
	stored   uint64          // the first offset that the broker has not as settled
	sessions int             // how often stored was asked for
	news     chan struct{}   // closed and replaced when it was
	ready    streamQueue     // arrived, not handed out
	urgent   streamQueue     // given back, or next of their key: before ready
	delayed  streamHeap      // nacked with a delay that still runs
	waiting  int             // messages that wait for an earlier one of their key
	credit   int             // chunks that the broker may send
	perChunk int             // messages, about
	err      error           // for Receive, until a session works
}

const (
	// maxLined bounds the messages that wait for an earlier one of their key.
	maxLined = 10_000
	// maxCredit is for how many chunks a Receive gives credit at most.
	maxCredit = 16
	// subscriptionID is the only one on its link.
	subscriptionID = 0
)

func (c *streamConn) newReceiver(stream, ref string, w streamWishes, o broker.ReceiverOptions) *streamReceiver {
	r := &streamReceiver{
		conn: c, stream: stream, ref: ref, name: stream + "/" + ref, wishes: w, from: o.StartFrom,
		done: make(chan struct{}), updates: make(chan consumerUpdate, 16),
		wake: make(chan struct{}, 1), commits: make(chan struct{}, 1), news: make(chan struct{}),
		perChunk: 1 << 20, bye: context.Background(),
	}
	r.life, r.end = context.WithCancelCause(context.Background())
	go r.run()
	return r
}

// signal wakes Receive. It doesn't block.
func (r *streamReceiver) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Receive is driver.Receiver's.
func (r *streamReceiver) Receive(ctx context.Context, max int, out *driver.Batch) error {
	for {
		r.mu.Lock()
		due := r.promote(r.conn.s.now())
		r.handOut(max, out)
		l, credit := r.demand(max, out.Len())
		err := r.err
		r.mu.Unlock()
		if credit > 0 {
			// An error of it shows in the link, which is dead then.
			_ = l.send(r.life, putFrame(nil, scCredit, func(b []byte) []byte { return put16(append(b, subscriptionID), uint16(credit)) }))
		}
		switch {
		case out.Len() > 0:
			return nil
		case r.life.Err() != nil:
			return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name)
		case err != nil:
			return broker.Errorf(streamKind(err, broker.ErrUnavailable), err, "receive from %s", r.name)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if !r.await(ctx, due) {
			return context.Cause(ctx)
		}
	}
}

// demand returns the credit to give for a Receive of max that has got n. r.mu is
// held.
func (r *streamReceiver) demand(max, n int) (*streamLink, int) {
	p := r.part
	if p == nil || r.waiting >= maxLined {
		return nil, 0
	}
	want := 0
	switch {
	case n == 0:
		want = min(1+(max-1)/r.perChunk, maxCredit)
	case r.ready.len() < max:
		want = 1
	}
	give := want - r.credit
	if give <= 0 {
		return nil, 0
	}
	r.credit = want
	return p.link, give
}

// await waits for a change, for due if it isn't zero, or for ctx; false if ctx
// ended and nothing else happened.
func (r *streamReceiver) await(ctx context.Context, due time.Duration) bool {
	var timer <-chan time.Time
	if due > 0 {
		t := time.NewTimer(due)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-r.wake:
	case <-timer:
	case <-ctx.Done():
		select {
		case <-r.wake: // what arrived as ctx ended is handed out
		default:
			return false
		}
	}
	return true
}

// As sets nothing: no client of the vendor is behind it.
func (r *streamReceiver) As(any) bool { return false }

// AsDelivery sets a **amqp.Message of the vendor's stream client to the stored
// message, decoded for the purpose.
func (r *streamReceiver) AsDelivery(t *driver.Token, target any) bool {
	p, ok := target.(**amqp.Message)
	if !ok {
		return false
	}
	m := new(amqp.Message)
	if m.UnmarshalBinary(t.Ref.(*streamEntry).raw) != nil {
		return false
	}
	*p = m
	return true
}

// Close commits what is settled and leaves the turn to the next receiver.
func (r *streamReceiver) Close(ctx context.Context) error {
	err := r.commit(ctx)
	r.mu.Lock()
	r.bye = ctx
	r.mu.Unlock()
	r.end(broker.ErrClosed)
	<-r.done
	r.signal()
	if err != nil {
		return broker.Errorf(streamKind(err, broker.ErrUnavailable), err, "close %s: settled messages may come again", r.name)
	}
	return nil
}

var _ driver.Receiver = (*streamReceiver)(nil)
