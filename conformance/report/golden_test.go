package report_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/onceline/onceline/conformance/report"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func matrixWith(o report.MatrixOptions) func(io.Writer, *report.Report) error {
	return func(w io.Writer, r *report.Report) error { return report.Matrix(w, r, o) }
}

var renderings = []struct {
	file  string
	write func(io.Writer, *report.Report) error
}{
	{"report.json", report.WriteJSON},
	{"report.md", report.WriteMarkdown},
	{"junit.xml", report.WriteJUnit},
	{"index.html", report.WriteHTML},
	{"matrix.txt", matrixWith(report.MatrixOptions{})},
	{"matrix-narrow.txt", matrixWith(report.MatrixOptions{Width: 60})},
	{"matrix-color.txt", matrixWith(report.MatrixOptions{Color: true, Width: 140})},
}

func render(t *testing.T, write func(io.Writer, *report.Report) error, r *report.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	for _, c := range renderings {
		t.Run(c.file, func(t *testing.T) {
			got := unpack(t, render(t, c.write, example()))
			path := filepath.Join("testdata", c.file)
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs from the golden file at byte %d; run go test -update and read the diff", c.file, firstDifference(got, string(want)))
			}
		})
	}
}

// block begins a block of data as it stands in the page; its name follows.
const block = `<script type="text/plain" id="`

// own is what of the page is a file beside this one, and what follows from it.
var own = regexp.MustCompile(`(?s)(<style>|<script>).*?(</style>|</script>)|(sha256-)(?:[A-Za-z0-9/]|&#43;)+=*`)

// unpack puts the text of the page's blocks in their place: readable in a diff, and
// the same whatever compressor a release of Go has. Style and script it leaves out.
func unpack(t *testing.T, page string) string {
	t.Helper()
	var out strings.Builder
	for {
		before, rest, more := strings.Cut(page, block)
		out.WriteString(own.ReplaceAllString(before, "$1$3…$2"))
		if !more {
			return out.String()
		}
		name, rest, opened := strings.Cut(rest, ">")
		packed, rest, closed := strings.Cut(rest, "</script>")
		if !opened || !closed {
			t.Fatalf("the block %.40s has no end", name)
		}
		zip, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(zip)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(block + name + ">" + string(data) + "</script>")
		page = rest
	}
}

func firstDifference(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// A rendering reads the report and no more: rendering all of them twice gives
// the same bytes, and the report is as it was.
func TestRenderingsAreDeterministicAndChangeNothing(t *testing.T) {
	r := example()
	before := render(t, report.WriteJSON, r)
	for _, c := range renderings {
		first := render(t, c.write, r)
		for range 5 {
			if render(t, c.write, r) != first {
				t.Fatalf("%s: two renderings of one report differ", c.file)
			}
		}
	}
	if render(t, report.WriteJSON, r) != before {
		t.Error("a rendering changed the report")
	}
	if r.Targets[3].Findings != nil {
		t.Error("a rendering replaced the caller's nil slice")
	}
}

func TestEmptyReport(t *testing.T) {
	for _, c := range renderings {
		if render(t, c.write, &report.Report{}) == "" {
			t.Errorf("%s: nothing was written", c.file)
		}
	}
}
