package history

import (
	"slices"
	"sort"
)

// order holds the first deliveries of each key against the order of its publishes.
// A message stands before another of its key where it was surely stored when the
// other's first attempt began, or where one holder published both, each in a single
// attempt, in this order. Messages without a good receipt have no certain place.
func (c *checker) order() {
	type lane struct{ key, holder string }
	keys, lanes := map[string][]*track{}, map[lane][]*track{}
	for _, t := range c.sorted {
		if t.key == "" || len(t.publishes) == 0 || c.stored(t) < 0 {
			continue
		}
		keys[t.key] = append(keys[t.key], t)
		if e := &c.h.Events[t.publishes[0]]; len(t.publishes) == 1 && e.Holder != "" {
			l := lane{t.key, e.Holder}
			lanes[l] = append(lanes[l], t)
		}
	}
	told := map[*track]bool{}
	for _, ts := range keys {
		c.orderOf(ts, told, c.stored)
	}
	for _, ts := range lanes {
		c.orderOf(ts, told, func(t *track) int { return t.publishes[0] })
	}
}

// stored is when the message was surely stored; -1 if it isn't known to be.
func (c *checker) stored(t *track) int {
	for _, i := range t.receipts {
		if c.h.Events[i].promised() {
			return i
		}
	}
	return -1
}

// orderOf looks at messages of one key, of which each stands before those whose first
// attempt began after its end.
func (c *checker) orderOf(ts []*track, told map[*track]bool, end func(*track) int) {
	slices.SortFunc(ts, func(a, b *track) int { return a.publishes[0] - b.publishes[0] })
	earliest := make([]*track, len(ts)+1) // of ts[i:], the one that came first
	for i := len(ts) - 1; i >= 0; i-- {
		if earliest[i] = earliest[i+1]; len(ts[i].deliveries) > 0 && (earliest[i] == nil || ts[i].deliveries[0] < earliest[i].deliveries[0]) {
			earliest[i] = ts[i]
		}
	}
	for _, t := range ts {
		over := end(t)
		later := earliest[sort.Search(len(ts), func(i int) bool { return ts[i].publishes[0] > over })]
		if later == nil || told[t] {
			continue
		}
		first := later.deliveries[0]
		switch {
		case len(t.deliveries) == 0:
			if c.h.Drained {
				told[t] = true
				c.found(Gap, t, []int{t.publishes[0], first}, "never delivered; %q of the same key, which follows it, was at %s", later.id, c.at(first))
			}
		case first < t.deliveries[0]:
			told[t] = true
			c.found(OutOfOrder, t, []int{first, t.deliveries[0]}, "first delivered at %s; %q of the same key, which follows it, at %s", c.at(t.deliveries[0]), later.id, c.at(first))
		}
	}
}
