package kafka

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// shareReceiver is one member of a share group, for one topic.
//
// It speaks the share protocol itself, over franz-go's connections. franz-go's
// own share consumer fixes the number of records per fetch when the client is
// made, accepts with each poll whatever is unsettled, and reports the broker's
// verdict per partition to a callback that doesn't know who asked (KAF-F-54).
// Here a fetch asks for what the caller asked for, nothing is accepted that
// wasn't acked, and each Settle gets the answer to its own records.
type shareReceiver struct {
	conn   *conn
	topic  string
	id     [16]byte // of the topic
	group  string
	name   string
	wishes wishes
	member string
	cl     *kgo.Client
	life   context.Context // of everything the receiver does; ended by stop
	stop   context.CancelFunc
	tasks  driver.Tasks // heartbeat, fetch, acks

	mu          sync.Mutex
	coordinator int32              // of the group; noBroker: must be asked for
	epoch       int32              // of the membership; 0: not joined
	assigned    map[int32]struct{} // partitions
	leaders     map[int32]int32    // partition → broker
	stale       bool               // leaders must be asked for
	sessions    map[int32]*shareSession
	turn        int  // which session is asked first
	want        int  // what a waiting Receive asks for; 0: none waits
	fetching    bool // a fetch is under way
	buffered    []*acquired
	fetchErr    error
	heldUntil   time.Time // the last lease that was handed out
	renews      bool      // the broker knows KIP-1222
	limit       int       // at that many deliveries the broker drops a message
	closing     bool
	wake        chan struct{} // one token: Receive should look
	moved       chan struct{} // one token: assignment or leaders changed
}

// acquired is one record that the broker leased to this member.
type acquired struct {
	rec     *kgo.Record
	life    *shareLife
	count   int // how often the broker delivered it
	lease   time.Time
	answer  broker.State // to a terminal settle, once it came
	refused error        // with answer LeaseLost
	sent    bool         // a terminal settle left for the broker
}

// shareLife is a share session from its begin to its loss.
type shareLife struct {
	epoch   driver.Epoch
	session *shareSession
}

const (
	// maxPark bounds how long a fetch waits at the broker: what it acquires
	// after its caller is gone must be given back within a second.
	maxPark = 500 * time.Millisecond
	// busyPark is the bound while somebody holds messages, for an ack has to
	// wait until the fetch returns: a session's requests go one after another.
	busyPark = 20 * time.Millisecond
	// shortestLock is the lowest bound of the lease (KAF-F-41), taken where a
	// broker doesn't say it.
	shortestLock = 15 * time.Second
)

func (c *conn) newShare(ctx context.Context, t topicInfo, group string, w wishes) (*shareReceiver, error) {
	if err := c.knowsShares(ctx); err != nil {
		return nil, err
	}
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return nil, broker.Errorf(broker.ErrUnavailable, err, "open receiver %s/%s: no randomness", t.name, group)
	}
	r := &shareReceiver{
		conn: c, topic: t.name, id: t.id, group: group, name: t.name + "/" + group, wishes: w,
		member:      base64.RawURLEncoding.EncodeToString(raw[:]),
		coordinator: noBroker,
		assigned:    map[int32]struct{}{},
		leaders:     t.leaders,
		sessions:    map[int32]*shareSession{},
		renews:      true,
		limit:       c.countLimit(ctx, group),
		wake:        make(chan struct{}, 1),
		moved:       make(chan struct{}, 1),
	}
	r.life, r.stop = context.WithCancel(context.Background())
	cl, err := kgo.NewClient(c.client(
		kgo.WithContext(r.life),
		// The broker gives back what a member holds when its connection closes
		// (KAF-F-50), so an idle one stays.
		kgo.ConnIdleTimeout(9*time.Minute),
	)...)
	if err != nil {
		r.stop()
		return nil, broker.Errorf(broker.ErrInvalid, err, "open receiver %s", r.name)
	}
	r.cl = cl
	r.tasks.Go(r.heartbeats)
	return r, nil
}

// knowsShares returns ErrUnsupported if the broker doesn't list the share
// protocol.
func (c *conn) knowsShares(ctx context.Context) error {
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, c.admin)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "kafka: asking for the broker's protocols")
	}
	missing := map[int16]bool{int16(kmsg.ShareGroupHeartbeat): true, int16(kmsg.ShareFetch): true, int16(kmsg.ShareAcknowledge): true}
	for _, k := range resp.ApiKeys {
		delete(missing, k.ApiKey)
	}
	if len(missing) > 0 {
		return broker.Errorf(broker.ErrUnsupported, nil, "kafka: the broker has no share groups: they need 4.2 and the feature share.version (KAF-F-40)")
	}
	return nil
}

