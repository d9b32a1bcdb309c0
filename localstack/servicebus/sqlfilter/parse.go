// Package sqlfilter evaluates the SQL-like expressions by which subscriptions of
// Service Bus choose messages, and those by which their rules change them: the
// language that the vendor documents (SB-F-44). Where documentation leaves open
// what an operator does with operands of different types, the result is unknown,
// which chooses nothing.
package sqlfilter

import (
	"errors"
	"fmt"
	"strings"
)

// MaxLength is the longest expression that the service takes, in bytes here.
const MaxLength = 1024

// Message is what expressions are about.
type Message interface {
	// Application returns a property of the application's by its name, in any case;
	// false if there is none.
	Application(name string) (any, bool)
	// System returns a property of the service's by its name, in any case; false if
	// there is none of that name in any message, nil if this one has no value.
	System(name string) (any, bool)
}

// Filter is a condition. It is safe for concurrent use.
type Filter struct{ root node }

// Parse reads a condition. params are the values of the parameters in it, by their
// names with the @.
func Parse(expression string, params map[string]any) (*Filter, error) {
	p, err := newParser(expression, params)
	if err != nil {
		return nil, err
	}
	n, err := p.or()
	if err != nil {
		return nil, err
	}
	if !p.at(end, "") {
		return nil, p.unexpected()
	}
	return &Filter{n}, nil
}

// Match says whether the condition holds: unknown doesn't. An error says that it
// can't be evaluated, as when it names a property of the service's that doesn't
// exist.
func (f *Filter) Match(m Message) (bool, error) {
	v, err := f.root(m)
	if err != nil {
		return false, err
	}
	b, ok := v.(bool)
	return ok && b, nil
}

// node evaluates a part of an expression. Unknown and NULL are nil.
type node func(Message) (any, error)

type parser struct {
	ts     []token
	i      int
	depth  int
	params map[string]any
}

func newParser(expression string, params map[string]any) (*parser, error) {
	if len(expression) > MaxLength {
		return nil, fmt.Errorf("sqlfilter: the expression is longer than %d", MaxLength)
	}
	ts, err := lex(expression)
	return &parser{ts: ts, params: params}, err
}

func (p *parser) peek() token { return p.ts[p.i] }

func (p *parser) next() token {
	t := p.ts[p.i]
	if t.kind != end {
		p.i++
	}
	return t
}

func (p *parser) at(k kind, text string) bool {
	t := p.peek()
	return t.kind == k && t.text == text
}

