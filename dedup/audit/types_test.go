package audit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup/audit"
)

// name quotes a name for the place.
func (p *place) quote(name string) string {
	if p.Dialect == audit.MySQL {
		return "`" + name + "`"
	}
	return `"` + name + `"`
}

// times tries the ways in which a time is kept: the duplicate's must come out as it is.
func times(t *testing.T, p *place) {
	first := time.Date(2026, 2, 3, 4, 5, 6, 789e6, time.UTC)
	second := first.Add(26 * time.Hour)
	literal := func(layout, suffix string) func(time.Time) string {
		return func(at time.Time) string { return "'" + at.Format(layout) + suffix + "'" }
	}
	number := func(of func(time.Time) int64) func(time.Time) string {
		return func(at time.Time) string { return fmt.Sprint(of(at)) }
	}
	whole, milli := time.Second, time.Millisecond
	cases := []struct {
		typ     string
		value   func(time.Time) string
		rounded time.Duration
		only    audit.Dialect
	}{
		{"bigint", number(time.Time.Unix), whole, ""},
		{"bigint", number(time.Time.UnixMilli), milli, ""},
		{"bigint", number(time.Time.UnixMicro), milli, ""},
		{"bigint", number(time.Time.UnixNano), milli, ""},
		{"double precision", func(at time.Time) string { return fmt.Sprintf("%.3f", float64(at.UnixMilli())/1000) }, milli, ""},
		{"numeric(20, 3)", func(at time.Time) string { return fmt.Sprintf("%.3f", float64(at.UnixMilli())/1000) }, milli, ""},
		{"date", literal("2006-01-02", ""), 24 * time.Hour, ""},
		{"timestamptz", literal("2006-01-02 15:04:05.999", "+00"), milli, audit.Postgres},
		{"timestamp", literal("2006-01-02 15:04:05.999", ""), milli, audit.Postgres},
		{"datetime(3)", literal("2006-01-02 15:04:05.999", ""), milli, audit.MySQL},
		{"timestamp(3) NULL", literal("2006-01-02 15:04:05.999", ""), milli, audit.MySQL},
		{"text", literal("2006-01-02T15:04:05.999", "Z"), milli, audit.SQLite},
		{"text", literal("2006-01-02 15:04:05.999", ""), milli, audit.SQLite},
		{"datetime", literal("2006-01-02 15:04:05.999", " +0000 UTC"), milli, audit.SQLite},
		{"datetime", func(at time.Time) string {
			return literal("2006-01-02 15:04:05.999", "+02:00")(at.Add(2 * time.Hour))
		}, milli, audit.SQLite},
	}
	for i, c := range cases {
		if c.only != "" && c.only != p.Dialect {
			continue
		}
		name := fmt.Sprint("times", i)
		p.exec(t, fmt.Sprintf("CREATE TABLE %s (id %s, at %s)", p.quote(name), p.text, c.typ))
		zone := ""
		if p.Dialect == audit.MySQL {
			zone = "SET STATEMENT time_zone = '+00:00' FOR "
		}
		p.exec(t, fmt.Sprintf("%sINSERT INTO %s VALUES ('a', %s), ('a', %s), ('b', NULL), ('b', NULL)", zone, p.quote(name), c.value(first), c.value(second)))
		for _, since := range []time.Time{{}, second.Add(-25 * time.Hour)} {
			r, err := audit.Run(t.Context(), audit.Plan{Now: now, Since: since, Most: 1, Horizon: 24 * time.Hour,
				Effects: &audit.Table{In: p.Database, Name: name, Key: []string{"id"}, Applied: "at"}})
			if err != nil {
				t.Fatalf("%s: %v", c.typ, err)
			}
			f := r.Checks[0].Findings
			if len(f) != 1 || f[0].Count != 2 || f[0].More != 1 {
				t.Errorf("%s, case %d: %+v", c.typ, i, r.Checks[0])
				continue
			}
			e := f[0].Examples[0]
			if e.First == nil || !e.First.Equal(first.Truncate(c.rounded)) || !e.Last.Equal(second.Truncate(c.rounded)) {
				t.Errorf("%s, case %d: from %v to %v", c.typ, i, e.First, e.Last)
			}
			if apart := e.Last.Sub(*e.First) > 24*time.Hour; apart != strings.Contains(e.Note, "beyond the horizon") {
				t.Errorf("%s, case %d: %q", c.typ, i, e.Note)
			}
		}
	}
}

func TestTimes(t *testing.T) { times(t, onSQLite(t)) }

