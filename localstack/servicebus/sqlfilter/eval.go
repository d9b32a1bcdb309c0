package sqlfilter

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"
)

func constant(v any) node { return func(Message) (any, error) { return v, nil } }

// normal turns values of the wire into those that operators know: bool, int64,
// float64, string, time.Time; what it doesn't know stays.
func normal(v any) any {
	switch v := v.(type) {
	case int8:
		return int64(v)
	case int16:
		return int64(v)
	case int32:
		return int64(v)
	case int:
		return int64(v)
	case uint8:
		return int64(v)
	case uint16:
		return int64(v)
	case uint32:
		return int64(v)
	case uint64:
		if v > 1<<63-1 {
			return float64(v)
		}
		return int64(v)
	case float32:
		return float64(v)
	case fmt.Stringer:
		if _, ok := v.(time.Time); !ok {
			return v.String()
		}
	}
	return v
}

func (p property) value(m Message) (any, error) {
	if !p.system {
		v, _ := m.Application(p.name)
		return normal(v), nil
	}
	v, ok := m.System(p.name)
	if !ok {
		return nil, fmt.Errorf("sqlfilter: there is no property sys.%s", p.name)
	}
	return normal(v), nil
}

func (p property) exists(m Message) (any, error) {
	if !p.system {
		_, ok := m.Application(p.name)
		return ok, nil
	}
	v, ok := m.System(p.name)
	return ok && v != nil, nil
}

func propertyNamed(n node) node {
	return func(m Message) (any, error) {
		v, err := n(m)
		if s, ok := v.(string); ok && err == nil {
			return property{name: s}.value(m)
		}
		return nil, err
	}
}

func newID(Message) (any, error) {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}

// truth evaluates a condition: known is false where it is unknown.
func truth(n node, m Message) (value, known bool, err error) {
	v, err := n(m)
	b, ok := v.(bool)
	return b, ok, err
}

func orNode(a, b node) node {
	return func(m Message) (any, error) {
		x, kx, err := truth(a, m)
		if err != nil || x {
			return x, err
		}
		y, ky, err := truth(b, m)
		if err != nil || y {
			return y, err
		}
		return unless(kx && ky, false), nil
	}
}

func andNode(a, b node) node {
	return func(m Message) (any, error) {
		x, kx, err := truth(a, m)
		if err != nil || kx && !x {
			return false, err
		}
		y, ky, err := truth(b, m)
		if err != nil || ky && !y {
			return false, err
		}
		return unless(kx && ky, true), nil
	}
}

// unless is v where it is known, else unknown.
func unless(known, v bool) any {
	if !known {
		return nil
	}
	return v
}

func notNode(a node) node {
	return func(m Message) (any, error) {
		x, known, err := truth(a, m)
		return unless(known, !x), err
	}
}

func isNull(a node, not bool) node {
	return func(m Message) (any, error) {
		v, err := a(m)
		return (v == nil) != not, err
	}
}

var compares = map[string]func(int) bool{
	"=":  func(c int) bool { return c == 0 },
	"<>": func(c int) bool { return c != 0 },
	"!=": func(c int) bool { return c != 0 },
	">":  func(c int) bool { return c > 0 },
	">=": func(c int) bool { return c >= 0 },
	"<":  func(c int) bool { return c < 0 },
	"<=": func(c int) bool { return c <= 0 },
}

func compareNode(a, b node, holds func(int) bool) node {
	return both(a, b, func(x, y any) any {
		c, ok := compare(x, y)
		if !ok {
			return nil
		}
		return holds(c)
	})
}

// both evaluates an operator of two operands, unknown if one of them is.
func both(a, b node, f func(x, y any) any) node {
	return func(m Message) (any, error) {
		x, err := a(m)
		if err != nil {
			return nil, err
		}
		y, err := b(m)
		if err != nil || x == nil || y == nil {
			return nil, err
		}
		return f(x, y), nil
	}
}

