package sqlfilter

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind uint8

const (
	end        kind = iota
	name            // an identifier that is no keyword
	quotedName      // [delimited] or "quoted": never a keyword
	keyword
	stringConst
	intConst
	floatConst
	parameter
	symbol
)

// token is a part of an expression. text is a keyword in upper case, a name as it
// was written, or the value of a string.
type token struct {
	kind kind
	text string
	n    int64
	f    float64
	at   int
}

var keywords = map[string]bool{"AND": true, "OR": true, "NOT": true, "IN": true, "LIKE": true, "ESCAPE": true, "IS": true,
	"NULL": true, "EXISTS": true, "TRUE": true, "FALSE": true, "SET": true, "REMOVE": true}

// lex splits an expression in its parts.
func lex(s string) ([]token, error) {
	var ts []token
	for i := 0; i < len(s); {
		c, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case unicode.IsSpace(c):
			i += n
			continue
		case unicode.IsLetter(c) || c == '@':
			t := token{kind: name, at: i}
			j := i + n
			for j < len(s) {
				c, n := utf8.DecodeRuneInString(s[j:])
				if c != '_' && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
					break
				}
				j += n
			}
			t.text = s[i:j]
			if c == '@' {
				t.kind = parameter
			} else if up := strings.ToUpper(t.text); keywords[up] {
				t.kind, t.text = keyword, up
			}
			ts = append(ts, t)
			i = j
		case c >= '0' && c <= '9':
			t, j, err := number(s, i)
			if err != nil {
				return nil, err
			}
			ts = append(ts, t)
			i = j
		case c == '\'' || c == '"' || c == '[':
			t, j, err := enclosed(s, i)
			if err != nil {
				return nil, err
			}
			ts = append(ts, t)
			i = j
		default:
			op := s[i : i+n]
			if i+2 <= len(s) {
				switch s[i : i+2] {
				case "<>", "!=", ">=", "<=":
					op = s[i : i+2]
				}
			}
			if !strings.Contains("= <> != >= <= > < + - * / % ( ) , . ;", op) {
				return nil, fmt.Errorf("sqlfilter: unexpected %q at %d", op, i)
			}
			ts = append(ts, token{kind: symbol, text: op, at: i})
			i += len(op)
		}
	}
	return append(ts, token{at: len(s)}), nil
}

// enclosed reads a string or a name in quotes or brackets, in which the closing one
// stands for itself when it is doubled.
func enclosed(s string, i int) (token, int, error) {
	t := token{kind: stringConst, at: i}
	last := s[i]
	if last != '\'' {
		t.kind = quotedName
	}
	if last == '[' {
		last = ']'
	}
	var b strings.Builder
	for j := i + 1; j < len(s); j++ {
		if s[j] != last {
			b.WriteByte(s[j])
			continue
		}
		if j+1 < len(s) && s[j+1] == last {
			b.WriteByte(last)
			j++
			continue
		}
		if t.text = b.String(); t.text == "" && t.kind == quotedName {
			return t, 0, fmt.Errorf("sqlfilter: an empty name at %d", i)
		}
		return t, j + 1, nil
	}
	return t, 0, fmt.Errorf("sqlfilter: what begins at %d has no end", i)
}

// number reads a constant: an integer, or one with a point or an exponent.
func number(s string, i int) (token, int, error) {
	j := i
	digits := func() {
		for j < len(s) && s[j] >= '0' && s[j] <= '9' {
			j++
		}
	}
	digits()
	whole := true
	if j < len(s) && s[j] == '.' {
		whole = false
		j++
		digits()
	}
	if j < len(s) && (s[j] == 'e' || s[j] == 'E') {
		whole = false
		j++
		if j < len(s) && (s[j] == '+' || s[j] == '-') {
			j++
		}
		digits()
	}
	t := token{kind: intConst, at: i}
	var err error
	if whole {
		t.n, err = strconv.ParseInt(s[i:j], 10, 64)
	} else {
		t.kind = floatConst
		t.f, err = strconv.ParseFloat(s[i:j], 64)
	}
	if err != nil {
		return t, 0, fmt.Errorf("sqlfilter: the number at %d: %w", i, err)
	}
	return t, j, nil
}
