package amqp

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
	"unicode/utf8"
)

// Value takes the next value and returns it as Go's: nil, bool, the integers,
// float32, float64, [Char], [Decimal], time.Time (UTC, to the millisecond),
// [UUID], []byte, string, [Symbol], [List], [Map], [Array] or [Described].
// It copies what it returns.
func (r *Reader) Value() (any, error) { return r.value(0) }

func (r *Reader) value(depth int) (any, error) {
	c, err := r.byte()
	if err != nil {
		return nil, err
	}
	if c != codeDescribed {
		return r.body(c, depth)
	}
	if depth >= MaxDepth {
		return nil, ErrDepth
	}
	d, err := r.value(depth + 1)
	if err != nil {
		return nil, err
	}
	v, err := r.value(depth + 1)
	if err != nil {
		return nil, err
	}
	return Described{d, v}, nil
}

func (r *Reader) body(c byte, depth int) (any, error) {
	p, err := r.payload(c)
	if err != nil {
		return nil, err
	}
	switch c {
	case codeList8, codeList32:
		return list(p, c, depth)
	case codeMap8, codeMap32:
		l, err := list(p, c, depth)
		if err != nil || len(l)%2 != 0 {
			return nil, fmt.Errorf("%w: map of %d: %v", ErrSyntax, len(l), err)
		}
		m := make(Map, len(l)/2)
		for i := range m {
			m[i] = Entry{l[2*i], l[2*i+1]}
		}
		return m, nil
	case codeArray8, codeArray32:
		return array(p, c, depth)
	}
	return scalar(c, p)
}

// scalar returns the value of a primitive that holds no other values.
func scalar(c byte, p []byte) (any, error) {
	switch c {
	case codeNull:
		return nil, nil
	case codeTrue:
		return true, nil
	case codeFalse:
		return false, nil
	case codeUint0:
		return uint32(0), nil
	case codeUlong0:
		return uint64(0), nil
	case codeList0:
		return List{}, nil
	case codeUbyte:
		return p[0], nil
	case codeByte:
		return int8(p[0]), nil
	case codeSmallUint:
		return uint32(p[0]), nil
	case codeSmallUlong:
		return uint64(p[0]), nil
	case codeSmallInt:
		return int32(int8(p[0])), nil
	case codeSmallLong:
		return int64(int8(p[0])), nil
	case codeBoolean:
		if p[0] > 1 {
			return nil, fmt.Errorf("%w: boolean %d", ErrSyntax, p[0])
		}
		return p[0] == 1, nil
	case codeUshort:
		return binary.BigEndian.Uint16(p), nil
	case codeShort:
		return int16(binary.BigEndian.Uint16(p)), nil
	case codeUint:
		return binary.BigEndian.Uint32(p), nil
	case codeInt:
		return int32(binary.BigEndian.Uint32(p)), nil
	case codeFloat:
		return math.Float32frombits(binary.BigEndian.Uint32(p)), nil
	case codeChar:
		return Char(binary.BigEndian.Uint32(p)), nil
	case codeUlong:
		return binary.BigEndian.Uint64(p), nil
	case codeLong:
		return int64(binary.BigEndian.Uint64(p)), nil
	case codeDouble:
		return math.Float64frombits(binary.BigEndian.Uint64(p)), nil
	case codeTimestamp:
		return time.UnixMilli(int64(binary.BigEndian.Uint64(p))).UTC(), nil
	case codeDecimal32, codeDecimal64, codeDecimal128:
		return Decimal{c, append([]byte(nil), p...)}, nil
	case codeUUID:
		return UUID(p), nil
	case codeBin8, codeBin32:
		return append([]byte{}, p...), nil
	case codeStr8, codeStr32:
		if !utf8.Valid(p) {
			return nil, fmt.Errorf("%w: a string that is not UTF-8", ErrSyntax)
		}
		return string(p), nil
	case codeSym8, codeSym32:
		return Symbol(p), nil
	}
	return nil, fmt.Errorf("%w: constructor 0x%02x", ErrSyntax, c)
}

func list(p []byte, c byte, depth int) (List, error) {
	if depth >= MaxDepth {
		return nil, ErrDepth
	}
	in := Reader{p}
	n, err := in.count(c)
	if err != nil {
		return nil, err
	}
	if n > len(in.b) { // each takes a byte at least
		return nil, ErrShort
	}
	l := make(List, n)
	for i := range l {
		if l[i], err = in.value(depth + 1); err != nil {
			return nil, err
		}
	}
	if len(in.b) != 0 {
		return nil, fmt.Errorf("%w: %d bytes behind the last element", ErrSyntax, len(in.b))
	}
	return l, nil
}

func array(p []byte, c byte, depth int) (any, error) {
	if depth >= MaxDepth {
		return nil, ErrDepth
	}
	in := Reader{p}
	n, err := in.count(c)
	if err != nil {
		return nil, err
	}
	k, err := in.arrayConstructor()
	if err != nil {
		return nil, err
	}
	if n > len(in.b) && (k>>4 != 4 || n > maxEmpty) {
		return nil, ErrShort
	}
	a := Array{Code: k, Items: make([]any, n)}
	for i := range a.Items {
		if a.Items[i], err = in.body(k, depth+1); err != nil {
			return nil, err
		}
	}
	if len(in.b) != 0 {
		return nil, fmt.Errorf("%w: %d bytes behind the last element", ErrSyntax, len(in.b))
	}
	return a, nil
}
