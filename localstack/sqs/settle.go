package sqs

import (
	"fmt"
	"time"
)

// find resolves a receipt handle. m is nil for a message that is gone; current
// says that the handle is of the latest receive.
func (q *queue) find(t text) (m *message, h handle, err *apiError) {
	if !t.set {
		return nil, h, missing("ReceiptHandle")
	}
	h, ok := parseHandle(t.s)
	if !ok || h.queue != q.uid {
		return nil, h, badHandle(t.s) // SQS-F-24
	}
	return q.received[h.message], h, nil
}

func (m *message) current(h handle) bool { return uint32(m.receives) == h.receive }

func expiredHandle(t text) *apiError {
	return invalidValue(t.s, "ReceiptHandle", "The receipt handle has expired.")
}

// delete removes the message of a handle.
func (q *queue) delete(e *entry, now int64) *apiError {
	m, h, err := q.find(e.handle)
	switch {
	case err != nil:
		return err
	case m == nil && q.fifo && q.lapsed(h, now):
		return expiredHandle(e.handle) // SQS-F-26
	case m == nil:
		return nil // SQS-F-24
	case q.fifo && (m.state != inFlight || !m.current(h)):
		return expiredHandle(e.handle) // SQS-F-22
	case !m.current(h) && q.server.staleDeletesIgnored:
		return nil // SQS-F-23
	}
	q.bury(m, now) // also one whose lease ended (SQS-F-21), or that another receiver holds (SQS-F-24)
	return nil
}

// bury drops a message of which handles may still come.
func (q *queue) bury(m *message, now int64) {
	if q.fifo && m.visibleAt != m.leaseEnds {
		q.tombs.add(m, now)
	}
	q.drop(m)
}

// lapsed says whether the lease that a handle was given with is over, of a
// message that is gone.
func (q *queue) lapsed(h handle, now int64) bool {
	if at, ok := q.tombs.ends[h.message]; ok {
		return at <= now
	}
	return h.ends <= now
}

// changeVisibility sets when the lease of a message ends (SQS-F-18, SQS-F-40).
func (q *queue) changeVisibility(e *entry, now int64) *apiError {
	v := e.visibility
	if !v.set {
		return missing("VisibilityTimeout")
	}
	d := seconds(v.n)
	if v.n < 0 || d > maxLease {
		return badVisibility(v.n)
	}
	m, h, err := q.find(e.handle)
	switch {
	case err != nil:
		return err
	case m == nil:
		return invalidValue(e.handle.s, "ReceiptHandle", "Message does not exist or is not available for visibility timeout change.") // SQS-F-20
	case q.fifo && (m.state != inFlight || !m.current(h)):
		return expiredHandle(e.handle)
	case time.Duration(now-m.takenAt).Truncate(time.Second)+d > maxLease:
		return invalidValue(fmt.Sprint(v.n), "VisibilityTimeout", "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]") // SQS-F-73
	}
	// A standard queue takes every handle of the message (SQS-F-57), also when no
	// lease is held (SQS-F-19).
	m.visibleAt = now + int64(d)
	switch {
	case m.state == inFlight && d == 0:
		q.show(m)
	case m.state == inFlight:
		q.hidden.fix(m)
	case d > 0:
		q.hide(m)
	}
	return nil
}
