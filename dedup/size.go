package dedup

import (
	"fmt"
	"math"
	"time"

	"github.com/onceline/onceline/broker"
)

// Horizon is how long after a message's first copy another one may come: the sum of
// what can happen one after the other.
type Horizon struct {
	// ProducerRetry is how long a producer goes on trying to send a message,
	// outages and an outbox that was down included.
	ProducerRetry time.Duration
	// Redelivery is how long the broker keeps delivering a message that isn't
	// acked: its retention, or lease times deliveries, or the longest incident.
	Redelivery time.Duration
	// Replay is how far operators reset offsets, and how old a dead letter may be
	// that they resubmit.
	Replay time.Duration
}

// Total is the horizon: how long markers must be kept.
func (h Horizon) Total() time.Duration { return h.ProducerRetry + h.Redelivery + h.Replay }

// Check returns an error, which is [broker.ErrInvalid], if markers that are kept for
// window are gone before the last copy of their message may come.
func (h Horizon) Check(window time.Duration) error {
	if total := h.Total(); window < total {
		return broker.Errorf(broker.ErrInvalid, nil,
			"dedup: markers are kept for %v, but a copy may come %v after the first (producer's retries %v, redelivery %v, replay %v): it would be applied again",
			window, total, h.ProducerRetry, h.Redelivery, h.Replay)
	}
	return nil
}

// Footprint is the bytes that a marker takes in a store, index and free space
// included, as measured at a million markers.
type Footprint float64

// Sizing is how large the markers of a window grow.
type Sizing struct {
	Markers int64 // held at a time
	Bytes   int64
	// PerDay is how many are written, and in the long run removed, in a day.
	PerDay int64
}

func (s Sizing) String() string {
	return fmt.Sprintf("%d markers, %.1f GB, %d a day", s.Markers, float64(s.Bytes)/1e9, s.PerDay)
}

// Size returns how large the markers of window grow at rate messages a second. A
// negative or senseless rate or window is none.
func Size(rate float64, window time.Duration, f Footprint) Sizing {
	if !(rate > 0) || math.IsInf(rate, 0) || window <= 0 {
		return Sizing{}
	}
	n := math.Ceil(rate * window.Seconds())
	return Sizing{Markers: int64(n), Bytes: int64(n * float64(f)), PerDay: int64(math.Ceil(rate * 86400))}
}

// Duplicates estimates how many copies a day an inbox has to catch, so that its
// count of duplicates can be held against something: rate messages a second, of
// whose publishes the share retried is sent again, and a consumer that is restarted
// or rebalanced that many times a day, each time repeating half of what comes
// between two commits of its progress.
func Duplicates(rate, retried float64, restarts int, commitEvery time.Duration) (producer, redelivery float64) {
	return rate * 86400 * retried, float64(restarts) * rate * commitEvery.Seconds() / 2
}
