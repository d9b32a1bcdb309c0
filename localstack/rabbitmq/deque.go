package rabbitmq

// deque is a double-ended queue in a ring. The zero value is empty.
type deque[T any] struct {
	ring []T // its length is a power of two, or 0
	head int
	n    int
}

// at returns the element at position i from the front.
func (d *deque[T]) at(i int) *T { return &d.ring[(d.head+i)&(len(d.ring)-1)] }

func (d *deque[T]) grow() {
	ring := make([]T, max(8, 2*len(d.ring)))
	for i := range d.n {
		ring[i] = *d.at(i)
	}
	d.ring, d.head = ring, 0
}

func (d *deque[T]) pushBack(v T) {
	if d.n == len(d.ring) {
		d.grow()
	}
	d.n++
	*d.at(d.n - 1) = v
}

func (d *deque[T]) pushFront(v T) {
	if d.n == len(d.ring) {
		d.grow()
	}
	d.head = (d.head - 1) & (len(d.ring) - 1)
	d.n++
	*d.at(0) = v
}

// popFront takes the first element; there must be one.
func (d *deque[T]) popFront() T {
	var zero T
	p := d.at(0)
	v := *p
	*p = zero
	d.head = (d.head + 1) & (len(d.ring) - 1)
	d.n--
	if d.n == 0 && len(d.ring) > 1024 {
		d.ring, d.head = nil, 0 // a burst's memory isn't kept for ever
	}
	return v
}

// insert puts v at position i from the front.
func (d *deque[T]) insert(i int, v T) {
	if i == 0 {
		d.pushFront(v)
		return
	}
	d.pushBack(v)
	for j := d.n - 1; j > i; j-- {
		*d.at(j) = *d.at(j - 1)
	}
	*d.at(i) = v
}

// clear drops all elements.
func (d *deque[T]) clear() { *d = deque[T]{} }
