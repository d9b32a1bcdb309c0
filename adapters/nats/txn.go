package nats

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"strconv"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// The headers and the answers of an atomic batch (NATS-F-300).
const (
	headerBatch    = "Nats-Batch-Id"
	headerBatchSeq = "Nats-Batch-Sequence"
	headerBatchEnd = "Nats-Batch-Commit"
	codeBatchDup   = jetstream.ErrorCode(10201) // it has an ID that is known
	maxBatch       = 1000
)

// transactor collects messages and sends them as atomic batches. JetStream knows
// nothing of it until a commit.
type transactor struct {
	c    *conn
	id   string
	mu   sync.Mutex
	open *transaction
	last map[string]uint64 // by stream: what the next batch is stored behind
}

// OpenTransactor is driver.Transacting's.
func (c *conn) OpenTransactor(_ context.Context, id string, o broker.TransactorOptions) (driver.Transactor, error) {
	if o.Timeout != 0 {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "open transactor %s: a batch is sent when it is committed, and has no time to be out of", id)
	}
	return &transactor{c: c, id: id, last: map[string]uint64{}}, nil
}

func (t *transactor) Scope() broker.Scope {
	return broker.Scope{Publishes: true, Atomic: true, Isolated: true, Resolves: true, Messages: maxBatch,
		Note: "An atomic batch of JetStream: publishes to one stream that allows it (allow_atomic, NATS 2.12), sent when it is committed. Acks can't be in it. " +
			"The ID is a name: nobody is fenced. A lost answer is resolved within the stream's dedup window. An ID that the stream knows refuses the whole batch."}
}

func (t *transactor) As(target any) bool { return t.c.As(target) }

// Begin is driver.Transactor's.
func (t *transactor) Begin(context.Context) (driver.Transaction, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = &transaction{t: t}
	return t.open, nil
}

// Close is driver.Transactor's.
func (t *transactor) Close(context.Context) error { return nil }

// OpenPublisher is driver.Transactor's.
func (t *transactor) OpenPublisher(ctx context.Context, topic string) (driver.Publisher, error) {
	d, err := t.c.OpenPublisher(ctx, topic, broker.PublisherOptions{})
	if err != nil {
		return nil, err
	}
	p := d.(*publisher)
	s, err := t.c.js.Stream(ctx, p.stream)
	if err != nil {
		return nil, failure(ctx, err, "open publisher %s: stream %s", topic, p.stream)
	}
	info := s.CachedInfo()
	if !info.Config.AllowAtomicPublish {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "open publisher %s in transaction of %s: stream %s doesn't take atomic batches; set allow_atomic on it", topic, t.id, p.stream)
	}
	t.mu.Lock()
	t.last[p.stream] = max(t.last[p.stream], info.State.LastSeq)
	t.mu.Unlock()
	return &txnPublisher{p, t}, nil
}

// txnPublisher collects what is published for the commit.
type txnPublisher struct {
	*publisher
	t *transactor
}

// Publish is driver.Publisher's.
func (p *txnPublisher) Publish(_ context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	t := p.t
	t.mu.Lock()
	defer t.mu.Unlock()
	x := t.open
	for i := range msgs {
		if err := p.collect(x, &msgs[i]); err != nil {
			receipts[i] = broker.Receipt{Verdict: broker.Refused, Err: err}
		} else {
			receipts[i].Verdict = broker.Accepted
		}
	}
}

// collect adds one message to the batch. t.mu is held.
func (p *txnPublisher) collect(x *transaction, m *broker.Message) error {
	switch {
	case x == nil:
		return broker.Errorf(broker.ErrConflict, nil, "publish to %s: no transaction is open", p.topic)
	case x.stream != "" && x.stream != p.stream:
		return broker.Errorf(broker.ErrInvalid, nil, "publish %q to %s: the transaction is of stream %s, and an atomic batch has one stream", m.ID, p.topic, x.stream)
	case len(x.batch) >= maxBatch:
		return broker.Errorf(broker.ErrTooLarge, nil, "publish %q to %s: the transaction has %d messages, the most of an atomic batch", m.ID, p.topic, maxBatch)
	}
	var out outgoing
	copied := *m
	copied.Body = append([]byte(nil), m.Body...)
	block := out.set(&copied)
	if block > maxBlock || block+len(m.Body) > int(p.c.nc.MaxPayload())-deadLetterRoom {
		return broker.Errorf(broker.ErrTooLarge, nil, "publish %q to %s: headers of %d and body of %d bytes", m.ID, p.topic, block, len(m.Body))
	}
	msg := out.msg
	msg.Subject, msg.Header = p.topic, maps.Clone(out.msg.Header)
	x.stream, x.window = p.stream, p.limits.Window
	x.batch = append(x.batch, &msg)
	return nil
}

// transaction is a batch that is sent when it is committed.
type transaction struct {
	t      *transactor
	stream string
	window time.Duration
	batch  []*natsgo.Msg
	sent   time.Time       // when it first was
	ids    map[string]bool // under which it was sent
}

// Settle is driver.Transaction's; New refuses it by the scope.
func (x *transaction) Settle(_ context.Context, _ driver.Receiver, ops []driver.Op) {
	for i := range ops {
		ops[i].Settlement.Outcome.Err = broker.Errorf(broker.ErrUnsupported, nil, "settle in transaction of %s", x.t.id)
	}
}

