package servicebus

import "time"

// history remembers the message IDs that an entity with duplicate detection has
// taken, for the window that it has now (SB-F-01, SB-F-03). It remembers them
// whether or not their messages are still there, and over restarts. An ID is
// remembered from its first sighting: a dropped duplicate prolongs nothing.
type history struct {
	seen  map[string]time.Time
	order []sighting // oldest first
	head  int
}

type sighting struct {
	key string
	at  time.Time
}

// taken says whether key was taken within the window, and remembers it if not.
func (h *history) taken(key string, now time.Time, window time.Duration) bool {
	h.forget(now, window)
	if _, ok := h.seen[key]; ok {
		return true
	}
	if h.seen == nil {
		h.seen = make(map[string]time.Time)
	}
	h.seen[key] = now
	h.order = append(h.order, sighting{key, now})
	return false
}

// forget drops what is older than the window.
func (h *history) forget(now time.Time, window time.Duration) {
	for h.head < len(h.order) && now.Sub(h.order[h.head].at) >= window {
		delete(h.seen, h.order[h.head].key)
		h.order[h.head] = sighting{}
		h.head++
	}
	if h.head > 1024 && h.head > len(h.order)/2 {
		h.order = append(h.order[:0:0], h.order[h.head:]...)
		h.head = 0
	}
}

// dedupKey is what makes a message unique: its ID, and on a partitioned entity its
// partition key as well, for which the session stands in (SB-F-05).
func dedupKey(m *message, partitioned bool) string {
	if !partitioned {
		return m.id
	}
	key := m.partition
	if m.hasSession {
		key = m.sid
	}
	return m.id + "\x00" + key
}
