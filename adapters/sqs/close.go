package sqs

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceline/onceline/broker"
)

// closeGrace bounds what Close waits for where its context doesn't, beside the
// wait of a poll that is out: the answers to settles under way, and to the
// give-back.
const closeGrace = 5 * time.Second

// Close ends Receive, waits for the answer to a poll that is out, lets the
// settles under way have theirs, and gives back what was neither settled nor has
// outlived its lease, so that another receiver has it at once. That costs each
// message an attempt. It returns an error if something could not be given back.
func (r *receiver) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.c.opts.wait+closeGrace)
	defer cancel()
	close(r.closing)
	// When ctx ends, so does what is still waited for.
	stop := context.AfterFunc(ctx, r.life.end)
	r.receiving <- struct{}{} // Receive returns at once, or as its poll is answered
	r.mu.Lock()
	r.shut = true
	left := r.open
	if left != nil {
		left.wanted = false
	}
	r.mu.Unlock()
	close(r.work)
	r.polls.Wait()
	r.settles.Wait()
	r.epoch.End()
	err := r.giveBackAll(ctx)
	if left != nil && left.err != nil && ctx.Err() != nil && err == nil {
		err = broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "close receiver of %s: what its last poll was handed comes after its lease", r.q.Name)
	}
	stop()
	r.guard.stop()
	r.life.end()
	return err
}

// giveBackAll makes visible what is held, and what FIFO receives without an
// answer may hold.
func (r *receiver) giveBackAll(ctx context.Context) error {
	for {
		l, ok := r.takeLost()
		if !ok || ctx.Err() != nil {
			break
		}
		p := &poll{most: l.most, attempt: l.attempt}
		if out, err := r.ask(ctx, p); err == nil {
			r.giveBack(out)
		}
	}
	now := r.c.Now().UnixNano()
	var handles []*string
	r.mu.Lock()
	for _, s := range r.slabs {
		for i := range s.items {
			// After its lease a change of a standard queue's message would be
			// made to the next consumer's.
			if h := &s.items[i]; !h.spent.Load() && h.deadline.Load() > now {
				handles = append(handles, h.msg.ReceiptHandle)
			}
		}
	}
	r.slabs = nil
	r.mu.Unlock()
	if len(handles) == 0 {
		return nil
	}
	var wait sync.WaitGroup
	slots := make(chan struct{}, r.c.opts.requests)
	var mu sync.Mutex
	var first error
	left := 0
	for from := 0; from < len(handles); from += batchSize {
		part := handles[from:min(from+batchSize, len(handles))]
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			if n, err := r.release(ctx, part); err != nil {
				mu.Lock()
				defer mu.Unlock()
				left += n
				if first == nil {
					first = err
				}
			}
		})
	}
	wait.Wait()
	if first != nil {
		return broker.Errorf(explain(first, nil).kind, first, "close receiver of %s: %d deliveries come back after their lease", r.q.Name, left)
	}
	return nil
}

// release makes messages visible and returns how many it could not.
func (r *receiver) release(ctx context.Context, handles []*string) (left int, err error) {
	in := awssqs.ChangeMessageVisibilityBatchInput{QueueUrl: &r.q.URL, Entries: make([]types.ChangeMessageVisibilityBatchRequestEntry, len(handles))}
	for i, h := range handles {
		in.Entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: h}
	}
	out, err := r.c.client.ChangeMessageVisibilityBatch(ctx, &in)
	if err != nil {
		if explain(err, nil).kind == broker.ErrNotFound {
			return 0, nil // the queue is gone, and the messages with it
		}
		return len(handles), err
	}
	for k := range out.Failed {
		// What is gone or somebody else's needs no giving back.
		if code, message := entryError(&out.Failed[k]); !handleLost(code, message) {
			left++
			err = &entryFailure{aws.ToString(out.Failed[k].Code), message}
		}
	}
	return left, err
}