// accept takes the next part if it is the given one.
func (p *parser) accept(k kind, text string) bool {
	if !p.at(k, text) {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(k kind, text string) error {
	if !p.accept(k, text) {
		return p.unexpected()
	}
	return nil
}

func (p *parser) unexpected() error {
	if t := p.peek(); t.kind != end {
		return fmt.Errorf("sqlfilter: unexpected %q at %d", t.text, t.at)
	}
	return errors.New("sqlfilter: the expression ends too early")
}

func (p *parser) or() (node, error) {
	a, err := p.and()
	for err == nil && p.accept(keyword, "OR") {
		var b node
		if b, err = p.and(); err == nil {
			a = orNode(a, b)
		}
	}
	return a, err
}

func (p *parser) and() (node, error) {
	a, err := p.not()
	for err == nil && p.accept(keyword, "AND") {
		var b node
		if b, err = p.not(); err == nil {
			a = andNode(a, b)
		}
	}
	return a, err
}

func (p *parser) not() (node, error) {
	if !p.accept(keyword, "NOT") {
		return p.comparison()
	}
	if p.depth++; p.depth > MaxLength/4 {
		return nil, errors.New("sqlfilter: the expression is nested too deep")
	}
	a, err := p.not()
	p.depth--
	return notNode(a), err
}

func (p *parser) comparison() (node, error) {
	a, err := p.sum()
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind == symbol && compares[t.text] != nil {
		p.next()
		b, err := p.sum()
		return compareNode(a, b, compares[t.text]), err
	}
	if p.accept(keyword, "IS") {
		not := p.accept(keyword, "NOT")
		return isNull(a, not), p.expect(keyword, "NULL")
	}
	not := p.accept(keyword, "NOT")
	var n node
	switch {
	case p.accept(keyword, "IN"):
		n, err = p.in(a)
	case p.accept(keyword, "LIKE"):
		n, err = p.like(a)
	case not:
		return nil, p.unexpected()
	default:
		return a, nil
	}
	if not && err == nil {
		n = notNode(n)
	}
	return n, err
}

func (p *parser) in(a node) (node, error) {
	if err := p.expect(symbol, "("); err != nil {
		return nil, err
	}
	var list []node
	for {
		b, err := p.sum()
		if err != nil {
			return nil, err
		}
		list = append(list, b)
		if !p.accept(symbol, ",") {
			return inNode(a, list), p.expect(symbol, ")")
		}
	}
}

func (p *parser) like(a node) (node, error) {
	pattern, err := p.sum()
	if err != nil || !p.accept(keyword, "ESCAPE") {
		return likeNode(a, pattern, nil), err
	}
	esc, err := p.sum()
	return likeNode(a, pattern, esc), err
}

func (p *parser) sum() (node, error) {
	a, err := p.product()
	for err == nil && (p.at(symbol, "+") || p.at(symbol, "-")) {
		op := p.next().text[0]
		var b node
		if b, err = p.product(); err == nil {
			a = arithmetic(op, a, b)
		}
	}
	return a, err
}

func (p *parser) product() (node, error) {
	a, err := p.unary()
	for err == nil && (p.at(symbol, "*") || p.at(symbol, "/") || p.at(symbol, "%")) {
		op := p.next().text[0]
		var b node
		if b, err = p.unary(); err == nil {
			a = arithmetic(op, a, b)
		}
	}
	return a, err
}

func (p *parser) unary() (node, error) {
	if p.depth++; p.depth > MaxLength/4 {
		return nil, errors.New("sqlfilter: the expression is nested too deep")
	}
	defer func() { p.depth-- }()
	if p.accept(symbol, "-") {
		a, err := p.unary()
		return arithmetic('-', constant(int64(0)), a), err
	}
	if p.accept(symbol, "+") {
		return p.unary()
	}
	return p.operand()
}

func (p *parser) operand() (node, error) {
	switch t := p.next(); t.kind {
	case stringConst:
		return constant(t.text), nil
	case intConst:
		return constant(t.n), nil
	case floatConst:
		return constant(t.f), nil
	case parameter:
		v, ok := p.params[t.text]
		if !ok {
			return nil, fmt.Errorf("sqlfilter: the parameter %s has no value", t.text)
		}
		return constant(normal(v)), nil
	case keyword:
		switch t.text {
		case "TRUE":
			return constant(true), nil
		case "FALSE":
			return constant(false), nil
		case "NULL":
			return constant(nil), nil
		case "EXISTS":
			if err := p.expect(symbol, "("); err != nil {
				return nil, err
			}
			prop, err := p.property()
			if err != nil {
				return nil, err
			}
			return prop.exists, p.expect(symbol, ")")
		}
	case symbol:
		if t.text == "(" {
			n, err := p.or()
			if err != nil {
				return nil, err
			}
			return n, p.expect(symbol, ")")
		}
	case name, quotedName:
		p.i--
		if t.kind == name && p.ts[p.i+1].text == "(" && p.ts[p.i+1].kind == symbol {
			return p.function()
		}
		prop, err := p.property()
		return prop.value, err
	}
	if p.i > 0 && p.peek().kind != end {
		p.i--
	}
	return nil, p.unexpected()
}

// function reads a call of one of the functions that there are.
func (p *parser) function() (node, error) {
	f := strings.ToLower(p.next().text)
	p.next()
	switch f {
	case "newid":
		return newID, p.expect(symbol, ")")
	case "property", "p":
		n, err := p.sum()
		if err != nil {
			return nil, err
		}
		return propertyNamed(n), p.expect(symbol, ")")
	}
	return nil, fmt.Errorf("sqlfilter: there is no function %q", f)
}

// property is the name of one, with its scope.
type property struct {
	system bool
	name   string
}

func (p *parser) property() (property, error) {
	t := p.next()
	if t.kind != name && t.kind != quotedName {
		return property{}, p.unexpected()
	}
	if !p.accept(symbol, ".") {
		return property{name: t.text}, nil
	}
	scope := strings.ToLower(t.text)
	if scope != "sys" && scope != "user" {
		return property{}, fmt.Errorf("sqlfilter: the scope %q is neither sys nor user", t.text)
	}
	if t = p.next(); t.kind != name && t.kind != quotedName {
		return property{}, p.unexpected()
	}
	return property{scope == "sys", t.text}, nil
}
