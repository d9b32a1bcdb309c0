package history

// overlap is for how many seconds after an outcome a delivery may arrive at a call that
// had been waiting before it, having left the broker earlier.
const overlap = 1.0

// settles holds outcomes against the deliveries around them.
func (c *checker) settles() {
	for _, t := range c.sorted {
		c.confirmedAgain(t)
		c.leaseLostGone(t)
		c.staleTook(t)
	}
}

// same reports whether two events may be of one copy of the message.
func same(a, b *Event) bool { return a.Position == "" || b.Position == "" || a.Position == b.Position }

// ackOf returns the outcome if it is of an ack in a state.
func (c *checker) ack(i int, state string) bool {
	e := &c.h.Events[i]
	return (e.Action == "Ack" || e.Action == "DeadLetter") && e.State == state
}

// confirmedAgain: a confirmed ack is final.
func (c *checker) confirmedAgain(t *track) {
	for _, i := range t.outcomes {
		if !c.ack(i, "Confirmed") {
			continue
		}
		out := &c.h.Events[i]
		for _, d := range t.deliveries {
			e := &c.h.Events[d]
			asked := e.Asked
			if asked == 0 {
				asked = e.At - overlap // not told
			}
			if d < i || !same(out, e) || asked < out.At && e.At < out.At+overlap || c.another(t, out, e) {
				continue
			}
			c.found(ConfirmedAgain, t, []int{i, d}, "confirmed at %s, delivered at %s", c.at(i), c.at(d))
			return
		}
	}
}

// another reports whether a delivery without a position may be a second copy: a first
// attempt, where the ack was of a message that had come as one.
func (c *checker) another(t *track, out, e *Event) bool {
	return (out.Position == "" || e.Position == "") && e.Attempt == 1 && len(t.publishes) > 1
}

// leaseLostGone: what is too late to be acked comes again, or another has settled it.
func (c *checker) leaseLostGone(t *track) {
	if !c.h.Drained {
		return
	}
	for _, i := range t.outcomes {
		if !c.ack(i, "LeaseLost") {
			continue
		}
		lost := &c.h.Events[i]
		explained := false
		for n, d := range t.deliveries {
			// It came again after the delivery whose ack was late.
			e := &c.h.Events[d]
			explained = explained || n > 0 && same(lost, e) && (d > i || e.Holder != lost.Holder || lost.Attempt > 0 && e.Attempt > lost.Attempt)
		}
		for _, o := range t.outcomes { // its own ack, asked twice
			e := &c.h.Events[o]
			explained = explained || o != i && c.ack(o, "Confirmed") && same(lost, e)
		}
		if !explained {
			c.found(LeaseLostGone, t, []int{i}, "LeaseLost at %s to %s, and never delivered again", c.at(i), name(lost.Holder))
			return
		}
	}
}

// staleTook: a holder that was replaced can't ack for the one that replaced it.
func (c *checker) staleTook(t *track) {
	for _, i := range t.outcomes {
		out := &c.h.Events[i]
		if !c.ack(i, "Confirmed") || out.Holder == "" {
			continue
		}
		begun := i // when the settle was sent; the outcome's time if that isn't told
		for _, s := range t.settles {
			if e := &c.h.Events[s]; s < i && e.Holder == out.Holder && e.Action == out.Action {
				begun = s
			}
		}
		own := -1
		for _, d := range t.deliveries {
			if e := &c.h.Events[d]; d < begun && e.Holder == out.Holder && same(out, e) {
				own = d // the last
			}
		}
		if own < 0 {
			continue
		}
		for _, d := range t.deliveries {
			e := &c.h.Events[d]
			if d > own && d < begun && e.Holder != out.Holder && e.Holder != "" && e.Attempt != 1 && same(out, e) && !c.returned(t, e, d, begun) {
				c.found(StaleTook, t, []int{own, d, i}, "%s has it since %s; the ack of %s is confirmed at %s", name(e.Holder), c.at(d), name(out.Holder), c.at(i))
				return
			}
		}
	}
}

// returned reports whether the holder of delivery d had settled it before place end.
func (c *checker) returned(t *track, e *Event, d, end int) bool {
	for _, s := range t.settles {
		if x := &c.h.Events[s]; s > d && s < end && x.Holder == e.Holder && x.Action != "Extend" {
			return true
		}
	}
	return false
}

func name(holder string) string {
	if holder == "" {
		return "a consumer"
	}
	return holder
}
