package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/onceline/onceline/adapters/sqs"
	"github.com/onceline/onceline/bridge"
	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/cmd/onceline/targets"
	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/dedup"
)

// spans are the parts of a bridge that were opened, and how they are closed.
type spans struct {
	rcv     broker.Receiver
	far     broker.Publisher // of the far side's broker; nil: there is none
	farConn broker.Conn
	records dedup.RelayRecords // the box, where the relay sends in transactions
	box     *outbox            // nil: there is none
	closing []func()           // from the last one
	said    *lineWriter
}

// later closes a part at the end.
func (s *spans) later(what string, end func(context.Context) error) {
	s.closing = append(s.closing, func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeBound)
		defer cancel()
		if err := end(ctx); err != nil {
			s.said.printf("onceline: close %s: %v", what, err)
		}
	})
}

func (s *spans) close() {
	for i := len(s.closing) - 1; i >= 0; i-- {
		s.closing[i]()
	}
}

func (f *bridgeFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if err := f.verify(); err != nil {
		return err
	}
	said := &lineWriter{to: stderr}
	s, err := f.open(ctx, said)
	defer s.close()
	if err != nil {
		return err
	}
	promise, err := f.judge(ctx, s, said)
	if err != nil || f.check {
		return err
	}
	m := &moving{f: f, spans: s, numbers: &lineWriter{to: stdout}}
	return m.run(ctx, promise.Together)
}

// open opens both sides and the database.
func (f *bridgeFlags) open(ctx context.Context, said *lineWriter) (*spans, error) {
	s := &spans{said: said}
	side := func(what, url string, e broker.Entity) (broker.Conn, error) {
		c, err := broker.Open(ctx, url)
		if err != nil {
			return nil, failure(fmt.Errorf("%s: %w", what, err))
		}
		s.later(what, c.Close)
		if f.ensure && !f.check {
			if err := c.Ensure(ctx, e); err != nil {
				return nil, failure(fmt.Errorf("%s: %w", what, err))
			}
		}
		return c, nil
	}
	if f.to != "" {
		c, err := side("--to", f.to, f.target())
		if err != nil {
			return s, err
		}
		if s.far, err = c.OpenPublisher(ctx, f.topic); err != nil {
			return s, failure(fmt.Errorf("--to: %w", err))
		}
		s.farConn = c
	}
	if f.inbox != "" {
		box, err := openDatabase(ctx, "--inbox", f.inbox, f.schema, f.migrate, f.lanes+2, f.keep)
		if err != nil {
			return s, err
		}
		s.box = box
		s.later("--inbox", func(context.Context) error { return box.close() })
		if box.note != "" {
			said.printf("onceline: %s", box.note)
		}
		if err := box.VerifyOutbox(ctx); err != nil {
			if errors.Is(err, dedup.ErrVerify) {
				return s, err
			}
			return s, runError{err}
		}
	}
	c, err := side("--from", f.from, f.source())
	if err != nil {
		return s, err
	}
	if s.rcv, err = c.OpenReceiver(ctx, f.subscription); err != nil {
		return s, failure(fmt.Errorf("--from: %w", err))
	}
	s.later("--from", s.rcv.Close) // commits what is settled, and gives the rest back
	return s, nil
}

