package broker

import (
	"fmt"
	"testing"
)

func TestAttemptsAreBounded(t *testing.T) {
	var a attempts
	for i := range 10 * attemptsKept {
		a.fail(&Delivery{Message: Message{ID: fmt.Sprint(i)}})
		if n := len(a.young) + len(a.old); n > 2*attemptsKept {
			t.Fatalf("%d messages are remembered", n)
		}
	}
	// The last ones are.
	d := &Delivery{Message: Message{ID: fmt.Sprint(10*attemptsKept - attemptsKept)}}
	if n := a.fail(d); n != 2 {
		t.Errorf("attempt %d", n)
	}
	if n := a.fail(&Delivery{Message: Message{ID: d.ID, Copy: "1"}}); n != 1 {
		t.Errorf("attempt %d of another copy", n)
	}
	a.forget(d)
	if n := a.fail(d); n != 1 {
		t.Errorf("attempt %d after it was forgotten", n)
	}
	// A number that is exact counts, less what cost nothing; one that isn't doesn't.
	exact := &Delivery{Message: Message{ID: "exact"}, Attempt: Attempt{Number: 7, Trust: Exact}}
	a.spare(exact)
	a.spare(exact)
	if n := a.fail(exact); n != 5 {
		t.Errorf("attempt %d", n)
	}
	if n := a.fail(&Delivery{Message: Message{ID: "about"}, Attempt: Attempt{Number: 7, Trust: Approximate}}); n != 1 {
		t.Errorf("attempt %d", n)
	}
	// With nothing to count by there is only the broker's number.
	if n := a.fail(&Delivery{Attempt: Attempt{Number: 7, Trust: Approximate}}); n != 7 {
		t.Errorf("attempt %d", n)
	}
	if n := a.fail(&Delivery{}); n != 1 {
		t.Errorf("attempt %d", n)
	}
}

func TestBackoffPause(t *testing.T) {
	b := Backoff{Min: 3, Max: 20}
	for n, want := range map[int]int64{-1: 3, 0: 3, 1: 3, 2: 6, 3: 12, 4: 20, 5: 20, 61: 20, 62: 20, 63: 20, 64: 20, 1 << 40: 20} {
		if got := b.pause(n, func() float64 { return 1 }); int64(got) != want {
			t.Errorf("after failure %d: %d, want %d", n, got, want)
		}
		if got := b.pause(n, func() float64 { return 0 }); got != 0 {
			t.Errorf("after failure %d: %d, want none", n, got)
		}
	}
	if d := (Backoff{Min: 50, Max: 10}).withDefaults(); d.Max != 50 {
		t.Errorf("%+v", d)
	}
}
