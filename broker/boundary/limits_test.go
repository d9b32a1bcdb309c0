package boundary

import (
	"testing"
	"time"
)

func TestLimitText(t *testing.T) {
	for want, c := range map[string]struct {
		name LimitName
		of   Limit
	}{
		"none":                               {LimitWindow, Limit{Absent: true}},
		"no bound":                           {LimitID, Limit{}},
		"at most 1 MiB":                      {LimitBody, Limit{Most: 1 << 20}},
		"1 KiB to 1 MiB, 256 KiB by default": {LimitBody, Limit{Least: 1 << 10, Most: 1 << 20, Default: 1 << 18}},
		"at most 10000000 bytes":             {LimitBody, Limit{Most: 10_000_000}},
		"at most 128 characters":             {LimitID, Limit{Most: 128}},
		"always 5 min":                       {LimitWindow, Limit{Least: int64(5 * time.Minute), Most: int64(5 * time.Minute)}},
		"20 s to 7 days, 10 min by default":  {LimitWindow, Limit{Least: int64(20 * time.Second), Most: int64(7 * 24 * time.Hour), Default: int64(10 * time.Minute)}},
		"at least 100ms":                     {LimitWindow, Limit{Least: int64(100 * time.Millisecond)}},
		"at most 24 h":                       {LimitLease, Limit{Most: int64(24 * time.Hour)}},
	} {
		if got := c.name.Text(c.of); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestNarrower(t *testing.T) {
	for _, c := range []struct {
		from, to Limit
		want     bool
	}{
		{Limit{Most: 10}, Limit{Most: 10}, false},
		{Limit{Most: 10}, Limit{Most: 9}, true},
		{Limit{Most: 9}, Limit{Most: 10}, false},
		{Limit{}, Limit{Most: 10}, true},
		{Limit{Most: 10}, Limit{}, false},
		{Limit{Least: 1}, Limit{Least: 2}, true},
		{Limit{Least: 2, Most: 5}, Limit{Least: 1, Most: 6}, false},
		{Limit{Most: 10}, Limit{Absent: true}, true},
		{Limit{Absent: true}, Limit{Most: 10}, false},
	} {
		if got := c.from.Narrower(c.to); got != c.want {
			t.Errorf("%+v to %+v: %v", c.from, c.to, got)
		}
	}
}
