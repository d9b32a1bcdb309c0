package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance/report"
)

// piped is the bench of a probe about pipelines: one is described, with a store of its
// own, and where it reads and writes is there.
type piped struct {
	*Bench
	store Store
	p     Pipeline
	input broker.Publisher // to what it reads
	out   ends             // what it writes
	sent  []broker.Message // the input so far
	seen  map[string][]string
}

// The times of a pipeline whose own are of no interest: it isn't to be late for anything
// on a busy machine, and a broker has to allow it.
const (
	pipelineInterval = 5 * time.Minute
	pipelineSteps    = 20 * time.Second
	pipelineAway     = time.Minute
)

// pipelineDone is how long the last process of a pipeline may take for all that is left.
const pipelineDone = 40 * time.Second

// pipe describes a pipeline to the probe's broker. It reads that too, or another one. A
// reason why there is none leaves the claims unverifiable.
func (b *Bench) pipe(ctx context.Context, crossing bool, claims ...boundary.Claim) (*piped, error) {
	p := &piped{Bench: b, seen: map[string][]string{}}
	why := "the target has no store for checkpoints"
	for _, s := range b.Target.Stores {
		if s.Kind == Checkpoints {
			p.store, why = s, ""
			break
		}
	}
	if why == "" && b.Instance.URL != "" && !workersReady.Load() {
		why = "pipelines can't be killed here: the program doesn't call RunIfWorker"
	}
	if why != "" {
		b.unverifiable(why, claims...)
		return nil, nil
	}
	made := benchStore{Store: p.store}
	var err error
	if made.address, made.remove, err = p.store.Make(ctx); err != nil {
		return nil, fmt.Errorf("make the store %s on %s: %w", p.store.Kind, p.store.Name, err)
	}
	b.mu.Lock()
	b.stores = append(b.stores, made)
	b.mu.Unlock()
	written := b.Instance.entity(b.name + "o")
	c, err := b.Ensure(ctx, func(w *broker.Entity) { w.Topic, w.Subscription = written.Topic, written.Subscription })
	if err != nil {
		return nil, err
	}
	p.out.conn = c
	if p.out.pub, err = c.OpenPublisher(ctx, written.Topic); err != nil {
		return nil, err
	}
	if p.out.rcv, err = c.OpenReceiver(ctx, written.Subscription); err != nil {
		return nil, err
	}
	p.p = Pipeline{Address: made.address, Sink: Transacted, To: b.end(), Topic: written.Topic,
		Interval: pipelineInterval, Steps: pipelineSteps, Away: pipelineAway}
	if crossing {
		return p, p.beside(ctx)
	}
	c, err = b.Ensure(ctx, nil)
	if err != nil {
		return nil, err
	}
	p.input, err = b.Publisher(ctx, c)
	p.p.From, p.p.Source = b.end(), b.Entity.Subscription
	return p, err
}

// end is the probe's broker.
func (b *Bench) end() End { return End{URL: b.Instance.URL, Open: b.Instance.Open} }

