package targets

import (
	"strings"
	"sync"
)

// counter counts the lines of a model's trace.
type counter struct {
	mu    sync.Mutex
	lines []string
}

func (c *counter) line(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, s)
}

// made is how many entities were made.
func (c *counter) made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, line := range c.lines {
		if strings.HasPrefix(strings.ToLower(line), "create") {
			n++
		}
	}
	return n
}
