package rabbitmq

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/onceline/onceline/localstack/rabbitmq/amqp"
)

// maxRoutes bounds how many routing keys an exchange remembers the routes of.
const maxRoutes = 1024

// route returns the queues that a message with this routing key reaches, each of
// them once. headers is asked for only where an exchange routes by them. What it
// returns must not be changed.
func (x *exchange) route(key []byte, headers func() amqp.Table) []*queue {
	if x.asOf != x.v.topology {
		x.routes, x.asOf = nil, x.v.topology
	}
	if found, ok := x.routes[string(key)]; ok {
		return found
	}
	w := walk{key: string(key), headers: headers, seen: map[*exchange]bool{}, have: map[*queue]bool{}}
	w.visit(x)
	if !w.byHeaders {
		if x.routes == nil || len(x.routes) >= maxRoutes {
			x.routes = map[string][]*queue{}
		}
		x.routes[w.key] = w.found
	}
	return w.found
}

// walk finds the queues behind an exchange and those that it leads to.
type walk struct {
	key       string
	headers   func() amqp.Table
	byHeaders bool
	seen      map[*exchange]bool
	have      map[*queue]bool
	found     []*queue
}

func (w *walk) visit(x *exchange) {
	for ; x != nil && !w.seen[x]; x = x.v.exchanges[x.alternate] {
		w.seen[x] = true
		if w.bindings(x) || x.alternate == "" {
			return
		}
	}
}

// bindings follows the exchange's bindings that match, and says whether any did:
// otherwise its alternate exchange has the message.
func (w *walk) bindings(x *exchange) bool {
	if x.name == "" { // bound to every queue by its name
		if q := x.v.queues[w.key]; q != nil {
			w.add(q)
			return true
		}
		return false
	}
	any := false
	for _, b := range x.bindings {
		if !w.matches(x, b) {
			continue
		}
		any = true
		if b.queue != nil {
			w.add(b.queue)
		} else {
			w.visit(b.to)
		}
	}
	return any
}

func (w *walk) add(q *queue) {
	if !w.have[q] {
		w.have[q] = true
		w.found = append(w.found, q)
	}
}

func (w *walk) matches(x *exchange, b *binding) bool {
	switch x.kind {
	case "fanout":
		return true
	case "topic":
		return topicMatches(b.key, w.key)
	case "headers":
		w.byHeaders = true
		return b.match.matches(w.headers())
	}
	return b.key == w.key
}

// topicMatches says whether a routing key fits a pattern of words between dots, in
// which * stands for one word and # for any number of them.
func topicMatches(pattern, key string) bool {
	if !strings.ContainsAny(pattern, "*#") {
		return pattern == key
	}
	return wordsMatch(words(pattern), words(key))
}

// words splits at dots; an empty key has no word.
func words(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ".")
}

// wordsMatch goes back to the last # alone, so that its time grows with the
// product of the lengths and no faster.
func wordsMatch(pattern, words []string) bool {
	p, w, hash, mark := 0, 0, -1, 0
	for w < len(words) {
		switch {
		case p < len(pattern) && pattern[p] == "#":
			hash, mark = p, w
			p++
		case p < len(pattern) && (pattern[p] == "*" || pattern[p] == words[w]):
			p++
			w++
		case hash >= 0:
			mark++
			p, w = hash+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "#" {
		p++
	}
	return p == len(pattern)
}

// headerMatch is what a binding of a headers exchange asks of a message.
type headerMatch struct {
	any    bool
	fields amqp.Table
	bad    string // why the arguments are refused
}

func parseMatch(args amqp.Table) headerMatch {
	var m headerMatch
	withX := false
	if v, ok := args.Get("x-match"); ok {
		switch v {
		case "all":
		case "any":
			m.any = true
		case "all-with-x":
			withX = true
		case "any-with-x":
			m.any, withX = true, true
		default:
			if s, ok := v.(string); ok {
				m.bad = "Invalid x-match field value <<" + strconv.Quote(s) + ">>; expected all, any, all-with-x, or any-with-x"
			} else {
				m.bad = "Invalid x-match field type " + typeName(v) + fmt.Sprintf(" (value %v); expected longstr", v)
			}
		}
	}
	for _, f := range args {
		if f.Name != "x-match" && (withX || !strings.HasPrefix(f.Name, "x-")) {
			m.fields = append(m.fields, f)
		}
	}
	return m
}

func (m *headerMatch) matches(headers amqp.Table) bool {
	for _, want := range m.fields {
		have, ok := headers.Get(want.Name)
		ok = ok && (want.Value == nil || sameValue(want.Value, have))
		if ok == m.any {
			return ok
		}
	}
	return !m.any
}

// sameValue compares field values; integers of different widths are the same.
func sameValue(a, b any) bool {
	if i, ok := amqp.Int(a); ok {
		j, ok := amqp.Int(b)
		return ok && i == j
	}
	return reflect.DeepEqual(a, b)
}
