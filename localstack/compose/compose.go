// Package compose knows what docker-compose.yml brings up: which service listens
// where. It neither runs nor asks Docker.
package compose

import (
	_ "embed" // the list
	"fmt"
	"strings"
)

//go:embed urls.txt
var list string

// Endpoint is one configuration of a service.
type Endpoint struct {
	Service string // of docker-compose.yml, which is its profile too
	Name    string // of the configuration: "kafka-share"; empty for a database
	URL     string
}

// Endpoints returns what docker-compose.yml brings up, databases included.
func Endpoints() []Endpoint {
	var es []Endpoint
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 3 {
			panic(fmt.Sprintf("compose: %q: want service, name and URL", line)) // a test reads it
		}
		es = append(es, Endpoint{Service: fields[0], Name: strings.TrimPrefix(fields[1], "-"), URL: fields[2]})
	}
	return es
}
