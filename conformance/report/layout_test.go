package report

import (
	"math"
	"strings"
	"testing"
)

func TestColumnsAndClip(t *testing.T) {
	cases := []struct {
		in      string
		columns int
		n       int
		clipped string
	}{
		{"", 0, 5, ""},
		{"plain", 5, 5, "plain"},
		{"plain", 5, 4, "pla…"},
		{"plain", 5, 1, "…"},
		{"plain", 5, 0, ""},
		{"e\u0301te\u0301", 3, 3, "e\u0301te\u0301"}, // combining accents take no column
		{"e\u0301te\u0301", 3, 2, "e\u0301…"},
		{"消息锁", 6, 6, "消息锁"},
		{"消息锁", 6, 5, "消息…"},
		{"消息锁", 6, 4, "消…"},
		{"🔒a", 3, 2, "…"},
	}
	for _, c := range cases {
		if got := columns(c.in); got != c.columns {
			t.Errorf("columns(%q) = %d, want %d", c.in, got, c.columns)
		}
		got := clip(c.in, c.n)
		if got != c.clipped || columns(got) > c.n {
			t.Errorf("clip(%q, %d) = %q, want %q", c.in, c.n, got, c.clipped)
		}
		if p := pad(c.in, c.n); columns(p) != c.n {
			t.Errorf("pad(%q, %d) = %q takes %d columns", c.in, c.n, p, columns(p))
		}
	}
}

func TestWrap(t *testing.T) {
	for _, s := range []string{"one two three four five", strings.Repeat("x", 30), "消息锁已丢失消息锁已丢失", "a " + strings.Repeat("y", 17) + " b"} {
		lines := wrap(s, 10)
		for _, l := range lines {
			if columns(l) > 10 {
				t.Errorf("%q: line %q is too long", s, l)
			}
		}
		squeeze := func(s string) string { return strings.ReplaceAll(s, " ", "") }
		if squeeze(strings.Join(lines, "")) != squeeze(s) {
			t.Errorf("%q lost text: %q", s, lines)
		}
	}
	if wrap("", 10) != nil {
		t.Error("an empty text has no lines")
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain → ✓\n\tx": "plain → ✓\n\tx",
		"\x1b[31m":       `\x1b[31m`,
		"a\u202eb":       `a\u202eb`,
		"\r\x00\x7f":     `\r\x00\x7f`,
		"\u009b":         `\u009b`,
		"\xff":           "\uFFFD",
	} {
		if got := visible(in); got != want {
			t.Errorf("visible(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[float64]string{0: "0.000 s", 1.2044: "1.204 s", 83.25: "83.2 s", 125.7: "2 min 5 s"} {
		if got := duration(in); got != want {
			t.Errorf("duration(%v) = %q, want %q", in, got, want)
		}
	}
}

// An event's lanes are those of what it is, whoever wrote it down; none means all.
func TestEventEnds(t *testing.T) {
	for e, want := range map[Event][2]any{
		{Actor: Producer, Kind: "publish"}:    {Producer, Broker},
		{Actor: Producer, Kind: "receipt"}:    {Broker, Producer}, // by the one who got it
		{Actor: Broker, Kind: "receipt"}:      {Broker, Producer},
		{Actor: Broker, Kind: "delivery"}:     {Broker, Consumer},
		{Actor: Consumer, Kind: "settle"}:     {Consumer, Broker},
		{Actor: Consumer, Kind: "effect"}:     {Consumer, Store},
		{Actor: Broker, Kind: "restart"}:      {Broker, Broker},
		{Actor: Broker, Kind: "fault"}:        {Broker, Broker},
		{Actor: Fault, Kind: "publish"}:       {Actor(""), Actor("")},
		{Actor: Clock, Kind: "wait"}:          {Actor(""), Actor("")},
		{Actor: "somebody", Kind: "unheard"}:  {Actor(""), Actor("")},
		{Actor: "somebody", Kind: "delivery"}: {Broker, Consumer},
	} {
		if d := dataOf(e); d[5] != want[0] || d[6] != want[1] {
			t.Errorf("%+v goes from %q to %q, want %q", e, d[5], d[6], want)
		}
	}
	for at, want := range map[float64]float64{0: 0, 1.2345: 1235, math.Inf(1): 0, math.NaN(): 0} {
		if got := dataOf(Event{At: at})[0]; got != want {
			t.Errorf("at %v: %v ms, want %v", at, got, want)
		}
	}
}

func TestMarkdownCode(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a.b": "`a.b`", "a|b": "`a\\|b`", "a`b": "`` a`b ``", "``": "``` `` ```", "a\nb": "`a b`",
	} {
		if got := mdCode(in); got != want {
			t.Errorf("mdCode(%q) = %q, want %q", in, got, want)
		}
	}
}
