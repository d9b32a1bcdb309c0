// Package onceline_test holds the house to docs/architecture.md.
package onceline_test

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/onceline/onceline"

// listed is what "go list" says of one package.
type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

func list(t *testing.T, args ...string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Standard,Imports,Deps"}, args...)...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	var ps []listed
	for dec := json.NewDecoder(&out); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return ps
		} else if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
}

// rooms says what each part of the house may import of this module, by prefix,
// and which of them may import other modules than the standard library.
var rooms = []struct {
	prefix   string
	may      []string
	thirdToo bool
}{
	{"broker/boundary", nil, false},
	{"broker/driver", []string{"broker"}, false},
	{"broker/otel", []string{"broker"}, true},
	{"broker", nil, false},
	{"adapters/", []string{"broker", "broker/driver", "broker/boundary"}, true},
	{"conformance/history", nil, false},
	{"conformance/report", []string{"conformance/history"}, false},
	{"conformance", []string{"broker", "broker/driver", "broker/boundary", "conformance/report", "conformance/history"}, false},
	{"localstack", []string{"localstack"}, true},
	{"dedup/internal/servertest", []string{"localstack"}, false}, // for tests alone
	{"dedup/internal", []string{"broker", "dedup"}, false},
	{"dedup/mysql", []string{"broker", "dedup", "dedup/internal/sqltx"}, true},
	{"dedup/postgres", []string{"broker", "dedup", "dedup/internal/sqltx"}, true},
	{"dedup/httpcall", []string{"broker", "dedup"}, false},
	{"dedup/otel", []string{"broker", "dedup"}, true},
	{"dedup/redis", []string{"broker", "dedup"}, true},
	{"dedup/sqlite", []string{"broker", "dedup", "dedup/internal/sqltx"}, true},
	{"dedup/audit", nil, false},
	{"dedup", []string{"broker"}, false},
	{"bridge", []string{"broker", "broker/boundary", "dedup"}, false},
	{"pipeline/otel", []string{"pipeline"}, true},
	{"pipeline", []string{"broker", "dedup"}, false},
	{"docs", nil, false},
	{"internal/bubbletest", nil, false}, // for tests alone
	{"internal/sidebyside", nil, false}, // for tests alone
	{"cmd/onceline", []string{"docs", "broker", "broker/boundary", "adapters", "conformance", "localstack", "cmd/onceline", "bridge", "pipeline", "dedup", "dedup/audit", "dedup/mysql", "dedup/otel", "dedup/postgres", "dedup/redis", "dedup/sqlite", "broker/driver/paired"}, true},
}

func TestImports(t *testing.T) {
	standard := map[string]bool{"C": true}
	for _, p := range list(t, "std") {
		standard[p.ImportPath] = true
	}
	for _, p := range list(t, "./...") {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if name == "" || strings.HasPrefix(name, "examples/") {
			continue
		}
		i := slices.IndexFunc(rooms, func(r struct {
			prefix   string
			may      []string
			thirdToo bool
		}) bool {
			return name == r.prefix || strings.HasPrefix(name, strings.TrimSuffix(r.prefix, "/")+"/")
		})
		if i < 0 {
			t.Errorf("%s is in no room of docs/architecture.md", name)
			continue
		}
		for _, imported := range p.Imports {
			own, ours := strings.CutPrefix(imported, module+"/")
			switch {
			case standard[imported]:
			case !ours && rooms[i].thirdToo:
			case ours && mayImport(name, own, rooms[i].may):
			default:
				t.Errorf("%s imports %s, which its room may not", name, imported)
			}
		}
	}
}

// wide are the rooms that are named for all that is in them.
var wide = map[string]bool{"adapters": true, "conformance": true, "localstack": true, "cmd/onceline": true}

// mayImport: a room's own subpackages are its own business, except that no
// adapter imports another.
func mayImport(name, imported string, may []string) bool {
	if strings.HasPrefix(imported, name+"/") {
		return true
	}
	for _, m := range may {
		if imported == m || wide[m] && strings.HasPrefix(imported, m+"/") {
			return true
		}
	}
	return false
}

