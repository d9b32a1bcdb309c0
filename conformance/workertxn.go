package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/report"
)

// txnStep is how far a transaction has come when its holder is stopped.
type txnStep string

const (
	txnPublished txnStep = "published" // its outputs are with the transaction
	txnSettled   txnStep = "settled"   // and its inputs
	txnPrepared  txnStep = "prepared"  // and it grows no more
)

// txnOrder is one transaction that a holder is told to bring to a step.
type txnOrder struct {
	ID      string   `json:"id"`
	In      string   `json:"in,omitempty"` // the subscription of its inputs; empty for none
	Inputs  int      `json:"inputs,omitempty"`
	Out     string   `json:"out"`
	Outputs []string `json:"outputs"` // IDs
	Key     string   `json:"key,omitempty"`
	Step    txnStep  `json:"step"`
}

// txnHeld is what a holder says of a transaction that has come to its step.
type txnHeld struct {
	ID     string   `json:"id"`
	Inputs []string `json:"inputs,omitempty"` // that were received, in their order
	Token  []byte   `json:"token,omitempty"`  // of one that is prepared
}

// txnHolder holds transactions, each over a connection of its own: what becomes of one
// is not the doing of another.
type txnHolder struct {
	connect func(context.Context) (broker.Conn, error)
	mu      sync.Mutex
	open    map[string]broker.Transaction
}

// bring brings all of them to their steps, side by side.
func (h *txnHolder) bring(ctx context.Context, orders []txnOrder) ([]txnHeld, error) {
	held, errs := make([]txnHeld, len(orders)), make([]error, len(orders))
	var all sync.WaitGroup
	for i := range orders {
		all.Go(func() { held[i], errs[i] = h.bringOne(ctx, &orders[i]) })
	}
	all.Wait()
	return held, errors.Join(errs...)
}

func (h *txnHolder) bringOne(ctx context.Context, o *txnOrder) (held txnHeld, err error) {
	held.ID = o.ID
	c, err := h.connect(ctx)
	if err != nil {
		return held, err
	}
	in, err := o.receive(ctx, c)
	if err != nil {
		return held, err
	}
	x, err := broker.OpenTransactor(ctx, c, o.ID)
	if err != nil {
		return held, err
	}
	tx, err := x.Begin(ctx)
	if err != nil {
		return held, err
	}
	h.mu.Lock()
	h.open[o.ID] = tx
	h.mu.Unlock()
	for _, id := range o.Outputs {
		if _, err := tx.Publish(ctx, o.Out, broker.Message{ID: id, Key: o.Key, Body: []byte("body of " + id)}); err != nil {
			return held, err
		}
	}
	for i := range in {
		held.Inputs = append(held.Inputs, in[i].ID)
	}
	if o.Step == txnPublished {
		return held, nil
	}
	ss := make([]broker.Settlement, len(in))
	for i := range in {
		ss[i].Delivery = &in[i]
	}
	if err := tx.Settle(ctx, ss); err != nil {
		return held, err
	}
	if o.Step == txnPrepared {
		held.Token, err = tx.Prepare(ctx)
	}
	return held, err
}

// receive takes the inputs.
func (o *txnOrder) receive(ctx context.Context, c broker.Conn) ([]broker.Delivery, error) {
	if o.In == "" {
		return nil, nil
	}
	r, err := c.OpenReceiver(ctx, o.In)
	if err != nil {
		return nil, err
	}
	var in []broker.Delivery
	for len(in) < o.Inputs {
		ds, err := r.Receive(ctx, o.Inputs-len(in))
		if err != nil {
			return nil, err
		}
		in = append(in, ds...)
	}
	return in, nil
}

func (h *txnHolder) commit(ctx context.Context, id string) (broker.Outcome, error) {
	h.mu.Lock()
	tx := h.open[id]
	h.mu.Unlock()
	if tx == nil {
		return broker.Outcome{}, fmt.Errorf("no transaction of %s is held", id)
	}
	o, err := tx.Commit(ctx)
	o.Err = err
	return o, nil
}

// The bounds of what a holder is told to do.
const (
	txnBringWithin  = 30 * time.Second
	txnCommitWithin = 10 * time.Second
)

// hold is what a worker does that holds transactions: it brings them to a step, commits
// them, or begins to commit them, as it is told. It ends when its input does.
func (s workerSpec) hold(ctx context.Context, stdin io.Reader) error {
	broken, err := mutantOf(s.Mutant)
	if err != nil {
		return err
	}
	h := &txnHolder{open: map[string]broker.Transaction{}, connect: func(ctx context.Context) (broker.Conn, error) {
		c, err := s.connect(ctx)
		if err != nil {
			return nil, err
		}
		return broken.wrap(c), nil
	}}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(workerEvent{Event: "ready"}); err != nil {
		return err
	}
	in := bufio.NewScanner(stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		e, err := h.do(ctx, in.Text())
		if err != nil {
			return err
		}
		if err := out.Encode(e); err != nil {
			return err
		}
	}
	return in.Err()
}

