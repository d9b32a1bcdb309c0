package sqs

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"sync"
	"unsafe"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// publisher is the driver.Publisher.
type publisher struct {
	c    *conn
	q    *Queue
	life life
}

func (c *conn) OpenPublisher(ctx context.Context, topic string, _ broker.PublisherOptions) (driver.Publisher, error) {
	q, err := c.look(ctx, topic)
	if err != nil {
		return nil, err
	}
	return &publisher{c: c, q: q, life: newLife()}, nil
}

// Limits implements driver.Publisher. A body that isn't text travels in base64
// and then has three quarters of the room.
func (p *publisher) Limits() broker.Limits {
	l := broker.Limits{Body: p.q.MaxMessage, Headers: p.q.MaxMessage}
	if p.q.FIFO {
		l.Window = dedupWindow
	}
	return l
}

func (p *publisher) As(target any) bool { return p.c.asQueue(p.q, target) }

// Close ends what is under way; package driver has waited for it.
func (p *publisher) Close(context.Context) error {
	p.life.end()
	return nil
}

// Publish sends the messages in batches of ten. On a standard queue the batches
// go side by side; on a FIFO queue those of one wave do, and a wave has at most
// one message of each key.
func (p *publisher) Publish(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	ctx, done := p.life.join(ctx)
	defer done()
	call := &publishing{p: p, msgs: msgs, receipts: receipts}
	switch {
	case !p.q.FIFO:
		call.wave(ctx, nil)
	case p.c.opts.packKeys:
		call.packed(ctx)
	default:
		call.waves(ctx)
	}
}

// publishing is one call of Publish.
type publishing struct {
	p        *publisher
	msgs     []broker.Message
	receipts []broker.Receipt
	letters  []letter // beside msgs, where they are dead letters
	scratch  []byte
}

// chunk is one request.
type chunk struct {
	in      awssqs.SendMessageBatchInput
	entries [batchSize]entry
	list    [batchSize]types.SendMessageBatchRequestEntry
	place   [batchSize]int // in the call
	n       int
	size    int
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// release makes c fit for another use; it keeps no body alive.
func (c *chunk) release() {
	for i := range min(c.n+1, batchSize) { // the last may be one that had no room
		e := &c.entries[i]
		clear(e.attrs)
		clear(e.values[:e.used])
		e.body, e.dedup, e.group = "", "", ""
	}
	clear(c.list[:c.n])
	c.in = awssqs.SendMessageBatchInput{}
	c.n, c.size = 0, 0
	chunks.Put(c)
}

// add encodes message i into c. It reports false where c has no room for it,
// which it then isn't in. A message too large for any request is refused.
func (x *publishing) add(c *chunk, i int) bool {
	e := &c.entries[c.n]
	m := &x.msgs[i]
	var l *letter
	if x.letters != nil {
		l = &x.letters[i]
	}
	x.scratch = e.set(m, x.p.q.FIFO, l, x.scratch)
	if e.size > x.p.q.MaxMessage {
		x.receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(broker.ErrTooLarge, nil,
			"publish %q to %s: %d bytes with its attributes, over %d", m.ID, x.p.q.Name, e.size, x.p.q.MaxMessage)}
		return true
	}
	if c.size+e.size > maxMessage {
		return false
	}
	e.out.Id = &entryIDs[c.n]
	c.list[c.n], c.place[c.n] = e.out, i
	c.n++
	c.size += e.size
	return true
}

// wave sends the messages of the places listed, nil for all, as many requests at
// a time as the options say, and returns when each has its receipt.
func (x *publishing) wave(ctx context.Context, places []int) {
	n := len(places)
	if places == nil {
		n = len(x.msgs)
	}
	var slots chan struct{} // made where there is more than one request
	var wait sync.WaitGroup
	next, last := 0, false
	for !last {
		c := chunks.Get().(*chunk)
		for next < n && c.n < batchSize {
			i := next
			if places != nil {
				i = places[next]
			}
			if !x.add(c, i) {
				break
			}
			next++
		}
		last = next == n
		switch {
		case c.n == 0:
			c.release()
		case last:
			x.send(ctx, c) // in this goroutine: most calls have one request
		default:
			if slots == nil {
				slots = make(chan struct{}, x.p.c.opts.requests)
			}
			slots <- struct{}{} // a request ends with ctx
			wait.Go(func() {
				x.send(ctx, c)
				<-slots
			})
		}
	}
	wait.Wait()
}