// Prepare is driver.Transaction's; New refuses it by the scope.
func (x *transaction) Prepare(context.Context) ([]byte, error) {
	return nil, broker.Errorf(broker.ErrUnsupported, nil, "prepare on %s", x.t.id)
}

// Abort is driver.Transaction's: nothing was sent.
func (x *transaction) Abort(context.Context) error {
	x.over()
	return nil
}

func (x *transaction) over() {
	x.t.mu.Lock()
	defer x.t.mu.Unlock()
	if x.t.open == x {
		x.t.open = nil
	}
}

// Commit is driver.Transaction's.
func (x *transaction) Commit(ctx context.Context) broker.Outcome {
	if len(x.batch) == 0 {
		x.over()
		return broker.Outcome{State: broker.Confirmed}
	}
	o, _ := x.send(ctx)
	return o
}

// send sends the batch under an ID of its own. again reports that it was refused for a
// message that the stream knows, which may be its own from before.
func (x *transaction) send(ctx context.Context) (o broker.Outcome, again bool) {
	c := x.t.c
	l := c.link.Load()
	if l == nil || !c.sendable() {
		return broker.Outcome{Err: broker.Errorf(broker.ErrUnavailable, errLinkDown, "commit on %s: not sent", x.t.id)}, false
	}
	id := rand.Text()
	if x.ids == nil {
		x.ids, x.sent = map[string]bool{}, time.Now()
	}
	x.ids[id] = true
	ctx, done := c.while(ctx)
	defer done()
	last := len(x.batch) - 1
	for i, m := range x.batch {
		m.Header[headerBatch], m.Header[headerBatchSeq] = []string{id}, []string{strconv.Itoa(i + 1)}
		if i < last {
			if err := c.nc.PublishMsg(m); err != nil {
				// Without its end the server drops what it has of it.
				return broker.Outcome{Err: broker.Errorf(broker.ErrUnavailable, err, "commit on %s: not sent", x.t.id)}, false
			}
			continue
		}
		m.Header[headerBatchEnd] = []string{"1"}
	}
	answer, err := c.nc.RequestMsgWithContext(ctx, x.batch[last])
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return x.unknown(err), false
	}
	a, err := parsePubAck(answer.Data)
	switch {
	case err != nil:
		return x.unknown(err), false
	case a.Error == nil:
		return x.stored(a.Seq), false
	case a.Error.ErrorCode == codeBatchDup:
		return x.undone(broker.Errorf(broker.ErrConflict, a.Error, "a message ID was published before")), true
	case kindOfCode(a.Error.ErrorCode, a.Error.Description) == broker.ErrUnknownOutcome:
		return x.unknown(a.Error), false
	}
	return x.undone(a.Error), false
}

func (x *transaction) stored(seq uint64) broker.Outcome {
	x.t.mu.Lock()
	x.t.last[x.stream] = max(x.t.last[x.stream], seq)
	x.t.mu.Unlock()
	x.over()
	return broker.Outcome{State: broker.Confirmed}
}

func (x *transaction) undone(why error) broker.Outcome {
	x.over()
	return broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrAborted, why, "commit on %s", x.t.id)}
}

func (x *transaction) unknown(why error) broker.Outcome {
	return broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, why, "commit on %s", x.t.id)}
}

// Resolve is driver.Transaction's. It looks in the stream for the batch. What isn't
// there may still be on its way, so the batch is sent once more: either it is stored
// now, and what comes late is refused for its IDs; or it is refused for them, and was
// stored meanwhile. That holds as long as the stream remembers the IDs.
func (x *transaction) Resolve(ctx context.Context) broker.Outcome {
	seq, err := x.find(ctx)
	switch {
	case err != nil:
		return x.unknown(err)
	case seq > 0:
		return x.stored(seq)
	case x.window <= 0 || time.Since(x.sent) > x.window*9/10:
		return x.unknown(broker.Errorf(broker.ErrWindowExceeded, nil, "it isn't in stream %s, and may still come: the window of %s is over", x.stream, x.window))
	}
	o, again := x.send(ctx)
	if !again {
		if o.State == broker.Unknown && !errors.Is(o.Err, broker.ErrUnknownOutcome) {
			return x.unknown(o.Err)
		}
		return o
	}
	// Stored after all, or somebody else has published one of its messages.
	if seq, err = x.find(ctx); err != nil {
		return x.unknown(err)
	} else if seq == 0 {
		return o
	}
	return x.stored(seq)
}

// find looks for the batch's last message behind what the stream had before, and
// returns its sequence; 0 if it isn't there.
func (x *transaction) find(ctx context.Context) (uint64, error) {
	c := x.t.c
	ctx, done := c.while(ctx)
	defer done()
	s, err := c.js.Stream(ctx, x.stream)
	if err != nil {
		return 0, failure(ctx, err, "stream %s", x.stream)
	}
	x.t.mu.Lock()
	from := x.t.last[x.stream] + 1
	x.t.mu.Unlock()
	for {
		m, err := s.GetMsg(ctx, from, jetstream.WithGetMsgSubject(x.batch[len(x.batch)-1].Subject))
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return 0, nil
		case err != nil:
			return 0, failure(ctx, err, "stream %s from %d", x.stream, from)
		case x.ids[m.Header.Get(headerBatch)] && m.Header.Get(headerBatchEnd) != "":
			return m.Sequence, nil
		}
		from = m.Sequence + 1
	}
}

var (
	_ driver.Transacting = (*conn)(nil)
)
