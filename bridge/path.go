package bridge

import (
	"net/url"
	"strings"

	"github.com/onceline/onceline/broker"
)

// PathHeader holds the places that a message has left by a bridge, the first one first,
// each percent-encoded as in a URL's query, joined by commas. It is spelled the same on
// each broker and never changes.
const PathHeader = "bridge-path"

// Route is the way that a message came, by its [PathHeader].
func Route(hs broker.Headers) []string {
	text := hs.Get(PathHeader)
	if text == "" {
		return nil
	}
	places := strings.Split(text, ",")
	for i, p := range places {
		if plain, err := url.QueryUnescape(p); err == nil {
			places[i] = plain
		}
	}
	return places
}

// extend returns hs with place at the end of the way, and hs itself unchanged.
func extend(hs broker.Headers, place string) broker.Headers {
	out := make(broker.Headers, 0, len(hs)+1)
	text := url.QueryEscape(place)
	for _, h := range hs {
		if h.Key != PathHeader {
			out = append(out, h)
		} else if h.Value != "" {
			text = h.Value + "," + url.QueryEscape(place)
		}
	}
	return append(out, broker.Header{Key: PathHeader, Value: text})
}
