package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/broker/driver"
	"github.com/onceline/onceline/conformance/report"
)

// Bench is where a probe works: one entity of its own on one instance of the
// target, connections, faults and time, and the history of all that is done
// through it. Its methods may be called from several goroutines.
type Bench struct {
	Target   *Target
	Instance *Instance
	Entity   broker.Entity // the probe's own; Ensure creates it
	name     string        // what Entity is made from
	Rand     *rand.Rand

	history  *History
	mutant   *Mutant       // what breaks the adapter; nil for nothing
	commits  *sync.RWMutex // held for writing while a fault may strike any commit
	meeting  *meeting      // who restarts or kills the broker with this probe; nil for nobody
	mu       sync.Mutex
	names    map[any]string // of publishers and receivers, in the history
	conns    []broker.Conn
	workers  []*worker
	stores   []benchStore
	others   []*Instance // brokers that the probe has started beside its own
	mends    []func() error
	ensured  []broker.Entity
	findings map[boundary.Claim]answer
	notes    []string
	ids      int
	took     time.Duration
}

// answer is what a probe found out about one claim.
type answer struct {
	observed boundary.Answer
	verdict  report.Verdict // set for NotApplicable and NotVerifiable
	reason   string
}

// Answer records the observed answer to a claim, with a sentence that says what
// was seen.
func (b *Bench) Answer(id boundary.Claim, a boundary.Answer, format string, args ...any) {
	b.record(id, answer{observed: a, reason: fmt.Sprintf(format, args...)})
}

// NotApplicable records that the target lacks what the claim asks about.
func (b *Bench) NotApplicable(id boundary.Claim, format string, args ...any) {
	b.record(id, answer{verdict: report.NotApplicable, reason: fmt.Sprintf(format, args...)})
}

// NotVerifiable records that the target can't show it either way.
func (b *Bench) NotVerifiable(id boundary.Claim, format string, args ...any) {
	b.record(id, answer{verdict: report.NotVerifiable, reason: fmt.Sprintf(format, args...)})
}

func (b *Bench) record(id boundary.Claim, a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.findings[id] = a
	b.notes = append(b.notes, a.reason)
}

// Note adds a sentence to the evidence.
func (b *Bench) Note(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notes = append(b.notes, fmt.Sprintf(format, args...))
}

// ID returns a new dedup ID.
func (b *Bench) ID() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ids++
	return fmt.Sprintf("m%d", b.ids)
}

// Message returns a new message with an ID, the target's key and a small body.
func (b *Bench) Message() broker.Message {
	id := b.ID()
	return broker.Message{ID: id, Key: b.Target.Key, Body: []byte("body of " + id)}
}

// Messages returns n new messages.
func (b *Bench) Messages(n int) []broker.Message {
	ms := make([]broker.Message, n)
	for i := range ms {
		ms[i] = b.Message()
	}
	return ms
}

// Conn opens a new connection; the bench closes it after the probe.
func (b *Bench) Conn(ctx context.Context) (broker.Conn, error) {
	c, err := b.Instance.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open a connection: %w", err)
	}
	c = b.mutant.wrap(c)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns = append(b.conns, c)
	return c, nil
}

// Ensure creates the probe's entity on a new connection, which it returns.
// change, if not nil, adds wishes.
func (b *Bench) Ensure(ctx context.Context, change func(*broker.Entity)) (broker.Conn, error) {
	c, err := b.Conn(ctx)
	if err != nil {
		return nil, err
	}
	e := b.Entity
	if b.Target.WishLease {
		e.Lease = b.Target.Lease
	}
	if change != nil {
		change(&e)
	}
	if err := c.Ensure(ctx, e); err != nil {
		return nil, fmt.Errorf("ensure %s: %w", e.Topic, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ensured = append(b.ensured, e)
	return c, nil
}

// Publisher opens a publisher for the probe's topic on c.
func (b *Bench) Publisher(ctx context.Context, c broker.Conn) (broker.Publisher, error) {
	return c.OpenPublisher(ctx, b.Entity.Topic)
}

// Receiver opens a receiver for the probe's subscription on c.
func (b *Bench) Receiver(ctx context.Context, c broker.Conn) (broker.Receiver, error) {
	return c.OpenReceiver(ctx, b.Entity.Subscription)
}

// close mends what the probe left broken, removes its entities and closes its
// connections. A failure is
// part of the evidence, not of the answer.
func (b *Bench) close() {
	b.mu.Lock()
	workers, conns, ensured, others, mends := b.workers, b.conns, b.ensured, b.others, b.mends
	b.mu.Unlock()
	for _, mend := range mends {
		if err := mend(); err != nil {
			b.Note("cleanup: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	for _, w := range workers {
		w.stop()
	}
	for _, c := range conns {
		if err := c.Close(ctx); err != nil {
			b.Note("cleanup: close a connection: %v", err)
		}
	}
	b.closeStores()
	for _, other := range others {
		if err := other.close(ctx); err != nil {
			b.Note("cleanup: %v", err)
		}
	}
	if err := b.cleanup(ctx, ensured); err != nil {
		b.Note("cleanup: %v", err)
	}
}

// cleanup deletes the entities over a connection of its own, after all others
// are closed: some brokers delete nothing that is in use.
func (b *Bench) cleanup(ctx context.Context, ensured []broker.Entity) error {
	if len(ensured) == 0 {
		return nil
	}
	c, err := b.Instance.Open(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, 0, len(ensured)+1)
	for _, e := range ensured {
		errs = append(errs, c.Delete(ctx, e))
	}
	return errors.Join(append(errs, c.Close(ctx))...)
}

// fenceless is a view of c with the toolkit's fence off.
func (b *Bench) fenceless(c broker.Conn) (broker.Conn, error) {
	v, err := driver.Unfenced(c)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns = append(b.conns, v)
	return v, nil
}
