package pubsub

// lane is the messages of one ordering key, in order. Only one batch of them is
// outstanding at a time, but for more to the stream that has it. What follows a
// message that is delivered again is delivered again as well: at once after the
// end of its lease, which ends those of its followers, and after a nack when none
// of them is held any more (PS-F-21, PS-F-38).
type lane struct {
	sub     *subscription
	key     string
	items   []*item // from the first that isn't acked on
	base    uint64  // place of items[0]
	at      uint64  // place of the next to hand out
	held    int
	owner   *puller // the stream that has what is held; nil for a Pull
	rewound bool    // something held is to be delivered again
	active  bool    // in sub.active
}

func (q *subscription) laneOf(key string) *lane {
	l := q.lanes[key]
	if l == nil {
		l = &lane{sub: q, key: key}
		q.lanes[key] = l
	}
	return l
}

func (l *lane) append(it *item) {
	it.lane, it.at = l, l.base+uint64(len(l.items))
	l.items = append(l.items, it)
	l.activate()
}

// activate puts the lane where take finds it.
func (l *lane) activate() {
	if l.active || l.at >= l.base+uint64(len(l.items)) || l.held > 0 && (l.owner == nil || l.rewound) {
		return
	}
	l.active = true
	l.sub.active.push(l)
}

// next is the item to hand to p, or nil if there is none now. more says that the
// answer carries messages of the lane already.
func (l *lane) next(p *puller, more bool) *item {
	if !more && l.held > 0 && (p == nil || l.owner != p || l.rewound) {
		return nil
	}
	for end := l.base + uint64(len(l.items)); l.at < end; l.at++ {
		switch it := l.items[l.at-l.base]; it.state {
		case ready:
			return it
		case done:
			if !l.redeliver(it) {
				continue
			}
			return it
		default:
			return nil // it waits for its retry policy, and the lane with it
		}
	}
	return nil
}

// redeliver says whether an acked item is delivered again, as an earlier one of
// its key is: always, but with exactly-once delivery, where an ack is final
// (PS-F-08).
func (l *lane) redeliver(it *item) bool {
	if l.sub.cfg.EnableExactlyOnceDelivery || !it.ackedEarly {
		return false
	}
	it.ackedEarly = false
	l.sub.open++
	return true
}

// handed notes that the next item went to p.
func (l *lane) handed(it *item, p *puller) {
	l.at = it.at + 1
	l.held++
	l.owner = p
}

// released notes that an item isn't held any more.
func (l *lane) released() {
	l.held--
	if l.held == 0 {
		l.rewound, l.owner = false, nil
		l.activate()
		l.sub.rouse()
	}
}

// rewind makes the lane go on from it again.
func (l *lane) rewind(it *item) {
	if it.at < l.at {
		l.at = it.at
		l.rewound = true
	}
}

// revoke ends the leases behind it, whose own has run out.
func (l *lane) revoke(it *item) {
	for _, o := range l.items[it.at+1-l.base:] {
		if o.state == held {
			o.state = ready
			l.sub.release(o)
		}
	}
}

// retake makes an item held again whose lease ran out, unless the lane goes on
// from before it.
func (l *lane) retake(it *item) bool {
	if l.at != it.at || l.held > 0 {
		return false
	}
	l.handed(it, nil)
	return true
}

// trim drops the acked items at the front.
func (l *lane) trim() {
	n := 0
	for n < len(l.items) && l.items[n].state == done {
		l.items[n].ackedEarly = false
		l.items[n] = nil
		n++
	}
	l.items = l.items[n:]
	l.base += uint64(n)
	l.at = max(l.at, l.base)
	if len(l.items) == 0 && l.held == 0 && !l.active {
		delete(l.sub.lanes, l.key)
	}
}