// TestOneAdapterOneSDK: whoever imports one adapter links no other broker's
// SDK.
func TestOneAdapterOneSDK(t *testing.T) {
	sdks := map[string]string{
		"sqs":        "github.com/aws/",
		"pubsub":     "cloud.google.com/go/pubsub",
		"servicebus": "github.com/Azure/",
		"rabbitmq":   "github.com/rabbitmq/",
		"nats":       "github.com/nats-io/",
		"kafka":      "github.com/twmb/franz-go",
	}
	adapters := 0
	for _, p := range list(t, "./adapters/...") {
		adapters++
		own := filepath.Base(p.ImportPath)
		for broker, sdk := range sdks {
			links := slices.ContainsFunc(p.Deps, func(d string) bool { return strings.HasPrefix(d, sdk) })
			if links != (broker == own) {
				t.Errorf("%s links %s: %v", p.ImportPath, sdk, links)
			}
		}
		if slices.ContainsFunc(p.Deps, func(d string) bool {
			return strings.HasPrefix(d, "github.com/nats-io/nats-server") || strings.Contains(d, "kfake") || strings.Contains(d, "pstest") || strings.HasPrefix(d, module+"/localstack")
		}) {
			t.Errorf("%s links an emulator", p.ImportPath)
		}
	}
	if adapters < 7 {
		t.Fatalf("found %d adapters", adapters)
	}
}

var factID = regexp.MustCompile(`\b(SQS|PS|SB|RMQ|RMS|NATS|KAF|FLK|RED|PG|MY)-F-\d+\b`)

// TestFacts: each fact that is cited stands in docs/facts.md.
func TestFacts(t *testing.T) {
	facts, err := os.ReadFile("docs/facts.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(facts)) {
		if id := factID.FindString(line); id != "" && strings.HasPrefix(line, "| "+id+" |") {
			known[id] = true
		}
	}
	cited := map[string]string{}
	eachFile(t, func(path, text string) {
		if path == "docs/facts.md" || path == "architecture_test.go" {
			return
		}
		for line := range strings.Lines(text) {
			if !strings.Contains(line, "-F-") { // the expression alone takes ten times as long
				continue
			}
			for _, id := range factID.FindAllString(line, -1) {
				cited[id] = path
			}
		}
	})
	for id, path := range cited {
		if !known[id] {
			t.Errorf("%s cites %s, which docs/facts.md doesn't have", path, id)
		}
	}
}

// eachFile reads all of the module's Go and Markdown.
func eachFile(t *testing.T, see func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".git") {
			return fs.SkipDir
		}
		if ext := filepath.Ext(path); d.IsDir() || ext != ".go" && ext != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			see(path, string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestBubbles: the race detector may crash in a bubble that bubbletest hasn't made.
func TestBubbles(t *testing.T) {
	call := "synctest." + "Test("
	eachFile(t, func(path, text string) {
		if strings.Contains(text, call) && path != "internal/bubbletest/bubbletest.go" {
			t.Errorf("%s calls %s...): call bubbletest.Run", path, call)
		}
	})
}

var (
	caseRow  = regexp.MustCompile(`(?m)^\| (\S+/\S+#\d+) \|(.+)\|(.+)\|$`)
	caseTest = regexp.MustCompile("`([a-z/]+)` (Test[A-Za-z0-9]+)")
)

// TestCases: each row of docs/cases.md names tests that are there, the first of which
// carries the report's ID, and no report is left out that stood there.
func TestCases(t *testing.T) {
	page, err := os.ReadFile("docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := caseRow.FindAllStringSubmatch(string(page), -1)
	reports := map[string]bool{}
	for _, row := range rows {
		reports[row[1]] = true
	}
	if len(reports) < 110 {
		t.Errorf("%d reports in %d rows", len(reports), len(rows))
	}
	shared := texts(t, "dedup/internal/storetest/*.go") // what all stores are asked
	for _, row := range rows {
		id := row[1]
		named := caseTest.FindAllStringSubmatch(row[3], -1)
		if len(named) == 0 {
			t.Errorf("%s: no test", id)
		}
		for i, n := range named {
			text := texts(t, filepath.Join(n[1], "*_test.go"))
			before, after, found := strings.Cut(text, "\nfunc "+n[2]+"(")
			if !found {
				t.Errorf("%s: %s has no %s", id, n[1], n[2])
			}
			// In its comment or its body.
			before = before[strings.LastIndex(before, "\n}\n")+1:]
			body, _, _ := strings.Cut(after, "\n}\n")
			if i == 0 && !strings.Contains(before+body, id) && !(strings.HasPrefix(n[1], "dedup/") && strings.Contains(shared, id)) {
				t.Errorf("%s: %s of %s doesn't say that it is its test", id, n[2], n[1])
			}
		}
	}
}

// texts are the files of a pattern, one behind the other.
func texts(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

var link = regexp.MustCompile(`\]\(([^)#:]+)\)`)

// TestLinks: what the pages link to is there.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), l[1])); err != nil {
				t.Errorf("%s links to %s: %v", page, l[1], err)
			}
		}
	}
}
