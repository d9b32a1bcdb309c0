package kafka

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	// defaultTxnTimeout is when the broker aborts what a dead holder left open.
	// Until then committed readers of its partitions wait (KAF-F-15).
	defaultTxnTimeout = 60 * time.Second
	cfgTxnLimit       = "transaction.max.timeout.ms"
)

// transactor holds a transactional ID. Records go out by a client of franz-go of its
// own, which numbers and batches them; what franz-go can't say is asked by requests of
// ours: the offsets of a member that is another client, and what became of a commit
// (KAF-F-23).
type transactor struct {
	conn  *conn
	id    string
	prod  *producer
	epoch bool // each transaction raises the producer's epoch: transaction.version 2 (KAF-F-18)
	scope broker.Scope

	mu     sync.Mutex
	open   *transaction
	fenced error // why this holder is of no use any more
	dirty  bool  // the client has to give up the last transaction before the next
}

// OpenTransactor is driver.Transacting's.
func (c *conn) OpenTransactor(ctx context.Context, id string, o broker.TransactorOptions) (driver.Transactor, error) {
	if o.Timeout == 0 {
		o.Timeout = defaultTxnTimeout
	}
	limit := c.txnLimit(ctx)
	if limit > 0 && o.Timeout > limit {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "open transactor %s: timeout %s: the broker allows %s (%s)", id, o.Timeout, limit, cfgTxnLimit)
	}
	if o.Timeout < time.Millisecond {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "open transactor %s: timeout %s", id, o.Timeout)
	}
	raises, err := c.raisesEpochs(ctx)
	if err != nil {
		return nil, broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "open transactor %s", id)
	}
	own := append(versionsFor(raises), kgo.TransactionalID(id), kgo.TransactionTimeout(o.Timeout))
	prod, err := c.newProducer(own...)
	if err != nil {
		return nil, err
	}
	t := &transactor{conn: c, id: id, prod: prod, epoch: raises, scope: broker.Scope{
		Publishes: true, Settles: c.opts.Mode == Group, Atomic: true, Isolated: true, Fences: true, Resolves: true, Prepares: true,
		Timeout: o.Timeout, Limit: limit, Note: scopeNote(c.opts.Mode, raises),
	}}
	// This fences whoever held the ID, and waits until what that left open is
	// aborted (KAF-F-28).
	if _, _, err := prod.cl.ProducerID(ctx); err != nil {
		prod.stop()
		prod.close(ctx)
		kind := kindOf(err, broker.ErrUnavailable)
		if errors.Is(err, kerr.InvalidTransactionTimeout) {
			kind = broker.ErrUnsupported
		}
		return nil, broker.Errorf(kind, err, "open transactor %s", id)
	}
	return t, nil
}

func scopeNote(m Mode, raises bool) string {
	note := "Records and offsets of one Kafka cluster; no write to anything else (KAF-F-14)."
	if m == Share {
		note += " A share group's acks can't be in it (KAF-F-52)."
	}
	if !raises {
		note += " The cluster runs transaction.version below 2: a request that was held up on its way can land in a later transaction (KAF-F-19)."
	}
	return note
}

// versionsFor pins the requests that a transaction is made of. Behind these versions
// offsets are sent under a topic's ID instead of its name; and where transactions
// don't raise the epoch, the broker takes the client for one that counts on it.
func versionsFor(raises bool) []kgo.Opt {
	v := kversion.Stable()
	v.SetMaxKeyVersion(kmsg.TxnOffsetCommit.Int16(), 5)
	if !raises {
		v.SetMaxKeyVersion(kmsg.Produce.Int16(), 11)
		v.SetMaxKeyVersion(kmsg.EndTxn.Int16(), 4)
		v.SetMaxKeyVersion(kmsg.TxnOffsetCommit.Int16(), 4)
	}
	return []kgo.Opt{kgo.MaxVersions(v)}
}

// raisesEpochs reports whether the cluster has transaction.version 2.
func (c *conn) raisesEpochs(ctx context.Context) (bool, error) {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, c.admin)
	if err != nil {
		return false, err
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			return f.MaxVersionLevel >= 2, nil
		}
	}
	return false, nil
}