// beside makes the pipeline read another broker, which the bench stops after the probe.
func (p *piped) beside(ctx context.Context) error {
	other, err := p.store.Pipelines.Beside(ctx, p.Target.Broker)
	if err != nil {
		return fmt.Errorf("start another broker: %w", err)
	}
	p.mu.Lock()
	p.others = append(p.others, other)
	p.mu.Unlock()
	e := other.entity(p.name)
	c, err := other.Open(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	if err := c.Ensure(ctx, e); err != nil {
		return fmt.Errorf("ensure %s on the other broker: %w", e.Topic, err)
	}
	p.input, err = c.OpenPublisher(ctx, e.Topic)
	p.p.From, p.p.Source = End{URL: other.URL, Open: other.Open}, e.Subscription
	p.Note("the pipeline reads another broker, %v", other.Versions)
	return err
}

// feed publishes n messages to what the pipeline reads.
func (p *piped) feed(ctx context.Context, n int) ([]broker.Message, error) {
	ms := p.Messages(n)
	for i := range ms {
		ms[i].Key = "k" // some keep the order of keys alone
	}
	_, err := p.MustPublish(ctx, p.input, ms...)
	p.sent = append(p.sent, ms...)
	return ms, err
}

// running is a pipeline that runs in this process.
type running struct {
	probe *piped
	stop  context.CancelFunc
	ended chan struct{}
	err   error // of Run, once ended
	logs  *loud

	mu      sync.Mutex
	metrics map[string]float64
}

// start runs the pipeline in this process; step, which may be nil, is told of its steps.
func (p *piped) start(ctx context.Context, step func(ctx context.Context, at PipelineStep) error) *running {
	ctx, cancel := context.WithCancel(ctx)
	r := &running{probe: p, stop: cancel, ended: make(chan struct{}), logs: &loud{}, metrics: map[string]float64{}}
	run := p.p
	run.Log = slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelError}))
	run.Metric = func(name string, v float64) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.metrics[name] = v
	}
	run.Step = func(ctx context.Context, at PipelineStep) error {
		if at != PipelineRead {
			p.history.Add(report.Store, Checkpoints, "", "the pipeline is at the step %q", at)
		}
		if step == nil {
			return nil
		}
		return step(ctx, at)
	}
	p.history.Add(report.Consumer, "start", "", "the pipeline in this process")
	go func() {
		defer close(r.ended)
		r.err = p.store.Pipelines.Run(ctx, run)
	}()
	return r
}

// end stops it and returns what it ended by.
func (r *running) end() error {
	r.stop()
	<-r.ended
	return r.err
}

func (r *running) metric(name string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.metrics[name]
}

