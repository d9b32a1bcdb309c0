package paired_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/onceline/onceline/broker/driver/paired"
)

func TestInterval(t *testing.T) {
	x := make([]float64, 20)
	for i := range x {
		x[i] = float64(len(x) - i)
	}
	if m, low, high := paired.Interval(x); m != 10.5 || low != 6 || high != 15 {
		t.Errorf("median %v, interval %v to %v; want 10.5, 6 to 15", m, low, high)
	}
	if m, low, high := paired.Interval([]float64{7}); m != 7 || low != 7 || high != 7 {
		t.Errorf("of one value: %v, %v to %v", m, low, high)
	}
}

func TestMessages(t *testing.T) {
	for value, want := range map[string]int{"": 5000, "0": 5000, "1": 2500} {
		t.Setenv(paired.Short, value)
		if n := paired.Messages(5000); n != want {
			t.Errorf("%q: %d, want %d", value, n, want)
		}
	}
}

var kept [][]byte

// TestCompare: ours takes 150 ns for a message where raw takes 100, and three objects
// where raw takes one.
func TestCompare(t *testing.T) {
	runs := [2]int{}
	r := testing.Benchmark(func(b *testing.B) {
		paired.Compare(b, 10, func() time.Duration { runs[0]++; allocate(10); return time.Microsecond },
			func() time.Duration { runs[1]++; allocate(30); work(300_000); return 1500 * time.Nanosecond })
	})
	if runs[0] != runs[1] || runs[0] < paired.Pairs {
		t.Errorf("%d and %d runs", runs[0], runs[1])
	}
	for unit, want := range map[string]float64{"ratio": 1 / 1.5, "added-ns/msg": 50, "added-low": 50, "added-high": 50} {
		if got := r.Extra[unit]; got < want-0.001 || got > want+0.001 {
			t.Errorf("%s is %v, want %v", unit, got, want)
		}
	}
	// Beside the test's own there are a few of the runtime.
	if got := r.Extra["added-allocs"]; got < 1.9 || got > 2.1 {
		t.Errorf("added-allocs is %v, want 2", got)
	}
	// A step takes a tenth of a nanosecond at least, on any machine.
	if got, ok := r.Extra["added-cpu"]; ok == (runtime.GOOS == "windows") || ok && got < 3000 {
		t.Errorf("added-cpu is %v (%v)", got, ok)
	}
}

var sum int

// work takes processor time, so many steps.
func work(steps int) {
	for i := range steps {
		sum ^= i * sum
	}
}

func allocate(n int) {
	kept = make([][]byte, 0, 64)
	for range n {
		kept = append(kept, make([]byte, 100))
	}
}
