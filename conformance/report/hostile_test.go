package report_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/onceline/onceline/conformance/report"
)

// poisoned is a report in which every string that a run can bring is hostile.
func poisoned(text string) *report.Report {
	r := &report.Report{
		Toolkit: text, Command: text,
		Claims: []report.Claim{{Claim: text, Hop: 1, Question: text, Answers: []string{text}, Meaning: text}},
		Facts:  []report.Fact{{ID: text, Text: text, Numbers: text, Source: text, Confidence: text, Links: []string{text}}},
		Targets: []report.Target{{
			Name: text, Broker: text, Kind: report.Kind(text), Error: text,
			Versions:   map[string]string{text: text},
			Deviations: []report.Deviation{{Claim: text, Answer: text, Reason: text}},
			Findings: []report.Finding{{
				Claim: text, Hop: 1, Question: text, Declared: text, Documented: text, Source: []string{text, "javascript:" + text},
				Observed: text, Basis: report.Basis(text), Verdict: report.Weaker, Reason: text,
				Evidence: report.Evidence{Notes: []string{text}, History: []report.Event{
					{Actor: report.Producer, Kind: "publish", ID: text, Note: text},
					{Actor: report.Actor(text), Kind: text, ID: text, Note: text},
					{Actor: report.Fault, Kind: text, ID: text, Note: text},
				}},
			}, {Claim: text, Hop: 1, Verdict: report.Verdict(text)}, {Claim: text, Hop: 2, Verdict: report.NotApplicable, Reason: text}},
		}},
		Mutants: []report.Mutant{{Name: text, Layer: text, Claim: text, Answer: text, Reason: text}},
	}
	r.Summarise()
	return r
}

var hostileTexts = []string{
	hostile,
	"</title></style></dialog></svg><script>alert(1)</script>",
	"]]><x/> {{.}} ${alert(1)}",
	"a\xff\xfe\x00b\u2028c",
	"![x](javascript:alert(1)) <b>b</b> [y](http://evil.example) ~~z~~ \\| | `` ` ``",
}

func TestHTMLIsInert(t *testing.T) {
	for _, text := range append(hostileTexts, "plain") {
		page := render(t, report.WriteHTML, poisoned(text))
		body := page[strings.Index(page, "<body>"):]
		if blocks := strings.Count(page, block); blocks != 2 {
			t.Errorf("%q: %d blocks of data, want one and the target's", text, blocks)
		}
		if n := strings.Count(strings.ToLower(page), "<script"); n != 3 {
			t.Errorf("%q: %d script elements, want our own and the blocks", text, n)
		}
		for _, bad := range []string{"<img", "<x/>", "<b>b", `href="javascript`, "\x1b", "\u202e", "\x00", "\u2028", "</dialog></svg>"} {
			if strings.Contains(body, bad) {
				t.Errorf("%q: the page holds %q", text, bad)
			}
		}
		if strings.Count(page, "<dialog") != 1 || strings.Count(page, "</dialog>") != 1 {
			t.Errorf("%q: dialogs do not match", text)
		}
	}
	clean := unpack(t, render(t, report.WriteHTML, example()))
	if !strings.Contains(clean, `\u003c/script\u003e\u003cscript\u003ealert(1)`) {
		t.Error("the hostile ID is not in the data")
	}
}

// The page loads nothing, and its policy lets only its own script and style
// run: the hashes have to be those of what the page holds.
func TestHTMLIsSelfContained(t *testing.T) {
	page := render(t, report.WriteHTML, example())
	for _, bad := range []string{" src=", "@import", "url(", "<iframe", "<object", " style=", " onclick="} {
		if strings.Contains(strings.ReplaceAll(page, "&lt;img src=x", ""), bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	if links := regexp.MustCompile(`<link[^>]*>`).FindAllString(page, -1); len(links) != 1 || !strings.Contains(links[0], `href="data:,"`) {
		t.Errorf("links: %v", links)
	}
	for _, element := range []string{"script", "style"} {
		m := regexp.MustCompile(`(?s)<` + element + `>(.*)</` + element + `>`).FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("no %s", element)
		}
		sum := sha256.Sum256([]byte(m[1]))
		want := "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
		if !strings.Contains(page, strings.ReplaceAll(want, "+", "&#43;")) {
			t.Errorf("the policy does not allow the page's own %s (%s)", element, want)
		}
	}
}

// Every cell's link leads to a finding of its own in the data, every column's and
// row's to a page that the script can make, and no ID is used twice.
func TestHTMLAnchors(t *testing.T) {
	r := example()
	r.Targets = append(r.Targets, r.Targets[0]) // the same name again
	r.Targets[1].Findings = append(r.Targets[1].Findings, r.Targets[1].Findings[0])
	page := unpack(t, render(t, report.WriteHTML, r))
	ids := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]*)"|"anchor":"([^"]*)"`).FindAllStringSubmatch(page, -1) {
		id := m[1] + m[2]
		if ids[id] {
			t.Errorf("ID %q is used twice", id)
		}
		ids[id] = true
	}
	links := regexp.MustCompile(`class="(?:cell [^"]*|tname)" href="#([^"]*)"`).FindAllStringSubmatch(page, -1)
	seen := map[string]bool{}
	for _, m := range links {
		if !ids[m[1]] || seen[m[1]] {
			t.Errorf("link to %q: no such ID, or linked twice", m[1])
		}
		seen[m[1]] = true
	}
	if len(links) != 6+5+3+6+5 {
		t.Errorf("%d cells and columns are linked", len(links))
	}
	if !ids["nats-embedded--publish.dedup.window"] || !ids["target--nats-embedded"] {
		t.Error("the documented form of an anchor is gone")
	}
	if !strings.Contains(page, `class="id" href="#claim--publish.dedup.window"`) {
		t.Error("a claim has no page")
	}
}

