// Browser opens a report's page in a headless Chromium and goes through it as its
// readers do: the matrix, its filters, cells with their diagrams, pages of targets
// and claims, with the mouse and with the keyboard alone, light and dark, on a desk
// and on a phone, and without JavaScript. It opens the page of the report that it is
// given, that report grown to the size which the page is made for, and two made-up
// ones: a history whose drawing is known, and one full of hostile text.
//
//	cd .ci/browser && go run . -shots /tmp/shots ../../onceline-report
//
// It says what is broken, one a line, and exits with 1; with 2 for a wrong command
// line or where no Chromium is installed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/onceline/onceline/conformance/report"
)

func main() {
	shots := flag.String("shots", "", "write screenshots into this `folder`")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: browser [-shots DIR] REPORT-DIR")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	problems, err := run(ctx, flag.Arg(0), *shots)
	switch {
	case errors.Is(err, errNoBrowser):
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(2)
	case err != nil:
		problems = append(problems, err.Error())
	}
	for _, p := range problems {
		fmt.Fprintln(os.Stderr, "browser:", p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

var errNoBrowser = errors.New("no Chromium is installed here: .ci/install brings it")

// browserPath is where the browser is.
func browserPath() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome-stable", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNoBrowser
}

func run(ctx context.Context, dir, shots string) ([]string, error) {
	path, err := browserPath()
	if err != nil {
		return nil, err
	}
	r, err := read(filepath.Join(dir, "report.json"))
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "onceline-browser-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	if shots != "" {
		if err := os.MkdirAll(shots, 0o755); err != nil {
			return nil, err
		}
	}
	// Chromium's own sandbox doesn't work for root; what it opens is ours.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.UserDataDir(filepath.Join(work, "profile")), chromedp.WSURLReadTimeout(time.Minute))
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	defer stop()
	ctx, stop = chromedp.NewContext(ctx)
	defer stop()
	if err := chromedp.Do(ctx); err != nil { // starts it
		return nil, fmt.Errorf("start %s: %w", path, err)
	}

	c := &checker{shots: shots}
	for _, one := range []struct {
		name  string
		dir   string
		r     *report.Report
		check func(ctx context.Context, c *checker, r *report.Report) error
	}{
		{"report", dir, r, reads},
		{"large", "", grown(r, 40, 70), isQuick},
		{"drawn", "", drawn(), drawsAsKnown},
		{"hostile", "", hostile(), isInert},
	} {
		if one.dir == "" {
			one.dir = filepath.Join(work, one.name)
			if err := report.WriteAll(one.dir, one.r); err != nil {
				return nil, err
			}
		}
		if err := c.page(ctx, one.name, filepath.Join(one.dir, "index.html"), one.r, one.check); err != nil {
			return c.problems, fmt.Errorf("%s: %w", one.name, err)
		}
	}
	fmt.Printf("browser: %d checks on 4 pages, %d broken\n", c.checks, len(c.problems))
	return c.problems, nil
}

func read(path string) (*report.Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return report.ReadJSON(f)
}
