package localstack

import "sync/atomic"

// tracer hands a line for each request to whoever listens. Its zero value has no
// listener.
type tracer struct {
	to atomic.Pointer[func(line string)]
}

func (t *tracer) set(f func(line string)) {
	if f == nil {
		t.to.Store(nil)
		return
	}
	t.to.Store(&f)
}

// on reports whether somebody listens, so that no line is made for nobody.
func (t *tracer) on() bool { return t.to.Load() != nil }

func (t *tracer) line(s string) {
	if f := t.to.Load(); f != nil {
		(*f)(s)
	}
}
