package sqs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// settleTries is how often an entry is sent that the service failed by a fault
// of its own.
const settleTries = 3

func asMessage(t *driver.Token, target any) bool {
	h, ok := t.Ref.(*held)
	if p, want := target.(**types.Message); ok && want {
		*p = h.msg
		return true
	}
	return false
}

// Settle deletes what is acked and changes the visibility of what is nacked or
// extended, ten to a request, and each entry has its own outcome. Dead letters
// and the nacks of a last delivery are copied first.
func (r *receiver) Settle(ctx context.Context, ops []driver.Op) {
	r.mu.Lock()
	shut := r.shut
	if !shut {
		r.settles.Add(1)
	}
	r.mu.Unlock()
	if shut {
		r.leaveAll(ops, broker.ErrClosed, nil)
		return
	}
	defer r.settles.Done()
	if ctx.Err() != nil {
		r.leaveAll(ops, broker.ErrUnavailable, context.Cause(ctx))
		return
	}
	ctx, done := r.life.join(ctx)
	defer done()
	s := settling{r: r, ops: ops}
	s.plan()
	if len(s.moves) > 0 {
		s.move(ctx)
	}
	s.send(ctx)
}

// settling is one call of Settle.
type settling struct {
	r       *receiver
	ops     []driver.Op
	deletes []*batch
	changes []*batch
	moves   []int // ops whose message is copied to the dead-letter queue first
}

