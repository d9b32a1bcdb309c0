package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance/report"
)

// Disturbance is something that is done to the nodes of a cluster while messages
// go through it.
type Disturbance struct {
	// Name says what it is in a few words: "leader killed".
	Name string
	// Lasts is about how long it takes. The load is paced to last as long.
	Lasts time.Duration
	// Strike does it to the nodes that hold the entity, and undoes it: it returns
	// when the cluster is whole again. tell takes a sentence on each step. It must
	// return soon after ctx has ended.
	Strike func(ctx context.Context, e broker.Entity, tell func(format string, args ...any)) error
	// Elect makes another node the entity's leader. It is called at the end where
	// messages are missing: some brokers hold back until the next election what a
	// consumer had that a node took with it. Nil: what is missing is lost.
	Elect func(ctx context.Context, e broker.Entity) error
}

// SoakOptions are how a soak is run. The zero value is a good start.
type SoakOptions struct {
	// Messages is how many are published. Default 20,000.
	Messages int
	// Body is the size of each, in bytes. Default 256.
	Body int
	// Batch is how many go into a call of Publish and of Receive. Default 25.
	Batch int
	// Publishers and Consumers are how many of each there are, each on a
	// connection of its own. Default 2. A publisher has two calls under way.
	Publishers, Consumers int
	// Limit bounds the whole soak, its end included. Default 2 minutes.
	Limit time.Duration
	// Disturbance is the name of the only one that Soaks runs. Empty: all.
	Disturbance string
	// Progress is told of what happens, if not nil. Calls don't overlap.
	Progress func(target, disturbance, step string)
}

func (o SoakOptions) withDefaults() SoakOptions {
	o.Messages = cmp.Or(o.Messages, 20_000)
	o.Body = cmp.Or(o.Body, 256)
	o.Batch = cmp.Or(o.Batch, 25)
	o.Publishers = cmp.Or(o.Publishers, 2)
	o.Consumers = cmp.Or(o.Consumers, 2)
	o.Limit = cmp.Or(o.Limit, 2*time.Minute)
	return o
}

// Bounds within a soak.
const (
	soakCall    = 3 * time.Second        // of a Publish, a Settle or a Close
	soakOpen    = 10 * time.Second       // of a connection
	soakWait    = 2 * time.Second        // of a Receive
	soakReopen  = 6 * time.Second        // of nothing but failures, after which a handle is opened anew
	soakReady   = 30 * time.Second       // for a cluster to take the entity
	soakPause   = 20 * time.Millisecond  // after a failure; it doubles
	soakLongest = 500 * time.Millisecond // such a pause
	soakCleanup = 15 * time.Second
	soakGrace   = 30 * time.Second // for calls whose context has ended
)

// soak is one run.
type soak struct {
	target *Target
	inst   *Instance
	o      SoakOptions
	log    *soakLog
	entity broker.Entity
	queue  *soakQueue

	witnesses int // last messages so far
}

// Soak publishes many messages, receives and acks them, does what the disturbance
// says in the middle, and checks by [CheckSoak] that nothing was lost and nothing
// came back that must not. Publishers try again under the same ID until they have a
// good receipt; publishers and consumers whose handles fail for long are opened anew.
//
// It returns within the limit, or soon after ctx has ended, whatever the broker
// does, and says then what it could not tell. Calls that go on though their context
// has ended are left behind after half a minute.
func Soak(ctx context.Context, t Target, i *Instance, d Disturbance, o SoakOptions) report.Soak {
	o = o.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, o.Limit, fmt.Errorf("the soak took longer than %v", o.Limit))
	defer cancel()
	s := &soak{target: &t, inst: i, o: o, log: newSoakLog(o.Messages)}
	s.entity = i.entity(fmt.Sprintf("soak%08x", rand.Uint32()))
	if t.WishLease {
		s.entity.Lease = t.Lease
	}
	done := make(chan report.Soak, 1)
	go func() { done <- s.whole(ctx, d) }() // ends with the calls of the adapter
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
	}
	grace := time.NewTimer(soakGrace)
	defer grace.Stop()
	select {
	case r := <-done:
		return r
	case <-grace.C:
		s.log.trouble(fmt.Sprintf("calls had not returned %v after their context had ended (%v)", soakGrace, context.Cause(ctx)))
		return s.judged(d)
	}
}

// whole is the soak from its entity's making to its deletion.
func (s *soak) whole(ctx context.Context, d Disturbance) report.Soak {
	if err := s.ensure(ctx); err != nil {
		return s.report(d, report.Soak{Verdict: report.Failed, Reason: err.Error(), Seconds: s.log.now().Seconds()})
	}
	s.run(ctx, d)
	s.cleanup(ctx)
	return s.judged(d)
}

func (s *soak) judged(d Disturbance) report.Soak {
	return s.report(d, CheckSoak(s.log.end(), s.target.Boundary.At(s.inst.Versions[s.target.Broker])))
}

// report adds what the checker does not know.
func (s *soak) report(d Disturbance, r report.Soak) report.Soak {
	r.Target, r.Broker, r.Disturbance = s.target.Name, s.target.Broker, d.Name
	r.Versions, r.Basis = s.inst.Versions, s.target.basis()
	if s.o.Progress != nil {
		s.o.Progress(r.Target, r.Disturbance, fmt.Sprintf("%s: %s", r.Verdict.Words(), r.Reason))
	}
	return r
}

// tell notes a step with its time, and reports it.
func (s *soak) tell(d Disturbance, format string, args ...any) {
	step := fmt.Sprintf("%.1f s: ", s.log.now().Seconds()) + fmt.Sprintf(format, args...)
	s.log.note(step)
	if s.o.Progress != nil {
		s.o.Progress(s.target.Name, d.Name, step)
	}
}