// Receive is driver.Receiver's.
func (r *shareReceiver) Receive(ctx context.Context, max int, out *driver.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.want = max
	defer func() { r.want = 0 }()
	for {
		r.handOut(max, out)
		switch {
		case out.Len() > 0:
			return nil
		case r.fetchErr != nil:
			err := r.fetchErr
			r.fetchErr = nil
			return err
		case r.closing:
			return broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if !r.fetching {
			r.fetching = true
			r.tasks.Go(r.fetch)
		}
		r.mu.Unlock()
		select {
		case <-r.wake:
		case <-ctx.Done():
		}
		r.mu.Lock()
	}
}

// handOut gives fetched records to the caller, and what is over back to the
// broker: an old broker counts by batches (KIP-1206). r.mu is held.
func (r *shareReceiver) handOut(max int, out *driver.Batch) {
	if len(r.buffered) == 0 {
		return
	}
	out.Grow(min(max, len(r.buffered)))
	n := 0
	now := time.Now()
	var strings text
	for _, a := range r.buffered {
		if out.Len() == max {
			break
		}
		n++
		if a.life.epoch.Ended() || !a.lease.After(now) {
			continue // somebody else's by now
		}
		d, t := out.Add()
		decode(&d.Message, a.rec, &strings, max-out.Len())
		d.Attempt = broker.Attempt{Number: a.count, Trust: broker.Approximate}
		d.Position = positionOf(a.rec)
		d.Lease = a.lease
		t.Epoch, t.Tag, t.Sub, t.Ref = &a.life.epoch, uint64(a.rec.Offset), uint64(a.rec.Partition), a
		if a.lease.After(r.heldUntil) {
			r.heldUntil = a.lease
		}
	}
	rest := r.buffered[n:]
	r.buffered = nil
	r.giveBack(rest)
}

// giveBack releases records aside. r.mu is held.
func (r *shareReceiver) giveBack(as []*acquired) {
	if len(as) == 0 {
		return
	}
	for s, part := range bySession(as) {
		s.release(part)
	}
}

func bySession(as []*acquired) map[*shareSession][]*acquired {
	m := map[*shareSession][]*acquired{}
	for _, a := range as {
		m[a.life.session] = append(m[a.life.session], a)
	}
	return m
}

// signal wakes whoever waits on c. It doesn't block.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// As sets a **kgo.Client to the member's client, which is no consumer.
func (r *shareReceiver) As(target any) bool {
	switch t := target.(type) {
	case **kgo.Client:
		*t = r.cl
	case **shareReceiver: // for tests of this package
		*t = r
	default:
		return false
	}
	return true
}

// AsDelivery sets a **kgo.Record to the delivery's record.
func (r *shareReceiver) AsDelivery(t *driver.Token, target any) bool {
	p, ok := target.(**kgo.Record)
	if ok {
		*p = t.Ref.(*acquired).rec
	}
	return ok
}

// Close ends the sessions, by which the broker gives back at once what is held,
// and leaves the group.
func (r *shareReceiver) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closing = true
	sessions := make([]*shareSession, 0, len(r.sessions))
	for _, s := range r.sessions {
		sessions = append(sessions, s)
	}
	signal(r.wake)
	signal(r.moved)
	r.mu.Unlock()
	closed := make(chan error, 1)
	go func() {
		var wait sync.WaitGroup
		errs := make([]error, len(sessions)+1)
		for i, s := range sessions {
			wait.Go(func() { errs[i] = s.close(ctx) })
		}
		wait.Wait()
		errs[len(sessions)] = r.leave(ctx)
		var first error
		for _, err := range errs {
			if first == nil {
				first = err
			}
		}
		closed <- first
	}()
	var err error
	select {
	case err = <-closed:
		r.stop()
	case <-ctx.Done():
		r.stop() // the connections go, and with them the broker's leases
		err = <-closed
	}
	r.tasks.Wait()
	r.cl.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		s.end()
	}
	if err != nil {
		return broker.Errorf(kindOf(err, broker.ErrUnavailable), err, "close %s: what is held comes again when its lease ends", r.name)
	}
	return nil
}

var _ driver.Receiver = (*shareReceiver)(nil)
