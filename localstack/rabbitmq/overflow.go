package rabbitmq

// over says whether n messages of b bytes in all are more than the queue may
// hold.
func (q *queue) over(n int, b int64) bool {
	return q.maxLength >= 0 && int64(n) > q.maxLength || q.maxBytes >= 0 && b > q.maxBytes
}

// refuses says whether the queue takes no new message. A classic queue looks at
// what it would hold; a quorum queue tells its publishers when it has got over
// its limit and again when it is well below, so that it holds more than its limit
// for a moment (RMQ-F-27).
func (q *queue) refuses(m *message) bool {
	if q.overflow == dropHead {
		return false
	}
	if q.quorum {
		return q.full
	}
	if !q.over(q.count+1, q.bytes+m.size()) {
		return false
	}
	if q.overflow == rejectPublishDLX {
		q.deadLetter(item{message: m}, maxLength)
	}
	return true
}

// overflowed brings the queue back to its limit after a message was added.
func (q *queue) overflowed() {
	if q.maxLength < 0 && q.maxBytes < 0 || q.deleted {
		return
	}
	if q.overflow != dropHead {
		q.full = q.quorum && (q.full || q.over(q.count, q.bytes))
		return
	}
	for q.count > 0 && q.over(q.count, q.bytes) {
		q.deadLetter(q.take(), maxLength)
	}
	q.armExpiry()
}

// belowLimits says whether a full quorum queue has room again: at four fifths of
// its limits.
func (q *queue) belowLimits() bool {
	return (q.maxLength < 0 || int64(q.count) <= q.maxLength*4/5) && (q.maxBytes < 0 || q.bytes <= q.maxBytes*4/5)
}
