package history

// queue is the total-queue check: what was promised comes, what comes was published,
// and no more often than consumers gave it back.
func (c *checker) queue() {
	anyPublish := false
	for _, t := range c.sorted {
		anyPublish = anyPublish || len(t.publishes) > 0
	}
	if !anyPublish && len(c.sorted) > 0 {
		c.undecided("the history has no publishes: what came isn't held against what was sent")
	}
	for _, t := range c.sorted {
		promise, refused := -1, 0
		for _, i := range t.receipts {
			switch e := &c.h.Events[i]; {
			case e.promised() && promise < 0:
				promise = i
			case e.Verdict == "Refused":
				refused++
			}
		}
		if len(t.publishes) > 0 {
			c.result.Messages++
		}
		came := len(t.deliveries) > 0
		switch {
		case promise >= 0:
			if c.result.Promised++; !came && c.h.Drained {
				c.found(Lost, t, []int{promise}, "%s at %s, and never delivered", c.h.Events[promise].Verdict, c.at(promise))
			}
		case refused < len(t.receipts):
			if c.result.Unknown++; came {
				c.result.Recovered++
			}
		case came && refused > 0 && refused == len(t.publishes):
			// Every attempt has an answer, and every answer says Refused.
			c.found(RefusedCame, t, append(t.receipts[:1:1], t.deliveries[0]), "refused %d times, and delivered at %s", refused, c.at(t.deliveries[0]))
		}
		if came && len(t.publishes) == 0 && anyPublish {
			c.found(Unexpected, t, t.deliveries[:1], "delivered at %s", c.at(t.deliveries[0]))
		}
		c.copies(t)
	}
}

// copies looks at how often a message came.
func (c *checker) copies(t *track) {
	positions := map[string]int{}
	for _, i := range t.deliveries {
		p := c.h.Events[i].Position
		if _, ok := positions[p]; !ok && p != "" {
			positions[p] = i
		}
	}
	if len(positions) > 1 {
		var where []int
		for _, i := range t.deliveries {
			if at, ok := positions[c.h.Events[i].Position]; ok && at == i {
				where = append(where, i)
			}
		}
		c.found(StoredTwice, t, where, "delivered from %d positions, at %s", len(positions), c.times(where))
	}
	// A nack or a late ack takes a delivery back, and so does a crash or a lease that
	// ended, of which the history need not know: what came again with a higher attempt
	// is the broker's redelivery, not a copy.
	given := 0
	for _, i := range t.outcomes {
		if e := &c.h.Events[i]; e.Action == "Nack" || e.State == "LeaseLost" {
			given++
		}
	}
	var again []int
	for n, i := range t.deliveries {
		if n > 0 && c.h.Events[i].Attempt <= 1 {
			again = append(again, i)
		}
	}
	if len(again) > given {
		c.found(Doubled, t, append(t.deliveries[:1:1], again...), "delivered at %s, given back %d times", c.times(t.deliveries), given)
	}
}

// receipts looks for a Duplicate without a first one.
func (c *checker) receipts() {
	for _, t := range c.sorted {
		for _, i := range t.receipts {
			if c.h.Events[i].Verdict != "Duplicate" {
				continue
			}
			before := 0
			for _, p := range t.publishes {
				if p < i {
					before++
				}
			}
			if before == 1 {
				c.found(NoFirst, t, append(t.publishes[:1:1], i), "the first attempt's receipt says Duplicate at %s", c.at(i))
			}
			break // later ones have a first
		}
	}
}