// compare orders two values of a type; integers and floating points are of one.
func compare(x, y any) (int, bool) {
	switch x := x.(type) {
	case string:
		if y, ok := y.(string); ok {
			return strings.Compare(x, y), true
		}
	case bool:
		if y, ok := y.(bool); ok {
			switch {
			case x == y:
				return 0, true
			case y:
				return -1, true
			}
			return 1, true
		}
	case time.Time:
		if y, ok := y.(time.Time); ok {
			return x.Compare(y), true
		}
	case int64:
		if y, ok := y.(int64); ok {
			switch {
			case x < y:
				return -1, true
			case x > y:
				return 1, true
			}
			return 0, true
		}
		return compareFloats(float64(x), y)
	case float64:
		return compareFloats(x, y)
	}
	return 0, false
}

func compareFloats(x float64, v any) (int, bool) {
	y, ok := v.(float64)
	if n, isInt := v.(int64); isInt {
		y, ok = float64(n), true
	}
	switch {
	case !ok || x != x || y != y:
		return 0, false
	case x < y:
		return -1, true
	case x > y:
		return 1, true
	}
	return 0, true
}

func inNode(a node, list []node) node {
	return func(m Message) (any, error) {
		x, err := a(m)
		if err != nil || x == nil {
			return nil, err
		}
		for _, n := range list {
			y, err := n(m)
			if err != nil {
				return nil, err
			}
			if c, ok := compare(x, y); ok && c == 0 {
				return true, nil
			}
		}
		return false, nil
	}
}

func arithmetic(op byte, a, b node) node {
	return both(a, b, func(x, y any) any {
		if s, ok := x.(string); ok {
			if t, ok := y.(string); ok && op == '+' {
				return s + t
			}
			return nil
		}
		i, iok := x.(int64)
		j, jok := y.(int64)
		if iok && jok {
			return integers(op, i, j)
		}
		f, fok := x.(float64)
		g, gok := y.(float64)
		if iok {
			f, fok = float64(i), true
		}
		if jok {
			g, gok = float64(j), true
		}
		if !fok || !gok {
			return nil
		}
		switch op {
		case '+':
			return f + g
		case '-':
			return f - g
		case '*':
			return f * g
		case '/':
			return f / g
		}
		return nil
	})
}

func integers(op byte, i, j int64) any {
	switch op {
	case '+':
		return i + j
	case '-':
		return i - j
	case '*':
		return i * j
	}
	if j == 0 {
		return nil
	}
	if op == '/' {
		return i / j
	}
	return i % j
}

func likeNode(a, pattern, esc node) node {
	return func(m Message) (any, error) {
		x, err := a(m)
		if err != nil {
			return nil, err
		}
		y, err := pattern(m)
		if err != nil {
			return nil, err
		}
		var e any = ""
		if esc != nil {
			if e, err = esc(m); err != nil {
				return nil, err
			}
		}
		s, ok1 := x.(string)
		p, ok2 := y.(string)
		escape, ok3 := e.(string)
		if !ok1 || !ok2 || !ok3 || len([]rune(escape)) > 1 {
			return nil, nil
		}
		return like([]rune(s), wildcards(p, escape)), nil
	}
}

// any and one are the wildcards of a pattern, which are no characters.
const (
	anyRunes rune = -1 - iota
	oneRune
)

// wildcards turns a pattern's % and _ into wildcards, where they are not escaped.
func wildcards(pattern, escape string) []rune {
	var out []rune
	quoted := false
	for _, c := range pattern {
		switch {
		case quoted:
			out = append(out, c)
			quoted = false
		case escape != "" && string(c) == escape:
			quoted = true
		case c == '%':
			out = append(out, anyRunes)
		case c == '_':
			out = append(out, oneRune)
		default:
			out = append(out, c)
		}
	}
	return out
}

// like matches by going back to the last % alone, so that it takes no longer than
// the product of the lengths.
func like(s, p []rune) bool {
	i, j, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case j < len(p) && p[j] == anyRunes:
			star, mark = j, i
			j++
		case j < len(p) && (p[j] == oneRune || p[j] == s[i]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = mark, star+1
		default:
			return false
		}
	}
	for j < len(p) && p[j] == anyRunes {
		j++
	}
	return j == len(p)
}
