package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/conformance/report"
)

// workerEnv tells a process that it is a consumer in a probe.
const workerEnv = "ONCELINE_CONFORMANCE_WORKER"

// workersReady is set once RunIfWorker was called, without which a child
// process would run the program's own main.
var workersReady atomic.Bool

// RunIfWorker turns this process into a consumer if a probe started it as one,
// and doesn't return then. A program or test binary that runs the suite calls
// it first thing in main or TestMain: consumers that crash or freeze are then
// processes that are really killed and stopped. Without it those probes are
// modelled by a consumer that is abandoned.
//
// Stores are those that its targets have: such a process opens them by itself, so that
// what it leaves in them is what a crash leaves.
func RunIfWorker(stores ...Store) {
	workerStores = stores
	spec := os.Getenv(workerEnv)
	if spec == "" {
		workersReady.Store(true)
		return
	}
	if err := runWorker(spec); err != nil {
		_ = json.NewEncoder(os.Stdout).Encode(workerEvent{Event: "error", Note: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
}

type workerSpec struct {
	URL          string      `json:"url"` // empty: it is handed messages, and applies their effects alone
	Subscription string      `json:"subscription"`
	Unfenced     bool        `json:"unfenced"`
	Mutant       string      `json:"mutant,omitempty"` // the name of what breaks its adapter
	Stores       []storeSpec `json:"stores,omitempty"`
	Holds        bool        `json:"holds,omitempty"` // transactions, instead of a message
	// Pipeline is what it runs instead.
	Pipeline *pipelineSpec `json:"pipeline,omitempty"`
}

type workerEvent struct {
	Event   string       `json:"event"` // ready, delivery, effect, outcome, error
	ID      string       `json:"id,omitempty"`
	Attempt int          `json:"attempt,omitempty"`
	State   broker.State `json:"state,omitempty"`
	Note    string       `json:"note,omitempty"`
	Said    []string     `json:"said,omitempty"` // by each store
	// Kind is what the outcome's error is, of those that a probe asks for.
	Kind string    `json:"kind,omitempty"`
	Held []txnHeld `json:"held,omitempty"`
}

// runWorker receives one message when told "receive", applies its effect when
// told "effect", and settles it when told "ack", "nack" or "extend". It ends when its input does, which
// is when the probe's process is gone (a stopped one, when it is continued).
func runWorker(spec string) error {
	var s workerSpec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return err
	}
	ctx := context.Background()
	if s.Pipeline != nil {
		return s.Pipeline.run(ctx, json.NewEncoder(os.Stdout))
	}
	if s.Holds {
		return s.hold(ctx, os.Stdin)
	}
	open, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	stores, err := openGuards(open, s.Stores)
	if err != nil {
		return err
	}
	r, err := s.receiver(open)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(workerEvent{Event: "ready"}); err != nil {
		return err
	}
	var d broker.Delivery
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var e workerEvent
		switch in.Text() {
		case "receive":
			ds, err := r.Receive(ctx, 1)
			if err != nil {
				return err
			}
			d = ds[0]
			e = workerEvent{Event: "delivery", ID: d.ID, Attempt: d.Attempt.Number}
		case "effect":
			e = workerEvent{Event: "effect", ID: d.ID}
		case "ack", "nack", "extend":
			action := map[string]broker.Action{"ack": broker.Ack, "nack": broker.Nack, "extend": broker.Extend}[in.Text()]
			ask, done := context.WithTimeout(ctx, 10*time.Second)
			s := []broker.Settlement{{Delivery: &d, Action: action}}
			_ = r.Settle(ask, s) // the outcome says more
			done()
			o := s[0].Outcome
			e = workerEvent{Event: "outcome", ID: d.ID, State: o.State}
			if o.Err != nil {
				e.Note, e.Kind = o.Err.Error(), kindOf(o.Err)
			}
		default: // about its stores
			if e, err = stores.do(ctx, in.Text(), &d); err != nil {
				return err
			}
		}
		if err := out.Encode(e); err != nil {
			return err
		}
	}
	return in.Err()
}

func (s workerSpec) receiver(ctx context.Context) (broker.Receiver, error) {
	if s.URL == "" {
		return nil, nil
	}
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	broken, err := mutantOf(s.Mutant)
	if err != nil {
		return nil, err
	}
	c = broken.wrap(c)
	if s.Unfenced {
		if c, err = driver.Unfenced(c); err != nil {
			return nil, err
		}
	}
	return c.OpenReceiver(ctx, s.Subscription)
}

// connectWithin bounds how long a worker asks for its broker.
const connectWithin = 20 * time.Second

// connect asks a broker again that can't be had: a busy machine may be too slow for a
// handshake.
func (s workerSpec) connect(ctx context.Context) (broker.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	for {
		c, err := broker.Open(ctx, s.URL)
		if !errors.Is(err, broker.ErrUnavailable) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// kinds are the errors that a probe asks for in another process.
var kinds = map[string]error{"unsupported": broker.ErrUnsupported, "conflict": broker.ErrConflict, "fenced": broker.ErrFenced}

func kindOf(err error) string {
	for name, kind := range kinds {
		if errors.Is(err, kind) {
			return name
		}
	}
	return ""
}

// consumer is one that can be stopped in its tracks. It holds one message.
type consumer interface {
	// receive takes one message and applies its effect if effect is called.
	receive(ctx context.Context) (id string, err error)
	effect(ctx context.Context) error
	// reach applies the effect by the bench's stores as far as the step, and holds it
	// there; finish lets it go on to its end.
	reach(ctx context.Context, step Step) error
	finish(ctx context.Context) error
	ack(ctx context.Context) (broker.Outcome, error)
	settle(ctx context.Context, a broker.Action) (broker.Outcome, error) // but DeadLetter
	// kill ends it as by kill -9; freeze and thaw stop it and let it go on.
	kill()
	freeze()
	thaw()
}

// canCrash reports whether a consumer that is killed or frozen is really that:
// a process, or one in a broker whose clock is moved, where nothing happens
// beside what the probe does.
func (b *Bench) canCrash() bool {
	return b.Instance.Advance != nil || b.Instance.URL != "" && workersReady.Load()
}

// consumer starts one: in a process of its own where the target can be reached
// from there, else modelled in this one.
func (b *Bench) consumer(ctx context.Context, name string, unfenced bool) (consumer, error) {
	if b.Instance.URL == "" || !workersReady.Load() {
		return b.modelled(ctx, name, unfenced)
	}
	return b.process(ctx, name, workerSpec{URL: b.Instance.URL, Subscription: b.Entity.Subscription, Unfenced: unfenced,
		Mutant: b.mutant.name()})
}

// process starts a worker, with the stores that the bench has opened.
func (b *Bench) process(ctx context.Context, name string, s workerSpec) (*worker, error) {
	if s.Pipeline == nil { // which has a store of its own
		s.Stores = b.storeSpecs()
	}
	spec, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{bench: b, name: name, cmd: exec.Command(exe), events: make(chan workerEvent)}
	w.cmd.Env = append(os.Environ(), workerEnv+"="+string(spec), "GOGC=400", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	w.cmd.Stderr = &w.stderr
	// In a group of its own, a frozen worker isn't woken when the shell that started
	// this program ends, as the stopped ones of an orphaned group are; nor does it get
	// the interrupt of a terminal.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(w.cmd.SysProcAttr)
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a consumer: %w", err)
	}
	b.mu.Lock()
	b.workers = append(b.workers, w)
	b.mu.Unlock()
	w.done = make(chan struct{})
	go w.read(out)
	if _, err := w.next(ctx, "ready"); err != nil {
		return nil, err
	}
	b.history.Add(report.Consumer, "start", "", "%s in process %d", name, w.cmd.Process.Pid)
	return w, nil
}

// worker is a consumer in a child process.
type worker struct {
	bench  *Bench
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	events chan workerEvent
	done   chan struct{}
	quit   atomic.Bool
	stderr tail
}

func (w *worker) read(out io.Reader) {
	defer close(w.done)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e workerEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = workerEvent{Event: "error", Note: "garbled line: " + lines.Text()}
		}
		select {
		case w.events <- e:
		case <-time.After(time.Minute): // nobody asks any more
		}
	}
	_ = w.cmd.Wait() // how it ended is the probe's own doing
}

func (w *worker) next(ctx context.Context, want string) (workerEvent, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	select {
	case e := <-w.events:
		if e.Event != want {
			return e, fmt.Errorf("%s: %s instead of %s: %s", w.name, e.Event, want, e.Note)
		}
		return e, nil
	case <-w.done:
		return workerEvent{}, fmt.Errorf("%s: ended: %s", w.name, w.stderr.String())
	case <-ctx.Done():
		return workerEvent{}, fmt.Errorf("%s: waiting for %s: %w", w.name, want, context.Cause(ctx))
	}
}

func (w *worker) tell(ctx context.Context, command, want string) (workerEvent, error) {
	if _, err := io.WriteString(w.in, command+"\n"); err != nil {
		return workerEvent{}, fmt.Errorf("%s: %w", w.name, err)
	}
	return w.next(ctx, want)
}

func (w *worker) receive(ctx context.Context) (string, error) {
	e, err := w.tell(ctx, "receive", "delivery")
	if err != nil {
		return "", err
	}
	w.bench.history.Record(report.Event{Actor: report.Consumer, Kind: kindDelivery, ID: e.ID, Holder: w.name, Attempt: e.Attempt,
		Note: fmt.Sprintf("to %s, attempt %d", w.name, e.Attempt)})
	return e.ID, nil
}

func (w *worker) effect(ctx context.Context) error {
	e, err := w.tell(ctx, "effect", "effect")
	if err == nil {
		w.bench.Effect(e.ID, w.name)
	}
	return err
}

func (w *worker) ack(ctx context.Context) (broker.Outcome, error) { return w.settle(ctx, broker.Ack) }

func (w *worker) settle(ctx context.Context, a broker.Action) (broker.Outcome, error) {
	e, err := w.tell(ctx, strings.ToLower(a.String()), "outcome")
	if err != nil {
		return broker.Outcome{}, err
	}
	o := e.outcome()
	w.bench.settled(e.ID, a, o)
	return o, nil
}

// outcome is what the event tells of one.
func (e workerEvent) outcome() broker.Outcome {
	o := broker.Outcome{State: e.State}
	switch kind := kinds[e.Kind]; {
	case kind != nil:
		o.Err = fmt.Errorf("%w: %s", kind, e.Note)
	case e.Note != "":
		o.Err = errors.New(e.Note)
	}
	return o
}

func (w *worker) kill() {
	w.bench.history.Add(report.Consumer, "kill", "", "%s by SIGKILL", w.name)
	w.end()
}

func (w *worker) freeze() {
	w.bench.history.Add(report.Consumer, "freeze", "", "%s by SIGSTOP", w.name)
	_ = w.cmd.Process.Signal(syscall.SIGSTOP) // if it has ended, the next step says so
}

func (w *worker) thaw() {
	w.bench.history.Add(report.Consumer, "thaw", "", "%s by SIGCONT", w.name)
	_ = w.cmd.Process.Signal(syscall.SIGCONT)
}

func (w *worker) stop() { w.end() }

// end kills the process and waits until it is gone. SIGKILL ends a stopped
// process too.
func (w *worker) end() {
	if w.quit.Swap(true) {
		return
	}
	_ = w.cmd.Process.Kill()
	_ = w.in.Close()
	for {
		select {
		case <-w.events: // unread lines would keep the reader
		case <-w.done:
			return
		}
	}
}

// modelled is a consumer in this process: killed or frozen means that nothing
// is done with it any more.
type modelled struct {
	bench *Bench
	name  string
	r     broker.Receiver
	d     broker.Delivery
	store *worker // applies effects by the bench's stores; nil where there are none
}

func (b *Bench) modelled(ctx context.Context, name string, unfenced bool) (consumer, error) {
	c, err := b.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if unfenced {
		if c, err = b.fenceless(c); err != nil {
			return nil, err
		}
	}
	r, err := b.Receiver(ctx, c)
	if err != nil {
		return nil, err
	}
	b.Note("%s is modelled in the suite's own process: killed and frozen mean that it is abandoned.", name)
	m := &modelled{bench: b, name: name, r: r}
	if len(b.stores) > 0 {
		if m.store, err = b.process(ctx, name+"'s stores", workerSpec{}); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *modelled) receive(ctx context.Context) (string, error) {
	d, err := m.bench.MustReceive(ctx, m.r)
	m.d = d
	return d.ID, err
}

func (m *modelled) effect(context.Context) error {
	m.bench.Effect(m.d.ID, m.name)
	return nil
}

func (m *modelled) ack(ctx context.Context) (broker.Outcome, error) { return m.settle(ctx, broker.Ack) }

func (m *modelled) settle(ctx context.Context, a broker.Action) (broker.Outcome, error) {
	return m.bench.Settle(ctx, m.r, &m.d, a, 0), nil
}

func (m *modelled) kill()   { m.stopped("kill", (*worker).kill) }
func (m *modelled) freeze() { m.stopped("freeze", (*worker).freeze) }
func (m *modelled) thaw()   { m.stopped("thaw", (*worker).thaw) }

// tail keeps the end of what a process printed.
type tail struct{ strings.Builder }

func (t *tail) Write(p []byte) (int, error) {
	if t.Len() < 4096 {
		t.Builder.Write(p)
	}
	return len(p), nil
}
