package broker

import "strconv"

// attempts counts what brokers don't: the failures of a message, by its ID, and
// the deliveries that a broker counts although no handler failed. It holds the
// last failing messages only; of those it has dropped it counts anew.
type attempts struct {
	young, old map[string]count // old is dropped when young is full
}

type count struct {
	failed int // handler failures
	free   int // deliveries that cost no attempt
}

// attemptsKept is how many messages each of the two maps holds.
const attemptsKept = 10_000

func (a *attempts) get(key string) count {
	if n, ok := a.young[key]; ok {
		return n
	}
	return a.old[key]
}

func (a *attempts) set(key string, n count) {
	if a.young == nil {
		a.young = map[string]count{}
	}
	if _, known := a.young[key]; !known && len(a.young) >= attemptsKept {
		a.old, a.young = a.young, map[string]count{}
	}
	a.young[key] = n
}

// fail counts a failure of d and returns the number of its attempts.
func (a *attempts) fail(d *Delivery) int {
	key := countKey(d)
	if key == "" {
		return max(d.Attempt.Number, 1) // all there is
	}
	n := a.get(key)
	n.failed++
	a.set(key, n)
	if d.Attempt.Trust == Exact {
		return max(n.failed, d.Attempt.Number-n.free)
	}
	return n.failed
}

// spare takes note that this delivery of d costs no attempt, which matters only
// where the broker's number counts.
func (a *attempts) spare(d *Delivery) {
	key := countKey(d)
	if key == "" || d.Attempt.Trust != Exact {
		return
	}
	n := a.get(key)
	n.free++
	a.set(key, n)
}

// forget drops what is known of d, which is done with.
func (a *attempts) forget(d *Delivery) {
	if len(a.young) == 0 && len(a.old) == 0 {
		return
	}
	key := countKey(d)
	delete(a.young, key)
	delete(a.old, key)
}

// countKey is what d is counted by: ID and Copy, for a copy has attempts of its
// own. A message from a producer that sets no ID goes by its position.
func countKey(d *Delivery) string {
	switch {
	case d.ID != "" && d.Copy == "":
		return d.ID
	case d.ID != "":
		return d.ID + "\x00" + d.Copy
	case d.Position != (Position{}):
		return "\x00" + d.Position.Partition + "\x00" + d.Position.Token + "\x00" + strconv.FormatUint(d.Position.Offset, 10)
	}
	return ""
}
