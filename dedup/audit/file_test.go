package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onceline/onceline/dedup/audit"
)

// TestFiles: rows of files are found as those of tables are.
func TestFiles(t *testing.T) {
	p := onSQLite(t)
	var events, effects strings.Builder
	effects.WriteString("\ufeffid,when,\"who\",n\n")
	for i := range 100 {
		at := now.Add(-5*time.Hour + time.Duration(i)*time.Minute)
		fmt.Fprintf(&events, `{"kind": "publish", "id": "m|%d", "at": %d, "more": {"x": [1]}}`+"\n\n", i, at.UnixMilli())
		fmt.Fprintf(&events, `{"kind": "receipt", "id": "m|%d", "at": "later"}`+"\n", i)
		if i != 42 {
			fmt.Fprintf(&effects, "\"m|%d\",%s,\"we,b\",%d\n", i, at.Format(time.RFC3339), i)
		}
	}
	fmt.Fprintf(&effects, "m|7,%s,\"we,b\",7\n", now.Add(-time.Hour).Format("2006-01-02 15:04:05"))
	plan := audit.Plan{Now: now, Effects: &audit.Table{Key: []string{"id"}, Applied: "when", Producer: "who", Seq: "n"}, Sent: &audit.Table{Key: []string{"id"}, Time: "at"}}
	if err := audit.Load(t.Context(), p.Database, "one", plan.Effects, strings.NewReader(effects.String()), audit.File{Format: audit.CSV}, nil); err != nil {
		t.Fatal(err)
	}
	if err := audit.Load(t.Context(), p.Database, "two", plan.Sent, strings.NewReader(events.String()), audit.File{Format: audit.Lines, Column: "kind", Is: "publish"}, nil); err != nil {
		t.Fatal(err)
	}
	if got := found(t, plan); got != "applied-twice:1 gap:1 missing:1" {
		t.Error(got)
	}
}

// TestFilesRefused: what is no file of rows is refused with the place, and leaves nothing.
func TestFilesRefused(t *testing.T) {
	p := onSQLite(t)
	for i, c := range []struct {
		format audit.Format
		text   string
		is     error
		says   string
	}{
		{audit.Lines, `{"id": "a", "at": 1}` + "\n{", audit.ErrFile, "line 2"},
		{audit.Lines, `["a"]`, audit.ErrFile, "line 1"},
		{audit.Lines, `{"id": {"x": 1}, "at": 1}`, audit.ErrFile, `"id" holds an object`},
		{audit.Lines, `{"id": "a", "at": "soon"}`, audit.ErrFile, `"soon" is no time`},
		{audit.Lines, `{"id": "a", "at": 1.5e12}`, audit.ErrFile, "no number of seconds"},
		{audit.Lines, `{"id": "a"}`, audit.ErrTable, `no row has the column "at"`},
		{audit.Lines, `{"id": "a", "at": 1, "n": "x"}`, audit.ErrFile, `"n"`},
		{audit.CSV, "", audit.ErrFile, "empty"},
		{audit.CSV, "id,n\na,1\n", audit.ErrTable, `no column "at"`},
		{audit.CSV, "id,at,n\na,1\n", audit.ErrFile, "line 2"},
		{audit.CSV, "id,id,at,n\n", audit.ErrFile, "two columns"},
		{audit.CSV, "id,at,n\n\"a,1\n", audit.ErrFile, "line"},
		{"xml", "<a/>", audit.ErrFile, "xml"},
	} {
		table := &audit.Table{Key: []string{"id"}, Time: "at"}
		if strings.Contains(c.text, `"n"`) || strings.Contains(c.text, "n\n") {
			table.Seq = "n"
		}
		name := fmt.Sprint("bad", i)
		err := audit.Load(t.Context(), p.Database, name, table, strings.NewReader(c.text), audit.File{Format: c.format}, nil)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || table.In != nil {
			t.Errorf("%q: %v", c.text, err)
		}
		if _, err := p.DB.Exec("SELECT 1 FROM " + name); err == nil {
			t.Errorf("%q left a table", c.text)
		}
	}
}

// FuzzLoad: no file makes it do anything but load or refuse.
func FuzzLoad(f *testing.F) {
	f.Add("id,at\na,1\n", true)
	f.Add(`{"id": "a", "at": 17}`, false)
	f.Add(`{"id": null, "at": "2026-03-01T00:00:00Z"}`, false)
	p := onSQLite(f)
	i := 0
	f.Fuzz(func(t *testing.T, text string, csv bool) {
		format := audit.Lines
		if csv {
			format = audit.CSV
		}
		i++
		name := fmt.Sprint("fuzz", i)
		table := &audit.Table{Key: []string{"id"}, Time: "at"}
		err := audit.Load(t.Context(), p.Database, name, table, strings.NewReader(text), audit.File{Format: format}, nil)
		if err != nil {
			if !errors.Is(err, audit.ErrFile) && !errors.Is(err, audit.ErrTable) {
				t.Fatal(err)
			}
			return
		}
		if _, err := audit.Run(t.Context(), audit.Plan{Effects: table, Now: now}); err != nil {
			t.Fatal(err)
		}
		p.exec(t, "DROP TABLE "+name)
	})
}

// TestRenderings: the three forms say the same, and keys are no markup.
func TestRenderings(t *testing.T) {
	p := onSQLite(t)
	sent, effects := healthy()
	twice := effects[7]
	twice.last = twice.last.Add(50 * time.Hour)
	sent[50].key = "a|b <script> *x*\x1b[31m"
	plan := plan(t, p, p, sent, also(without(effects, 50, 2), twice))
	plan.Now = now.Add(100 * time.Hour)
	plan.Caught, plan.Retries = n(0), n(100)
	r, err := audit.Run(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	var text, page, data bytes.Buffer
	if err := errors.Join(r.Text(&text), r.Markdown(&page), r.JSON(&data)); err != nil {
		t.Fatal(err)
	}
	for form, s := range map[string]string{"text": text.String(), "markdown": page.String()} {
		for _, want := range []string{"order-7, 2", "2.1 days apart", "a 26, ", "b 26, ", "0x617c62", "75 messages sent", "not asked"} {
			if !strings.Contains(s, want) {
				t.Errorf("%s lacks %q:\n%s", form, want, s)
			}
		}
		if strings.ContainsAny(s, "\x1b") || form == "markdown" && strings.Contains(s, "<") {
			t.Errorf("%s has what it must not:\n%s", form, s)
		}
	}
	var back audit.Report
	if err := json.Unmarshal(data.Bytes(), &back); err != nil || back.State != audit.Found || len(back.Findings()) != len(r.Findings()) || len(back.Checks) != 7 {
		t.Errorf("%+v, %v", back, err)
	}
}

// TestDocs: docs/audit.md has each kind and each check.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "audit.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range audit.Kinds() {
		if !strings.Contains(string(b), "| `"+string(k)+"` | ") {
			t.Errorf("docs/audit.md lacks %s", k)
		}
	}
}
