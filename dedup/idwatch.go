package dedup

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/broker"
)

// idWatch is an [IDCheck] for the messages that come by, which keeps warnings few.
type idWatch struct {
	once  sync.Once
	check *IDCheck
	seen  atomic.Uint64
	said  atomic.Int64 // when the last warning was, in nanoseconds since 1970
	// served: the window was checked, of HandleBatch.
	served atomic.Bool
}

const (
	// idWatched is how many messages are remembered, and of how many, from the first
	// on, the body is hashed where the ID is as long as a hash. A producer that makes
	// such IDs makes all of them so, and one in idSampled later on finds it, too.
	idWatched = 1000
	idSampled = 100
)

func (w *idWatch) look(m *broker.Message) string {
	w.once.Do(func() { w.check = NewIDCheck(idWatched) })
	n := w.seen.Add(1)
	return w.check.look(m, n <= idWatched || n%idSampled == 0)
}

// warnEvery is the time between two warnings about IDs.
const warnEvery = time.Minute

// due reports whether a warning may be given, and takes note of it.
func (w *idWatch) due(now time.Time) bool {
	said := w.said.Load()
	return (said == 0 || now.UnixNano()-said >= int64(warnEvery)) && w.said.CompareAndSwap(said, now.UnixNano())
}