// txnLimit is the longest transaction that the broker allows; 0 where it may not be
// read.
func (c *conn) txnLimit(ctx context.Context) time.Duration {
	m, err := c.adm.BrokerMetadata(ctx)
	if err != nil || len(m.Brokers) == 0 {
		return 0
	}
	rs, err := c.adm.DescribeBrokerConfigs(ctx, m.Brokers[0].NodeID)
	if err != nil {
		return 0
	}
	v, _ := valueOf(rs, cfgTxnLimit)
	ms, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

func (t *transactor) Scope() broker.Scope { return t.scope }

// As sets a **kgo.Client to the client that publishes.
func (t *transactor) As(target any) bool {
	p, ok := target.(**kgo.Client)
	if ok {
		*p = t.prod.cl
	}
	return ok
}

// Begin is driver.Transactor's.
func (t *transactor) Begin(ctx context.Context) (driver.Transaction, error) {
	if err := t.unusable(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	dirty := t.dirty
	t.mu.Unlock()
	if dirty {
		if err := t.clear(ctx); err != nil {
			return nil, err
		}
	}
	// Where the ID has to be asked for again it is asked for within ctx, which
	// BeginTransaction doesn't take.
	if _, _, err := t.prod.cl.ProducerID(ctx); err != nil {
		return nil, t.failed(err, "begin on "+t.id)
	}
	if err := t.prod.cl.BeginTransaction(); err != nil {
		return nil, t.failed(err, "begin on "+t.id)
	}
	x := &transaction{t: t, begun: time.Now(), inputs: map[*groupReceiver]*inputs{}}
	t.mu.Lock()
	t.open, t.dirty = x, true
	t.mu.Unlock()
	return x, nil
}

func (t *transactor) unusable() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.fenced
}

// failed sorts an error of franz-go: a fenced holder stays fenced.
func (t *transactor) failed(err error, what string) error {
	if !fencedProducer(err) {
		return broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "%s", what)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fenced == nil {
		t.fenced = broker.Errorf(broker.ErrFenced, err, "transactor %s: somebody else opened the ID, or its transaction outlived its time (%s); open it anew if this process is to hold it", t.id, t.scope.Timeout)
	}
	return t.fenced
}

// fencedProducer reports that the broker has a later holder of the ID, or took this
// one for dead when its transaction outlived its time (KAF-F-27).
func fencedProducer(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidProducerIDMapping) ||
		errors.Is(err, kerr.TransactionalIDNotFound)
}

// clear makes the client give up its transaction, whatever became of it, and learns
// whether this is still the holder. What the broker has open is aborted by it.
func (t *transactor) clear(ctx context.Context) error {
	if err := t.unusable(); err != nil {
		return err
	}
	cl := t.prod.cl
	if err := cl.AbortBufferedRecords(ctx); err != nil {
		return broker.Errorf(broker.ErrUnavailable, err, "abort on %s: records are still on their way", t.id)
	}
	err := cl.EndTransaction(ctx, kgo.TryAbort)
	for tries := 0; err != nil && tries < 3 && ctx.Err() == nil && !fencedProducer(err); tries++ {
		// Where it doesn't know the answer it asks for a new epoch, which aborts.
		err = cl.EndTransaction(ctx, kgo.TryAbort)
	}
	if err == nil || fencedProducer(err) {
		// A holder whose transaction the broker aborted may go on with a new epoch;
		// one that somebody else has replaced is refused it.
		_, _, err = cl.ProducerID(ctx)
	}
	if err != nil {
		return t.failed(err, "abort on "+t.id)
	}
	t.mu.Lock()
	t.dirty = false
	t.mu.Unlock()
	return nil
}

// over takes the transaction from its place.
func (t *transactor) over(x *transaction) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == x {
		t.open = nil
	}
}

func (t *transactor) current() *transaction {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open
}

// Close is driver.Transactor's. What is open at the broker stays so: New aborted what
// had to be.
func (t *transactor) Close(ctx context.Context) error {
	t.prod.stop()
	t.prod.close(ctx)
	return nil
}

// OpenPublisher is driver.Transactor's.
func (t *transactor) OpenPublisher(ctx context.Context, topic string) (driver.Publisher, error) {
	body, err := t.conn.lookUp(ctx, topic)
	if err != nil {
		return nil, err
	}
	keeps, _ := t.conn.keepsTime.Load(topic)
	p := &publisher{conn: t.conn, topic: topic, body: body, stamp: keeps != true, own: t.prod, sequenced: true, gone: make(chan struct{})}
	return &txnPublisher{p, t}, nil
}

// txnPublisher publishes to one topic within the open transaction.
type txnPublisher struct {
	*publisher
	t *transactor
}

// Publish is driver.Publisher's.
func (p *txnPublisher) Publish(ctx context.Context, msgs []broker.Message, receipts []broker.Receipt) {
	x := p.t.current()
	if x == nil {
		p.refuse(receipts, nil, 0, broker.ErrConflict, errors.New("no transaction is open"))
		return
	}
	p.publisher.Publish(ctx, msgs, receipts)
	for i := range receipts {
		r := &receipts[i]
		if r.Verdict == broker.Stored {
			x.note(p.topic, r.Position)
		} else if fencedProducer(r.Err) {
			x.replaced(r.Err)
			r.Err = broker.Errorf(broker.ErrUnknownOutcome, broker.Errorf(broker.ErrFenced, r.Err, "transactor %s", p.t.id), "publish to %s", p.topic)
		}
	}
}

// Close leaves the client to the transactor.
func (p *txnPublisher) Close(context.Context) error { return nil }
