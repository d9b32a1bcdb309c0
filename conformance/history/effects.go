package history

// effects counts how often each message's effect was applied, where the history tells
// of effects at all.
func (c *checker) effects() {
	if c.result.Effects == 0 {
		return
	}
	type total struct {
		acked, ackedAt int
		effects        []int
		deliveries     int
		track          *track
	}
	// An effect is once for an ID, whatever copies of it travelled.
	totals := map[string]*total{}
	var ids []string
	for _, t := range c.sorted {
		x := totals[t.id]
		if x == nil {
			x = &total{track: t, ackedAt: -1}
			totals[t.id] = x
			ids = append(ids, t.id)
		}
		x.deliveries += len(t.deliveries)
		x.effects = append(x.effects, t.effects...)
		for _, i := range t.outcomes {
			if e := &c.h.Events[i]; e.Action == "Ack" && (e.State == "Confirmed" || e.State == "Sent" || e.State == "Pending") {
				if x.acked++; x.ackedAt < 0 || i < x.ackedAt {
					x.ackedAt = i
				}
			}
		}
	}
	for _, id := range ids {
		x := totals[id]
		switch n := len(x.effects); {
		case n > 1:
			c.found(EffectTwice, x.track, x.effects, "applied %d times, at %s", n, c.times(x.effects))
		case n == 0 && x.acked > 0 && c.h.Drained:
			c.found(EffectMissing, x.track, []int{x.ackedAt}, "acked at %s, and no effect", c.at(x.ackedAt))
		case n == 1 && x.acked > 0 && x.ackedAt < x.effects[0]:
			c.found(AckBeforeEffect, x.track, []int{x.ackedAt, x.effects[0]}, "acked at %s, its effect at %s", c.at(x.ackedAt), c.at(x.effects[0]))
		}
		if len(x.effects) > 0 && x.deliveries == 0 && c.result.Deliveries > 0 {
			c.found(EffectUnasked, x.track, x.effects[:1], "applied at %s", c.at(x.effects[0]))
		}
	}
}
