package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// script makes a history out of lines such as "publish a key=k by=p", "receipt a Stored",
// "delivery a by=c pos=1 attempt=1 asked=3", "settle a Ack by=c", "outcome a Ack
// Confirmed by=c", "effect a by=c", each a second after the one before, unless "+0.5"
// stands in front.
func script(drained bool, lines string) History {
	h := History{Schema: Schema, Drained: drained}
	at := 0.0
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		step := 1.0
		if words[0][0] == '+' {
			fmt.Sscanf(words[0], "+%g", &step)
			words = words[1:]
		}
		at += step
		e := Event{At: at, Kind: words[0], ID: words[1]}
		var plain []string
		for _, w := range words[2:] {
			name, value, ok := strings.Cut(w, "=")
			if !ok {
				plain = append(plain, w)
				continue
			}
			switch name {
			case "key":
				e.Key = value
			case "copy":
				e.Copy = value
			case "by":
				e.Holder = value
			case "pos":
				e.Position = value
			case "attempt":
				fmt.Sscan(value, &e.Attempt)
			case "asked":
				fmt.Sscan(value, &e.Asked)
			}
		}
		switch e.Kind {
		case Receipt:
			e.Verdict = plain[0]
		case Settle:
			e.Action = plain[0]
		case Outcome:
			e.Action, e.State = plain[0], plain[1]
		}
		h.Events = append(h.Events, e)
	}
	return h
}

