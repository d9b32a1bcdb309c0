package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/onceline/onceline/conformance/report"
)

//go:embed look.js
var look string

// checker collects what is broken.
type checker struct {
	shots    string
	name     string // of the page that is open
	url      string
	checks   int
	mu       sync.Mutex
	problems []string
}

// want counts a check, and keeps what it says if it failed.
func (c *checker) want(ok bool, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks++
	if !ok {
		c.problems = append(c.problems, c.name+": "+fmt.Sprintf(format, args...))
	}
}

// none wants an empty list.
func (c *checker) none(what string, found []string) {
	if len(found) > 8 {
		found = append(found[:8:8], fmt.Sprintf("and %d more", len(found)-8))
	}
	c.want(len(found) == 0, "%s: %s", what, strings.Join(found, "; "))
}

// page runs check in a tab of its own, and watches what the page asks for and says.
func (c *checker) page(ctx context.Context, name, file string, r *report.Report, check func(context.Context, *checker, *report.Report) error) error {
	abs, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	c.name, c.url = name, (&url.URL{Scheme: "file", Path: abs}).String()
	info, err := os.Stat(abs)
	if err != nil {
		return err
	}
	c.want(info.Size() < 3_000_000, "the page has %d bytes, over 3 MB", info.Size())
	ctx, stop := chromedp.NewContext(ctx)
	defer stop()
	if err := chromedp.Do(ctx, desk()); err != nil { // makes the tab
		return err
	}
	if err := chromedp.Listen(ctx, c.watch); err != nil {
		return err
	}
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		return err
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		return err
	}
	if err := c.open(ctx, ""); err != nil {
		return err
	}
	return check(ctx, c, r)
}

// watch takes down errors, requests and dialogs as problems.
func (c *checker) watch(event any) {
	switch e := event.(type) {
	case *log.EventEntryAdded:
		c.want(e.Entry.Level != log.EntryLevelError && e.Entry.Level != log.EntryLevelWarning, "the console has: %s", e.Entry.Text)
	case *runtime.EventConsoleAPICalled:
		c.want(false, "the page writes to the console: %s", e.Type)
	case *runtime.EventExceptionThrown:
		c.want(false, "an exception: %s", e.ExceptionDetails.Text+" "+describe(e.ExceptionDetails))
	case *network.EventRequestWillBeSent:
		to, _, _ := strings.Cut(e.Request.URL, "#")
		c.want(to == c.url || strings.HasPrefix(to, "data:"), "the page asks for %s", e.Request.URL)
	case *cdppage.EventJavascriptDialogOpening:
		c.want(false, "a script opened a dialog: %s", e.Message)
	}
}

type action = chromedp.Action[chromedp.Void]

func desk() action { return chromedp.EmulateViewport(1400, 1000) }

func phone(width int64) action {
	return chromedp.EmulateViewport(width, 844, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2))
}

// scheme asks for light or dark colours.
func scheme(ctx context.Context, name string) error {
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
	return err
}

// open loads the page afresh at an address in it.
func (c *checker) open(ctx context.Context, fragment string) error {
	// A change of the fragment alone would load nothing.
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(c.url+fragment)); err != nil {
		return fmt.Errorf("open %q: %w", fragment, err)
	}
	return script(ctx, look)
}

// script runs JavaScript in the page; the page's policy doesn't bind it.
func script(ctx context.Context, text string) error {
	return evaluate(ctx, nil, "(() => {"+text+"})()")
}

// evaluate takes the value of an expression into out; it waits for a promise.
func evaluate(ctx context.Context, out any, expression string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("Promise.resolve("+expression+").then(v => JSON.stringify(v ?? null))", chromedp.EvalAwaitPromise))
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal([]byte(text), out)
}

// ask runs a function of look.js and takes its answer into out, unless that is nil.
func ask(ctx context.Context, out any, function string, args ...any) error {
	text := make([]string, len(args))
	for i, a := range args {
		b, err := json.Marshal(a)
		if err != nil {
			return err
		}
		text[i] = string(b)
	}
	if err := evaluate(ctx, out, "look."+function+"("+strings.Join(text, ",")+")"); err != nil {
		return fmt.Errorf("%s: %w", function, err)
	}
	return nil
}

// key presses a key, and lets the page answer.
func key(ctx context.Context, k string) error {
	if err := chromedp.Do(ctx, chromedp.KeyEvent(k)); err != nil {
		return err
	}
	return ask(ctx, nil, "calm")
}

var (
	escape, enter, tab  = kb.Escape, kb.Enter, kb.Tab
	arrowRight, arrowUp = kb.ArrowRight, kb.ArrowUp
	arrowDown           = kb.ArrowDown
)

// logf says what was measured.
func logf(format string, args ...any) { fmt.Printf("browser: "+format+"\n", args...) }

// shot writes a screenshot of what is in view.
func (c *checker) shot(ctx context.Context, name string) error {
	if c.shots == "" {
		return nil
	}
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.shots, c.name+"-"+name+".png"), png, 0o644)
}

// describe is where an exception comes from.
func describe(d *runtime.ExceptionDetails) string {
	if d.Exception != nil && d.Exception.Description != "" {
		return d.Exception.Description
	}
	return fmt.Sprintf("line %d", d.LineNumber+1)
}
