package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onceline/onceline/conformance/report"
	"github.com/onceline/onceline/dedup/audit"
)

// blocks are the fenced blocks of a page, by their language.
func blocks(t *testing.T, page string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	parts := strings.Split(string(b), "```")
	for i := 1; i < len(parts); i += 2 {
		lang, text, _ := strings.Cut(parts[i], "\n")
		if out[lang] == "" {
			out[lang] = text
		}
	}
	return out
}

// shop makes the database of docs/audit.md, and returns the arguments of its command.
func shop(t *testing.T, sent bool) []string {
	t.Helper()
	page := blocks(t, "../../docs/audit.md")
	path := filepath.Join(t.TempDir(), "shop #1.db")
	db, err := sql.Open("sqlite", "file:"+strings.NewReplacer(" ", "%20", "#", "%23").Replace(path))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(page["sql"]); err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(page["sh"])[1:]
	for i, a := range args {
		if a == "shop.db" {
			args[i] = path
		}
	}
	if !sent {
		_, err = db.Exec("DELETE FROM payments WHERE rowid = 5; UPDATE payments SET n = 4 WHERE n = 6")
		if err == nil {
			_, err = db.Exec("DELETE FROM orders WHERE order_id IN ('o-4', 'o-5')")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return args
}

// TestAuditExample: the page's example prints what the page says.
func TestAuditExample(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := onceline(t.Context(), shop(t, true)...)
	if code != report.ExitDifference || stderr != "" {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if want := strings.TrimSpace(blocks(t, "../../docs/audit.md")["text"]); !strings.Contains(stdout, want) {
		t.Errorf("the page says\n%s\nand this was printed:\n%s", want, stdout)
	}
	stdout, stderr, code = onceline(t.Context(), append(shop(t, false), "--format", "json")...)
	var r audit.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != 0 || r.State != audit.Clean || stderr != "" {
		t.Errorf("a healthy shop: exit %d, %+v, %v, %s", code, r, err, stderr)
	}
}

func TestAuditHistory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	file := filepath.Join(dir, "events.jsonl")
	events := `{"at": 0.1, "kind": "publish", "id": "a", "actor": "producer"}
{"at": 0.2, "kind": "publish", "id": "b", "actor": "producer"}
{"at": 200.2, "kind": "publish", "id": "b", "actor": "producer"}
{"at": 200.5, "kind": "effect", "id": "b", "actor": "consumer"}
{"at": 200.6, "kind": "effect", "id": "b", "actor": "consumer"}
`
	if err := os.WriteFile(file, []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := onceline(t.Context(), "audit", "--effects", file+"#kind=effect", "--key", "id", "--applied", "at", "--sent", file+"#kind=publish", "--sent-time", "at", "--window", "2m")
	for _, want := range []string{"applied-twice: 1 key was", "missing: 1 message sent", "retry-late: 1 message was sent again after the broker's window of 2m"} {
		if code != 1 || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("exit %d, %q is missing: %s%s", code, want, stdout, stderr)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "onceline-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestAuditUsage(t *testing.T) {
	t.Parallel()
	db := shop(t, true)[2]
	rows := filepath.Join(t.TempDir(), "rows.csv")
	if err := os.WriteFile(rows, []byte("id,at\na,1\nb,x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string // with | for a space
		code int
		says string
	}{
		{"", 2, "nothing to look at"},
		{"--effects|" + db + "|--key|id", 2, "give --table"},
		{"--effects|" + db + "|--table|payments", 2, "no column is named"},
		{"--effects|" + db + "|--table|payment|--key|order_id", 2, "no such table: payment"},
		{"--effects|" + db + "|--table|payments|--key|order", 2, `no column "order"`},
		{"--effects|" + db + "|--table|payments|--key|order_id|--sent-time|at", 2, "no --sent"},
		{"--effects|" + db + "|--table|payments|--key|order_id|--since|yesterday", 2, "it is a time"},
		{"--effects|" + db + "|--table|payments|--key|order_id|--format|xml", 2, "text, markdown or json"},
		{"--effects|" + db + "|--table|payments|--key|order_id|--bucket|0s", 2, "above zero"},
		{"--effects|" + db + ".no|--table|payments|--key|order_id", 3, "no such file"},
		{"--effects|" + rows + "|--key|id|--applied|at", 3, `line 3: the column "at": "x" is no time`},
		{"--effects|" + rows + "|--key|nothing", 2, `no column "nothing"`},
		{"--effects|" + rows + "#kind|--key|id", 2, "FILE#COLUMN=TEXT"},
		{"--effects|oracle://u:secret@x/y|--table|t|--key|k", 2, "neither postgres"},
		{"--effects|postgres://u:sec%ret@x/y|--table|t|--key|k", 2, "not the address"},
		{"--effects|postgres://u:secret@127.0.0.1:1/y?connect_timeout=2|--table|t|--key|k", 3, "postgres://127.0.0.1:1/y"},
		{"--effects|mysql://u:secret@127.0.0.1:1/y|--table|t|--key|k", 3, "mysql://127.0.0.1:1/y"},
		{"--effects|mysql://u:secret@127.0.0.1:1/y?ssl=1|--table|t|--key|k", 2, "not ssl"},
		{"--outbox|" + db, 2, "onceline_outbox"},
		{"--markers|" + db, 2, "onceline_marker"},
		{"--outbox|" + rows, 2, "--outbox is a database"},
		{"--caught|-1|--retries|3", 2, "under zero"},
		{"--caught|1", 3, "it needs the number of retries"},
	} {
		args := []string{"audit"}
		if c.args != "" {
			args = append(args, strings.Split(c.args, "|")...)
		}
		stdout, stderr, code := onceline(t.Context(), args...)
		if said := stderr + stdout; code != c.code || !strings.Contains(said, c.says) || strings.Contains(said, "secret") || strings.Contains(said, "sec%ret") {
			t.Errorf("%s: exit %d: %s%s", c.args, code, stdout, stderr)
		}
	}
}

// TestAuditInterrupted: what could not be looked at is no clean result.
func TestAuditInterrupted(t *testing.T) {
	t.Parallel()
	args := shop(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if stdout, stderr, code := onceline(ctx, args...); code != report.ExitUnknown {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}