// judge says what the pair gives, and refuses one that isn't asked for.
func (f *bridgeFlags) judge(ctx context.Context, s *spans, said *lineWriter) (bridge.Promise, error) {
	p := bridge.Pairing{Inbox: s.box != nil, Stays: s.far == nil}
	var err error
	if p.From, err = declared(f.from, s.rcv); err != nil {
		return bridge.Promise{}, err
	}
	if s.far != nil {
		if p.To, err = declared(f.to, s.far); err != nil {
			return bridge.Promise{}, err
		}
		if p.Window = f.window; p.Window == 0 {
			p.Window = s.far.Limits().Window
		}
		if s.box != nil && !f.plain && !bridge.Remembers(p.To, p.Window) {
			if s.records, err = f.transactions(ctx, s); err != nil {
				return bridge.Promise{}, err
			}
			p.Transactions = s.records != nil
		}
	}
	promise := bridge.Judge(p)
	to := p.To.Broker
	if p.Stays {
		to = "the outbox of " + f.topic
	}
	warning := ""
	if promise.Grade == bridge.Copies {
		warning = "WARNING: there will be copies: "
	}
	said.printf("%s%s to %s: %s. %s", warning, p.From.Broker, to, promise.Grade, strings.Join(append(promise.Why, promise.Notes...), " "))
	if promise.Grade == bridge.Copies && !f.copies && !f.check {
		cure := ""
		if bridge.Transacts(p.To) && s.box == nil {
			cure = "--inbox makes none, and "
		}
		return promise, fmt.Errorf("bridge: the far side may get copies of a message: %s--copies says that the consumers behind it have an inbox", cure)
	}
	return promise, nil
}

