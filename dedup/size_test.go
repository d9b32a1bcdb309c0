package dedup_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/dedup"
	"github.com/onceline/onceline/dedup/postgres"
)

// TestSize: a payments consumer of 2,000 messages a second, 0.05 % of whose publishes
// are retried, restarted twenty times a day and committing every five seconds.
func TestSize(t *testing.T) {
	const rate, day = 2000, 24 * time.Hour
	for _, c := range []struct {
		window    time.Duration
		footprint dedup.Footprint
		markers   int64
		gigabytes float64
	}{
		{day, 120, 172_800_000, 20.7}, // the illustration's bytes
		{7 * day, 120, 1_209_600_000, 145.2},
		{day, postgres.MarkerBytes, 172_800_000, 172.8 * float64(postgres.MarkerBytes) / 1000},
		{7 * day, postgres.TimedMarkerBytes, 1_209_600_000, 1209.6 * float64(postgres.TimedMarkerBytes) / 1000},
	} {
		s := dedup.Size(rate, c.window, c.footprint)
		if s.Markers != c.markers || math.Abs(float64(s.Bytes)/1e9-c.gigabytes) > 0.05 || s.PerDay != 172_800_000 {
			t.Errorf("%v: %v", c.window, s)
		}
	}
	producer, redelivery := dedup.Duplicates(rate, 0.0005, 20, 5*time.Second)
	if math.Round(producer) != 86_400 || math.Round(redelivery) != 100_000 {
		t.Errorf("%v and %v duplicates", producer, redelivery)
	}
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if s := dedup.Size(bad, day, 100); s != (dedup.Sizing{}) {
			t.Errorf("rate %v: %v", bad, s)
		}
	}
}

// TestHorizon: a window below the horizon is refused (dex-it/dex-common#232).
func TestHorizon(t *testing.T) {
	h := dedup.Horizon{ProducerRetry: time.Hour, Redelivery: 2 * time.Hour, Replay: 21 * time.Hour}
	if err := h.Check(24 * time.Hour); err != nil {
		t.Error(err)
	}
	if err := h.Check(24*time.Hour - 1); !errors.Is(err, broker.ErrInvalid) {
		t.Errorf("a window that is too short: %v", err)
	}
}
