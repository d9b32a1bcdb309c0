package nats

import (
	"context"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// ending is how a pull ended.
type ending uint8

const (
	silent  ending = iota // without a word, or not at all
	ended                 // by the server's word, or full
	crowded               // turned away: earlier pulls wait for what there is
)

// taking is one pull under way.
type taking struct {
	r    *receiver
	p    *pull
	s    *settings
	out  *driver.Batch
	slab *slab
	over []*natsgo.Msg // delivered once more than MaxDeliveries
	came int
	most int // that the caller takes
}

// take asks for up to most messages, unless a pull is under way already, and
// collects them. A message is counted as handed over from the moment of asking,
// so the pull may wait a quarter of the lease at most.
//
// The pull is no_wait with an expiry: the server waits for the first message and
// ends the pull when there is no second, which the SDK's Fetch can't ask for. A
// consumer turns a no_wait pull away while pulls that came before it ask for
// more than there is; then a plain one, for one message, waits in line.
func (r *receiver) take(ctx context.Context, p *pull, most int, plain bool, out *driver.Batch) (ending, error) {
	s := r.settings.Load()
	t := &taking{r: r, p: p, s: s, out: out, most: most}
	if !p.open() {
		if ctx.Err() != nil {
			return silent, context.Cause(ctx) // without leaving a pull behind
		}
		n := most
		if s.batch > 0 {
			n = min(n, s.batch)
		}
		if plain {
			n = 1
		}
		if err := r.ask(ctx, p, s, n, plain); err != nil {
			return silent, err
		}
	}
	e, err := t.collect(ctx)
	if len(t.over) > 0 {
		if moved := r.moveOver(ctx, t.over, t.s); moved != nil && err == nil {
			err = moved
		}
	}
	return e, err
}

// ask begins a pull for n messages.
func (r *receiver) ask(ctx context.Context, p *pull, s *settings, n int, plain bool) error {
	p.asked = time.Now()
	expiry := s.expiry
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(p.asked)
		if !s.away {
			left += expiryMargin // it will be revoked
		}
		expiry = min(expiry, left)
	}
	expiry = max(expiry, time.Millisecond)
	body := append(r.scratch[:0], `{"batch":`...)
	body = strconv.AppendInt(body, int64(n), 10)
	body = append(body, `,"expires":`...)
	body = strconv.AppendInt(body, expiry.Nanoseconds(), 10)
	if !plain {
		body = append(body, `,"no_wait":true`...)
	}
	body = append(body, '}')
	r.scratch = body
	if !p.link.alive() || !r.c.sendable() {
		r.drop(p)
		return broker.Errorf(errAgain, errLinkDown, "pull")
	}
	if err := r.c.nc.PublishRequest(r.next, p.reply, body); err != nil {
		r.revoke(p)
		return broker.Errorf(errAgain, err, "pull")
	}
	p.want, p.until = n, p.asked.Add(expiry)
	return nil
}

// collect takes the messages of the pull until the caller has enough, the pull is
// full, the server ends it, or waiting makes no sense any more.
func (t *taking) collect(ctx context.Context) (ending, error) {
	r, p := t.r, t.p
	defer r.timer.Stop()
	for len(p.kept) > 0 && t.came < t.most {
		m := p.kept[0]
		p.kept = p.kept[1:]
		a, _ := parseAckSubject(m.Reply)
		t.add(m, a)
	}
	armed, seen := 0, 0 // what the timer waits for: 1 the first message, 2 more than were seen
	for t.came < t.most && p.want > 0 {
		var m *natsgo.Msg
		select {
		case m = <-p.ch:
		default:
			switch {
			case t.came == 0 && armed == 0:
				r.timer.Reset(time.Until(p.until) + expiryMargin)
				armed = 1
			case t.came > 0 && armed != 2:
				r.timer.Reset(restGap + 2*r.rtt)
				armed, seen = 2, t.came
			}
			select {
			case m = <-p.ch:
			case <-r.timer.C:
				if armed == 2 && t.came > seen {
					armed = 1 // messages still come
					continue
				}
				if armed == 2 {
					t.leave() // the server stopped within the pull
				} else {
					r.revoke(p) // a stall
				}
				return silent, nil
			case <-ctx.Done():
				t.leave()
				if t.out.Len() > 0 {
					return silent, nil
				}
				return silent, context.Cause(ctx)
			case <-p.link.gone:
				// What came is dead with its epoch, and comes back after its
				// lease; await waits for the next connection.
				p.want = 0
				r.drop(p)
				return silent, nil
			case <-r.closing:
				// What came is dead for the caller, and given back by Close.
				p.link.forget(p.epoch)
				t.leave()
				return silent, broker.Errorf(broker.ErrClosed, nil, "receive from %s", r.name())
			}
		}
		if a, ok := parseAckSubject(m.Reply); ok {
			p.want--
			t.add(m, a)
			continue
		}
		if e, over, err := t.status(m); over {
			p.want = 0
			return e, err
		}
	}
	return ended, nil
}

