package rabbitmq

import "time"

// touch notes that the queue is in use: it has a consumer, or was declared or
// asked for a message. One that isn't for as long as its x-expires is deleted.
func (q *queue) touch() {
	if q.expires <= 0 || q.deleted {
		return
	}
	q.usedAt = q.v.s.clock.Now()
	if q.idle == nil {
		q.idle = q.v.s.clock.AfterFunc(q.expires, q.expireIdle)
	}
}

// expireIdle deletes the queue, or waits on if it was used meanwhile: so no use
// has to move a timer.
func (q *queue) expireIdle() {
	q.v.s.enter(func() {
		if q.deleted {
			return
		}
		q.idle = nil
		left := q.usedAt.Add(q.expires).Sub(q.v.s.clock.Now())
		if len(q.consumers) > 0 {
			left = q.expires
		}
		if left <= 0 {
			q.delete()
			return
		}
		q.idle = q.v.s.clock.AfterFunc(left, q.expireIdle)
	})
}

// expiresAt is when a message that comes now will expire: by its own TTL or the
// queue's, whichever is sooner; 0 is never.
func (q *queue) expiresAt(m *message) int64 {
	ttl := q.messageTTL
	if m.ttl >= 0 && (ttl < 0 || m.ttl < ttl) {
		ttl = m.ttl
	}
	if ttl < 0 {
		return 0
	}
	q.hasTTL = true
	return q.now() + ttl
}

// dropExpired dead-letters what has expired at the head of the queue, and says
// whether there was any. What expired behind a message that didn't stays until it
// gets there (RMQ-F-34).
func (q *queue) dropExpired() bool {
	dropped := false
	var now int64
	for {
		head := q.head()
		if head == nil || head.expires == 0 {
			return dropped
		}
		if now == 0 {
			now = q.now()
		}
		if head.expires > now {
			return dropped
		}
		dropped = true
		q.deadLetter(q.take(), expired)
	}
}

// armExpiry sets the timer for the head of the queue.
func (q *queue) armExpiry() {
	at := int64(0)
	if head := q.head(); head != nil {
		at = head.expires
	}
	if at == q.expiryAt && (at == 0 || q.expiry != nil) {
		return
	}
	if q.expiry != nil {
		q.expiry.Stop()
		q.expiry = nil
	}
	if q.expiryAt = at; at == 0 || q.deleted {
		return
	}
	q.expiry = q.v.s.clock.AfterFunc(time.UnixMilli(at).Sub(q.v.s.clock.Now()), q.expireHead)
}

func (q *queue) expireHead() {
	q.v.s.enter(func() {
		q.expiry = nil
		q.expiryAt = 0
		if !q.deleted {
			q.pump()
		}
	})
}