func (h *txnHolder) do(ctx context.Context, command string) (workerEvent, error) {
	verb, rest, _ := strings.Cut(command, " ")
	switch verb {
	case "bring":
		var orders []txnOrder
		if err := json.Unmarshal([]byte(rest), &orders); err != nil {
			return workerEvent{}, err
		}
		ctx, cancel := context.WithTimeout(ctx, txnBringWithin)
		defer cancel()
		held, err := h.bring(ctx, orders)
		return workerEvent{Event: "brought", Held: held}, err
	case "commit":
		ctx, cancel := context.WithTimeout(ctx, txnCommitWithin)
		defer cancel()
		o, err := h.commit(ctx, rest)
		e := workerEvent{Event: "outcome", ID: rest, State: o.State}
		if o.Err != nil {
			e.Note, e.Kind = o.Err.Error(), kindOf(o.Err)
		}
		return e, err
	case "begin-commit":
		go func() { _, _ = h.commit(ctx, rest) }() // it is killed before it hears an answer
		return workerEvent{Event: "committing", ID: rest}, nil
	}
	return workerEvent{}, fmt.Errorf("unknown command %q", command)
}

// holder is an instance of a program that holds transactions and can be stopped in its
// tracks.
type holder interface {
	bring(ctx context.Context, orders []txnOrder) ([]txnHeld, error)
	commit(ctx context.Context, id string) (broker.Outcome, error)
	beginCommit(ctx context.Context, id string) error
	kill()
	freeze()
	thaw()
	end() // whatever state it is in; it may be called again
}

// holder starts one: in a process of its own where the target can be reached from
// there, else modelled in this one.
func (b *Bench) holder(ctx context.Context, name string) (holder, error) {
	if b.Instance.URL != "" && workersReady.Load() {
		w, err := b.process(ctx, name, workerSpec{URL: b.Instance.URL, Holds: true, Mutant: b.mutant.name()})
		if err != nil {
			return nil, err
		}
		return processHolder{w}, nil
	}
	b.Note("%s is modelled in the suite's own process: killed and frozen mean that it is abandoned.", name)
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m := &modelledHolder{bench: b, name: name, life: life, cancel: cancel}
	m.of = &txnHolder{open: map[string]broker.Transaction{}, connect: b.Conn}
	return m, nil
}

// processHolder is one in a child process.
type processHolder struct{ *worker }

func (p processHolder) bring(ctx context.Context, orders []txnOrder) ([]txnHeld, error) {
	text, err := json.Marshal(orders)
	if err != nil {
		return nil, err
	}
	e, err := p.tell(ctx, "bring "+string(text), "brought")
	return e.Held, err
}

func (p processHolder) commit(ctx context.Context, id string) (broker.Outcome, error) {
	e, err := p.tell(ctx, "commit "+id, "outcome")
	if err != nil {
		return broker.Outcome{}, err
	}
	return e.outcome(), nil
}

func (p processHolder) beginCommit(ctx context.Context, id string) error {
	_, err := p.tell(ctx, "begin-commit "+id, "committing")
	return err
}

// modelledHolder is one in this process: killed or frozen means that nothing is done
// with it any more.
type modelledHolder struct {
	bench  *Bench
	name   string
	of     *txnHolder
	life   context.Context
	cancel context.CancelFunc
	busy   sync.WaitGroup
}

func (m *modelledHolder) bring(ctx context.Context, orders []txnOrder) ([]txnHeld, error) {
	return m.of.bring(ctx, orders)
}

func (m *modelledHolder) commit(ctx context.Context, id string) (broker.Outcome, error) {
	return m.of.commit(ctx, id)
}

func (m *modelledHolder) beginCommit(_ context.Context, id string) error {
	m.busy.Go(func() { _, _ = m.of.commit(m.life, id) }) // it is killed before it hears an answer
	return nil
}

func (m *modelledHolder) kill() {
	m.stopped("kill")
	m.end()
}

func (m *modelledHolder) end() {
	m.cancel()
	m.busy.Wait()
}

func (m *modelledHolder) freeze() { m.stopped("freeze") }
func (m *modelledHolder) thaw()   { m.stopped("thaw") }

func (m *modelledHolder) stopped(how string) {
	m.bench.history.Add(report.Consumer, how, "", "%s, modelled", m.name)
}