// send sends one request, fills in its receipts and releases c.
func (x *publishing) send(ctx context.Context, c *chunk) {
	defer c.release()
	q := x.p.q
	if ctx.Err() != nil {
		x.all(c, broker.Refused, broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "publish to %s: not sent", q.Name))
		return
	}
	c.in.QueueUrl, c.in.Entries = &q.URL, c.list[:c.n]
	watched, body := watch(ctx)
	out, err := x.p.c.single.SendMessageBatch(watched, &c.in)
	if err != nil {
		f := explain(err, body)
		if ctx.Err() != nil && !f.answered {
			err = context.Cause(ctx)
		}
		if f.surely {
			x.all(c, broker.Refused, broker.Errorf(f.kind, err, "publish to %s", q.Name))
		} else {
			x.all(c, broker.Unknown, broker.Errorf(broker.ErrUnknownOutcome, err, "publish to %s", q.Name))
		}
		return
	}
	for k := range out.Successful {
		s := &out.Successful[k]
		if i, ok := entryPlace(s.Id, c.n); ok {
			x.taken(c, i, s)
		}
	}
	for k := range out.Failed {
		f := &out.Failed[k]
		if i, ok := entryPlace(f.Id, c.n); ok {
			x.refused(c, i, f)
		}
	}
	for i := range c.n {
		if r := &x.receipts[c.place[i]]; r.Verdict == broker.Unknown && r.Err == nil {
			r.Err = broker.Errorf(broker.ErrUnknownOutcome, errNoAnswer, "publish %q to %s", x.msgs[c.place[i]].ID, q.Name)
		}
	}
}

func (x *publishing) all(c *chunk, v broker.Verdict, err error) {
	for _, i := range c.place[:c.n] {
		x.receipts[i] = broker.Receipt{Verdict: v, Err: err}
	}
}

// taken is the receipt of an entry that the service took. A FIFO queue says the
// same of a copy that it drops (SQS-F-03).
func (x *publishing) taken(c *chunk, i int, s *types.SendMessageBatchResultEntry) {
	r := &x.receipts[c.place[i]]
	if s.MD5OfMessageBody != nil && !sumIs(c.entries[i].body, *s.MD5OfMessageBody) {
		// What is stored isn't what was sent, or the answer is garbled.
		r.Err = broker.Errorf(broker.ErrUnknownOutcome, errChecksum, "publish %q to %s", x.msgs[c.place[i]].ID, x.p.q.Name)
		return
	}
	r.Verdict = broker.Stored
	sequence := ""
	if x.p.q.FIFO {
		r.Verdict = broker.Accepted
		if s.SequenceNumber != nil {
			sequence = *s.SequenceNumber
		}
	}
	r.Position = position(sequence, s.MessageId)
}

// refused is the receipt of an entry that the service failed, alone among its
// batch (SQS-F-14). Where the fault is the service's own it may be stored yet.
func (x *publishing) refused(c *chunk, i int, f *types.BatchResultErrorEntry) {
	code, message := entryError(f)
	kind := kindOfCode(code, message)
	verdict := broker.Verdict(broker.Refused)
	if kind == broker.ErrUnavailable || (!f.SenderFault && kind == broker.ErrRefused) {
		verdict, kind = broker.Unknown, broker.ErrUnknownOutcome
	}
	x.receipts[c.place[i]] = broker.Receipt{Verdict: verdict,
		Err: broker.Errorf(kind, &entryFailure{code, message}, "publish %q to %s", x.msgs[c.place[i]].ID, x.p.q.Name)}
}

// sumIs reports whether want is the MD5 of s in hexadecimal digits.
func sumIs(s, want string) bool {
	sum := md5.Sum(unsafe.Slice(unsafe.StringData(s), len(s))) // which only reads: a body isn't copied for it
	var text [2 * md5.Size]byte
	hex.Encode(text[:], sum[:])
	return string(text[:]) == want
}
