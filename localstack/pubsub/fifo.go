package pubsub

// fifo is a queue that gives its memory back.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }
func (f *fifo[T]) push(x T) { f.items = append(f.items, x) }

func (f *fifo[T]) first() (x T, ok bool) {
	if f.head == len(f.items) {
		return x, false
	}
	return f.items[f.head], true
}

func (f *fifo[T]) pop() T {
	var none T
	x := f.items[f.head]
	f.items[f.head] = none
	f.head++
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	} else if f.head > 1024 && f.head > len(f.items)/2 {
		f.items = append(f.items[:0], f.items[f.head:]...)
		f.head = 0
	}
	return x
}

// keep drops what f doesn't want.
func (f *fifo[T]) keep(wanted func(T) bool) {
	kept := f.items[:0]
	for _, x := range f.items[f.head:] {
		if wanted(x) {
			kept = append(kept, x)
		}
	}
	clear(f.items[len(kept):])
	f.items, f.head = kept, 0
}
