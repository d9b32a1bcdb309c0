package memory

// due is the broker's agenda: items in flight by the end of their lease, and
// delayed ones by the end of their delay. It is a binary heap in which each item
// knows its place, so that to settle or extend costs O(log n).
type due []*item

// nowhere is the place of an item that is not on the agenda.
const nowhere = -1

func (d *due) add(it *item, at int64) {
	it.at = at
	it.place = len(*d)
	*d = append(*d, it)
	d.up(it.place)
}

// move changes the time of an item on the agenda.
func (d *due) move(it *item, at int64) {
	it.at = at
	d.up(it.place)
	d.down(it.place)
}

func (d *due) remove(it *item) {
	i, last := it.place, len(*d)-1
	if i == nowhere {
		return
	}
	d.swap(i, last)
	(*d)[last] = nil
	*d = (*d)[:last]
	it.place = nowhere
	if i < last {
		d.up(i)
		d.down(i)
	}
}

func (d due) swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

// before orders by time, and by delivery or delay order at the same time.
func (d due) before(i, j int) bool {
	if d[i].at != d[j].at {
		return d[i].at < d[j].at
	}
	return d[i].turn < d[j].turn
}

func (d due) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !d.before(i, parent) {
			return
		}
		d.swap(i, parent)
		i = parent
	}
}

func (d due) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(d); child++ {
			if d.before(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		d.swap(i, least)
		i = least
	}
}