// TestCheck: each anomaly is found where it is, and none where it isn't.
func TestCheck(t *testing.T) {
	const a = "publish a key=k by=p\n receipt a Stored\n"
	const b = "publish b key=k by=p\n receipt b Stored\n"
	for _, c := range []struct {
		name    string
		running bool // not drained
		lines   string
		want    string // kind:id, …
	}{
		{"nothing", false, "", ""},
		{"of another kind", false, "published a\n" + "delivery a", ""},
		{"all well", false, a + "delivery a by=c attempt=1\n settle a Ack by=c\n outcome a Ack Confirmed by=c", ""},

		{"lost", false, a + b + "delivery b by=c", "lost:a gap:a"},
		{"accepted is a promise", false, "publish a\n receipt a Accepted", "lost:a"},
		{"it may come later", true, a, ""},
		{"refused may be absent", false, "publish a\n receipt a Refused", ""},
		{"unknown may be absent", false, "publish a\n receipt a Unknown", ""},
		{"no receipt may be absent", false, "publish a", ""},
		{"another copy came", false, "publish a\n receipt a Stored\n publish a copy=2\n receipt a Stored copy=2\n delivery a", "lost:a"},

		{"doubled", false, a + "delivery a\n delivery a", "doubled:a"},
		{"doubled, as two first attempts", false, a + "delivery a attempt=1\n delivery a attempt=1", "doubled:a"},
		{"redelivered", false, a + "delivery a attempt=1\n delivery a attempt=2", ""},
		{"given back", false, a + "delivery a\n outcome a Nack Confirmed\n delivery a", ""},
		{"given back once and thrice there", false, a + "delivery a\n outcome a Nack Confirmed\n delivery a\n delivery a", "doubled:a"},
		{"too late and again", false, a + "delivery a\n outcome a Ack LeaseLost\n delivery a", ""},

		{"stored twice", false, a + "delivery a pos=1 attempt=1\n delivery a pos=2 attempt=2", "stored-twice:a"},
		{"two copies", false, "publish a\n receipt a Stored\n publish a copy=2\n receipt a Stored copy=2\n delivery a pos=1\n delivery a pos=2 copy=2", ""},

		{"unexpected", false, a + "delivery a\n delivery x", "unexpected:x"},
		{"a consumer's history alone", false, "delivery x", ""},

		{"refused came", false, "publish a\n receipt a Refused\n delivery a", "refused-came:a"},
		{"refused, then stored", false, "publish a\n receipt a Refused\n publish a\n receipt a Stored\n delivery a", ""},
		{"refused, then unknown", false, "publish a\n receipt a Refused\n publish a\n receipt a Unknown\n delivery a", ""},
		{"refused, and an attempt without receipt", false, "publish a\n publish a\n receipt a Refused\n delivery a", ""},

		{"no first", false, "publish a\n receipt a Duplicate\n delivery a", "no-first:a"},
		{"a first without receipt", false, "publish a\n publish a\n receipt a Duplicate\n delivery a", ""},

		{"confirmed again", false, a + "delivery a attempt=1\n outcome a Ack Confirmed\n delivery a attempt=2 asked=4.5", "confirmed-again:a"},
		{"on its way as it was confirmed", false, a + "delivery a attempt=1\n outcome a Ack Confirmed\n +0.5 delivery a attempt=2 asked=1", ""},
		{"long after, to a call that waited", false, a + "delivery a attempt=1\n outcome a Ack Confirmed\n +5 delivery a attempt=2 asked=1", "confirmed-again:a"},
		{"confirmed, and the second copy", false, "publish a\n publish a\n receipt a Unknown\n receipt a Stored\n delivery a attempt=1 pos=1\n outcome a Ack Confirmed pos=1\n +5 delivery a attempt=1 pos=2", "stored-twice:a doubled:a"},
		{"confirmed nack", false, a + "delivery a attempt=1\n outcome a Nack Confirmed\n +5 delivery a attempt=2", ""},
		{"sent only", false, a + "delivery a attempt=1\n outcome a Ack Sent\n +5 delivery a attempt=2", ""},

		{"lease lost and gone", false, a + "delivery a by=c\n outcome a Ack LeaseLost by=c", "lease-lost-gone:a"},
		{"lease lost, not over yet", true, a + "delivery a by=c\n outcome a Ack LeaseLost by=c", ""},
		{"lease lost to another", false, a + "delivery a by=c attempt=1\n delivery a by=d attempt=2\n outcome a Ack LeaseLost by=c\n outcome a Ack Confirmed by=d", ""},
		{"lease lost and again", false, a + "delivery a by=c attempt=1\n outcome a Ack LeaseLost by=c\n delivery a by=c attempt=2", ""},

		{"stale took", false, a + "delivery a by=c attempt=1\n delivery a by=d attempt=2\n settle a Ack by=c\n outcome a Ack Confirmed by=c", "stale-took:a"},
		{"the new one took", false, a + "delivery a by=c attempt=1\n delivery a by=d attempt=2\n settle a Ack by=d\n outcome a Ack Confirmed by=d", ""},
		{"answered late, sent in time", false, a + "delivery a by=c attempt=1\n settle a Ack by=c\n delivery a by=d attempt=2\n outcome a Ack Confirmed by=c", ""},
		{"stale after the new one was done", false, a + "delivery a by=c attempt=1\n delivery a by=d attempt=2\n settle a Ack by=d\n outcome a Ack Confirmed by=d\n settle a Ack by=c\n outcome a Ack Confirmed by=c", ""},
		{"two copies, two holders", false, a + "delivery a by=c pos=1 attempt=1\n delivery a by=d pos=2 attempt=2\n settle a Ack by=c pos=1\n outcome a Ack Confirmed by=c pos=1", "stored-twice:a"},

		{"out of order", false, a + b + "delivery b\n delivery a", "out-of-order:a"},
		{"in order", false, a + b + "delivery a\n delivery b", ""},
		{"redelivery isn't order", false, a + b + "delivery a attempt=1\n delivery b\n delivery a attempt=2", ""},
		{"a batch", false, "publish a key=k by=p\n publish b key=k by=p\n receipt a Stored\n receipt b Stored\n delivery b\n delivery a", "out-of-order:a"},
		{"side by side", false, "publish a key=k by=p\n publish b key=k by=q\n receipt a Stored\n receipt b Stored\n delivery b\n delivery a", ""},
		{"tried again meanwhile", false, "publish a key=k by=p\n receipt a Unknown\n publish b key=k by=p\n publish a key=k by=p\n receipt b Stored\n receipt a Stored\n delivery b\n delivery a", ""},
		{"other keys", false, a + "publish b key=l by=p\n receipt b Stored\n delivery b\n delivery a", ""},
		{"a gap", false, a + b + "publish c key=k by=p\n receipt c Stored\n delivery a\n delivery c", "lost:b gap:b"},
		{"a gap, not over yet", true, a + b + "delivery b", ""},

		{"effect twice", false, a + "delivery a\n effect a by=c\n effect a by=d\n outcome a Ack Confirmed", "effect-twice:a"},
		{"effect twice, of two copies", false, "publish a\n receipt a Stored\n publish a copy=2\n receipt a Stored copy=2\n delivery a\n delivery a copy=2\n effect a\n effect a copy=2", "effect-twice:a"},
		{"effect missing", false, a + b + "delivery a\n effect a\n outcome a Ack Confirmed\n delivery b\n outcome b Ack Sent", "effect-missing:b"},
		{"effect missing, not over yet", true, a + b + "delivery a\n effect a\n delivery b\n outcome b Ack Sent", ""},
		{"effect unasked", false, a + "delivery a\n effect a\n effect x", "effect-unasked:x"},
		{"ack before effect", false, a + "delivery a\n outcome a Ack Confirmed\n effect a", "ack-before-effect:a"},
		{"effect, then ack", false, a + "delivery a\n effect a\n outcome a Ack Confirmed", ""},
	} {
		h := script(!c.running, c.lines)
		if err := h.Valid(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		r := Check(h)
		var got []string
		for _, x := range r.Anomalies {
			got = append(got, fmt.Sprintf("%s:%s", x.Kind, x.ID))
			if x.Text == "" || len(x.Events) == 0 || x.Kind.Meaning() == "" {
				t.Errorf("%s: %+v", c.name, x)
			}
		}
		want := strings.Fields(c.want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.name, got, want)
		}
		if (len(r.Undecided) > 0) != (c.running || c.name == "a consumer's history alone" || c.name == "nothing" || c.name == "of another kind") {
			t.Errorf("%s: undecided: %q", c.name, r.Undecided)
		}
	}
}

