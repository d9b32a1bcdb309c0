package nats

import (
	"time"

	natsgo "github.com/nats-io/nats.go"
)

// grace is how long the messages of a pull that is over are kept for a caller who
// has just got others and is likely to be back, before they are given back.
const grace = 200 * time.Millisecond

// minding looks after a pull that is open while nobody receives: its Receive was
// cancelled, or the server stopped in the middle of it.
//
// The protocol has no word to take a pull back. The server drops one whose reply
// subject nobody listens to, but a consumer on another server of the cluster
// learns of that later, and what it sends before then is thrown away on arrival:
// nobody has it until its lease ends (NATS-F-48). So we go on listening until the
// server has ended the pull, which it does within maxExpiryAway. The next Receive
// takes the pull over with what came on it. If there is none, what came is given
// back as soon as the pull is over and not earlier, or it would come to the same
// pull again and lose an attempt each time.
//
// It is a goroutine, one for a receiver at most, and for which Close waits.
type minding struct {
	p    *pull
	stop chan struct{} // closed by who takes the pull over
	done chan struct{} // closed when the pull is the taker's, or nothing is left of it
}

// mind begins to look after the pull if one is open. busy tells that the caller
// has got something. It is called at the end of Receive.
func (r *receiver) mind(busy bool) {
	p := r.pull
	if p == nil || !p.open() {
		return
	}
	m := &minding{p: p, stop: make(chan struct{}), done: make(chan struct{})}
	r.minding = m
	keep := time.Duration(0)
	if busy {
		keep = min(grace, r.settings.Load().lease/4)
	}
	r.reapers.Do(func() {
		defer close(m.done)
		r.watch(m, keep)
	})
}

// adopt takes the pull back from minding.
func (r *receiver) adopt() {
	if m := r.minding; m != nil {
		r.minding = nil
		close(m.stop)
		<-m.done
	}
}

// left returns how long the pull may still get messages.
func (m *minding) left() time.Duration {
	select {
	case <-m.done:
		return 0
	default:
		return max(0, time.Until(m.p.until))
	}
}

// watch keeps what comes, and gives it back when the pull has been over for keep.
func (r *receiver) watch(m *minding, keep time.Duration) {
	p, closing := m.p, r.closing
	timer := time.NewTimer(time.Until(p.until) + expiryMargin)
	defer timer.Stop()
	over := false
	for {
		if p.want == 0 {
			if keep == 0 || len(p.kept) == 0 {
				r.restore(p)
				return
			}
			if !over {
				over = true
				timer.Reset(keep)
			}
		}
		select {
		case msg := <-p.ch:
			p.keep(msg)
		case <-timer.C:
			keep = 0
			if p.want > 0 { // not a word of the server
				r.restore(p)
				r.revoke(p)
				return
			}
		case <-closing:
			keep, closing = 0, nil
		case <-r.reaping.Done(): // Close has no more time
			r.restore(p)
			r.revoke(p)
			return
		case <-p.link.gone: // Receive finds out, and drops it
			return
		case <-m.stop:
			return
		}
	}
}

// keep takes a message, or the word of the server that the pull is over. What
// that says beyond, the next pull finds out.
func (p *pull) keep(m *natsgo.Msg) {
	if _, ok := parseAckSubject(m.Reply); ok {
		p.kept = append(p.kept, m)
		p.want--
		return
	}
	if code := statusOf(m); code != "" && code != "100" {
		p.want = 0
	}
}

// restore gives back what was kept.
func (r *receiver) restore(p *pull) {
	// A nak after the lease would hit the next delivery (NATS-F-18).
	if time.Since(p.asked) < r.settings.Load().lease {
		r.putBack(p.kept...)
	}
	p.kept = nil
}
