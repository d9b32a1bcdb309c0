package pubsub

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxFilter is how long a filter may be, in bytes.
const maxFilter = 256

// parseFilter reads a filter of the vendor's language (PS-F-42): the terms
// attributes:NAME, attributes.NAME = "v", attributes.NAME != "v" and
// hasPrefix(attributes.NAME, "v"), joined by AND or OR, negated by NOT or -, in
// parentheses. An empty filter is nil, which accepts all.
func parseFilter(s string) (func(map[string]string) bool, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	if len(s) > maxFilter {
		return nil, fmt.Errorf("it has %d bytes, over %d", len(s), maxFilter)
	}
	p := &filterParser{rest: s}
	f, err := p.expression(0)
	if err == nil && p.peek() != "" {
		err = fmt.Errorf("unexpected %q", p.peek())
	}
	return f, err
}

// filterParser is a parser by recursive descent, of bounded depth: the length is.
type filterParser struct {
	rest string
	tok  string
	ok   bool
}

// peek returns the next token, "" at the end.
func (p *filterParser) peek() string {
	if p.ok {
		return p.tok
	}
	p.rest = strings.TrimLeft(p.rest, " \t\r\n")
	p.ok = true
	n := 0
	switch {
	case p.rest == "":
	case p.rest[0] == '"':
		n = 1
		for n < len(p.rest) && p.rest[n] != '"' {
			if p.rest[n] == '\\' {
				n++
			}
			n++
		}
		n = min(n+1, len(p.rest))
	case strings.HasPrefix(p.rest, "!="):
		n = 2
	case strings.ContainsRune("()=:.,-", rune(p.rest[0])):
		n = 1
	default:
		n = strings.IndexAny(p.rest, " \t\r\n()=!:.,\"")
		switch n {
		case -1:
			n = len(p.rest)
		case 0:
			n = 1
		}
	}
	p.tok, p.rest = p.rest[:n], p.rest[n:]
	return p.tok
}

func (p *filterParser) next() string {
	t := p.peek()
	p.ok = false
	return t
}

func (p *filterParser) expect(want string) error {
	if t := p.next(); t != want {
		return fmt.Errorf("%q where %q is wanted", t, want)
	}
	return nil
}

type predicate = func(map[string]string) bool

// expression is terms joined by one of AND and OR; the two mix only with
// parentheses.
func (p *filterParser) expression(depth int) (predicate, error) {
	f, err := p.term(depth)
	joined := ""
	for err == nil && (p.peek() == "AND" || p.peek() == "OR") {
		op := p.next()
		if joined != "" && op != joined {
			return nil, errors.New("AND and OR are mixed without parentheses")
		}
		joined = op
		var g predicate
		if g, err = p.term(depth); err != nil {
			break
		}
		left := f
		if op == "AND" {
			f = func(a map[string]string) bool { return left(a) && g(a) }
		} else {
			f = func(a map[string]string) bool { return left(a) || g(a) }
		}
	}
	return f, err
}

func (p *filterParser) term(depth int) (predicate, error) {
	switch p.peek() {
	case "NOT", "-":
		p.next()
		f, err := p.term(depth + 1)
		return func(a map[string]string) bool { return !f(a) }, err
	case "(":
		p.next()
		f, err := p.expression(depth + 1)
		if err == nil {
			err = p.expect(")")
		}
		return f, err
	case "hasPrefix":
		return p.prefix()
	case "attributes":
		return p.attribute()
	}
	return nil, fmt.Errorf("unexpected %q", p.peek())
}

func (p *filterParser) prefix() (predicate, error) {
	p.next()
	if err := p.expect("("); err != nil {
		return nil, err
	}
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	if err := p.expect(","); err != nil {
		return nil, err
	}
	value, err := p.text()
	if err != nil {
		return nil, err
	}
	return func(a map[string]string) bool {
		v, has := a[name]
		return has && strings.HasPrefix(v, value)
	}, p.expect(")")
}

// attribute is attributes:NAME or a comparison.
func (p *filterParser) attribute() (predicate, error) {
	p.next()
	switch op := p.next(); op {
	case ":":
		name, err := p.word()
		return func(a map[string]string) bool { _, has := a[name]; return has }, err
	case ".":
		name, err := p.word()
		if err != nil {
			return nil, err
		}
		op := p.next()
		if op != "=" && op != "!=" {
			return nil, fmt.Errorf("%q where = or != is wanted", op)
		}
		value, err := p.text()
		return func(a map[string]string) bool {
			v, has := a[name]
			return (has && v == value) == (op == "=")
		}, err
	default:
		return nil, fmt.Errorf("%q after attributes", op)
	}
}

// name is attributes.NAME.
func (p *filterParser) name() (string, error) {
	if err := p.expect("attributes"); err != nil {
		return "", err
	}
	if err := p.expect("."); err != nil {
		return "", err
	}
	return p.word()
}

// word is a name, bare or quoted.
func (p *filterParser) word() (string, error) {
	t := p.peek()
	if strings.HasPrefix(t, `"`) {
		return p.text()
	}
	if t == "" || strings.ContainsAny(t[:1], "()=:.,-!") {
		return "", fmt.Errorf("%q where a name is wanted", t)
	}
	return p.next(), nil
}

func (p *filterParser) text() (string, error) {
	t := p.next()
	s, err := strconv.Unquote(t)
	if err != nil || !strings.HasPrefix(t, `"`) {
		return "", fmt.Errorf("%q where a quoted text is wanted", t)
	}
	return s, nil
}
