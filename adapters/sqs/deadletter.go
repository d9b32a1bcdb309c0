package sqs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/onceline/onceline/broker"
)

// maxReason bounds the reason of a dead letter, in bytes.
const maxReason = 512

// letters finds the dead-letter queue, once it is needed.
type letters struct {
	mu sync.Mutex
	to *publisher
}

func (l *letters) publisher(ctx context.Context, r *receiver) (*publisher, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to != nil {
		return l.to, nil
	}
	owner, name, ok := splitARN(r.q.DeadLetter)
	if !ok {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "dead-letter queue %q of %s: not an ARN", r.q.DeadLetter, r.q.Name)
	}
	q, err := r.c.lookAt(ctx, owner, name)
	if err != nil {
		return nil, err
	}
	l.to = &publisher{c: r.c, q: q, life: r.life}
	return l.to, nil
}

// last reports whether a nack is that of the last delivery. The service itself
// moves the message only as somebody receives from the queue again (SQS-F-34),
// and says no reason (SQS-F-35).
func (r *receiver) last(h *held) bool {
	return r.q.DeadLetter != "" && r.q.MaxDeliveries > 0 && int(h.attempt) >= r.q.MaxDeliveries
}

// move copies the messages of s.moves to the dead-letter queue and plans to
// delete those whose copy is stored. Where that isn't known a DeadLetter leaves
// its delivery as it was, and a Nack becomes a plain one, after which the
// service's own redrive policy moves the message.
func (s *settling) move(ctx context.Context) {
	r := s.r
	if r.q.DeadLetter == "" {
		for _, i := range s.moves {
			r.untouched(&s.ops[i], s.held(i), broker.ErrUnsupported, errNoLetter)
		}
		return
	}
	to, err := r.letters.publisher(ctx, r)
	if err != nil {
		for _, i := range s.moves {
			s.unmoved(i, err)
		}
		return
	}
	x := publishing{p: to}
	var places []int
	for _, i := range s.moves {
		h := s.held(i)
		if h.moved.Load() {
			s.delete(i) // asked again: the copy is there
			continue
		}
		var m broker.Message
		fill(&m, h.msg)
		if m.Time.IsZero() {
			m.Time = r.c.Now()
		}
		x.msgs, x.letters, places = append(x.msgs, m), append(x.letters, r.letterOf(&m, s.ops[i].Settlement, h)), append(places, i)
	}
	x.receipts = make([]broker.Receipt, len(x.msgs))
	if to.q.FIFO {
		x.waves(ctx)
	} else {
		x.wave(ctx, nil)
	}
	for k, i := range places {
		if !x.receipts[k].Verdict.OK() {
			s.unmoved(i, x.receipts[k].Err)
			continue
		}
		s.held(i).moved.Store(true)
		s.delete(i)
	}
}

// unmoved is what becomes of an op whose message could not be copied.
func (s *settling) unmoved(i int, err error) {
	if op := &s.ops[i]; op.Settlement.Action == broker.Nack {
		s.change(i, ceilSeconds(op.Settlement.Delay))
	} else {
		s.r.untouched(op, s.held(i), kindOfLetter(err), err)
	}
}

// kindOfLetter is the kind of an outcome whose copy is not known to be stored.
func kindOfLetter(err error) error {
	for _, kind := range []error{broker.ErrUnknownOutcome, broker.ErrNotFound, broker.ErrTooLarge, broker.ErrBusy, broker.ErrUnauthorized, broker.ErrInvalid} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return broker.ErrUnavailable
}

func (r *receiver) letterOf(m *broker.Message, t *broker.Settlement, h *held) letter {
	reason := t.Reason
	if t.Action == broker.Nack {
		reason = fmt.Sprintf("nacked at the last of %d deliveries", r.q.MaxDeliveries)
	}
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "..."
	}
	// The same for each try to move this message, another for the same message
	// of another queue, which has a story of its own.
	sum := sha256.New()
	for _, part := range [...]string{r.q.Name, m.ID, m.Copy} {
		sum.Write(strconv.AppendInt(nil, int64(len(part)), 10))
		sum.Write([]byte{' '})
		sum.Write([]byte(part))
	}
	return letter{dedup: broker.ReservedPrefix + "dead-letter-" + hex.EncodeToString(sum.Sum(nil)),
		marks: [3]string{reason, r.q.Name, strconv.Itoa(int(h.attempt))}}
}
