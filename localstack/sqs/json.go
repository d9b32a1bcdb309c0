package sqs

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth bounds how deep values may nest. The protocol itself needs five.
const maxDepth = 32

// scanner reads one JSON text, value by value, into what the caller asks for.
// It is strict (RFC 8259, valid UTF-8, no lone surrogates) and remembers its
// first failure, after which every method returns zero values. It exists because
// decoding by reflection would cost more than all else that a batch does.
type scanner struct {
	src   string
	pos   int
	depth int
	first bool   // nothing was read yet of the object or array just entered
	key   string // set by next
	fail  *apiError
}

func (s *scanner) bad(why string) {
	if s.fail == nil {
		s.fail = serialization(why)
	}
}

// text is a string value and what is known of it.
type text struct {
	s       string
	set     bool // it was there, and not null
	escaped bool // the source held escapes: printing it may need them too
	ascii   bool
}

func (s *scanner) space() {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the first byte of the next value, 0 at the end.
func (s *scanner) peek() byte {
	if s.fail != nil {
		return 0
	}
	s.space()
	if s.pos == len(s.src) {
		s.bad("unexpected end of the request")
		return 0
	}
	return s.src[s.pos]
}

// null consumes a null.
func (s *scanner) null() bool {
	if s.peek() == 'n' {
		return s.word("null")
	}
	return false
}

func (s *scanner) word(w string) bool {
	if !strings.HasPrefix(s.src[s.pos:], w) {
		s.bad("unknown word")
		return false
	}
	s.pos += len(w)
	return true
}

// enter opens an object or array. It is false for a null and for anything else,
// which is a failure.
func (s *scanner) enter(open byte) bool {
	switch c := s.peek(); {
	case c == open:
		if s.depth++; s.depth > maxDepth {
			s.bad("nested too deep")
			return false
		}
		s.pos++
		s.first = true
		return true
	case c != 'n':
		s.bad("Start of structure or map found where not expected.")
		return false
	}
	s.null()
	return false
}

// more is true when the array or object that was entered goes on, and consumes
// its end when not.
func (s *scanner) more(end byte) bool {
	c := s.peek()
	switch {
	case s.fail != nil:
		return false
	case c == end:
		s.pos++
		s.depth--
		s.first = false
		return false
	case s.first:
		s.first = false
		return true
	case c != ',':
		s.bad("expected a comma")
		return false
	}
	s.pos++
	return true
}

// next reads the next key of the object into s.key; false at its end.
func (s *scanner) next() bool {
	if !s.more('}') {
		return false
	}
	if s.peek() != '"' {
		s.bad("expected a key")
		return false
	}
	k := s.quoted()
	if s.peek() != ':' {
		s.bad("expected a colon")
		return false
	}
	s.pos++
	s.key = k.s
	return s.fail == nil
}

// text reads a string, or a null as one that is not set.
func (s *scanner) text() text {
	switch s.peek() {
	case '"':
		return s.quoted()
	case 'n':
		s.null()
	case 't', 'f':
		s.bad("BOOLEAN_VALUE can not be converted to a String")
	case '{', '[':
		s.bad("Start of structure or map found where not expected.")
	case 0:
	default:
		s.bad("NUMBER_VALUE can not be converted to a String")
	}
	return text{}
}

// integer is a number value, if there was one.
type integer struct {
	n   int
	set bool
}

func (s *scanner) integer() integer {
	switch c := s.peek(); {
	case c == 'n':
		s.null()
		return integer{}
	case c == '"':
		s.bad("STRING_VALUE can not be converted to an Integer")
		return integer{}
	case c == 0:
		return integer{}
	}
	n, err := strconv.ParseInt(s.number(), 10, 32) // the model's integers have 32 bits
	if err != nil {
		s.bad("the value is not an Integer")
		return integer{}
	}
	return integer{int(n), true}
}

// number consumes a number by RFC 8259 and returns it as it is written.
func (s *scanner) number() string {
	from := s.pos
	digits := func() int {
		n := s.pos
		for s.pos < len(s.src) && '0' <= s.src[s.pos] && s.src[s.pos] <= '9' {
			s.pos++
		}
		return s.pos - n
	}
	at := func(c string) bool {
		if s.pos < len(s.src) && strings.IndexByte(c, s.src[s.pos]) >= 0 {
			s.pos++
			return true
		}
		return false
	}
	at("-")
	lead := s.pos
	n := digits()
	ok := n > 0 && (n == 1 || s.src[lead] != '0')
	if at(".") {
		ok = digits() > 0 && ok
	}
	if at("eE") {
		at("+-")
		ok = digits() > 0 && ok
	}
	if !ok {
		s.bad("not a number")
	}
	return s.src[from:s.pos]
}

// skip passes over any value.
func (s *scanner) skip() {
	switch s.peek() {
	case 0:
	case '"':
		s.quoted()
	case '{':
		for ok := s.enter('{') && s.next(); ok; ok = s.next() {
			s.skip()
		}
	case '[':
		for ok := s.enter('[') && s.more(']'); ok; ok = s.more(']') {
			s.skip()
		}
	case 'n':
		s.word("null")
	case 't':
		s.word("true")
	case 'f':
		s.word("false")
	default:
		s.number()
	}
}

// quoted reads a string at its opening quote. One without escapes is a piece of
// the source and costs a look at each byte, eight at a time.
func (s *scanner) quoted() text {
	s.pos++
	rest := s.src[s.pos:]
	end := strings.IndexByte(rest, '"')
	if end < 0 {
		s.bad("a string without its end")
		return text{}
	}
	piece := rest[:end]
	if strings.IndexByte(piece, '\\') >= 0 {
		return s.unescape()
	}
	control, ascii := look(piece)
	if control || !ascii && !utf8.ValidString(piece) {
		s.bad("a string with control characters or invalid UTF-8")
		return text{}
	}
	s.pos += end + 1
	return text{s: piece, set: true, ascii: ascii}
}

// look says whether s holds control characters, and whether it is all ASCII.
func look(s string) (control, ascii bool) {
	const high, low = 0x8080808080808080, 0x2020202020202020
	var seen, under uint64
	for len(s) >= 8 {
		x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		seen |= x
		under |= (x - low) &^ x // exact: only a byte below the space borrows
		s = s[8:]
	}
	ascii = seen&high == 0
	control = under&high != 0
	for i := range len(s) {
		ascii = ascii && s[i] < utf8.RuneSelf
		control = control || s[i] < ' '
	}
	return control, ascii
}

// unescape reads a string that holds escapes, after its opening quote.
func (s *scanner) unescape() text {
	var b strings.Builder
	for s.pos < len(s.src) {
		rest := s.src[s.pos:]
		n := strings.IndexAny(rest, "\"\\")
		if n < 0 {
			break
		}
		piece := rest[:n]
		for i := range len(piece) {
			if piece[i] < ' ' {
				s.bad("a control character in a string")
				return text{}
			}
		}
		b.WriteString(piece)
		s.pos += n
		if s.src[s.pos] == '"' {
			s.pos++
			out := b.String()
			if !utf8.ValidString(out) {
				s.bad("invalid UTF-8")
				return text{}
			}
			return text{s: out, set: true, escaped: true}
		}
		if !s.escape(&b) {
			return text{}
		}
	}
	s.bad("a string without its end")
	return text{}
}

func (s *scanner) escape(b *strings.Builder) bool {
	const short, means = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if s.pos+1 == len(s.src) {
		s.bad("a string without its end")
		return false
	}
	c := s.src[s.pos+1]
	if i := strings.IndexByte(short, c); i >= 0 {
		b.WriteByte(means[i])
		s.pos += 2
		return true
	}
	r, ok := s.unit()
	if ok && utf16.IsSurrogate(r) {
		low, second := s.unit()
		r = utf16.DecodeRune(r, low)
		ok = second && r != utf8.RuneError
	}
	if !ok {
		s.bad("an unknown escape or half a surrogate pair")
		return false
	}
	b.WriteRune(r)
	return true
}

// unit reads \uXXXX.
func (s *scanner) unit() (rune, bool) {
	if len(s.src)-s.pos < 6 || s.src[s.pos] != '\\' || s.src[s.pos+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range []byte(s.src[s.pos+2 : s.pos+6]) {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	s.pos += 6
	return r, true
}
