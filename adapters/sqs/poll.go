package sqs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceline/onceline/broker"
)

const (
	// answerMargin is how long the answer to a poll may take beyond the wait
	// that the poll asked for. After it the answer counts as lost.
	answerMargin = 10 * time.Second

	// stallGrace is how much longer than its context a Receive may take at most where the
	// answer to a poll that doesn't wait is stuck on the way.
	stallGrace = 500 * time.Millisecond

	// soon is within what time a poll brings what is there on a line that is short
	// enough for stallGrace never to be needed.
	soon = stallGrace / 10

	// giveBackTime bounds the requests that give messages back.
	giveBackTime = 5 * time.Second
)

var (
	systemAttributes = []types.MessageSystemAttributeName{types.MessageSystemAttributeNameApproximateReceiveCount}
	fifoAttributes   = []types.MessageSystemAttributeName{
		types.MessageSystemAttributeNameApproximateReceiveCount, types.MessageSystemAttributeNameMessageDeduplicationId,
		types.MessageSystemAttributeNameMessageGroupId, types.MessageSystemAttributeNameSequenceNumber,
	}
	allAttributes = []string{"All"}
)

// poll is one receive request. It isn't cancelled with the Receive that began
// it: the service may have handed messages out by then, and a client that hangs
// up never learns of them, while they stay in flight for their lease
// (aws-sdk-go-v2#2068). So a poll runs to its answer in a goroutine of its own.
// The next Receive takes it over; where there is none as the answer comes, its
// messages are given back.
type poll struct {
	most    int
	wait    time.Duration
	attempt string    // FIFO: the receive's ID, with which it can be asked again
	asked   time.Time // by the connection's clock
	began   time.Time
	done    chan struct{} // closed when the answer is here

	// Guarded by the receiver's mutex.
	wanted   bool // a Receive waits
	finished bool

	out []types.Message // set before done is closed
	err error
}

// newPoll is a poll that the caller wants, to be given to r.work or to run in a
// goroutine of its own.
func (r *receiver) newPoll(most int, wait time.Duration, attempt string) *poll {
	return &poll{most: min(most, batchSize), wait: wait, attempt: attempt, asked: r.c.Now(), began: time.Now(), done: make(chan struct{}), wanted: true}
}

// poller runs the polls that Receive waits for, one after the other, until work
// is closed. A goroutine for each would cost more than all else here: the SDK's
// stack of calls is deep, and a new goroutine's has to grow to it each time.
func (r *receiver) poller() {
	for p := range r.work {
		r.runFor(p)
	}
}

// runFor runs a poll for as long as its answer may take.
func (r *receiver) runFor(p *poll) {
	ctx, cancel := context.WithTimeout(r.life.ctx, p.wait+answerMargin)
	defer cancel()
	r.run(ctx, p)
}

// run asks, and gives back what nobody wants any more.
func (r *receiver) run(ctx context.Context, p *poll) {
	out, err := r.ask(ctx, p)
	r.mu.Lock()
	p.out, p.err, p.finished = out, err, true
	orphan := !p.wanted
	if orphan && r.open == p {
		r.open = nil
	}
	r.mu.Unlock()
	close(p.done)
	switch {
	case !orphan:
	case err == nil:
		r.returnAll(p)
	default:
		if err := r.failed(p); err != nil {
			r.note(err)
		}
	}
}

func (r *receiver) ask(ctx context.Context, p *poll) ([]types.Message, error) {
	in := awssqs.ReceiveMessageInput{QueueUrl: &r.q.URL, MaxNumberOfMessages: int32(p.most), MessageAttributeNames: allAttributes,
		MessageSystemAttributeNames: systemAttributes,
		// Stated, so that the lease is the one that is counted here even if the
		// queue's own is changed meanwhile.
		VisibilityTimeout: ceilSeconds(r.q.Lease), WaitTimeSeconds: int32(p.wait / time.Second)}
	if r.q.FIFO {
		in.MessageSystemAttributeNames, in.ReceiveRequestAttemptId = fifoAttributes, &p.attempt
	}
	out, err := r.c.single.ReceiveMessage(ctx, &in)
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

// leave says that nobody waits for p any more. It reports false where the answer
// is here already, which the caller then has to take.
func (r *receiver) leave(p *poll) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.finished {
		return false
	}
	p.wanted = false
	return true
}

// takeOver returns the poll that an earlier Receive has left, nil if none is
// out.
func (r *receiver) takeOver() *poll {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.open
	if p != nil {
		p.wanted = true
	}
	return p
}

// returnAll gives back all that a poll brought. What can't be given back comes
// again after its lease.
func (r *receiver) returnAll(p *poll) {
	if len(p.out) > 0 {
		r.giveBack(p.out)
	}
}

// giveBackBeside is giveBack for a Receive, which doesn't wait for it: its answer may
// be lost, and the caller's context may be short. Close waits.
func (r *receiver) giveBackBeside(ms []types.Message) { r.polls.Go(func() { r.giveBack(ms) }) }

// giveBack makes messages visible at once. It costs each an attempt. It doesn't
// depend on a caller's context, for that has ended.
func (r *receiver) giveBack(ms []types.Message) {
	ctx, cancel := context.WithTimeout(r.life.ctx, giveBackTime)
	defer cancel()
	for len(ms) > 0 {
		n := min(len(ms), batchSize)
		in := awssqs.ChangeMessageVisibilityBatchInput{QueueUrl: &r.q.URL, Entries: make([]types.ChangeMessageVisibilityBatchRequestEntry, n)}
		for i := range n {
			in.Entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{Id: &entryIDs[i], ReceiptHandle: ms[i].ReceiptHandle}
		}
		if _, err := r.c.client.ChangeMessageVisibilityBatch(ctx, &in); err != nil {
			if explain(err, nil).kind == broker.ErrNotFound {
				return // the queue is gone, and the messages with it
			}
			r.note(broker.Errorf(explain(err, nil).kind, err, "receive from %s: %d messages that nobody waits for come again after their lease", r.q.Name, len(ms)))
			return
		}
		ms = ms[n:]
	}
}

// attempts makes the IDs of receives. They must not repeat within five minutes,
// over all receivers of a queue (SQS-F-27).
type attempts struct {
	prefix string
	n      uint64
}

func newAttempts() attempts {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return attempts{prefix: hex.EncodeToString(b[:]) + "-"}
}

func (a *attempts) next() string {
	a.n++
	return a.prefix + strconv.FormatUint(a.n, 10)
}

// attemptOf is how often a message was delivered.
func attemptOf(m *types.Message) int {
	n, err := strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// whole reports whether the body came as it was sent.
func whole(m *types.Message) bool {
	return m.MD5OfBody == nil || sumIs(aws.ToString(m.Body), *m.MD5OfBody)
}
