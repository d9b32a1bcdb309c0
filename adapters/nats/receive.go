package nats

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	// maxExpiry bounds a pull that finds no message. It is also how soon a
	// silent stall is noticed, in which the server has lost the pull, or the
	// consumer, and says nothing (nats.go#1972): a pull without any answer by
	// then and expiryMargin is given up, and the next one finds out.
	maxExpiry    = 5 * time.Second
	expiryMargin = time.Second

	// maxExpiryAway is maxExpiry for a consumer that can be on another server
	// than the one we are connected to. There a pull is never taken back, and
	// this is how long it may get messages that nobody waits for.
	maxExpiryAway = 500 * time.Millisecond

	// restGap is how long the rest of a pull is waited for after a message, in
	// addition to two round trips. It runs out only where the server stops
	// within a pull, as at the limit of unsettled deliveries.
	restGap = 100 * time.Millisecond

	// healing is how long a consumer that exists may be without a server that
	// answers for it before Receive returns an error.
	healing = 5 * time.Second
)

// settings are what the server has of the consumer.
type settings struct {
	away          bool // it can be on another server than the one we are connected to
	lease         time.Duration
	batch         int // most that one pull may ask for; 0: no limit
	expiry        time.Duration
	maxDeliveries int    // enforced here
	deadLetter    string // subject
}

// receiver is the driver.Receiver.
type receiver struct {
	c        *conn
	stream   string
	consumer string
	next     string // subject of a pull
	rtt      time.Duration
	settings atomic.Pointer[settings]

	// Of the one caller of Receive, or of Close after it.
	pull    *pull
	minding *minding // not nil: has the pull meanwhile
	pending error    // to be returned by the next Receive
	link    *link    // that the settings were read on
	scratch []byte   // of the request
	timer   *time.Timer

	mu      sync.Mutex
	slabs   []*slab
	epochs  map[*driver.Epoch]*link
	settles sync.WaitGroup // calls of Settle; none enters after shut
	shut    bool           // guarded by mu

	receiving chan struct{} // holds a token while Receive runs
	closing   chan struct{} // Receive ends
	abort     chan struct{} // Settles end
	reapers   driver.Tasks  // that give late messages back
	reaping   context.Context
	giveUp    context.CancelFunc // of the reapers
}

// pull is the subscription to which the messages of pulls come. It serves one
// pull after the other, for each is known to be over before the next begins, and
// is replaced by a new one, on a new subject, where that isn't known.
type pull struct {
	link  *link
	epoch *driver.Epoch
	reply string
	ch    chan *natsgo.Msg
	sub   *natsgo.Subscription

	// Of the pull that is under way. Who has it in hands is Receive or minding.
	want  int           // messages that it can still bring; 0: it is over
	asked time.Time     // the lease of what comes can't have begun earlier
	until time.Time     // the server has ended it by then
	kept  []*natsgo.Msg // came while nobody received
}

func (c *conn) OpenReceiver(ctx context.Context, subscription string, o broker.ReceiverOptions) (driver.Receiver, error) {
	stream, consumer, err := splitSubscription(subscription)
	if err != nil {
		return nil, err
	}
	if o.StartFrom != nil {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "open receiver %s: StartFrom: a durable consumer keeps its own place", subscription)
	}
	r := &receiver{c: c, stream: stream, consumer: consumer, next: c.api + "CONSUMER.MSG.NEXT." + stream + "." + consumer,
		epochs: map[*driver.Epoch]*link{}, receiving: make(chan struct{}, 1), closing: make(chan struct{}), abort: make(chan struct{})}
	r.reaping, r.giveUp = context.WithCancel(context.Background())
	r.timer = time.NewTimer(time.Hour)
	r.timer.Stop()
	r.link = c.link.Load()
	begin := time.Now()
	if err := r.lookUp(ctx); err != nil {
		r.giveUp()
		return nil, err
	}
	r.rtt = time.Since(begin)
	return r, nil
}

func (r *receiver) name() string { return r.stream + "/" + r.consumer }

