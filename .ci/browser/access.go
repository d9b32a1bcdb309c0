package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"

	"github.com/onceline/onceline/conformance/report"
)

// somewhere is a cell with a history, and the page of a target.
func somewhere(ctx context.Context) (cell, target string, err error) {
	var cells, sheets []string
	if err := ask(ctx, &cells, "all"); err != nil {
		return "", "", err
	}
	if err := ask(ctx, &sheets, "sheets"); err != nil {
		return "", "", err
	}
	if len(cells) == 0 || len(sheets) == 0 {
		return "", "", fmt.Errorf("the matrix is empty")
	}
	return cells[len(cells)/2], sheets[0], nil
}

// keyboard: everything can be reached and left by it, in the order in which it
// stands, and one sees where one is.
func keyboard(ctx context.Context, c *checker, _ *report.Report) error {
	type stop struct {
		What                      string
		Body, Seen, Outline, Grid bool
		Index                     int
	}
	var wrong []string
	inGrid, before := 0, -1
	grid := -1
	for n := range 150 {
		if err := key(ctx, tab); err != nil {
			return err
		}
		var s stop
		if err := ask(ctx, &s, "stop"); err != nil {
			return err
		}
		if s.Body || s.Index < before {
			break // round
		}
		before = s.Index
		if !s.Seen || !s.Outline {
			wrong = append(wrong, fmt.Sprintf("%s: in view %v, outline %v", s.What, s.Seen, s.Outline))
		}
		if strings.HasSuffix(s.What, `""`) && !strings.HasPrefix(s.What, "select") && !strings.HasPrefix(s.What, "input") {
			wrong = append(wrong, s.What+" has no name")
		}
		if n == 0 {
			c.want(strings.HasPrefix(s.What, "a.skip"), "the first stop is %s", s.What)
		}
		if s.Grid {
			inGrid++
			grid = n
		}
	}
	c.none("stops of the Tab key", wrong)
	c.want(inGrid == 1 && grid >= 0, "the matrix has %d stops of the Tab key, want 1", inGrid)

	// To the matrix, a cell to the right and down, into its evidence, and out again.
	if err := c.open(ctx, ""); err != nil {
		return err
	}
	var s state
	for range grid + 1 {
		if err := key(ctx, tab); err != nil {
			return err
		}
	}
	if err := ask(ctx, &s, "state"); err != nil {
		return err
	}
	c.want(s.Grid, "the focus is on %s, want it in the matrix", s.Focus)
	first := s.Href
	for _, k := range []string{arrowRight, arrowDown} {
		if err := key(ctx, k); err != nil {
			return err
		}
	}
	if err := ask(ctx, &s, "state"); err != nil {
		return err
	}
	cell := s.Href
	c.want(s.Grid && cell != first && cell != "", "arrow keys lead to %s", s.Focus)
	if err := key(ctx, enter); err != nil {
		return err
	}
	var e evidence
	if err := ask(ctx, &e, "evidence", cell); err != nil {
		return err
	}
	c.want(strings.HasPrefix(e.Focus, "h2#evidence-title"), "in the evidence the focus is on %s", e.Focus)
	for range 30 {
		if err := key(ctx, tab); err != nil {
			return err
		}
		if err := ask(ctx, &s, "state"); err != nil {
			return err
		}
		if !s.Inside && s.Focus != "body" { // the browser's own controls count as the body
			c.want(false, "the Tab key leaves the open evidence for %s", s.Focus)
			break
		}
	}
	if err := key(ctx, escape); err != nil {
		return err
	}
	if err := ask(ctx, &s, "state"); err != nil {
		return err
	}
	c.want(!s.Open && s.Href == cell, "after Escape the focus is on %s, want %s", s.Focus, cell)
	// Up to the head of the column is the target's page.
	for range 200 {
		if err := key(ctx, arrowUp); err != nil {
			return err
		}
		if err := ask(ctx, &s, "state"); err != nil {
			return err
		}
		if strings.HasPrefix(s.Href, "#target--") {
			break
		}
	}
	c.want(strings.HasPrefix(s.Href, "#target--"), "the arrow keys end at %s, want the head of the column", s.Focus)
	// Into that page and back to where one was.
	head := s.Href
	if err := script(ctx, "scrollTo(0, 300)"); err != nil {
		return err
	}
	if err := key(ctx, enter); err != nil {
		return err
	}
	if err := ask(ctx, nil, "sheet", head); err != nil {
		return err
	}
	if err := script(ctx, "history.back()"); err != nil {
		return err
	}
	var at struct{ Y float64 }
	if err := ask(ctx, &at, "returned"); err != nil {
		return err
	}
	if err := ask(ctx, &s, "state"); err != nil {
		return err
	}
	c.want(s.Href == head && at.Y == 300, "back from %s the focus is on %s, and the page at %v", head, s.Focus, at.Y)
	return nil
}

