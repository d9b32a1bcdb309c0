package fault

import (
	"sync"
	"sync/atomic"
)

// Set is the armed faults of one emulator. The zero value is ready for use, and
// all methods are safe for concurrent use. Asking it costs one atomic load while
// nothing is armed, for it is asked about every request.
type Set struct {
	list atomic.Pointer[[]*Injection]
	mu   sync.Mutex // serialises writers
}

// Inject arms f. It is not armed if it is invalid, or if refuse, by which an
// emulator says that it doesn't know what f asks for, is not nil.
func (s *Set) Inject(f Fault, refuse error) *Injection {
	i := &Injection{fault: f, set: s, changed: make(chan struct{}), err: f.Validate()}
	if i.err == nil {
		i.err = refuse
	}
	if i.err != nil {
		return i
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var next []*Injection
	if old := s.list.Load(); old != nil {
		next = append(next, *old...)
	}
	next = append(next, i)
	s.list.Store(&next)
	return i
}

func (s *Set) drop(i *Injection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.list.Load()
	if old == nil {
		return
	}
	var next []*Injection
	for _, o := range *old {
		if o != i {
			next = append(next, o)
		}
	}
	if next == nil {
		s.list.Store(nil)
		return
	}
	s.list.Store(&next)
}

// Armed returns the faults to try, in the order of their injection; nil when
// there are none.
func (s *Set) Armed() []*Injection {
	if l := s.list.Load(); l != nil {
		return *l
	}
	return nil
}

// Strike claims the first armed fault that concerns a request which has just
// arrived: of the classes ops, named api in the protocol, and on an entity that
// concerns reports to be meant by a name. It is nil where there is none. A
// [LoseResponse] of what a Receive hands out is for [Set.StrikeHandout].
func (s *Set) Strike(ops Ops, api string, concerns func(match string) bool) *Injection {
	for _, i := range s.Armed() {
		f := &i.fault
		if f.Kind == LoseResponse && (f.Op == Receive || ops == Receive.Ops()) {
			continue
		}
		if i.concerns(ops, api, concerns) && i.Take() {
			return i
		}
	}
	return nil
}

// StrikeHandout claims the first armed [LoseResponse] that concerns messages
// which are about to leave for a consumer, in a response or one by one, by the
// operation named api. It is nil where there is none.
func (s *Set) StrikeHandout(api string, concerns func(match string) bool) *Injection {
	for _, i := range s.Armed() {
		if i.fault.Kind == LoseResponse && i.concerns(Receive.Ops(), api, concerns) && i.Take() {
			return i
		}
	}
	return nil
}

// concerns leaves the entity for last: asking for it may cost something.
func (i *Injection) concerns(ops Ops, api string, entity func(match string) bool) bool {
	f := &i.fault
	if f.API != "" && f.API != api {
		return false
	}
	if !f.Op.Covers(ops) && (f.API == "" || f.Op != Any) {
		return false
	}
	return f.Match == "" || entity != nil && entity(f.Match)
}

// Ops is a set of operations, as one request can be more than one.
type Ops uint8

// Ops returns the set of o alone.
func (o Op) Ops() Ops { return 1 << o }

// Covers says whether a fault on o concerns a request of the classes in s.
// A request of no class is concerned by none.
func (o Op) Covers(s Ops) bool {
	return o == Any && s != 0 || s&o.Ops() != 0
}
