// Package docs holds what the toolkit cites of its own documentation.
package docs

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"
)

//go:embed facts.md
var factsPage string

// Fact is one row of facts.md. All fields are Markdown as it stands there, with
// code between backticks.
type Fact struct {
	ID, Text, Numbers, Source, Confidence string
	Links                                 []string // URLs in Source, and of the code that it names
}

var (
	factRow   = regexp.MustCompile(`^[A-Z]+-F-\d+$`)
	factURL   = regexp.MustCompile(`https://[^\s|,;)<>` + "`]+")
	separator = regexp.MustCompile(`[^\\]\|`)
)

// Facts returns the rows of facts.md by their ID. Callers share the map and must
// not change it. Safe for concurrent use.
var Facts = sync.OnceValue(func() map[string]Fact {
	names := map[string]string{} // of what the page says it looked at, with its URL
	facts := map[string]Fact{}
	for line := range strings.Lines(factsPage) {
		cells := row(line)
		switch {
		case len(cells) == 2 && factURL.MatchString(cells[1]):
			names[cells[0]] = strings.TrimSuffix(factURL.FindString(cells[1]), ".")
		case len(cells) == 5 && factRow.MatchString(cells[0]):
			f := Fact{ID: cells[0], Text: cells[1], Numbers: cells[2], Source: cells[3], Confidence: cells[4]}
			f.Links = links(f.Source, names)
			facts[f.ID] = f
		}
	}
	return facts
})

// row splits a table's line into its cells; nil if it is none.
func row(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") || !strings.HasSuffix(line, "|") {
		return nil
	}
	// A separator keeps the character before it, so an escaped pipe stays.
	var cells []string
	for rest := line[1:]; rest != ""; {
		at := separator.FindStringIndex(rest)
		if at == nil {
			break
		}
		cells = append(cells, strings.TrimSpace(strings.ReplaceAll(rest[:at[1]-1], `\|`, "|")))
		rest = rest[at[1]:]
	}
	return cells
}

// links are the URLs of a source, and those of the code that it names.
func links(source string, names map[string]string) []string {
	var urls []string
	add := func(url string) {
		if url = strings.TrimRight(url, ".:"); !slices.Contains(urls, url) {
			urls = append(urls, url)
		}
	}
	for _, url := range factURL.FindAllString(source, -1) {
		add(url)
	}
	for part := range strings.SplitSeq(source, ";") {
		name, _, _ := strings.Cut(strings.TrimSpace(part), " ")
		if url := names[strings.TrimRight(name, ",:")]; url != "" {
			add(url)
		}
	}
	return urls
}