// names: what a screen reader is given has roles and names, and the document is
// made as one.
func names(ctx context.Context, c *checker, _ *report.Report) error {
	cell, target, err := somewhere(ctx)
	if err != nil {
		return err
	}
	views := []struct {
		name string
		open func() error
	}{
		{"the matrix", func() error { return nil }},
		{"the page of a target", func() error { return ask(ctx, nil, "sheet", target) }},
		{"the evidence", func() error { return ask(ctx, nil, "evidence", cell) }},
	}
	need := map[string]bool{"link": true, "button": true, "combobox": true, "searchbox": true, "textbox": true, "dialog": true, "region": true, "image": true, "img": true, "heading": true, "group": false, "columnheader": true, "rowheader": true}
	for _, v := range views {
		if err := v.open(); err != nil {
			return err
		}
		var wrong []string
		if err := ask(ctx, &wrong, "structure"); err != nil {
			return err
		}
		c.none(v.name, wrong)
		tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		if err != nil {
			return err
		}
		wrong = nil
		roles := map[string]int{}
		for _, n := range tree.Nodes {
			if n.Ignored || n.Role == nil {
				continue
			}
			role := strings.Trim(string(n.Role.Value), `"`)
			roles[role]++
			if name := ""; need[role] {
				if n.Name != nil {
					name = strings.Trim(string(n.Name.Value), `"`)
				}
				if strings.TrimSpace(name) == "" {
					wrong = append(wrong, fmt.Sprintf("a %s (node %d) has no name", role, n.BackendDOMNodeID))
				}
			}
		}
		c.none(v.name+" to a screen reader", wrong)
		c.want(roles["heading"] > 0 && roles["link"] > 0, "%s has the roles %v", v.name, roles)
		switch v.name {
		case "the matrix":
			c.want(roles["main"] == 1 && roles["banner"] == 1 && roles["contentinfo"] == 1 && roles["columnheader"] > 0 && roles["rowheader"] > 0, "landmarks and headers: %v", roles)
		case "the evidence":
			c.want(roles["dialog"] == 1, "%d dialogs", roles["dialog"])
		}
	}
	return nil
}

// colours: light and dark are what was asked for, and text can be told from what is
// behind it.
func colours(ctx context.Context, c *checker, _ *report.Report) error {
	cell, target, err := somewhere(ctx)
	if err != nil {
		return err
	}
	for _, name := range []string{"light", "dark"} {
		if err := scheme(ctx, name); err != nil {
			return err
		}
		var rgb []int
		if err := ask(ctx, &rgb, "background"); err != nil {
			return err
		}
		c.want((rgb[0]+rgb[1]+rgb[2] < 3*64) == (name == "dark"), "%s has the background %v", name, rgb)
		for _, view := range []string{"matrix", "target", "evidence"} {
			switch view {
			case "matrix":
				err = ask(ctx, nil, "home")
			case "target":
				err = ask(ctx, nil, "sheet", target)
			case "evidence":
				err = ask(ctx, nil, "evidence", cell)
			}
			if err != nil {
				return err
			}
			var wrong []string
			if err := ask(ctx, &wrong, "contrast"); err != nil {
				return err
			}
			c.none(fmt.Sprintf("contrast of the %s, %s", view, name), wrong)
			if err := c.shot(ctx, name+"-"+view); err != nil {
				return err
			}
		}
		if err := ask(ctx, nil, "home"); err != nil {
			return err
		}
	}
	return scheme(ctx, "")
}

// phones: nothing reaches out to the side, and a finger hits what it means.
func phones(ctx context.Context, c *checker, _ *report.Report) error {
	cell, target, err := somewhere(ctx)
	if err != nil {
		return err
	}
	for _, width := range []int64{390, 320} {
		if err := chromedp.Do(ctx, phone(width)); err != nil {
			return err
		}
		if err := c.open(ctx, ""); err != nil {
			return err
		}
		for _, view := range []string{"matrix", "target", "evidence"} {
			switch view {
			case "target":
				err = ask(ctx, nil, "sheet", target)
			case "evidence":
				err = ask(ctx, nil, "evidence", cell)
			}
			if err != nil {
				return err
			}
			if err := c.fits(ctx, fmt.Sprintf("the %s at %d px", view, width)); err != nil {
				return err
			}
			var small []string
			if err := ask(ctx, &small, "small"); err != nil {
				return err
			}
			c.none(fmt.Sprintf("too small for a finger in the %s at %d px", view, width), small)
			if err := c.shot(ctx, fmt.Sprintf("phone%d-%s", width, view)); err != nil {
				return err
			}
		}
		var svg struct{ Width, Room float64 }
		if err := evaluate(ctx, &svg, `(() => { const s = document.querySelector('#evidence svg.seq'); return s ? { width: s.getBoundingClientRect().width, room: s.parentElement.clientWidth } : { width: 0, room: 0 }; })()`); err != nil {
			return err
		}
		c.want(svg.Width <= svg.Room+1, "at %d px the diagram is %.0f px wide in %.0f", width, svg.Width, svg.Room)
		if c.shots != "" {
			if err := script(ctx, `document.querySelector('#evidence figure')?.scrollIntoView()`); err != nil {
				return err
			}
			if err := c.shot(ctx, fmt.Sprintf("phone%d-diagram", width)); err != nil {
				return err
			}
		}
	}
	return chromedp.Do(ctx, desk())
}

// fits wants nothing to reach out of what is open.
func (c *checker) fits(ctx context.Context, what string) error {
	var wide []string
	if err := ask(ctx, &wide, "overflow"); err != nil {
		return err
	}
	c.none(what, wide)
	return nil
}
