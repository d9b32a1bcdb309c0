// Package paired times two ways of doing the same thing in pairs of runs that
// alternate, so that whatever else the machine does hits both. Adapters measure
// with it what they cost beside the raw SDK.
package paired

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"
)

// Pairs is how many pairs of runs one turn of a benchmark makes.
const Pairs = 20

// Compare runs raw and ours in alternating order, [Pairs] times for each turn of
// b, after one run of each to warm up, and reports medians over the pairs with
// their 95 % interval by order statistics:
//
//	ratio, ratio-low, ratio-high          time of raw over time of ours: over 1, ours is faster
//	added-ns/msg, added-low, added-high   what ours takes longer for a message, nanoseconds
//	raw-msg/s, ours-msg/s                 messages per second, over all runs
//	added-allocs                          what ours allocates more for a message, objects
//
// Both run functions handle that many messages and return how long it took. What they
// allocate counts whole, with what they prepare, so each has to prepare the same; an
// emulator in this process allocates for both.
func Compare(b *testing.B, messages int, raw, ours func() time.Duration) {
	b.Helper()
	raw()
	ours()
	ratios, added, objects := make([]float64, b.N*Pairs), make([]float64, b.N*Pairs), make([]float64, b.N*Pairs)
	var rawTotal, oursTotal time.Duration
	for i := range ratios {
		var r, o time.Duration
		var rawObjects, ourObjects uint64
		if i%2 == 0 {
			r, rawObjects = counted(raw)
			o, ourObjects = counted(ours)
		} else {
			o, ourObjects = counted(ours)
			r, rawObjects = counted(raw)
		}
		objects[i] = (float64(ourObjects) - float64(rawObjects)) / float64(messages)
		ratios[i] = r.Seconds() / o.Seconds()
		added[i] = float64(o-r) / float64(messages)
		rawTotal, oursTotal = rawTotal+r, oursTotal+o
	}
	median, low, high := Interval(ratios)
	b.ReportMetric(median, "ratio")
	b.ReportMetric(low, "ratio-low")
	b.ReportMetric(high, "ratio-high")
	median, low, high = Interval(added)
	b.ReportMetric(median, "added-ns/msg")
	b.ReportMetric(low, "added-low")
	b.ReportMetric(high, "added-high")
	median, _, _ = Interval(objects)
	b.ReportMetric(median, "added-allocs")
	all := float64(len(ratios) * messages)
	b.ReportMetric(all/rawTotal.Seconds(), "raw-msg/s")
	b.ReportMetric(all/oursTotal.Seconds(), "ours-msg/s")
	b.ReportMetric(0, "ns/op")
}

// counted is a run, and how many objects were allocated meanwhile.
func counted(run func() time.Duration) (time.Duration, uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	took := run()
	runtime.ReadMemStats(&after)
	return took, after.Mallocs - before.Mallocs
}

// Interval returns the median of x, which isn't empty, and its 95 % interval by
// order statistics: the number of values below the median is binomial(n, 1/2).
func Interval(x []float64) (median, low, high float64) {
	x = slices.Sorted(slices.Values(x))
	n := len(x)
	median = (x[(n-1)/2] + x[n/2]) / 2
	k := max(int(math.Floor(float64(n)/2-1.96*math.Sqrt(float64(n))/2)), 0)
	return median, x[k], x[n-1-k]
}
