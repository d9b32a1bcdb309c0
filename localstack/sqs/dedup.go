package sqs

import (
	"crypto/sha256"
	"strings"
	"time"
)

// window is how long a FIFO queue remembers a deduplication ID (SQS-F-02), and how
// long a receive attempt can be asked for again (SQS-F-27).
const window = 5 * time.Minute

// dedupKey stands for what makes a message a duplicate: the ID, in its group where
// the scope is the group (SQS-F-05, SQS-F-06). It is a hash, so that what is
// remembered for minutes keeps no text alive and gives the collector no work.
type dedupKey [sha256.Size]byte

func keyOf(m *message, scoped bool) dedupKey {
	var b [2 + 128 + 128]byte
	k := append(b[:0], 0, byte(len(m.dedup)))
	k = append(k, m.dedup...)
	if scoped {
		k[0] = 1
		k = append(k, m.group...)
	}
	return sha256.Sum256(k)
}

// known is what is remembered of the message that came first. It outlives the
// message (SQS-F-04).
type known struct {
	id    [36]byte
	seq   uint64
	until int64
}

// dedupMemory is the remembered IDs. As each stays for the same time, from its
// first message on (SQS-F-02), they are forgotten in the order in which they came.
type dedupMemory struct {
	known map[dedupKey]known
	order []dedupKey
	head  int
}

// find says whether the ID was seen within the window.
func (d *dedupMemory) find(k dedupKey, now int64) (known, bool) {
	for d.head < len(d.order) {
		first := d.order[d.head]
		if d.known[first].until > now {
			break
		}
		delete(d.known, first)
		d.head++
	}
	if d.head >= 1024 && d.head*2 >= len(d.order) {
		d.order, d.head = append(d.order[:0], d.order[d.head:]...), 0
	}
	f, ok := d.known[k]
	return f, ok
}

// remember notes an ID that find didn't know.
func (d *dedupMemory) remember(k dedupKey, m *message, now int64) {
	if d.known == nil {
		d.known = map[dedupKey]known{}
	}
	f := known{seq: m.uid, until: now + int64(window)}
	copy(f.id[:], m.id)
	d.known[k] = f
	d.order = append(d.order, k)
}

// attempt is what a receive with a ReceiveRequestAttemptId handed out. It holds no
// message: those that are settled shall not stay in memory for it.
type attempt struct {
	gave  []given
	until int64
}

// given is a message as an attempt gave it out: which, by which of its receives,
// until when it was hidden by that, and when its handle says that the lease ends.
type given struct {
	uid     uint64
	receive uint32
	hides   int64
	ends    int64
}

// attemptMemory is the attempts of the last minutes.
type attemptMemory struct {
	known map[string]*attempt
	sweep int // how many there may be before the old ones are looked for
}

func (a *attemptMemory) find(id string, now int64) *attempt {
	t := a.known[id]
	if t != nil && t.until <= now {
		delete(a.known, id)
		return nil
	}
	return t
}

func (a *attemptMemory) remember(id string, t *attempt, now int64) {
	if a.known == nil {
		a.known = map[string]*attempt{}
	}
	if len(a.known) >= max(a.sweep, 256) {
		for id, t := range a.known {
			if t.until <= now {
				delete(a.known, id)
			}
		}
		a.sweep = 2 * len(a.known)
	}
	a.known[strings.Clone(id)] = t
}

// tombstones hold when the handles of deleted messages end whose visibility was
// changed. Of all others the handle itself tells (SQS-F-26).
type tombstones struct {
	ends  map[uint64]int64 // by uid
	sweep int
}

func (t *tombstones) add(m *message, now int64) {
	if t.ends == nil {
		t.ends = map[uint64]int64{}
	}
	if len(t.ends) >= max(t.sweep, 1024) {
		for uid, at := range t.ends {
			// Twelve hours on, the handle says so itself.
			if at+int64(maxLease) <= now {
				delete(t.ends, uid)
			}
		}
		t.sweep = 2 * len(t.ends)
	}
	t.ends[m.uid] = m.visibleAt
}
