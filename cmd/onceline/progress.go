package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// progress shows how far a run is: on a terminal one line that is redrawn, with
// the claim that was answered last, else a line for each tenth of the way; with
// verbose a line for each finding.
type progress struct {
	mu      sync.Mutex
	w       io.Writer
	live    bool
	verbose bool
	start   time.Time
	order   []string
	done    map[string]int
	of      map[string]int
	told    map[string]int // tenths, without a terminal
	last    string
	drawn   bool
}

func newProgress(w io.Writer, verbose bool, ts []conformance.Target) *progress {
	p := &progress{w: w, verbose: verbose, start: time.Now(), done: map[string]int{}, of: map[string]int{}, told: map[string]int{}}
	_, p.live = terminal(fileOf(w))
	for i := range ts {
		p.order = append(p.order, ts[i].Name)
	}
	p.phase("starting " + strings.Join(p.order, ", "))
	return p
}

// finding is called for each finding, one at a time.
func (p *progress) finding(target string, f report.Finding, done, of int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[target], p.of[target] = done, of
	p.last = target + " " + f.Claim
	if p.verbose || f.Verdict.Fails() {
		p.line(fmt.Sprintf("%s %-12s %-32s %s (%.1f s): %s", f.Verdict.Symbol(), target, f.Claim, or(f.Observed, string(f.Verdict)), f.Seconds, f.Reason))
	}
	if p.live {
		p.draw()
		return
	}
	if tenth := 10 * done / of; tenth > p.told[target] && !p.verbose {
		p.told[target] = tenth
		fmt.Fprintf(p.w, "%5.1f s  %s: %d of %d claims\n", time.Since(p.start).Seconds(), target, done, of)
	}
}

// phase says what is done now.
func (p *progress) phase(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = what
	if p.live {
		p.draw()
		return
	}
	fmt.Fprintf(p.w, "%5.1f s  %s\n", time.Since(p.start).Seconds(), what)
}

// step says what the start of a target's server does.
func (p *progress) step(target, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live && !p.verbose {
		p.last = target + ": " + what
		p.draw()
		return
	}
	p.line(fmt.Sprintf("%5.1f s  %s: %s", time.Since(p.start).Seconds(), target, what))
}

// watch says once that the run is being interrupted, when ctx ends. Nothing is
// printed after the function that it returns has returned.
func (p *progress) watch(ctx context.Context) (stop func()) {
	told := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(told)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.line("interrupted: cleaning up; interrupt again to stop at once")
	})
	return func() {
		if !unwatch() {
			<-told
		}
	}
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// line prints a line above the live one.
func (p *progress) line(s string) {
	p.clear()
	fmt.Fprintln(p.w, s)
}

func (p *progress) draw() {
	p.clear()
	var b strings.Builder
	fmt.Fprintf(&b, "%.0f s", time.Since(p.start).Seconds())
	for _, name := range p.order {
		if p.of[name] > 0 {
			fmt.Fprintf(&b, "  %s %d/%d", name, p.done[name], p.of[name])
		}
	}
	b.WriteString("  " + p.last)
	line := b.String()
	if width, _ := terminal(fileOf(p.w)); len(line) >= width && width > 1 {
		line = line[:width-1]
	}
	fmt.Fprint(p.w, line)
	p.drawn = true
}

func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

// terminal returns the width of file and whether it is a terminal that takes
// colours and cursor movements; NO_COLOR and TERM=dumb say that it isn't.
func terminal(file *os.File) (width int, fancy bool) {
	if file == nil || !term.IsTerminal(int(file.Fd())) {
		return 0, false
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		width = 0
	}
	return width, os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func or(s, other string) string {
	if s != "" {
		return s
	}
	return other
}