// A page stays below 3 MB whatever the histories are, and says what it left out.
func TestHTMLStaysSmall(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, 120)
	r := &report.Report{}
	for i := range 3 {
		target := report.Target{Name: fmt.Sprint("t", i)}
		for j := range 10 {
			f := report.Finding{Claim: fmt.Sprint("c", j), Hop: 1, Verdict: report.Equal}
			for range 700 {
				random.Read(noise) // no compressor can make it small
				f.Evidence.History = append(f.Evidence.History, report.Event{Actor: report.Broker, Kind: "tick", Note: base64.StdEncoding.EncodeToString(noise)})
			}
			target.Findings = append(target.Findings, f)
		}
		r.Targets = append(r.Targets, target)
	}
	page := render(t, report.WriteHTML, r)
	if len(page) > 3_000_000 || len(page) < 1_000_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
	if !strings.Contains(unpack(t, page), `"more":350}`) {
		t.Error("the page does not say how many events it left out")
	}
	r.Targets = r.Targets[:1]
	if page = render(t, report.WriteHTML, r); strings.Contains(unpack(t, page), `"more":3`) {
		t.Error("a page that is small enough leaves events out")
	}
}

// cells splits a table row at its unescaped pipes.
func cells(line string) int {
	n := 0
	for i := range len(line) {
		if line[i] == '|' && (i == 0 || line[i-1] != '\\') {
			n++
		}
	}
	return n
}

func TestMarkdownTablesHold(t *testing.T) {
	for _, text := range hostileTexts {
		out := render(t, report.WriteMarkdown, poisoned(text))
		for _, bad := range []string{"<script", "<img", "<b>", "<x/>", "\x1b", "\u202e", "\x00"} {
			// Inside a code span, < is text; outside, it has to be an entity.
			if strings.Contains(regexp.MustCompile("(`+)[^\n]*?[^`]`+ \\|").ReplaceAllString(out, "|"), bad) {
				t.Errorf("%q: the Markdown holds %q", text, bad)
			}
		}
		want := 0
		for line := range strings.SplitSeq(out, "\n") {
			switch {
			case !strings.HasPrefix(line, "|"):
				want = 0
				if strings.Contains(line, "|") && !strings.Contains(line, `\|`) {
					t.Errorf("%q: a row fell out of its table: %q", text, line)
				}
			case want == 0:
				want = cells(line)
			case cells(line) != want:
				t.Errorf("%q: %d pipes, want %d: %q", text, cells(line), want, line)
			}
		}
	}
}

func TestJUnitParses(t *testing.T) {
	for _, text := range hostileTexts {
		dec := xml.NewDecoder(strings.NewReader(render(t, report.WriteJUnit, poisoned(text))))
		elements := map[string]int{}
		for {
			tok, err := dec.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if s, ok := tok.(xml.StartElement); ok {
				elements[s.Name.Local]++
			}
		}
		// The target's: one unreached, one weaker, one unknown, one skipped. The mutant's: one survivor.
		if elements["testcase"] != 5 || elements["failure"] != 2 || elements["error"] != 2 || elements["skipped"] != 1 || elements["x"] != 0 {
			t.Errorf("%q: %v", text, elements)
		}
	}
}

func TestMatrixStaysInWidthAndDrivesNoTerminal(t *testing.T) {
	for _, text := range hostileTexts {
		for _, width := range []int{1, 40, 61, 100, 240} {
			out := render(t, matrixWith(report.MatrixOptions{Width: width}), poisoned(text))
			for _, c := range out {
				if c < ' ' && c != '\n' || c == 0x7f || c == '\u202e' {
					t.Errorf("%q: the matrix holds %q", text, c)
				}
			}
			for line := range strings.SplitSeq(out, "\n") {
				if n := len([]rune(line)); n > max(width, 40) {
					t.Errorf("width %d: a line of %d: %q", width, n, line)
				}
			}
		}
	}
}