// transactions returns the database as what a relay needs that sends in transactions, nil
// if it or the far side can't. It opens an ID of its own for that, which disturbs no bridge.
func (f *bridgeFlags) transactions(ctx context.Context, s *spans) (dedup.RelayRecords, error) {
	records, ok := s.box.OutboxStore.(dedup.RelayRecords)
	if !ok {
		return nil, nil
	}
	if err := records.VerifyRelays(ctx); err != nil {
		return nil, failure(fmt.Errorf("--inbox: %w (--migrate makes what is missing; --no-transactions does without)", err))
	}
	x, err := broker.OpenTransactor(ctx, s.farConn, f.transactor+" (check)")
	switch {
	case errors.Is(err, broker.ErrUnsupported):
		return nil, nil
	case err != nil:
		return nil, failure(fmt.Errorf("--to: %w (--no-transactions does without)", err))
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
	defer cancel()
	if err := x.Close(end); err != nil {
		return nil, failure(fmt.Errorf("--to: %w", err))
	}
	if !dedup.Transactional(x.Scope()) {
		return nil, nil
	}
	return records, nil
}

// declared is the boundary that holds for a URL, and for what was opened by it.
func declared(url string, handle interface{ As(any) bool }) (boundary.Boundary, error) {
	var q *sqs.Queue
	if handle.As(&q) {
		return q.Boundary(), nil
	}
	if strings.HasPrefix(url, "mem://") {
		return targets.Memory().Boundary, nil
	}
	t, err := targets.ByURL(url)
	return t.Boundary, err
}

// moving is a bridge at work: the engine and, with a database and a far side, a relay.
type moving struct {
	f *bridgeFlags
	*spans
	numbers *lineWriter

	engine *bridge.Bridge
	relay  *dedup.Relay
}

func (m *moving) run(ctx context.Context, together bool) error {
	hook := func(err error) { m.said.printf("onceline: %v", err) }
	to := m.far
	if m.box != nil {
		wake := func() {}
		if m.far != nil {
			o := dedup.RelayOptions{Batch: m.f.batch, Window: m.f.window, PublishTimeout: m.f.timeout, StopTimeout: m.f.within, ErrorHook: hook}
			if m.records != nil {
				m.relay = dedup.NewTransactionalRelay(m.records, m.f.topic, m.farConn, m.f.transactor, o)
				m.later("the relay", m.relay.Close)
			} else {
				m.relay = dedup.NewRelay(m.box, m.f.topic, m.far, o)
			}
			wake = m.relay.Wake
		}
		pub, end := m.box.through(m.f.name, m.f.topic, wake)
		to = pub
		m.later("the outbox", end)
	}
	o := m.f.options(together, hook)
	if m.box != nil {
		o.Window = 0 // the relay guards it
	}
	m.engine = bridge.New(m.rcv, to, o)
	beside, stop := context.WithCancel(ctx)
	defer stop()
	var others sync.WaitGroup
	if m.f.every > 0 {
		others.Go(func() { m.print(beside) })
	}
	if m.box != nil {
		others.Go(func() { m.expire(beside) })
	}
	relaying := make(chan error, 1)
	relayCtx, stopRelay := context.WithCancel(ctx)
	defer stopRelay()
	engineCtx, stopEngine := context.WithCancelCause(ctx)
	defer stopEngine(nil)
	if m.relay != nil {
		go func() {
			err := m.relay.Run(relayCtx)
			if err != nil {
				stopEngine(err)
			}
			relaying <- err
		}()
	}
	err := m.engine.Run(engineCtx)
	stopRelay()
	if m.relay != nil {
		err = errors.Join(err, <-relaying)
	}
	if err == nil && m.relay != nil && ctx.Err() == nil { // drained, or counted: the rest of the outbox
		err = m.empty(ctx)
	}
	stop()
	others.Wait()
	end, done := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
	defer done()
	backlog, tellErr := m.tell(end)
	return m.verdict(ctx, err, backlog, tellErr)
}

// verdict is how the command ends.
func (m *moving) verdict(ctx context.Context, err error, left dedup.OutboxBacklog, tellErr error) error {
	var stopped *bridge.StopError
	switch {
	case errors.As(err, &stopped):
		m.said.printf("onceline: stopped: %v", err)
		return exitCode(report.ExitDifference)
	case err != nil && errors.Is(err, dedup.ErrVerify):
		return err
	case err != nil:
		return runError{err}
	case tellErr != nil:
		return runError{tellErr}
	case m.engine.Stats().DeadLettered > 0, left.Held+left.Parked > 0:
		return exitCode(report.ExitDifference)
	case m.relay != nil && ctx.Err() == nil && left.Waiting > 0:
		return exitCode(report.ExitDifference)
	}
	return nil
}

// empty sends what is left in the outbox, as far as it can be sent.
func (m *moving) empty(ctx context.Context) error {
	began := time.Now()
	for {
		sent, err := m.relay.Drain(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, dedup.ErrVerify) || errors.Is(err, broker.ErrClosed) {
			return err
		}
		left, backlogErr := m.box.OutboxBacklog(ctx, m.f.topic)
		if err == nil && backlogErr == nil && left.Waiting == 0 {
			return nil
		}
		if sent > 0 {
			began = time.Now()
		}
		if err = errors.Join(err, backlogErr); err != nil {
			m.said.printf("onceline: %v", err)
		}
		if m.f.patience > 0 && time.Since(began) > m.f.patience {
			return fmt.Errorf("%w for %v: %d in the outbox: %w", bridge.ErrStuck, m.f.patience, left.Waiting, err)
		}
		select { // rows that were tried wait; another relay may have the rest
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// expire forgets marks that are older than they are kept, once an hour.
func (m *moving) expire(ctx context.Context) {
	ticker := time.NewTicker(time.Hour)
	defer ticker.Stop()
	for {
		if err := m.box.expire(ctx); err != nil && ctx.Err() == nil {
			m.said.printf("onceline: %v", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (m *moving) print(ctx context.Context) {
	ticker := time.NewTicker(m.f.every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_, _ = m.tell(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// tell prints the numbers.
func (m *moving) tell(ctx context.Context) (b dedup.OutboxBacklog, err error) {
	s := m.engine.Stats()
	line := fmt.Sprintf("%v; in hand: %d", s, s.InHand)
	if m.relay != nil {
		line += "; relay: " + relayed(m.relay.Stats())
	}
	if m.box != nil {
		if b, err = m.box.OutboxBacklog(ctx, m.f.topic); err != nil {
			line += fmt.Sprintf("; backlog unknown: %v", err)
		} else {
			line += fmt.Sprintf("; backlog: %v", b)
		}
	}
	m.numbers.printf("%s", line)
	if failed := m.numbers.failed(); failed != nil {
		err = failed
	}
	return b, err
}