// writing tries a view that writes: it is refused, for the audit only reads.
func writing(t *testing.T, p *place) {
	p.exec(t, "CREATE TABLE written (n int)")
	p.exec(t, "CREATE FUNCTION writes() RETURNS int LANGUAGE sql VOLATILE AS 'INSERT INTO written VALUES (1) RETURNING n'")
	p.exec(t, "CREATE VIEW writing AS SELECT writes() AS id")
	r, err := audit.Run(t.Context(), audit.Plan{Effects: &audit.Table{In: p.Database, Name: "writing", Key: []string{"id"}}})
	if err != nil || r.State != audit.Failed || !strings.Contains(r.Checks[0].Saw, "read-only") {
		t.Errorf("%+v, %v", r, err)
	}
}

// keys tries keys of other types: bytes, numbers, and names that have to be quoted.
func keys(t *testing.T, p *place) {
	p.exec(t, fmt.Sprintf("CREATE TABLE %s (%s %s, n bigint)", p.quote("odd table"), p.quote("select"), p.bytes))
	p.exec(t, fmt.Sprintf("INSERT INTO %s VALUES (%[2]s, 7), (%[2]s, 8), (%[3]s, 8)", p.quote("odd table"),
		map[audit.Dialect]string{audit.Postgres: `'\x00ff'`, audit.MySQL: "x'00ff'", audit.SQLite: "x'00ff'"}[p.Dialect],
		map[audit.Dialect]string{audit.Postgres: `'\x41'`, audit.MySQL: "x'41'", audit.SQLite: "x'41'"}[p.Dialect]))
	for column, want := range map[string]string{"select": "0x00ff", "n": "8"} {
		r, err := audit.Run(t.Context(), audit.Plan{Effects: &audit.Table{In: p.Database, Name: "odd table", Key: []string{column}}})
		if err != nil {
			t.Fatal(err)
		}
		if f := r.Findings(); len(f) != 1 || f[0].Count != 1 || f[0].Examples[0].Key != want {
			t.Errorf("%s: %+v", column, f)
		}
	}
}

func TestKeys(t *testing.T) { keys(t, onSQLite(t)) }

// refused tries plans that can't be followed: the error says what is wrong.
func refused(t *testing.T, p *place) {
	name := p.fill(t, []row{{key: "a", at: now}})
	table := func(change func(*audit.Table)) audit.Plan {
		e := &audit.Table{In: p.Database, Name: name, Key: []string{"order_id"}, Applied: "at"}
		change(e)
		return audit.Plan{Effects: e, Now: now}
	}
	for _, c := range []struct {
		plan audit.Plan
		says string
	}{
		{table(func(e *audit.Table) { e.Name = "nothing" }), "nothing"},
		{table(func(e *audit.Table) { e.Key = []string{"nokey"} }), "nokey"},
		{table(func(e *audit.Table) { e.Key = []string{`x" OR 1 = 1 --`} }), "1 = 1"},
		{table(func(e *audit.Table) { e.Applied = "notime" }), "notime"},
		{table(func(e *audit.Table) { e.Producer = "who" }), "without one of its sequence"},
		{audit.Plan{Now: now, Since: now.Add(-time.Minute)}, "may be on its way"},
		{audit.Plan{Now: now, Bucket: time.Millisecond}, "under a second"},
		{audit.Plan{Now: now, Settle: -1}, "under zero"},
	} {
		r, err := audit.Run(t.Context(), c.plan)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", c.says, r, err)
		}
	}
	if p.Dialect != audit.SQLite { // which has no types of columns
		if _, err := audit.Run(t.Context(), table(func(e *audit.Table) { e.Applied = "order_id" })); err == nil || !strings.Contains(err.Error(), "neither a time nor a number") {
			t.Error(err)
		}
	}
}

func TestRefused(t *testing.T) { refused(t, onSQLite(t)) }

// slow tries a statement that would take for ever: it ends at its bound, and the check
// has failed.
func slow(t *testing.T, p *place) {
	p.exec(t, "CREATE VIEW endless AS WITH RECURSIVE d (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM d WHERE i < 900) SELECT a.i + b.i + c.i + e.i AS id FROM d a, d b, d c, d e")
	d := *p.Database
	d.Timeout = 300 * time.Millisecond
	begin := time.Now()
	r, err := audit.Run(t.Context(), audit.Plan{Effects: &audit.Table{In: &d, Name: "endless", Key: []string{"id"}}})
	if err != nil || r.State != audit.Failed || len(r.Findings()) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestSlow(t *testing.T) { slow(t, onSQLite(t)) }
