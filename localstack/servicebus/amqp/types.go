package amqp

import (
	"errors"
	"fmt"
)

// MaxDepth is how deep values may be nested in each other.
const MaxDepth = 32

// The errors that reading returns, wrapped with what was read.
var (
	ErrShort  = errors.New("amqp: the value goes beyond its buffer")
	ErrDepth  = fmt.Errorf("amqp: values nested deeper than %d", MaxDepth)
	ErrSyntax = errors.New("amqp: malformed value")
)

// Symbol is a string of a constrained domain: names of mechanisms, conditions,
// annotations.
type Symbol string

// UUID is a universally unique identifier in the order of RFC 4122.
type UUID [16]byte

// Char is one Unicode character.
type Char rune

// Decimal is a decimal32, decimal64 or decimal128, which is only carried along.
type Decimal struct {
	Code byte // the constructor: 0x74, 0x84 or 0x94
	Bits []byte
}

// Described is a value with a descriptor, which says what the value stands for.
// Descriptor is a uint64 or a [Symbol] in all that is known.
type Described struct {
	Descriptor, Value any
}

// List is a list of values of any type.
type List []any

// Entry is a key and its value in a [Map].
type Entry struct{ Key, Value any }

// Map is a map in the order of its encoding. Keys may be of any type, also those
// that are no keys in Go.
type Map []Entry

// Get returns the value under a key that is a string or a symbol; nil if there is
// none.
func (m Map) Get(key string) any {
	for _, e := range m {
		switch k := e.Key.(type) {
		case string:
			if k == key {
				return e.Value
			}
		case Symbol:
			if string(k) == key {
				return e.Value
			}
		}
	}
	return nil
}

// Array is an array: values of one type, whose constructor is Code.
type Array struct {
	Code  byte
	Items []any
}

// Raw is a value in its encoding, constructor included; it is appended as it is.
type Raw []byte

// CodeUUID is the constructor of a UUID, for who appends one by itself.
const CodeUUID = 0x98

// The constructors of the encodings.
const (
	codeDescribed  = 0x00
	codeNull       = 0x40
	codeTrue       = 0x41
	codeFalse      = 0x42
	codeUint0      = 0x43
	codeUlong0     = 0x44
	codeList0      = 0x45
	codeUbyte      = 0x50
	codeByte       = 0x51
	codeSmallUint  = 0x52
	codeSmallUlong = 0x53
	codeSmallInt   = 0x54
	codeSmallLong  = 0x55
	codeBoolean    = 0x56
	codeUshort     = 0x60
	codeShort      = 0x61
	codeUint       = 0x70
	codeInt        = 0x71
	codeFloat      = 0x72
	codeChar       = 0x73
	codeDecimal32  = 0x74
	codeUlong      = 0x80
	codeLong       = 0x81
	codeDouble     = 0x82
	codeTimestamp  = 0x83
	codeDecimal64  = 0x84
	codeDecimal128 = 0x94
	codeUUID       = CodeUUID
	codeBin8       = 0xa0
	codeStr8       = 0xa1
	codeSym8       = 0xa3
	codeBin32      = 0xb0
	codeStr32      = 0xb1
	codeSym32      = 0xb3
	codeList8      = 0xc0
	codeMap8       = 0xc1
	codeList32     = 0xd0
	codeMap32      = 0xd1
	codeArray8     = 0xe0
	codeArray32    = 0xf0
)
