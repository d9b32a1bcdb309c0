// Package paired times two ways of doing the same thing in pairs of runs that
// alternate, so that whatever else the machine does hits both. Adapters measure
// with it what they cost beside the raw SDK.
package paired

import (
	"math"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
)

// Pairs is how many pairs of runs one turn of a benchmark makes.
const Pairs = 20

// Short is the environment variable that makes runs short, for a check that has little
// time: the pairs are as many, their interval is wider.
const Short = "ONCELINE_SHORT_RUNS"

// Messages is how many messages a run has that has n where there is time: half of them
// with [Short] set to 1.
func Messages(n int) int {
	if os.Getenv(Short) == "1" {
		return n / 2
	}
	return n
}

// Compare runs raw and ours in alternating order, [Pairs] times for each turn of
// b, after one run of each to warm up, and reports medians over the pairs with
// their 95 % interval by order statistics:
//
//	ratio, ratio-low, ratio-high          time of raw over time of ours: over 1, ours is faster
//	added-ns/msg, added-low, added-high   what ours takes longer for a message, nanoseconds
//	raw-msg/s, ours-msg/s                 messages per second, over all runs
//	added-allocs                          what ours allocates more for a message, objects
//	added-cpu, -cpu-low, -cpu-high        processor time that ours takes more for a message, nanoseconds
//
// Both run functions handle that many messages and return how long it took. What they
// allocate counts whole, with what they prepare, so each has to prepare the same; an
// emulator in this process allocates for both. So it is with processor time, which is
// left out where the system doesn't tell it.
func Compare(b *testing.B, messages int, raw, ours func() time.Duration) {
	b.Helper()
	raw()
	ours()
	n := b.N * Pairs
	ratios, added, objects, cpu := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	var rawTotal, oursTotal time.Duration
	for i := range n {
		var r, o run
		if i%2 == 0 {
			r = counted(raw)
			o = counted(ours)
		} else {
			o = counted(ours)
			r = counted(raw)
		}
		each := float64(messages)
		objects[i] = (float64(o.objects) - float64(r.objects)) / each
		ratios[i] = r.took.Seconds() / o.took.Seconds()
		added[i] = float64(o.took-r.took) / each
		cpu[i] = float64(o.cpu-r.cpu) / each
		rawTotal, oursTotal = rawTotal+r.took, oursTotal+o.took
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
	if _, ok := processor(); ok {
		median, low, high = Interval(cpu)
		b.ReportMetric(median, "added-cpu")
		b.ReportMetric(low, "added-cpu-low")
		b.ReportMetric(high, "added-cpu-high")
	}
	all := float64(n * messages)
	b.ReportMetric(all/rawTotal.Seconds(), "raw-msg/s")
	b.ReportMetric(all/oursTotal.Seconds(), "ours-msg/s")
	b.ReportMetric(0, "ns/op")
}

// run is what one run took.
type run struct {
	took, cpu time.Duration
	objects   uint64
}

// counted is a run, and what was taken meanwhile.
func counted(do func() time.Duration) run {
	var before, after runtime.MemStats
	runtime.GC() // what was run before leaves no garbage to this one
	runtime.ReadMemStats(&before)
	begin, _ := processor()
	took := do()
	end, _ := processor()
	runtime.ReadMemStats(&after)
	return run{took, end - begin, after.Mallocs - before.Mallocs}
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