// batch is one request: places of ops, and for a change of visibility its
// seconds.
type batch struct {
	place   [batchSize]int
	seconds [batchSize]int32
	n       int
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// plan sorts the ops into requests.
func (s *settling) plan() {
	now := s.r.c.Now()
	for i := range s.ops {
		op := &s.ops[i]
		switch op.Settlement.Action {
		case broker.Ack:
			s.delete(i)
		case broker.DeadLetter:
			s.moves = append(s.moves, i)
		case broker.Extend:
			s.extend(i, now)
		case broker.Nack:
			if !s.nackable(i, now) {
				continue
			}
			if s.r.last(s.held(i)) {
				s.moves = append(s.moves, i)
				continue
			}
			s.change(i, ceilSeconds(op.Settlement.Delay))
		}
	}
}

func (s *settling) held(i int) *held { return s.ops[i].Token.Ref.(*held) }

func (s *settling) delete(i int) {
	b := s.room(&s.deletes, i)
	b.place[b.n] = i
	b.n++
}

func (s *settling) change(i int, seconds int32) {
	b := s.room(&s.changes, i)
	b.place[b.n], b.seconds[b.n] = i, seconds
	b.n++
}

// room returns a request that has room for op i, and no other handle of its
// message: what the service makes of two in one request isn't said anywhere.
func (s *settling) room(list *[]*batch, i int) *batch {
	for k := len(*list) - 1; k >= 0; k-- {
		b := (*list)[k]
		if b.n == batchSize {
			break // those before are full, or hold the message
		}
		if !s.has(b, i) {
			return b
		}
	}
	b := batches.Get().(*batch)
	b.n = 0
	*list = append(*list, b)
	return b
}

func (s *settling) has(b *batch, i int) bool {
	id := aws.ToString(s.held(i).msg.MessageId)
	for _, j := range b.place[:b.n] {
		if aws.ToString(s.held(j).msg.MessageId) == id {
			return true
		}
	}
	return false
}

// nackable reports whether a nack may be sent; otherwise its outcome is set.
func (s *settling) nackable(i int, now time.Time) bool {
	op, h := &s.ops[i], s.held(i)
	if op.Again && !s.r.q.FIFO {
		// Taken or not, the message comes again; and if it has, the change would
		// be made to another consumer's lease (SQS-F-21).
		s.r.untouched(op, h, broker.ErrUnknownOutcome, errGone)
		return false
	}
	if limit := maxLease - now.Sub(h.slab.asked); op.Settlement.Delay > limit {
		s.r.untouched(op, h, broker.ErrUnsupported, errTooLate(limit))
		return false
	}
	return true
}

// extend asks for the queue's lease or for the delay wished for, as far as the
// sum of twelve hours admits: the service refuses more (SQS-F-18).
func (s *settling) extend(i int, now time.Time) {
	op, h := &s.ops[i], s.held(i)
	d := op.Settlement.Delay
	if d == 0 {
		d = s.r.q.Lease
	}
	limit := (maxLease - now.Sub(h.slab.asked) - time.Second).Truncate(time.Second)
	if limit < time.Second {
		s.r.untouched(op, h, broker.ErrUnsupported, errTooLate(0))
		return
	}
	seconds := ceilSeconds(min(d, limit))
	op.Settlement.Outcome.Lease = now.Add(time.Duration(seconds) * time.Second)
	s.change(i, seconds)
}

func errTooLate(left time.Duration) error {
	return errors.New("a delivery is held for twelve hours at most, and " + max(left, 0).Truncate(time.Second).String() + " of it are left")
}

// send sends all requests, side by side as far as the options let it.
func (s *settling) send(ctx context.Context) {
	if len(s.deletes)+len(s.changes) == 1 {
		// The usual, in this goroutine.
		for _, b := range s.deletes {
			s.request(ctx, b, true)
		}
		for _, b := range s.changes {
			s.request(ctx, b, false)
		}
		return
	}
	slots := make(chan struct{}, s.r.c.opts.requests)
	var wait sync.WaitGroup
	run := func(list []*batch, deletes bool) {
		for _, b := range list {
			slots <- struct{}{} // a request ends with ctx
			wait.Go(func() {
				s.request(ctx, b, deletes)
				<-slots
			})
		}
	}
	run(s.deletes, true)
	run(s.changes, false)
	wait.Wait()
}

// request sends one request, and again what the service failed by its own fault.
func (s *settling) request(ctx context.Context, b *batch, deletes bool) {
	defer batches.Put(b)
	for try := 1; b.n > 0; try++ {
		for _, i := range b.place[:b.n] {
			if s.ops[i].Settlement.Action != broker.Extend {
				s.held(i).spend()
			}
		}
		watched, body := watch(ctx)
		var bad []types.BatchResultErrorEntry
		var err error
		var answered [batchSize]bool
		if deletes {
			bad, err = s.r.remove(watched, s, b, &answered)
		} else {
			bad, err = s.r.reset(watched, s, b, &answered)
		}
		if err != nil {
			s.failed(ctx, b, explain(err, body), err)
			return
		}
		again := 0
		for i := range b.n {
			if answered[i] {
				s.confirm(b.place[i])
			}
		}
		for k := range bad {
			i, ok := entryPlace(bad[k].Id, b.n)
			if !ok || answered[i] {
				continue
			}
			answered[i] = true
			if s.entryFailed(ctx, b.place[i], &bad[k], try) {
				// Its place among those that are sent again; i is never less.
				bad[again].Id = &entryIDs[i]
				again++
			}
		}
		for i := range b.n {
			if !answered[i] {
				s.unknown(b.place[i], errNoAnswer)
			}
		}
		s.keep(b, bad[:again])
	}
}

// keep leaves only the entries listed in b.
func (s *settling) keep(b *batch, entries []types.BatchResultErrorEntry) {
	var place [batchSize]int
	var seconds [batchSize]int32
	n := 0
	for k := range entries {
		if i, ok := entryPlace(entries[k].Id, b.n); ok {
			place[n], seconds[n] = b.place[i], b.seconds[i]
			n++
		}
	}
	b.place, b.seconds, b.n = place, seconds, n
}

// remove sends a DeleteMessageBatch.
func (r *receiver) remove(ctx context.Context, s *settling, b *batch, done *[batchSize]bool) ([]types.BatchResultErrorEntry, error) {
	var room [batchSize]types.DeleteMessageBatchRequestEntry
	for i := range b.n {
		room[i] = types.DeleteMessageBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: s.held(b.place[i]).msg.ReceiptHandle}
	}
	out, err := r.c.single.DeleteMessageBatch(ctx, &awssqs.DeleteMessageBatchInput{QueueUrl: &r.q.URL, Entries: room[:b.n]})
	if err != nil {
		return nil, err
	}
	for k := range out.Successful {
		if i, ok := entryPlace(out.Successful[k].Id, b.n); ok {
			done[i] = true
		}
	}
	return out.Failed, nil
}

// reset sends a ChangeMessageVisibilityBatch.
func (r *receiver) reset(ctx context.Context, s *settling, b *batch, done *[batchSize]bool) ([]types.BatchResultErrorEntry, error) {
	var room [batchSize]types.ChangeMessageVisibilityBatchRequestEntry
	for i := range b.n {
		room[i] = types.ChangeMessageVisibilityBatchRequestEntry{Id: &entryIDs[i],
			ReceiptHandle: s.held(b.place[i]).msg.ReceiptHandle, VisibilityTimeout: b.seconds[i]}
	}
	out, err := r.c.single.ChangeMessageVisibilityBatch(ctx,
		&awssqs.ChangeMessageVisibilityBatchInput{QueueUrl: &r.q.URL, Entries: room[:b.n]})
	if err != nil {
		return nil, err
	}
	for k := range out.Successful {
		if i, ok := entryPlace(out.Successful[k].Id, b.n); ok {
			done[i] = true
		}
	}
	return out.Failed, nil
}
