package conformance

import (
	"fmt"
	"sync"
	"time"

	"github.com/onceline/onceline/conformance/report"
)

// History is what happened in one probe, in order of time. It is safe for
// concurrent use.
type History struct {
	mu     sync.Mutex
	start  time.Time
	events []report.Event
	lost   int // over max
	max    int
}

// maxEvents bounds what one probe keeps; more than that nobody reads.
const maxEvents = 2000

func newHistory() *History { return &History{start: time.Now(), max: maxEvents} }

// Add records an event. The time is monotonic, since the probe's start.
func (h *History) Add(actor report.Actor, kind, id, format string, args ...any) {
	note := format
	if len(args) > 0 {
		note = fmt.Sprintf(format, args...)
	}
	h.Record(report.Event{Actor: actor, Kind: kind, ID: id, Note: note})
}

// Record is Add for an event with more to it; its time is set.
func (h *History) Record(e report.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.events) == h.max {
		h.lost++
		return
	}
	e.At = time.Since(h.start).Seconds()
	h.events = append(h.events, e)
}

// now is the time of an event that is recorded now.
func (h *History) now() float64 { return time.Since(h.start).Seconds() }

// Events returns a copy of what was recorded so far.
func (h *History) Events() []report.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := append([]report.Event{}, h.events...)
	if h.lost > 0 {
		events = append(events, report.Event{At: time.Since(h.start).Seconds(), Actor: report.Clock,
			Kind: "cut", Note: fmt.Sprintf("%d more events are not kept", h.lost)})
	}
	return events
}