// leave goes away from a pull that is still open.
func (t *taking) leave() {
	if !t.s.away {
		t.r.revoke(t.p)
	}
}

// add hands a message to the caller, or keeps it apart for the dead-letter
// stream if it was delivered too often.
func (t *taking) add(m *natsgo.Msg, a ackInfo) {
	t.came++
	if t.s.maxDeliveries > 0 && a.delivered > uint64(t.s.maxDeliveries) {
		t.over = append(t.over, m)
		return
	}
	lease := t.p.asked.Add(t.s.lease)
	var h *held
	if t.slab != nil {
		h = t.slab.add(m, a.delivered)
	}
	if h == nil {
		// What waits behind this message tells how many will come; those that
		// are delivered again aren't counted in it.
		more := min(t.most-t.came, t.p.want+len(t.p.kept))
		if a.pending < uint64(more) {
			more = int(a.pending)
		}
		if t.slab == nil {
			t.out.Grow(1 + more)
		}
		t.slab = newSlab(1+more, lease)
		t.r.mu.Lock()
		t.r.slabs = append(t.r.slabs, t.slab)
		t.r.mu.Unlock()
		h = t.slab.add(m, a.delivered)
	}
	d, token := t.out.Add()
	fill(&d.Message, m)
	d.Attempt = broker.Attempt{Number: int(a.delivered), Trust: broker.Exact}
	d.Position.Offset = a.stream
	d.Lease = lease
	token.Epoch, token.Tag, token.Ref = t.p.epoch, a.stream, h
}

// status reads a word of the server about the pull.
func (t *taking) status(m *natsgo.Msg) (e ending, over bool, err error) {
	r := t.r
	code, text := statusOf(m), first(m.Header, "Description")
	switch code {
	case "": // somebody else's message
		return silent, false, nil
	case "100": // idle heartbeat, which nobody asked for
		return silent, false, nil
	case "404":
		return ended, true, nil
	case "408":
		if t.came == 0 && strings.Contains(text, "Pending") {
			return crowded, true, nil
		}
		return ended, true, nil
	case "503":
		// Nobody listens for pulls: the consumer is gone, or has no leader now.
		// The look-up tells which.
		r.link = nil
		return silent, true, broker.Errorf(errAgain, natsgo.ErrNoResponders, "pull")
	case "409":
		return t.conflict(text)
	}
	return ended, true, broker.Errorf(broker.ErrRefused, nil, "receive from %s: %s %s", r.name(), code, text)
}

// conflict reads status 409, which covers a dozen reasons and tells them apart
// by text alone.
func (t *taking) conflict(text string) (e ending, over bool, err error) {
	r := t.r
	lower := strings.ToLower(text)
	switch {
	case strings.Contains(lower, "consumer deleted"):
		r.link = nil
		return ended, true, broker.Errorf(broker.ErrNotFound, nil, "receive from %s: %s", r.name(), text)
	case strings.Contains(lower, "push based"):
		return ended, true, broker.Errorf(broker.ErrUnsupported, nil, "receive from %s: %s", r.name(), text)
	case strings.Contains(lower, "maxwaiting"):
		return silent, true, broker.Errorf(errAgain, broker.ErrBusy, "pull: %s", text)
	case strings.Contains(lower, "exceeded"):
		return ended, true, broker.Errorf(broker.ErrRefused, nil, "receive from %s: %s", r.name(), text)
	}
	// Leadership change, server shutdown: the next pull finds the new leader.
	return silent, true, broker.Errorf(errAgain, nil, "pull: %s", text)
}