// loud keeps what was logged as an error.
type loud struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *loud) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *loud) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// trial publishes a first message and finds out whether the pipeline begins at all: what
// its brokers can't do it finds out before it reads anything, and is refused for. One that
// begins has read the message, and takes its checkpoint as it stops.
func (p *piped) trial(ctx context.Context) (refused error, err error) {
	if _, err := p.feed(ctx, 1); err != nil {
		return nil, err
	}
	var once sync.Once
	read := make(chan struct{})
	r := p.start(ctx, func(_ context.Context, at PipelineStep) error {
		if at == PipelineRead {
			once.Do(func() { close(read) })
		}
		return nil
	})
	defer func() { err = errors.Join(err, p.ended(r)) }()
	select {
	case <-read:
		return nil, nil
	case <-r.ended:
		if errors.Is(r.err, broker.ErrUnsupported) || errors.Is(r.err, broker.ErrInvalid) {
			p.Note("the pipeline doesn't begin: %v", r.err)
			return r.err, nil
		}
		return nil, fmt.Errorf("the pipeline ended before it read anything: %w", r.err)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ended stops r; a refusal is no error of the probe.
func (p *piped) ended(r *running) error {
	err := r.end()
	if errors.Is(err, broker.ErrUnsupported) || errors.Is(err, broker.ErrInvalid) || errors.Is(err, ErrOutputLost) {
		return nil
	}
	return err
}

// unsupported answers claims by the refusal.
func (p *piped) unsupported(refused error, ids ...boundary.Claim) {
	for _, id := range ids {
		p.Answer(id, boundary.Unsupported, "the pipeline is refused before it reads anything: %v", refused)
	}
}

// errCut is what a step fails by where a pipeline can't be killed.
var errCut = errors.New("cut off by the probe")

// cutAt is killAt where the broker can't be reached from another process: the step fails
// and the pipeline's context ends, so that what comes behind it isn't done.
func (p *piped) cutAt(ctx context.Context, at PipelineStep, skip int) error {
	p.Note("the pipeline is in the suite's own process: killed means that the step is its last.")
	held, cut := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r := p.start(ctx, func(_ context.Context, s PipelineStep) error {
		if s != at {
			return nil
		}
		if skip--; skip >= 0 {
			return nil
		}
		once.Do(func() { close(held) })
		<-cut
		return errCut
	})
	end := func() {
		r.stop()
		close(cut)
		<-r.ended
	}
	select {
	case <-held:
	case <-r.ended:
		return fmt.Errorf("the pipeline ended before it was at %q: %w", at, r.err)
	case <-ctx.Done():
		end()
		return context.Cause(ctx)
	}
	p.history.Add(report.Consumer, "kill", "", "the pipeline, modelled, at the step %q", at)
	end() // stopped before it knows that the step failed, so that it doesn't begin anew
	return nil
}

// collect reads the output until all that was sent has come, and nothing more does. That
// of the last message shows that the pipeline is done with all before it: what is missing
// then is waited for no longer than any message is. Until then it is no answer that
// something is missing.
func (p *piped) collect(ctx context.Context, r *running) error {
	last := p.sent[len(p.sent)-1].ID
	for deadline := time.Now().Add(pipelineDone); len(p.seen[last]) == 0; {
		if _, err := p.take(ctx, p.Target.patience()/4); err != nil {
			return err
		}
		select {
		case <-r.ended:
			return fmt.Errorf("the pipeline ended before the output of %q came: %w", last, r.err)
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the output of %q, which is the last, didn't come for %s", last, pipelineDone)
		}
	}
	for deadline := time.Now().Add(2 * p.Target.patience()); len(p.missing()) > 0 && time.Now().Before(deadline) && ctx.Err() == nil; {
		if _, err := p.take(ctx, time.Until(deadline)); err != nil {
			return err
		}
	}
	return p.drain(ctx, p.out.pub, p.out.rcv, p.note, func() bool { return true })
}

// take reads what output there is, and returns the IDs.
func (p *piped) take(ctx context.Context, within time.Duration) (ids []string, err error) {
	ds, err := p.Receive(ctx, p.out.rcv, 64, within)
	if err != nil || len(ds) == 0 {
		return nil, err
	}
	for i := range ds {
		p.note(&ds[i])
		ids = append(ids, ds[i].ID)
	}
	return ids, p.mustAckAll(ctx, p.out.rcv, ds)
}

// missing are the messages whose output hasn't come.
func (p *piped) missing() (ids []string) {
	for _, m := range p.sent {
		if len(p.seen[m.ID]) == 0 {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

func (p *piped) note(d *broker.Delivery) { p.seen[d.ID] = append(p.seen[d.ID], string(d.Body)) }

// multiplicity is how often outputs are there: the rarest, or else the most frequent. One
// with a wrong number shows that the state counted a message never or more than once.
func (p *piped) multiplicity() (boundary.Answer, string) {
	var lost, doubled, short, over []string
	for i, m := range p.sent {
		numbers := p.seen[m.ID]
		switch len(numbers) {
		case 0:
			lost = append(lost, m.ID)
		case 1:
		default:
			doubled = append(doubled, m.ID)
		}
		for _, number := range numbers {
			if n, err := strconv.Atoi(number); err != nil || n < i+1 {
				short = append(short, m.ID+" as number "+number)
			} else if n > i+1 {
				over = append(over, m.ID+" as number "+number)
			}
		}
	}
	all := amount(len(p.sent), "message", "messages")
	switch {
	case len(lost) > 0:
		return boundary.Lost, fmt.Sprintf("of %s, no output is there of %d: %s", all, len(lost), few(lost))
	case len(short) > 0:
		return boundary.Lost, fmt.Sprintf("of %s, %d are counted too low: the state lost some before them: %s", all, len(short), few(short))
	case len(doubled) > 0:
		return boundary.Twice, fmt.Sprintf("of %s, the output of %d is there more than once: %s", all, len(doubled), few(doubled))
	case len(over) > 0:
		return boundary.Twice, fmt.Sprintf("of %s, %d are counted too high: the state has some twice: %s", all, len(over), few(over))
	}
	return boundary.Once, fmt.Sprintf("each of %s is counted once, and its output is there once, with its number", all)
}

// few is the first of a list.
func few(of []string) string {
	const most = 3
	if len(of) > most {
		return fmt.Sprintf("%q and more", of[:most])
	}
	return fmt.Sprintf("%q", of)
}
