package audit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup/audit"
)

// now is the present of these tests.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// healthy are 75 messages of two producers in ten hours, and their effects, a second
// later each.
func healthy() (sent, effects []row) {
	for i := range 75 {
		r := row{key: fmt.Sprintf("order-%d", i), at: now.Add(-10*time.Hour + time.Duration(i)*8*time.Minute), producer: "ab"[i%2 : i%2+1], seq: int64(i/2 + 1), attempts: 1}
		r.last = r.at
		sent = append(sent, r)
		r.last = r.at.Add(time.Second)
		effects = append(effects, r)
	}
	return sent, effects
}

// plan is the plan for what is sent and applied in the places, which may be one.
func plan(t testing.TB, atSent, atEffects *place, sent, effects []row) audit.Plan {
	return audit.Plan{
		Sent:    &audit.Table{In: atSent.Database, Name: atSent.fill(t, sent), Key: []string{"order_id"}, Time: "at", Last: "late", Attempts: "attempts"},
		Effects: &audit.Table{In: atEffects.Database, Name: atEffects.fill(t, effects), Key: []string{"order_id"}, Time: "at", Applied: "late", Producer: "who", Seq: "seq"},
		Now:     now, Window: 5 * time.Minute,
	}
}

// found are the kinds and counts of a report's findings, and the states that are no
// findings.
func found(t testing.TB, p audit.Plan) string {
	t.Helper()
	r, err := audit.Run(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var s []string
	for _, c := range r.Checks {
		for _, f := range c.Findings {
			s = append(s, fmt.Sprintf("%s:%d", f.Kind, f.Count))
			if f.Text == "" || f.Kind.Meaning() == "" {
				t.Errorf("%+v says nothing", f)
			}
			if int64(len(f.Examples))+f.More == 0 && len(f.Buckets) == 0 && !strings.HasPrefix(string(f.Kind), "caught") {
				t.Errorf("%+v shows nothing", f)
			}
		}
		if c.State == audit.Failed {
			s = append(s, "failed: "+c.Saw)
		}
	}
	return strings.Join(s, " ")
}

func without(rows []row, i, n int) []row { return slices.Delete(slices.Clone(rows), i, i+n) }

func also(rows []row, more ...row) []row { return append(slices.Clone(rows), more...) }

func changed(rows []row, i int, change func(*row)) []row {
	rows = slices.Clone(rows)
	change(&rows[i])
	return rows
}

// scenarios are histories and what is wrong with them, each in one way; and those with
// which nothing is wrong though they look so.
func scenarios() []scenario {
	sent, effects := healthy()
	again := func(i int, after time.Duration) row {
		r := effects[i]
		r.last = r.last.Add(after)
		return r
	}
	since := func(p *audit.Plan) { p.Since = now.Add(-5 * time.Hour) }
	return []scenario{
		{"healthy", sent, effects, nil, ""},
		{"a race", sent, also(effects, again(7, time.Second)), nil, "applied-twice:1"},
		{"after the window, three times", sent, also(effects, again(7, 7*time.Hour), again(7, 8*time.Hour), again(8, 8*time.Hour)), nil, "applied-twice:2"},
		{"an old duplicate", sent, also(effects, again(7, time.Second)), since, ""},
		{"a copy of something old", sent, also(effects, again(7, 8*time.Hour)), since, "applied-twice:1"},
		{"lost", sent, without(effects, 25, 1), nil, "gap:1 missing:1"},
		{"lost in a row", sent, without(effects, 25, 6), nil, "gap:6 missing:6"},
		{"lost before", sent, without(effects, 25, 1), since, ""},
		{"lost since", sent, without(effects, 50, 1), since, "gap:1 missing:1"},
		{"on its way", sent, without(effects, 74, 1), nil, ""},
		{"the first of all, which no sequence shows", sent, without(effects, 0, 1), nil, "missing:1"},
		{"applied late", sent, changed(effects, 25, func(r *row) { r.last = r.last.Add(6 * time.Hour) }), nil, ""},
		{"applied late, seen since", sent, changed(effects, 25, func(r *row) { r.last = r.last.Add(6 * time.Hour) }), since, ""},
		{"applied by a fast clock", sent, changed(effects, 38, func(r *row) { r.last = r.last.Add(-10 * time.Minute) }), since, ""},
		{"nobody sent it", sent, also(effects, row{key: "stray", at: effects[50].at, last: effects[50].last, producer: "a", seq: 26}), nil, "renamed:1 unasked:1"},
		{"another key on each attempt", sent, also(effects, row{key: "order-50-retry", at: effects[50].at, last: effects[50].last.Add(time.Minute), producer: effects[50].producer, seq: effects[50].seq}),
			nil, "renamed:1 unasked:1"},
		{"keys that differ in case", also(sent, row{key: "ORDER-7", at: sent[7].at, last: sent[7].at, attempts: 1}), also(effects, row{key: "ORDER-7", at: sent[7].at, last: sent[7].at, producer: "c", seq: 1}), nil, ""},
		{"keys that differ in a space", also(sent, row{key: "order-7 ", at: sent[7].at, last: sent[7].at, attempts: 1}), also(effects, row{key: "order-7 ", at: sent[7].at, last: sent[7].at, producer: "c", seq: 1}), nil, ""},
		{"effects of no message", sent, also(effects, row{at: now.Add(-time.Hour), last: now.Add(-time.Hour), producer: "c", seq: 1}, row{at: now.Add(-time.Hour), last: now.Add(-time.Hour), producer: "c", seq: 2}), nil, ""},
		{"a retry in time", changed(sent, 9, func(r *row) { r.attempts, r.last = 2, r.last.Add(4*time.Minute) }), effects, nil, ""},
		{"a late retry", changed(sent, 9, func(r *row) { r.attempts, r.last = 4, r.last.Add(20*time.Minute) }), effects, nil, "retry-late:1"},
		{"a late retry, as attempts", also(sent, row{key: "order-9", at: sent[9].at.Add(20 * time.Minute)}), effects,
			func(p *audit.Plan) { p.Sent.Last, p.Sent.Attempts = "", "" }, "retry-late:1"},
		{"sent first before and again since", also(sent, row{key: "order-9", at: now.Add(-2 * time.Hour)}), effects,
			func(p *audit.Plan) {
				p.Sent.Last, p.Sent.Attempts, p.Window = "", "", 0
				p.Since = now.Add(-5 * time.Hour)
			}, ""},
		{"counts alone", sent, without(effects, 25, 1), func(p *audit.Plan) { p.Sent.Key, p.Effects.Seq, p.Effects.Producer = nil, "", "" }, "counts-differ:1"},
		{"counts alone, of two hours", sent, also(without(effects, 25, 1), row{key: "stray", at: effects[70].at.Add(-time.Hour), last: now}),
			func(p *audit.Plan) { p.Sent.Key, p.Effects.Seq, p.Effects.Producer = nil, "", "" }, "counts-differ:2"},
		{"counts alone, healthy", sent, without(effects, 74, 1), func(p *audit.Plan) { p.Sent.Key = nil; p.Since = now.Add(-5*time.Hour - 30*time.Second) }, ""},
		{"a key of two columns", sent, effects, func(p *audit.Plan) {
			p.Sent.Key, p.Effects.Key = []string{"order_id", "seq"}, []string{"order_id", "seq"}
		}, ""},
		{"caught as retried", sent, effects, func(p *audit.Plan) { p.Caught, p.Retries = n(90), n(100) }, ""},
		{"caught of the rows", changed(sent, 3, func(r *row) { r.attempts = 501; r.last = r.at.Add(time.Second) }), effects, func(p *audit.Plan) { p.Caught = n(2) }, "caught-too-few:2"},
		{"none caught", sent, effects, func(p *audit.Plan) { p.Caught, p.Retries = n(0), n(100) }, "caught-too-few:0"},
		{"caught by the broker", sent, effects, func(p *audit.Plan) { p.Caught, p.Retries, p.CaughtByBroker = n(0), n(100), n(95) }, ""},
		{"too many caught", sent, effects, func(p *audit.Plan) { p.Caught, p.Retries, p.Redelivered = n(5000), n(100), n(50) }, "caught-too-many:5000"},
		{"many caught, redelivered", sent, effects, func(p *audit.Plan) { p.Caught, p.Retries, p.Redelivered = n(5000), n(100), n(4900) }, ""},
		{"many caught, nobody knows why", sent, effects, func(p *audit.Plan) { p.Caught, p.Retries = n(5000), n(100) }, ""},
		{"no effects at all", slices.Clone(sent[:62]), nil, nil, "missing:62"},
	}
}

type scenario struct {
	name          string
	sent, effects []row
	change        func(*audit.Plan)
	want          string
}

func n(n int64) *int64 { return &n }

func try(t *testing.T, atSent, atEffects *place) {
	for _, s := range scenarios() {
		p := plan(t, atSent, atEffects, s.sent, s.effects)
		if s.change != nil {
			s.change(&p)
		}
		if got := found(t, p); got != s.want {
			t.Errorf("%s: %q, want %q", s.name, got, s.want)
		}
	}
}

// TestFinds: each anomaly is found, and none where there is none.
func TestFinds(t *testing.T) { p := onSQLite(t); try(t, p, p) }

// TestServers: the same on real servers, and between databases of two kinds, which order
// and compare text each in their own way.
func TestServers(t *testing.T) {
	var post, maria *place
	t.Run("PostgreSQL", func(inner *testing.T) {
		post = onPostgres(t, inner)
		try(inner, post, post)
		times(inner, post)
		refused(inner, post)
		keys(inner, post)
		writing(inner, post)
		slow(inner, post)
	})
	t.Run("MariaDB", func(inner *testing.T) {
		maria = onMariaDB(t, inner)
		try(inner, maria, maria)
		times(inner, maria)
		refused(inner, maria)
		keys(inner, maria)
		slow(inner, maria)
	})
	t.Run("across", func(t *testing.T) {
		if post == nil || maria == nil {
			t.Skip("needs both servers")
		}
		across(t, onSQLite(t), post, maria)
	})
}

// across sends in one database and applies in another.
func across(t *testing.T, lite, post, maria *place) {
	for _, pair := range [][2]*place{{post, maria}, {maria, lite}, {lite, post}} {
		sent, effects := healthy()
		// Bytes order these otherwise than a language does.
		odd := func(rows []row) []row {
			for i, key := range []string{"ORDER-7", "order-7 ", "örder-7", "order_7", "Order-7", "order-7\n", "日本", "\U0001F4A9", "~"} {
				rows = also(rows, row{key: key, at: now.Add(-time.Hour), last: now.Add(-time.Hour), producer: "c", seq: int64(i), attempts: 1})
			}
			return rows
		}
		if got := found(t, plan(t, pair[0], pair[1], odd(sent), without(odd(effects), 50, 6))); got != "gap:6 missing:6" {
			t.Errorf("sent in %s, applied in %s: %q", pair[0].Name, pair[1].Name, got)
		}
	}
}