// ensure makes the entity, as soon as the cluster takes it.
func (s *soak) ensure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, soakReady)
	defer cancel()
	var pause soakBackoff
	for {
		err := s.onConn(ctx, func(ctx context.Context, c broker.Conn) error { return c.Ensure(ctx, s.entity) })
		if err == nil {
			return nil
		}
		if !retryable(err) || !pause.wait(ctx) {
			return fmt.Errorf("ensure %s: %w", s.entity.Topic, err)
		}
	}
}

// onConn does something on a connection of its own.
func (s *soak) onConn(ctx context.Context, do func(context.Context, broker.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, soakOpen)
	defer cancel()
	c, err := s.inst.Open(ctx)
	if err != nil {
		return err
	}
	err = do(ctx, c)
	end, done := context.WithTimeout(context.WithoutCancel(ctx), soakCall)
	defer done()
	return errors.Join(err, c.Close(end))
}

// run publishes, receives and disturbs until all is there or the time is over.
func (s *soak) run(ctx context.Context, d Disturbance) {
	s.queue = newSoakQueue(soakIDs(s.o.Messages), s.o.Body)
	pace := newSoakPace(s.queue.batches(s.o.Batch), d.Lasts)
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	var publishers, consumers, striking sync.WaitGroup
	for n := range s.o.Consumers {
		consumers.Go(func() { s.consume(consuming, n) })
	}
	for n := range s.o.Publishers {
		publishers.Go(func() { s.publish(ctx, fmt.Sprintf("publisher %d", n), s.queue, pace) })
	}
	striking.Go(func() {
		defer pace.open()
		select {
		case <-pace.begun:
		case <-ctx.Done():
			s.log.trouble("the disturbance did not begin: the first messages did not get through")
			return
		}
		before := s.queue.accepted()
		err := d.Strike(ctx, s.entity, func(format string, args ...any) { s.tell(d, format, args...) })
		if err != nil {
			s.log.trouble(fmt.Sprintf("the disturbance failed: %v", err))
			return
		}
		during := s.queue.accepted() - before
		s.tell(d, "the cluster is whole again; %s got a good receipt meanwhile", amount(during, "message", "messages"))
		if s.queue.accepted() == s.o.Messages {
			s.tell(d, "all had been published before that")
		}
	})
	publishers.Wait()
	striking.Wait()
	s.queue.drained(ctx, s.quiet())
	stop()
	consumers.Wait()
	if ctx.Err() != nil {
		s.log.trouble(context.Cause(ctx).Error())
		return
	}
	if s.last(ctx) && !s.queue.complete() && d.Elect != nil {
		s.elect(ctx, d)
	}
}

// elect finds out what of the missing messages comes with a new leader.
func (s *soak) elect(ctx context.Context, d Disturbance) {
	s.tell(d, "%d messages are missing: another leader is elected", s.queue.left())
	s.log.electing()
	if err := d.Elect(ctx, s.entity); err != nil {
		s.log.trouble(fmt.Sprintf("the election failed: %v", err))
		return
	}
	s.last(ctx)
	s.tell(d, "still missing: %s", amount(s.queue.left(), "message", "messages"))
}

// quiet is how long nothing new may come before it is taken for the end: what a
// consumer held that died may be given out again only after its lease or session.
func (s *soak) quiet() time.Duration {
	return 5*time.Second + 2*max(s.target.Lease, s.target.Session)
}

// last lets a new receiver see what is still delivered: a message that is published
// now must come, and what was confirmed must not. It reports whether that message
// came.
func (s *soak) last(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second+2*s.quiet())
	defer cancel()
	s.witnesses++
	id := fmt.Sprint(soakWitness, s.witnesses)
	witness := newSoakQueue([]string{id}, s.o.Body)
	pace := newSoakPace(1, 0)
	pace.open()
	s.publish(ctx, "the last publisher", witness, pace)
	if witness.accepted() == 0 {
		s.log.trouble("the last message did not get through")
		return false
	}
	drained := false
	came := make(chan struct{})
	var receiving sync.WaitGroup
	receiving.Go(func() { s.watch(ctx, id, came) })
	select {
	case <-came:
		drained = true
		s.log.drained()
		// Unsettled deliveries come again after their lease, in any order.
		if rest := s.target.Lease; rest > 0 {
			sleep(ctx, rest+time.Second)
		}
	case <-ctx.Done():
		s.log.trouble("the last message never came")
	}
	cancel()
	receiving.Wait()
	return drained
}

// cleanup deletes the entity. That it fails is worth a note and no more.
func (s *soak) cleanup(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), soakCleanup)
	defer cancel()
	err := s.onConn(ctx, func(ctx context.Context, c broker.Conn) error { return c.Delete(ctx, s.entity) })
	if err != nil {
		s.log.note(fmt.Sprintf("cleanup: %v", err))
	}
}

// retryable reports whether an error may pass by itself.
func retryable(err error) bool {
	for _, lasting := range []error{broker.ErrInvalid, broker.ErrTooLarge, broker.ErrUnsupported, broker.ErrUnauthorized, broker.ErrConflict} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	return true
}

// soakBackoff is a pause that doubles until it is forgotten.
type soakBackoff struct{ next time.Duration }

// wait pauses and reports whether ctx lasted so long.
func (b *soakBackoff) wait(ctx context.Context) bool {
	b.next = min(max(2*b.next, soakPause), soakLongest)
	return sleep(ctx, b.next)
}
