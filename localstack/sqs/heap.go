package sqs

// messageHeap is a binary heap of messages that knows where each of them is.
// A message is in one at a time.
type messageHeap struct {
	items  []*message
	before func(a, b *message) bool
}

func byUID(a, b *message) bool { return a.uid < b.uid }

func byVisibleAt(a, b *message) bool {
	return a.visibleAt < b.visibleAt || a.visibleAt == b.visibleAt && a.uid < b.uid
}

// top returns the first message, nil in an empty heap.
func (h *messageHeap) top() *message {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

func (h *messageHeap) push(m *message) {
	h.items = append(h.items, m)
	m.heapIndex = int32(len(h.items) - 1)
	h.up(len(h.items) - 1)
}

func (h *messageHeap) remove(m *message) {
	i, last := int(m.heapIndex), len(h.items)-1
	h.items[i] = h.items[last]
	h.items[i].heapIndex = int32(i)
	h.items[last] = nil
	h.items = h.items[:last]
	m.heapIndex = -1
	if i < last {
		h.fix(h.items[i])
	}
}

// fix finds m its place again after its order changed.
func (h *messageHeap) fix(m *message) {
	h.up(int(m.heapIndex))
	h.down(int(m.heapIndex))
}

func (h *messageHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.before(h.items[i], h.items[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *messageHeap) down(i int) {
	for {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(h.items) && h.before(h.items[c], h.items[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h *messageHeap) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].heapIndex, h.items[j].heapIndex = int32(i), int32(j)
}
