package pipeline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
)

// transactions is a broker that has transactions and nothing else: it keeps the rules
// that package broker states for them, and its answers can be lost.
type transactions struct {
	broker.Conn
	mu      sync.Mutex
	epochs  map[string]int
	all     []*transaction
	visible []broker.Message
	topics  []string
	scope   broker.Scope
	asked   time.Duration // of the last OpenTransactor

	loseAnswers int             // of commits, which take effect
	loseCommits int             // which don't
	abortNext   bool            // before the next commit takes effect, as at its timeout
	forget      bool            // prepared transactions aren't known any more
	refuse      map[string]int  // publishes of an ID that fail
	committing  func(token int) // called with each commit, also of a recovery
	recoveries  int
}

type transaction struct {
	of     *transactions
	number int
	id     string
	epoch  int
	msgs   []broker.Message
	topics []string
	state  string // open, committed, aborted
}

type token struct {
	Number int
}

func newTransactions() *transactions {
	return &transactions{epochs: map[string]int{}, refuse: map[string]int{},
		scope: broker.Scope{Publishes: true, Atomic: true, Isolated: true, Fences: true, Resolves: true, Prepares: true, Limit: 15 * time.Minute}}
}

// holder is one who opened an ID.
type holder struct {
	of    *transactions
	id    string
	epoch int
	last  *transaction
}

func (b *transactions) OpenTransactor(_ context.Context, id string, opts ...broker.TransactorOption) (broker.Transactor, error) {
	var o broker.TransactorOptions
	for _, opt := range opts {
		opt(&o)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.scope.Limit > 0 && o.Timeout > b.scope.Limit {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "a timeout of %v, over %v", o.Timeout, b.scope.Limit)
	}
	b.asked = o.Timeout
	b.epochs[id]++
	for _, t := range b.all {
		if t.id == id && t.state == "open" {
			t.state = "aborted"
		}
	}
	return &holder{of: b, id: id, epoch: b.epochs[id]}, nil
}

func (b *transactions) RecoverTransaction(_ context.Context, data []byte, commit bool) (broker.Outcome, error) {
	var tok token
	if err := json.Unmarshal(data, &tok); err != nil || !commit {
		err := broker.Errorf(broker.ErrInvalid, err, "recover")
		return broker.Outcome{Err: err}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recoveries++
	for _, later := range b.all[tok.Number+1:] {
		// It remembers the last transaction of an ID alone, as a coordinator does.
		if later.id == b.all[tok.Number].id {
			b.forget = true
		}
	}
	if b.forget {
		err := broker.Errorf(broker.ErrNotFound, nil, "recover")
		return broker.Outcome{Err: err}, err
	}
	return b.commit(b.all[tok.Number])
}

// commit is called with b.mu held.
func (b *transactions) commit(t *transaction) (broker.Outcome, error) {
	if b.committing != nil {
		b.committing(t.number)
	}
	if b.abortNext && t.state == "open" {
		b.abortNext = false
		t.state = "aborted"
	}
	lost := broker.Errorf(broker.ErrUnknownOutcome, nil, "commit")
	if b.loseCommits > 0 {
		b.loseCommits--
		return broker.Outcome{Err: lost}, lost
	}
	switch t.state {
	case "aborted":
		err := broker.Errorf(broker.ErrAborted, nil, "commit")
		return broker.Outcome{State: broker.LeaseLost, Err: err}, err
	case "open":
		t.state = "committed"
		b.visible = append(b.visible, t.msgs...)
		b.topics = append(b.topics, t.topics...)
	}
	if b.loseAnswers > 0 {
		b.loseAnswers--
		return broker.Outcome{Err: lost}, lost
	}
	return broker.Outcome{State: broker.Confirmed}, nil
}

// seen is what readers of committed messages have.
func (b *transactions) seen() []broker.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]broker.Message(nil), b.visible...)
}

// open counts transactions that nobody has ended.
func (b *transactions) open() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.all {
		if t.state == "open" {
			n++
		}
	}
	return n
}

func (h *holder) fenced() error {
	if h.epoch != h.of.epochs[h.id] {
		return broker.Errorf(broker.ErrFenced, nil, "transactor %s", h.id)
	}
	return nil
}

func (h *holder) Begin(context.Context) (broker.Transaction, error) {
	b := h.of
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := h.fenced(); err != nil {
		return nil, err
	}
	if h.last != nil && h.last.state == "open" {
		return nil, broker.Errorf(broker.ErrConflict, nil, "begin on %s", h.id)
	}
	t := &transaction{of: b, number: len(b.all), id: h.id, epoch: h.epoch, state: "open"}
	b.all = append(b.all, t)
	h.last = t
	return &held{t, h, false}, nil
}

func (h *holder) Scope() broker.Scope {
	scope := h.of.scope
	if scope.Timeout == 0 {
		scope.Timeout = h.of.asked
	}
	return scope
}
func (h *holder) As(any) bool { return false }

// Close aborts what is open and not prepared.
func (h *holder) Close(context.Context) error { return nil }

// held is a transaction in the hands of who began it.
type held struct {
	*transaction
	by       *holder
	prepared bool
}

func (t *held) Publish(_ context.Context, topic string, msgs ...broker.Message) ([]broker.Receipt, error) {
	b := t.of
	b.mu.Lock()
	defer b.mu.Unlock()
	receipts := make([]broker.Receipt, len(msgs))
	err := t.by.fenced()
	if err == nil && t.state != "open" {
		err = broker.Errorf(broker.ErrAborted, nil, "publish")
	}
	if err == nil && b.refuse[t.id] > 0 {
		b.refuse[t.id]--
		err = broker.Errorf(broker.ErrUnavailable, nil, "publish")
	}
	for i := range msgs {
		if receipts[i] = (broker.Receipt{Verdict: broker.Refused, Err: err}); err == nil {
			receipts[i].Verdict = broker.Stored
			t.msgs = append(t.msgs, msgs[i])
			t.topics = append(t.topics, topic)
		}
	}
	return receipts, err
}

func (t *held) Settle(context.Context, []broker.Settlement) error { panic("not for pipelines") }

func (t *held) Prepare(context.Context) ([]byte, error) {
	b := t.of
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := t.by.fenced(); err != nil {
		return nil, err
	}
	if t.state != "open" {
		return nil, broker.Errorf(broker.ErrAborted, nil, "prepare")
	}
	t.prepared = true
	return json.Marshal(token{t.number})
}

func (t *held) Commit(context.Context) (broker.Outcome, error) {
	b := t.of
	b.mu.Lock()
	defer b.mu.Unlock()
	if !t.prepared {
		panic(fmt.Sprintf("transaction %d is committed and not prepared", t.number))
	}
	return b.commit(t.transaction)
}

func (t *held) Resolve(ctx context.Context) (broker.Outcome, error) { return t.Commit(ctx) }

func (t *held) Abort(context.Context) error {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.state == "committed" {
		return broker.Errorf(broker.ErrConflict, nil, "abort")
	}
	t.state = "aborted"
	return nil
}
