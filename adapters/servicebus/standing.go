package servicebus

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// A session's order ends where the SDK gives messages back that came for credit
// which was left over (SB-F-53): others that are on the link already overtake them.
// So nothing is ever left over in a session. A pull asks for a single message, or,
// after one that was there at once, for as many as a look into the session showed
// to be there; these are this receiver's alone. A pull that was interrupted goes on
// by itself, and what comes of it waits here. That costs no lease of its own, for
// the lock is the session's, and goes back uncounted with the session (SB-F-24).

// standing is the pull of a session that goes on between calls of Receive, and
// what came of it.
type standing struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the pull has ended; nil: there is none
	n      int           // how many it asked for
	begun  time.Time
	ms     []*azservicebus.ReceivedMessage
	err    error

	rest []*azservicebus.ReceivedMessage // that came and weren't asked for yet
	top  int64                           // the highest sequence number that came
	gone bool                            // the link is: another pull would take the session back
}

const (
	// restWait bounds how long messages that are there take to come.
	restWait = 2 * time.Second

	// backWait bounds how long a message that was given back takes to come again,
	// if it isn't dead-lettered, where later ones wait for it. It takes a round trip.
	backWait = 250 * time.Millisecond
)

// begin starts a pull for n messages, which ends with life.
func (r *receiver) begin(b *inbox, n int) {
	st := &b.stand
	ctx, cancel := context.WithCancel(r.life)
	done := make(chan struct{})
	st.cancel, st.done, st.n, st.begun = cancel, done, n, time.Now()
	o := azservicebus.ReceiveMessagesOptions{TimeAfterFirstMessage: restWait}
	go func() { // ends before its inbox is closed
		defer close(done)
		st.err = within(ctx, r.life, func(ctx context.Context) (err error) {
			st.ms, err = b.in.ReceiveMessages(ctx, n, &o)
			return err
		})
	}()
}

// take returns up to most messages, and waits for the first of them, at most for
// the limit. If nothing came in time it returns neither messages nor an error, and
// lost is true where nothing will come any more.
func (r *receiver) take(ctx context.Context, b *inbox, most int, limit time.Duration) (ms []*azservicebus.ReceivedMessage, lost bool, err error) {
	st := &b.stand
	begun := time.Now()
	if st.done != nil || len(st.rest) == 0 {
		if len(st.rest) > 0 {
			limit = 0
		}
		lost, err = r.await(ctx, b, 1, limit)
	}
	if len(st.rest) == 0 {
		return nil, lost, err
	}
	soon := time.Since(begun) < r.soon()
	r.reorder(ctx, b)
	if soon && len(st.rest) < most && st.done == nil && !st.gone {
		if n := r.look(ctx, b, min(most-len(st.rest), maxCredits)); n > 0 {
			r.begin(b, n)
			_, _ = r.await(ctx, b, n, restWait)
		}
	}
	n := min(most, len(st.rest))
	ms, st.rest = st.rest[:n:n], st.rest[n:]
	return ms, false, nil
}

// soon is how quickly a message comes that was there already.
func (r *receiver) soon() time.Duration {
	if r.rtt == 0 { // not known yet: a look will tell
		return 4 * restGap
	}
	return 2*r.rtt + 2*time.Millisecond
}

// reorder puts what was given back before what waits here, and waits for it where it
// hasn't come yet.
func (r *receiver) reorder(ctx context.Context, b *inbox) {
	st := &b.stand
	for end := time.Now().Add(max(backWait, 4*b.trip)); b.owed() && !st.gone; {
		left := time.Until(end)
		if left <= 0 || ctx.Err() != nil {
			b.forgive() // it was dead-lettered, as a rule
			break
		}
		_, _ = r.await(ctx, b, 1, left)
	}
	slices.SortStableFunc(st.rest, func(x, y *azservicebus.ReceivedMessage) int {
		return cmp.Compare(deref(x.SequenceNumber), deref(y.SequenceNumber))
	})
}

// gave notes that a message was given back.
func (b *inbox) gave(m *azservicebus.ReceivedMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back = append(b.back, deref(m.SequenceNumber))
}

func (b *inbox) forgive() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back = nil
}

// owed reports whether something that was given back hasn't come again, and goes
// before something that waits.
func (b *inbox) owed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	var last int64
	for _, m := range b.stand.rest {
		n := deref(m.SequenceNumber)
		last = max(last, n)
		if i := slices.Index(b.back, n); i >= 0 {
			b.back = slices.Delete(b.back, i, i+1)
		}
	}
	return slices.ContainsFunc(b.back, func(n int64) bool { return n < last })
}

// look returns how many messages of the session, at most so many, wait behind those
// that have come.
func (r *receiver) look(ctx context.Context, b *inbox, most int) (n int) {
	var peeked []*azservicebus.ReceivedMessage
	from := b.stand.top + 1
	begun := time.Now()
	err := within(ctx, r.life, func(ctx context.Context) (err error) {
		peeked, err = b.session.PeekMessages(ctx, most, &azservicebus.PeekMessagesOptions{FromSequenceNumber: &from})
		return err
	})
	if err != nil {
		return 0 // the next pull will say why
	}
	if took := time.Since(begun); r.rtt == 0 || took < r.rtt {
		r.rtt = took
	}
	id := b.session.SessionID()
	for _, m := range peeked {
		if m.State == azservicebus.MessageStateActive && m.SessionID != nil && *m.SessionID == id && deref(m.SequenceNumber) >= from {
			n++
		}
	}
	return n
}

// await lets the standing pull come to rest, which is begun for n if there is
// none.
func (r *receiver) await(ctx context.Context, b *inbox, n int, limit time.Duration) (lost bool, err error) {
	st := &b.stand
	if st.gone {
		return true, st.err
	}
	if st.done == nil {
		r.begin(b, n)
	}
	select {
	case <-st.done: // also with no time at all
	default:
		timer := time.NewTimer(max(limit, 0))
		defer timer.Stop()
		select {
		case <-st.done:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-timer.C:
			return false, nil
		}
	}
	st.cancel()
	st.done = nil
	ms := st.ms
	st.ms = nil
	if len(ms) == 0 {
		st.gone = true
		return true, st.err
	}
	for _, m := range ms {
		st.top = max(st.top, deref(m.SequenceNumber))
	}
	st.rest = append(st.rest, ms...)
	return false, nil
}

// stop ends the standing pull and forgets what waits: the session's end gives it
// back.
func (b *inbox) stop() {
	if b.stand.done != nil {
		b.stand.cancel()
		<-b.stand.done
	}
	b.stand = standing{}
}
