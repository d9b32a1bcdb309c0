package memory

import "github.com/onceline/onceline/broker"

// room is memory for copies of the slices of a batch: one allocation for many.
// A copy that stays holds its block, so a block is small and a large slice has
// one of its own.
type room[T any] struct {
	free  []T
	left  int // what is yet to come
	block int // largest shared block
}

// roomFor returns the room for the bodies and headers of msgs.
func roomFor(msgs []broker.Message) (bodies room[byte], headers room[broker.Header]) {
	bodies, headers = newRooms()
	for i := range msgs {
		bodies.left += len(msgs[i].Body)
		headers.left += len(msgs[i].Headers)
	}
	return bodies, headers
}

// newRooms returns rooms of which nobody said yet how much will come.
func newRooms() (bodies room[byte], headers room[broker.Header]) {
	bodies.block, headers.block = 16<<10, 256
	return bodies, headers
}

// copy returns a copy of s, nil if it is empty. To append to it doesn't touch
// its neighbours.
func (r *room[T]) copy(s []T) []T {
	n := len(s)
	if n == 0 {
		return nil
	}
	r.left -= n
	if n > r.block/4 {
		return append(make([]T, 0, n), s...)
	}
	if n > len(r.free) {
		r.free = make([]T, min(n+max(r.left, 0), r.block))
	}
	out := r.free[:n:n]
	r.free = r.free[n:]
	copy(out, s)
	return out
}
