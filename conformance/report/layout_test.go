package report

import (
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

func TestDraw(t *testing.T) {
	if draw("none", nil) != nil {
		t.Error("an empty history has no diagram")
	}
	s := draw("all", []Event{
		{At: 0, Actor: Producer, Kind: "publish", ID: "a"},
		{At: 1, Actor: Producer, Kind: "receipt", ID: "a"}, // written down by the one who got it
		{At: 2, Actor: Fault, Kind: "cut"},
		{At: 3, Actor: Consumer, Kind: "effect", ID: "b"},
		{At: 4, Actor: Broker, Kind: "restart"},
		{At: 5, Actor: Broker, Kind: "fault", ID: "a", Note: "disk full"},
		{At: 6, Actor: Clock, Kind: "advance"},
		{At: 7, Actor: "somebody", Kind: "unheard-of"},
	})
	if len(s.Lanes) != 4 || s.Lanes[1].Name != "broker" {
		t.Fatalf("lanes: %+v", s.Lanes)
	}
	x := func(i int) int { return s.Lanes[i].X }
	want := []struct {
		band, fault bool
		from, to    int
		label       string
		hue         int
	}{
		{false, false, x(0), x(1), "publish a", 0},
		{false, false, x(1), x(0), "receipt a", 0},
		{true, true, 0, 0, "fault cut", -1},
		{false, false, x(2), x(3), "effect b", 1},
		{false, false, x(1), x(1), "restart", -1},
		{false, true, x(1), x(1), "fault a", 0},
		{true, false, 0, 0, "clock advance", -1},
		{true, false, 0, 0, "somebody unheard-of", -1},
	}
	for i, w := range want {
		m := s.Marks[i]
		if m.Band != w.band || m.Fault != w.fault || m.Label != w.label || m.Hue != w.hue {
			t.Errorf("%d: %+v", i, m)
		}
		if !w.band && (m.From != w.from || m.To != w.to) {
			t.Errorf("%d: from %d to %d, want %d to %d", i, m.From, m.To, w.from, w.to)
		}
	}
}

func TestDrawCutsLongHistories(t *testing.T) {
	history := make([]Event, maxListed+10)
	for i := range history {
		history[i] = Event{At: float64(i), Actor: Broker, Kind: "tick"}
	}
	s := draw("long", history)
	if len(s.Marks) != maxDrawn || s.Left != len(history)-maxDrawn {
		t.Errorf("%d drawn, %d left", len(s.Marks), s.Left)
	}
	r := &Report{Targets: []Target{{Name: "t", Findings: []Finding{{Claim: "c", Hop: 1, Verdict: Equal, Evidence: Evidence{History: history}}}}}}
	var b strings.Builder
	if err := WriteHTML(&b, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1970 later events are not drawn", "All events as a table (2010)", "10 further events are in the JSON report"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page does not say %q", want)
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