// lookUp reads the consumer's settings.
func (r *receiver) lookUp(ctx context.Context) error {
	ctx, done := r.c.while(ctx)
	defer done()
	info, err := r.c.lookAtConsumer(ctx, r.stream, r.consumer)
	if err != nil {
		if errors.Is(err, jetstream.ErrNotPullConsumer) {
			return broker.Errorf(broker.ErrUnsupported, err, "subscription %s", r.name())
		}
		return failure(ctx, err, "subscription %s", r.name())
	}
	cfg := info.Config
	if cfg.AckPolicy != jetstream.AckExplicitPolicy {
		return broker.Errorf(broker.ErrUnsupported, nil, "subscription %s: ack policy %s, want explicit", r.name(), cfg.AckPolicy)
	}
	s := &settings{lease: cfg.AckWait, expiry: min(maxExpiry, cfg.AckWait/4)}
	// A server without a cluster is the leader of its own consumers for ever; in a
	// cluster the leader can change without our connection noticing.
	nc := r.c.nc
	if s.away = nc.ConnectedClusterName() != "" || info.Cluster == nil || info.Cluster.Leader != nc.ConnectedServerName(); s.away {
		s.expiry = min(s.expiry, maxExpiryAway)
	}
	// A BackOff list replaces AckWait (NATS-F-22): the shortest counts.
	for _, b := range cfg.BackOff {
		s.lease = min(s.lease, b)
		s.expiry = min(s.expiry, b/4)
	}
	if cfg.MaxAckPending > 0 {
		s.batch = cfg.MaxAckPending
	}
	if cfg.MaxRequestBatch > 0 && (s.batch == 0 || cfg.MaxRequestBatch < s.batch) {
		s.batch = cfg.MaxRequestBatch
	}
	if cfg.MaxRequestExpires > 0 {
		s.expiry = min(s.expiry, cfg.MaxRequestExpires)
	}
	s.deadLetter = cfg.Metadata[metaDeadLetter]
	if n, err := strconv.Atoi(cfg.Metadata[metaMaxDeliveries]); err == nil && s.deadLetter != "" {
		s.maxDeliveries = n
	}
	r.settings.Store(s)
	return nil
}

