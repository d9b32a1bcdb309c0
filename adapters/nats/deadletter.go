package nats

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	natsgo "github.com/nats-io/nats.go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// maxReason bounds the reason of a dead letter, encoded, so that the copy stays
// within what deadLetterRoom keeps free.
const maxReason = 512

// letter is a message on its way to the dead-letter stream.
type letter struct {
	msg      *natsgo.Msg
	reason   string
	attempts uint64
	err      error // why it isn't there; nil once it is
}

// letters is the exchange in which copies are published.
type letters struct {
	exchange
	list []letter
	got  []bool
	to   string
}

// answer implements answers.
func (x *letters) answer(i int, m *natsgo.Msg) bool {
	if i >= len(x.got) || x.got[i] {
		return false
	}
	x.got[i] = true
	l := &x.list[i]
	if noResponders(m) {
		l.err = broker.Errorf(broker.ErrUnroutable, errNoStream, "dead-letter to %s", x.to)
		return true
	}
	a, err := parsePubAck(m.Data)
	switch {
	case err != nil:
		l.err = broker.Errorf(broker.ErrUnknownOutcome, err, "dead-letter to %s", x.to)
	case a.Error != nil:
		l.err = broker.Errorf(kindOfCode(a.Error.ErrorCode, a.Error.Description), a.Error, "dead-letter to %s", x.to)
	default:
		l.err = nil // Stored, or a Duplicate of an earlier try
	}
	return true
}

// publishLetters publishes a copy of each message and sets its err. closing
// makes it give up.
func (r *receiver) publishLetters(ctx context.Context, l *link, to string, list []letter, closing <-chan struct{}) {
	x := &letters{list: list, got: make([]bool, len(list)), to: to}
	x.wake, x.exchange.to = make(chan struct{}, 1), x
	unknown := broker.Errorf(broker.ErrUnknownOutcome, errLinkLost, "dead-letter to %s", to)
	for i := range list {
		list[i].err = unknown
	}
	mux := r.c.mux
	mux.start(&x.exchange)
	var rs replies
	sent := 0
	var err error
send:
	for from := 0; from < len(list); from += chunk {
		n := min(chunk, len(list)-from)
		subjects := rs.of(mux.prefix, &x.exchange, from, n)
		for k := range n {
			if !l.alive() || !r.c.sendable() {
				err = errLinkLost
				break send
			}
			i := from + k
			m := r.copyOf(&list[i], to)
			m.Reply = subjects[k]
			sdk := r.c.nc.PublishMsg(m)
			if sdk != nil {
				// A message of somebody else can be too large to carry more
				// headers; the others may still go.
				mux.mu.Lock()
				x.got[i] = true
				x.answered++
				list[i].err = broker.Errorf(kindOf(sdk), sdk, "dead-letter to %s", to)
				mux.mu.Unlock()
			}
			sent = i + 1
		}
	}
	if err == nil {
		err = mux.wait(ctx, &x.exchange, sent, l.gone, closing)
	}
	mux.finish(&x.exchange)
	for i := range list {
		switch {
		case i >= sent:
			list[i].err = broker.Errorf(broker.ErrUnavailable, err, "dead-letter to %s", to)
		case !x.got[i] && err != nil:
			list[i].err = broker.Errorf(broker.ErrUnknownOutcome, err, "dead-letter to %s", to)
		}
	}
}

// copyOf is the message that goes to the dead-letter stream: body, key and all
// headers as they are, and why, whence and after how many deliveries.
func (r *receiver) copyOf(l *letter, to string) *natsgo.Msg {
	m := natsgo.NewMsg(to)
	m.Data = l.msg.Data
	for name, vs := range l.msg.Header {
		if !strings.HasPrefix(name, natsPrefix) { // sequences, expectations, time to live: of the old stream
			m.Header[name] = vs
		}
	}
	a, _ := parseAckSubject(l.msg.Reply)
	id := first(l.msg.Header, headerMsgID)
	// The same for each try to move this message, another for the same message
	// of another subscription, which has a story of its own.
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s", r.name(), a.stream, id))
	m.Header[headerMsgID] = []string{"onceline-dead-letter-" + hex.EncodeToString(sum[:])}
	if _, has := m.Header[driver.HeaderID]; !has {
		m.Header[driver.HeaderID] = []string{driver.Escape(id)}
	}
	m.Header[driver.HeaderReason] = []string{short(l.reason)}
	m.Header[driver.HeaderSource] = []string{driver.Escape(r.name())}
	m.Header[driver.HeaderAttempts] = []string{strconv.FormatUint(l.attempts, 10)}
	return m
}

