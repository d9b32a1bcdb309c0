package ratios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/internal/bubbletest"
)

func TestMet(t *testing.T) {
	least, most := Promise{Bound: 10}, Promise{Bound: 10, Most: true}
	exact := Promise{Bound: 95, Most: true, Exact: true}
	for _, c := range []struct {
		p         Promise
		x         float64
		met, gate bool
	}{
		{least, 10, true, true}, {least, 9.9, false, true}, {least, 9.1, false, true}, {least, 8.9, false, false},
		{most, 10, true, true}, {most, 10.1, false, true}, {most, 11.1, false, false},
		{exact, 95, true, true}, {exact, 95.1, false, false},
	} {
		if met, gate := c.p.Met(c.x, false), c.p.Met(c.x, true); met != c.met || gate != c.gate {
			t.Errorf("%s of %v: met %t, at a gate %t", c.p.Bounds(), c.x, met, gate)
		}
	}
}

// TestPairs: the base takes 10 ms for a message and ours 40 ms for 20, so it is five
// times as fast; a run of each before the pairs doesn't count.
func TestPairs(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		var order strings.Builder
		takes := func(name string, messages int, first, d time.Duration) way {
			return way{messages, func(context.Context) error {
				order.WriteString(name)
				time.Sleep(max(first, d))
				first = 0
				return nil
			}}
		}
		s, err := pairs(t.Context(), 4, 1, takes("b", 1, time.Hour, 10*time.Millisecond), takes("o", 20, time.Minute, 40*time.Millisecond))
		if err != nil || !slices.Equal(s.values, []float64{5, 5, 5, 5}) || s.detail != "100 and 500 messages/s" || order.String() != "ob"+"boob"+"boob" {
			t.Errorf("%v, %v, %s", s, err, order.String())
		}
		order.Reset()
		s, err = pairs(t.Context(), 2, 3, takes("b", 1, 0, 10*time.Millisecond), takes("o", 1, 0, 10*time.Millisecond))
		if err != nil || !slices.Equal(s.values, []float64{1, 1}) || order.String() != "obboob"+"boobbo"+"obboob" {
			t.Errorf("in parts: %v, %v, %s", s, err, order.String())
		}
		fails := errors.New("fails")
		if _, err := pairs(t.Context(), 1, 1, way{1, func(context.Context) error { return fails }}, way{1, func(context.Context) error { return nil }}); !errors.Is(err, fails) {
			t.Error(err)
		}
	})
}

// fake is a bench whose measurements are given.
type fake struct {
	values []float64 // one for each turn
	closed bool
}

func (f *fake) close() error { f.closed = true; return nil }

func (f *fake) next(context.Context, *fake) (sample, error) {
	if len(f.values) == 0 {
		return sample{}, errors.New("no more turns")
	}
	x := f.values[0]
	f.values = f.values[1:]
	if x < 0 {
		return sample{}, nil
	}
	return sample{[]float64{x, x, x}, ""}, nil
}

// TestRun: what is wanted is measured, with a second try where quick misses its gate;
// what can't be measured is no promise kept.
func TestRun(t *testing.T) {
	p := Promise{Name: "x.y", Bound: 10, Unit: "×"}
	exact := Promise{Name: "x.y", Bound: 10, Unit: "B", Exact: true}
	for _, c := range []struct {
		p      Promise
		only   string
		quick  bool
		values []float64
		want   string
	}{
		{p, "", false, []float64{10}, "10 kept"},
		{p, "", false, []float64{9.9, 12}, "9.9 missed"},
		{p, "x.*", true, []float64{9.5}, "9.5 kept"},
		{p, "", true, []float64{3, 9.5}, "9.5 kept again"},
		{p, "", true, []float64{3, 4}, "4 missed again"},
		{exact, "", true, []float64{9.5, 12}, "9.5 missed"},
		{p, "", false, nil, "no more turns"},
		{p, "", true, []float64{3}, "no more turns"},
		{p, "", false, []float64{-1}, "nothing was measured"},
		{p, "z.*", false, []float64{10}, "nothing"},
	} {
		b := &fake{values: c.values}
		g := &groupOf[*fake]{"fakes", func(context.Context, *Options) (*fake, error) { return b, nil }, []measurement[*fake]{{c.p, b.next}}}
		o := Options{Quick: c.quick, Progress: func(string, ...any) {}}
		if c.only != "" {
			o.Only = []string{c.only}
		}
		got := "nothing"
		g.run(t.Context(), &o, func(r Result) {
			switch got = fmt.Sprint(r.Median, map[bool]string{true: " kept", false: " missed"}[r.Kept], map[bool]string{true: " again"}[r.Again]); {
			case r.Err != nil:
				got = r.Err.Error()
			case r.Low != r.Median || r.High != r.Median || r.N != 3:
				t.Errorf("%+v", r)
			}
		})
		if got != c.want || b.closed != (c.want != "nothing") {
			t.Errorf("%v, quick %t: %q, want %q; closed %t", c.values, c.quick, got, c.want, b.closed)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	never := &groupOf[*fake]{"fakes", func(context.Context, *Options) (*fake, error) { t.Error("opened"); return nil, nil }, []measurement[*fake]{{p, nil}}}
	never.run(ended, &Options{Progress: func(string, ...any) {}}, func(r Result) {
		if r.Kept || !errors.Is(r.Err, context.Canceled) {
			t.Errorf("interrupted: %+v", r)
		}
	})
	g := &groupOf[*fake]{"fakes", func(context.Context, *Options) (*fake, error) { return nil, errors.New("no server") }, []measurement[*fake]{{p, nil}}}
	g.run(t.Context(), &Options{Progress: func(string, ...any) {}}, func(r Result) {
		if r.Kept || r.Err == nil || r.Err.Error() != "fakes: no server" {
			t.Errorf("%+v", r)
		}
	})
}

// TestPromises: the names are the store's and what of it, each once.
func TestPromises(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Promises() {
		store, _, ok := strings.Cut(p.Name, ".")
		if !ok || seen[p.Name] || !slices.Contains([]string{"postgres", "sqlite", "redis"}, store) || p.What == "" || p.Bound <= 0 || p.Unit == "" {
			t.Errorf("%+v", p)
		}
		seen[p.Name] = true
	}
}
