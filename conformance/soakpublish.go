package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
)

// publish is one publisher: two callers of one handle.
func (s *soak) publish(ctx context.Context, what string, q *soakQueue, pace *soakPace) {
	h := &soakHandle[broker.Publisher]{soak: s, what: what,
		of: func(ctx context.Context, c broker.Conn) (broker.Publisher, error) {
			return c.OpenPublisher(ctx, s.entity.Topic)
		}}
	defer h.close(ctx)
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			for {
				batch := q.take(max(1, s.o.Batch))
				if batch == nil || !pace.wait(ctx) {
					return
				}
				s.send(ctx, h, q, batch)
			}
		})
	}
	callers.Wait()
}

// send publishes messages until each has a good receipt, or ctx ends.
func (s *soak) send(ctx context.Context, h *soakHandle[broker.Publisher], q *soakQueue, ms []broker.Message) {
	var pause soakBackoff
	for len(ms) > 0 {
		p, epoch, err := h.get(ctx)
		if err != nil {
			return // ctx has ended, or it can't be opened at all
		}
		s.log.add(len(ms), func(i int, e *SoakEvent) { e.Kind, e.ID = SoakPublish, ms[i].ID })
		began := time.Now()
		call, cancel := context.WithTimeout(ctx, soakCall)
		rs, err := p.Publish(call, ms...)
		cancel()
		s.log.add(len(ms), func(i int, e *SoakEvent) {
			e.Kind, e.ID = SoakReceipt, ms[i].ID
			if i < len(rs) {
				e.Verdict, e.Position = rs[i].Verdict, rs[i].Position
			}
		})
		if len(rs) != len(ms) {
			s.log.trouble(fmt.Sprintf("a publisher gave %d receipts for %d messages", len(rs), len(ms)))
			return
		}
		if err != nil {
			s.log.failed("publish", err)
		}
		q.accept(ms, rs)
		var rest []broker.Message
		for i := range ms {
			if rs[i].Verdict.OK() {
				continue
			}
			if rs[i].Verdict == broker.Refused && rs[i].Err != nil && !retryable(rs[i].Err) {
				s.log.trouble(fmt.Sprintf("%s was refused for good: %v", ms[i].ID, rs[i].Err))
				continue
			}
			rest = append(rest, ms[i])
		}
		h.used(epoch, began, len(rest) < len(ms), err)
		if ms = rest; len(ms) > 0 && !pause.wait(ctx) {
			return
		}
	}
}

// soakHandle is a publisher or receiver that is opened anew, with its connection,
// when it has failed for long.
type soakHandle[H interface{ Close(context.Context) error }] struct {
	soak *soak
	what string
	of   func(ctx context.Context, c broker.Conn) (H, error)

	mu     sync.Mutex
	opened bool
	conn   broker.Conn
	handle H
	epoch  int       // which handle it is
	failed time.Time // since when it fails; zero while it doesn't
	stale  bool      // to be opened anew
}

// get returns the handle, which it opens first if need be, and which of them it is.
// It returns an error when ctx ends or an error that lasts stands in the way.
func (h *soakHandle[H]) get(ctx context.Context) (H, int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var pause soakBackoff
	for {
		if h.opened && !h.stale {
			return h.handle, h.epoch, nil
		}
		err := h.reopen(ctx)
		if err == nil {
			continue
		}
		h.soak.log.failed("open "+h.what, err)
		if !retryable(err) {
			h.soak.log.trouble(fmt.Sprintf("%s: %v", h.what, err))
		}
		if !retryable(err) || !pause.wait(ctx) {
			var none H
			return none, 0, err
		}
	}
}

func (h *soakHandle[H]) reopen(ctx context.Context) error {
	h.shut(ctx)
	open, cancel := context.WithTimeout(ctx, soakOpen)
	defer cancel()
	c, err := h.soak.inst.Open(open)
	if err != nil {
		return err
	}
	h.conn = c
	if h.handle, err = h.of(open, c); err != nil {
		return err
	}
	if h.epoch++; h.epoch > 1 {
		h.soak.log.note(fmt.Sprintf("%.1f s: %s was opened anew", h.soak.log.now().Seconds(), h.what))
	}
	h.opened, h.stale, h.failed = true, false, time.Time{}
	return nil
}

// shut closes what there is, within a bound. Its errors are those of a broker that is
// disturbed.
func (h *soakHandle[H]) shut(ctx context.Context) {
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), soakCall)
	defer cancel()
	if h.opened {
		h.opened = false
		_ = h.handle.Close(end)
	}
	if h.conn != nil {
		_ = h.conn.Close(end)
		h.conn = nil
	}
}

// used notes how a call on a handle went, which began then.
func (h *soakHandle[H]) used(epoch int, began time.Time, well bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case epoch != h.epoch:
	case well:
		h.failed = time.Time{}
	case errors.Is(err, broker.ErrClosed):
		h.stale = true
	default:
		if h.failed.IsZero() {
			h.failed = began
		}
		h.stale = h.stale || time.Since(h.failed) >= soakReopen
	}
}

func (h *soakHandle[H]) close(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shut(ctx)
}