// Receive pulls once after the other until one brings something.
func (r *receiver) Receive(ctx context.Context, most int, out *driver.Batch) error {
	select {
	case r.receiving <- struct{}{}:
	case <-r.closing: // Close keeps the token
		return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name())
	}
	defer func() { <-r.receiving }()
	r.adopt()
	defer func() { r.mind(out.Len() > 0) }()
	if err := r.pending; err != nil {
		r.pending = nil
		return err
	}
	r.sweep()
	var unanswered time.Time // since when nobody answers for the consumer
	plain := false           // the next pull waits in line for one message
	for {
		p, err := r.ready(ctx, most)
		if err == nil {
			var e ending
			e, err = r.take(ctx, p, most, plain, out)
			plain = e == crowded
			if e != silent {
				unanswered = time.Time{}
			}
		}
		if err == nil && out.Len() > 0 {
			return nil
		}
		switch {
		case err == nil:
		case out.Len() > 0:
			if ctx.Err() == nil {
				r.pending = err
			}
			return nil
		case errors.Is(err, errAgain):
			now := time.Now()
			if unanswered.IsZero() {
				unanswered = now
			}
			if now.Sub(unanswered) > healing {
				kind := broker.ErrUnavailable
				if errors.Is(err, broker.ErrBusy) {
					kind = broker.ErrBusy
				}
				return broker.Errorf(kind, err, "receive from %s", r.name())
			}
			if err := r.pause(ctx, now.Sub(unanswered)); err != nil {
				return err
			}
		default:
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// errAgain is wrapped by what heals by itself.
var errAgain = errors.New("try again")

// pause waits a while that grows with the time spent waiting already.
func (r *receiver) pause(ctx context.Context, already time.Duration) error {
	t := time.NewTimer(min(20*time.Millisecond+already/2, 500*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.closing:
		return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name())
	}
}

// sweep drops the slabs that hold nothing to give back any more.
func (r *receiver) sweep() {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	keep := r.slabs[:0]
	for _, s := range r.slabs {
		if !s.done(now) {
			keep = append(keep, s)
		}
	}
	clear(r.slabs[len(keep):])
	r.slabs = keep
}

// ready returns a subscription on the connection that lives now, with room for
// most messages. After a reconnect, and where nobody answered a pull, it first
// looks up what became of the consumer.
func (r *receiver) ready(ctx context.Context, most int) (*pull, error) {
	l, err := r.c.await(ctx, r.closing)
	if err != nil {
		if errors.Is(err, broker.ErrClosed) {
			return nil, broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name())
		}
		return nil, err
	}
	if r.link != l {
		look, cancel := context.WithTimeout(ctx, healing)
		err := r.lookUp(look)
		cancel()
		switch {
		case err == nil:
			r.link = l
		case errors.Is(err, broker.ErrUnavailable):
			return nil, broker.Errorf(errAgain, err, "look up")
		default:
			return nil, err
		}
	}
	if p := r.pull; p != nil {
		if p.link == l && (p.open() || cap(p.ch) >= most+spare) {
			return p, nil
		}
		r.drop(p)
	}
	return r.subscribe(l, most)
}

// spare is the room for statuses beside the messages that a pull asked for.
const spare = 16

func (r *receiver) subscribe(l *link, most int) (*pull, error) {
	room := 64
	for room < most+spare {
		room *= 2
	}
	p := &pull{link: l, reply: r.c.nc.NewInbox(), ch: make(chan *natsgo.Msg, room)}
	sub, err := r.c.nc.ChanSubscribe(p.reply, p.ch)
	if err != nil {
		return nil, broker.Errorf(errAgain, err, "subscribe")
	}
	p.sub = sub
	p.epoch = l.epoch()
	r.mu.Lock()
	r.epochs[p.epoch] = l
	for e := range r.epochs { // those that the connection has ended
		if e.Ended() && e != p.epoch {
			delete(r.epochs, e)
		}
	}
	r.mu.Unlock()
	r.pull = p
	return p, nil
}

// open reports whether a pull is under way, or what it brought is still here.
func (p *pull) open() bool { return p.want > 0 || len(p.kept) > 0 }

// drop ends a subscription on which no pull is open.
func (r *receiver) drop(p *pull) {
	_ = p.sub.Unsubscribe() // fails where the client is closed, and nothing is left to end
	if r.pull == p {
		r.pull = nil
	}
}

// revoke ends a subscription on which a pull may be open. The server drops a
// pull whose reply subject nobody listens to; what it had sent before is given
// back. It costs each of these messages an attempt. Where the consumer is on
// another server, what that one sends before it learns of the end is lost until
// its lease ends (NATS-F-48): there it is for pulls that seem to be lost alone.
func (r *receiver) revoke(p *pull) {
	if r.pull == p {
		r.pull = nil
	}
	p.want = 0
	if p.sub.Drain() != nil || !p.link.alive() {
		return // the connection is gone, and what was on it comes back after its lease
	}
	// It ends with the flush, at the latest after reapTime; Close waits for it.
	r.reapers.Do(func() {
		ctx, cancel := context.WithTimeout(r.reaping, reapTime)
		defer cancel()
		// The answer to the ping comes behind all that was sent before UNSUB.
		// Without it there is no telling, and what is here is given back.
		_ = r.c.nc.FlushWithContext(ctx)
		for {
			select {
			case m := <-p.ch:
				if _, ok := parseAckSubject(m.Reply); ok {
					r.putBack(m)
				}
			default:
				return
			}
		}
	})
}

// putBack gives a delivery back without waiting for an answer: lost, it comes back
// after its lease instead.
func (r *receiver) putBack(ms ...*natsgo.Msg) {
	for _, m := range ms {
		if r.c.sendable() {
			_ = r.c.nc.Publish(m.Reply, nakBody)
		}
	}
}

// reapTime bounds how long messages may come after their pull was revoked.
const reapTime = 2 * time.Second

func (r *receiver) As(target any) bool { return r.c.As(target) }

// AsDelivery sets target to the *nats.Msg of a delivery.
func (r *receiver) AsDelivery(t *driver.Token, target any) bool {
	h, ok := t.Ref.(*held)
	if p, want := target.(**natsgo.Msg); ok && want {
		*p = h.msg
		return true
	}
	return false
}

// splitSubscription reads "STREAM/consumer".
func splitSubscription(s string) (stream, consumer string, err error) {
	stream, consumer, ok := strings.Cut(s, "/")
	if !ok || !validName(stream) || !validName(consumer) {
		return "", "", broker.Errorf(broker.ErrInvalid, nil, "subscription %q: want STREAM/consumer, neither with spaces, '.', '*', '>', '/' or '\\'", s)
	}
	return stream, consumer, nil
}
