package amqp

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Reader takes values off the front of a buffer. The zero value is an empty one.
type Reader struct{ b []byte }

// NewReader returns a reader of b, which it does not change.
func NewReader(b []byte) Reader { return Reader{b} }

// Rest returns what has not been read.
func (r *Reader) Rest() []byte { return r.b }

func (r *Reader) take(n int) ([]byte, error) {
	if n < 0 || n > len(r.b) {
		return nil, ErrShort
	}
	x := r.b[:n:n]
	r.b = r.b[n:]
	return x, nil
}

func (r *Reader) byte() (byte, error) {
	if len(r.b) == 0 {
		return 0, ErrShort
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c, nil
}

// payload takes what follows the constructor c: the bytes of a fixed width, or
// those that a size announces, without the size.
func (r *Reader) payload(c byte) ([]byte, error) {
	switch c >> 4 {
	case 0x4:
		return r.take(0)
	case 0x5:
		return r.take(1)
	case 0x6:
		return r.take(2)
	case 0x7:
		return r.take(4)
	case 0x8:
		return r.take(8)
	case 0x9:
		return r.take(16)
	case 0xa, 0xc, 0xe:
		n, err := r.byte()
		if err != nil {
			return nil, err
		}
		return r.take(int(n))
	case 0xb, 0xd, 0xf:
		n, err := r.take(4)
		if err != nil {
			return nil, err
		}
		return r.take(size(n))
	}
	return nil, fmt.Errorf("%w: constructor 0x%02x", ErrSyntax, c)
}

// size is a 32-bit size as an int, -1 where it has no place in one.
func size(b []byte) int {
	n := binary.BigEndian.Uint32(b)
	if n > 1<<31-1 {
		return -1
	}
	return int(n)
}

// count takes the number of elements off the payload of a list, map or array.
func (r *Reader) count(c byte) (int, error) {
	if c>>4 == 0xc || c>>4 == 0xe {
		n, err := r.byte()
		return int(n), err
	}
	n, err := r.take(4)
	if err != nil {
		return 0, err
	}
	if k := size(n); k >= 0 {
		return k, nil
	}
	return 0, ErrShort
}

// Raw takes the next value, checks it to its last part, and returns its encoding,
// which aliases the buffer.
func (r *Reader) Raw() (Raw, error) {
	before := r.b
	if err := r.check(0); err != nil {
		return nil, err
	}
	n := len(before) - len(r.b)
	return Raw(before[:n:n]), nil
}

// check takes the next value and returns what is wrong with it.
func (r *Reader) check(depth int) error {
	c, err := r.byte()
	if err != nil {
		return err
	}
	if c == codeDescribed {
		if depth >= MaxDepth {
			return ErrDepth
		}
		if err := r.check(depth + 1); err != nil {
			return err
		}
		return r.check(depth + 1)
	}
	return r.checkBody(c, depth)
}

func (r *Reader) checkBody(c byte, depth int) error {
	p, err := r.payload(c)
	if err != nil {
		return err
	}
	switch c {
	case codeStr8, codeStr32:
		if !utf8.Valid(p) {
			return fmt.Errorf("%w: a string that is not UTF-8", ErrSyntax)
		}
		return nil
	case codeBoolean:
		if p[0] > 1 {
			return fmt.Errorf("%w: boolean %d", ErrSyntax, p[0])
		}
		return nil
	case codeList8, codeList32, codeMap8, codeMap32:
		return checkCompound(p, c, depth)
	case codeArray8, codeArray32:
		return checkArray(p, c, depth)
	}
	if !known(c) {
		return fmt.Errorf("%w: constructor 0x%02x", ErrSyntax, c)
	}
	return nil
}

func checkCompound(p []byte, c byte, depth int) error {
	if depth >= MaxDepth {
		return ErrDepth
	}
	in := Reader{p}
	n, err := in.count(c)
	if err != nil {
		return err
	}
	if n > len(in.b) || c&0xf == 1 && n%2 != 0 {
		return fmt.Errorf("%w: %d elements in %d bytes", ErrSyntax, n, len(in.b))
	}
	for range n {
		if err := in.check(depth + 1); err != nil {
			return err
		}
	}
	if len(in.b) != 0 {
		return fmt.Errorf("%w: %d bytes behind the last element", ErrSyntax, len(in.b))
	}
	return nil
}

// maxEmpty bounds the elements of an array whose elements take no bytes.
const maxEmpty = 16

func checkArray(p []byte, c byte, depth int) error {
	if depth >= MaxDepth {
		return ErrDepth
	}
	in := Reader{p}
	n, err := in.count(c)
	if err != nil {
		return err
	}
	k, err := in.arrayConstructor()
	if err != nil {
		return err
	}
	if n > len(in.b) && (k>>4 != 4 || n > maxEmpty) {
		return fmt.Errorf("%w: %d elements in %d bytes", ErrSyntax, n, len(in.b))
	}
	for range n {
		if err := in.checkBody(k, depth+1); err != nil {
			return err
		}
	}
	if len(in.b) != 0 {
		return fmt.Errorf("%w: %d bytes behind the last element", ErrSyntax, len(in.b))
	}
	return nil
}

// arrayConstructor takes the constructor of an array's elements. Descriptors are
// refused, as nothing in the protocol makes arrays of described values.
func (r *Reader) arrayConstructor() (byte, error) {
	k, err := r.byte()
	if err != nil {
		return 0, err
	}
	if !known(k) {
		return 0, fmt.Errorf("%w: array of constructor 0x%02x", ErrSyntax, k)
	}
	return k, nil
}

// known says whether c is the constructor of a primitive type.
func known(c byte) bool {
	switch c {
	case codeNull, codeTrue, codeFalse, codeUint0, codeUlong0, codeList0,
		codeUbyte, codeByte, codeSmallUint, codeSmallUlong, codeSmallInt, codeSmallLong, codeBoolean,
		codeUshort, codeShort, codeUint, codeInt, codeFloat, codeChar, codeDecimal32,
		codeUlong, codeLong, codeDouble, codeTimestamp, codeDecimal64, codeDecimal128, codeUUID,
		codeBin8, codeStr8, codeSym8, codeBin32, codeStr32, codeSym32,
		codeList8, codeMap8, codeList32, codeMap32, codeArray8, codeArray32:
		return true
	}
	return false
}