// short is the reason in a form that fits a header line.
func short(reason string) string {
	const most = maxReason / 3 // each byte may take three
	if len(reason) > most && len(driver.Escape(reason)) > maxReason {
		reason = strings.ToValidUTF8(reason[:most], "") + "..."
	}
	return driver.Escape(reason)
}

// move publishes the copies of the ops that are to be dead-lettered and
// terminates those whose copy is stored. The others stay as they were.
func (s *settling) move(ctx context.Context, l *link) error {
	r, set := s.r, s.r.settings.Load()
	if set.deadLetter == "" {
		for _, i := range s.moving {
			r.untouched(&s.ops[i], s.held(i), broker.ErrUnsupported, errNoDeadLetter)
		}
		return nil
	}
	list := make([]letter, len(s.moving))
	for k, i := range s.moving {
		op, h := &s.ops[i], s.held(i)
		reason := op.Settlement.Reason
		if op.Settlement.Action == broker.Nack {
			reason = lastReason(set.maxDeliveries)
		}
		list[k] = letter{msg: h.msg, reason: reason, attempts: h.delivered}
	}
	r.publishLetters(ctx, l, set.deadLetter, list, r.abort)
	for k, i := range s.moving {
		if err := list[k].err; err != nil {
			r.untouched(&s.ops[i], s.held(i), kindOfLetter(err), err)
			continue
		}
		reply := s.replies.of(r.c.mux.prefix, &s.exchange, s.group[i], 1)[0]
		if err := s.one(l, i, reply, termBody(list[k].reason)); err != nil {
			return err
		}
	}
	return nil
}

// errNoDeadLetter is the cause where the subscription names no dead-letter
// entity: to terminate without a copy would lose the message.
var errNoDeadLetter = errors.New("the subscription has no dead-letter topic")

// kindOfLetter is the kind of an outcome whose copy could not be published.
func kindOfLetter(err error) error {
	for _, kind := range []error{broker.ErrUnknownOutcome, broker.ErrUnroutable, broker.ErrTooLarge, broker.ErrBusy, broker.ErrUnauthorized} {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return broker.ErrUnavailable
}

func lastReason(limit int) string { return fmt.Sprintf("nacked at the last of %d deliveries", limit) }

// termBody terminates a delivery; the server repeats the reason in its advisory.
func termBody(reason string) []byte {
	reason = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(reason, "?"))
	return []byte("+TERM " + reason[:min(len(reason), maxReason)])
}

// moveOver moves messages that were delivered once more than the limit: the
// lease of the last delivery ended without a settle. The server counts on and
// would hand them out for ever (NATS-F-24 is why its own limit is off). A
// message that can't be moved stays as it is, and comes again after its lease.
func (r *receiver) moveOver(ctx context.Context, over []*natsgo.Msg, s *settings) error {
	l := r.c.link.Load()
	if l == nil || ctx.Err() != nil {
		return nil // they come again
	}
	list := make([]letter, len(over))
	for i, m := range over {
		a, _ := parseAckSubject(m.Reply)
		list[i] = letter{msg: m, attempts: a.delivered - 1,
			reason: fmt.Sprintf("not settled within the lease of the last of %d deliveries", s.maxDeliveries)}
	}
	// Within the lease, or somebody else has the message by then.
	ctx, cancel := context.WithTimeout(ctx, max(s.lease/2, 10*time.Millisecond))
	defer cancel()
	r.publishLetters(ctx, l, s.deadLetter, list, r.closing)
	var failed error
	for i := range list {
		if list[i].err != nil {
			failed = list[i].err
			continue
		}
		if r.c.sendable() && l.alive() {
			// Without an answer: lost, the message comes again, and its second
			// copy is a duplicate to the dead-letter stream.
			if err := r.c.nc.Publish(list[i].msg.Reply, termBody(list[i].reason)); err != nil {
				failed = broker.Errorf(kindOf(err), err, "terminate a dead letter of %s", r.name())
			}
		}
	}
	if failed == nil || ctx.Err() != nil || errors.Is(failed, errLinkLost) {
		return nil
	}
	return broker.Errorf(kindOfLetter(failed), failed, "receive from %s: a message past its last delivery stays", r.name())
}