// TestCheckCounts: what isn't wrong is counted.
func TestCheckCounts(t *testing.T) {
	r := Check(script(true, "publish a\n receipt a Unknown\n publish b\n receipt b Stored\n publish c\n receipt c Unknown\n delivery a\n delivery b\n effect b"))
	if r.Messages != 3 || r.Promised != 1 || r.Unknown != 2 || r.Recovered != 1 || r.Deliveries != 2 || r.Effects != 1 || r.String() != "no anomaly" {
		t.Errorf("%+v", r)
	}
	twice := Check(script(true, "publish a\n receipt a Stored\n publish b\n receipt b Stored"))
	if twice.Count(Lost) != 2 || !slices.Equal(twice.IDs(Lost), []string{"a", "b"}) || twice.String() != "lost 2" {
		t.Errorf("%+v", twice)
	}
}

// TestCheckIsQuick: a hundred thousand messages of one key take no time that grows with
// their square.
func TestCheckIsQuick(t *testing.T) {
	h := History{Schema: Schema, Drained: true}
	const n = 100_000
	for _, kind := range []string{Publish, Receipt, Delivery} {
		for i := range n {
			h.Events = append(h.Events, Event{Kind: kind, ID: fmt.Sprint(i), Key: "k", Holder: "p", Verdict: "Stored"})
		}
	}
	begin := time.Now()
	if r := Check(h); len(r.Anomalies) > 0 || r.Promised != n {
		t.Errorf("%s", r.String())
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestRead: what is no history is refused, with the place.
func TestRead(t *testing.T) {
	const good = `{"at":1,"kind":"publish","id":"a"}`
	for _, c := range []struct{ in, says string }{
		{`{"schema":1,"drained":true,"events":[` + good + `]}`, ""},
		{good + "\n\n" + `{"at":2,"kind":"whatever","id":""}`, ""},
		{`{"schema":1,"drained":true,"events":[]}`, ""},
		{``, "no events"},
		{`nonsense`, "line 1"},
		{`{"schema":1,"targets":[]}`, "--finding TARGET/CLAIM"},
		{`{"schema":2,"events":[` + good + `]}`, "schema 2"},
		{`{"schema":1,"events":[{"at":1,"kind":"publish","id":"a","colour":"red"}]}`, "colour"},
		{good + "\n" + `{"at":0.5,"kind":"publish","id":"b"}`, "after one at 1 s"},
		{`{"at":1,"kind":"publish","id":""}`, "no ID"},
		{`{"at":1,"kind":"","id":"a"}`, "no kind"},
		{`{"at":1,"kind":"receipt","id":"a","verdict":"stored"}`, `"stored"`},
		{`{"at":1,"kind":"settle","id":"a","action":"Acknowledge"}`, `"Acknowledge"`},
		{`{"at":1,"kind":"outcome","id":"a","action":"Ack"}`, `state is ""`},
		{good + " " + good, "follows"},
		{`{"schema":1,"events":[]} more`, "line 1"},
	} {
		h, err := Read(strings.NewReader(c.in), false)
		switch {
		case c.says == "" && err != nil, c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v", c.in, err)
		case c.says == "" && h.Schema != Schema:
			t.Errorf("%s: %+v", c.in, h)
		}
	}
	if h, err := Read(strings.NewReader(good), true); err != nil || !h.Drained || len(h.Events) != 1 {
		t.Errorf("%+v, %v", h, err)
	}
}
