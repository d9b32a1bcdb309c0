package nats

import (
	"context"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/onceline/onceline/broker"
)

// closeGrace bounds what Close waits for where its context doesn't: the answers
// to settles under way, and to the give-back.
const closeGrace = 5 * time.Second

// Close ends Receive, lets the settles under way have their answers, and gives
// back what was neither settled nor has outlived its lease, so that another
// receiver has it at once: the server itself would wait for the lease to end
// (NATS-F-27). That costs each message an attempt. Where a pull is under way that
// can't be taken back, Close waits for its end, half a second at most. It returns
// an error if something could not be given back.
func (r *receiver) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	close(r.closing)
	var later time.Duration // until then our own pull would get what is given back
	select {
	case r.receiving <- struct{}{}:
		if m := r.minding; m != nil {
			later = m.left()
			defer func() { // it has ended by then
				r.adopt()
				if r.pull != nil {
					r.drop(r.pull)
				}
			}()
		} else if r.pull != nil {
			r.drop(r.pull)
		}
	case <-ctx.Done(): // Receive is stuck in a write
	}
	r.mu.Lock()
	r.shut = true
	r.mu.Unlock()
	settled := make(chan struct{})
	go func() { // ends before Close does
		r.settles.Wait()
		close(settled)
	}()
	select {
	case <-settled:
	case <-ctx.Done():
		close(r.abort)
		<-settled
	}
	r.mu.Lock()
	for e, l := range r.epochs {
		l.forget(e)
	}
	clear(r.epochs)
	r.mu.Unlock()
	err := r.giveBack(ctx, later)
	stop := context.AfterFunc(ctx, r.giveUp)
	r.reapers.Wait()
	stop()
	r.giveUp()
	return err
}

// naks is the exchange of a give-back.
type naks struct {
	exchange
	got []bool
}

// answer implements answers.
func (x *naks) answer(i int, _ *natsgo.Msg) bool {
	if i >= len(x.got) || x.got[i] {
		return false
	}
	x.got[i] = true
	return true
}

// giveBack naks what is held. Deliveries of a connection that was lost are among
// it: their handles are dead, but the server knows them until their lease ends.
// They are held back for the delay.
func (r *receiver) giveBack(ctx context.Context, delay time.Duration) error {
	body := settleBody(&broker.Settlement{Action: broker.Nack, Delay: delay})
	var subjects []string
	now := time.Now()
	r.mu.Lock()
	for _, s := range r.slabs {
		if s.done(now) {
			continue
		}
		for i := range s.items {
			// A nak after the lease would hit the next delivery (NATS-F-18).
			if h := &s.items[i]; !h.spent.Load() {
				subjects = append(subjects, h.msg.Reply)
			}
		}
	}
	r.slabs = nil
	r.mu.Unlock()
	if len(subjects) == 0 {
		return nil
	}
	l := r.c.link.Load()
	if l == nil {
		return broker.Errorf(broker.ErrUnavailable, errLinkDown, "close receiver of %s: %d deliveries come back after their lease", r.name(), len(subjects))
	}
	x := &naks{got: make([]bool, len(subjects))}
	x.wake, x.to = make(chan struct{}, 1), x
	mux := r.c.mux
	mux.start(&x.exchange)
	defer mux.finish(&x.exchange)
	var rs replies
	for from := 0; from < len(subjects); from += chunk {
		n := min(chunk, len(subjects)-from)
		for k, reply := range rs.of(mux.prefix, &x.exchange, from, n) {
			var err error
			if !l.alive() || !r.c.sendable() {
				err = errLinkLost
			} else {
				err = r.c.nc.PublishRequest(subjects[from+k], reply, body)
			}
			if err != nil {
				return broker.Errorf(broker.ErrUnavailable, err, "close receiver of %s: %d deliveries come back after their lease",
					r.name(), len(subjects)-from-k)
			}
		}
	}
	if err := mux.wait(ctx, &x.exchange, len(subjects), l.gone, nil); err != nil {
		return broker.Errorf(broker.ErrUnknownOutcome, err, "close receiver of %s: give %d deliveries back", r.name(), len(subjects))
	}
	return nil
}
