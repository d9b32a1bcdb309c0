package amqp

import (
	"encoding/binary"
	"fmt"
)

// Fields reads the fields of a composite in their order. A field that is absent or
// null reads as its zero value. After an error all fields do; [Fields.Err] has it.
type Fields struct {
	r   Reader
	n   int
	err error
}

// Composite takes a described list and returns its descriptor's code and its
// fields, which alias the buffer.
func (r *Reader) Composite() (uint64, Fields, error) {
	c, err := r.byte()
	if err != nil {
		return 0, Fields{}, err
	}
	if c != codeDescribed {
		return 0, Fields{}, fmt.Errorf("%w: constructor 0x%02x where a composite should be", ErrSyntax, c)
	}
	code, err := r.descriptor()
	if err != nil {
		return 0, Fields{}, err
	}
	f, err := r.fields()
	return code, f, err
}

// descriptor takes a numeric descriptor.
func (r *Reader) descriptor() (uint64, error) {
	c, err := r.byte()
	if err != nil {
		return 0, err
	}
	p, err := r.payload(c)
	if err != nil {
		return 0, err
	}
	switch c {
	case codeSmallUlong:
		return uint64(p[0]), nil
	case codeUlong:
		return binary.BigEndian.Uint64(p), nil
	case codeUlong0:
		return 0, nil
	case codeSym8, codeSym32:
		if code, ok := symbolic[string(p)]; ok {
			return code, nil
		}
	}
	return 0, fmt.Errorf("%w: descriptor of constructor 0x%02x", ErrSyntax, c)
}

// symbolic are the descriptors that peers may write as symbols.
var symbolic = map[string]uint64{
	"amqp:received:list": StateReceived, "amqp:accepted:list": StateAccepted, "amqp:rejected:list": StateRejected,
	"amqp:released:list": StateReleased, "amqp:modified:list": StateModified, "amqp:error:list": codeError,
	"amqp:source:list": codeSource, "amqp:target:list": codeTarget,
	"com.microsoft:session-filter": SessionFilterCode,
}

// fields takes a list to read the fields from.
func (r *Reader) fields() (Fields, error) {
	c, err := r.byte()
	if err != nil {
		return Fields{}, err
	}
	p, err := r.payload(c)
	if err != nil {
		return Fields{}, err
	}
	switch c {
	case codeList0:
		return Fields{}, nil
	case codeList8, codeList32:
		f := Fields{r: Reader{p}}
		f.n, err = f.r.count(c)
		return f, err
	}
	return Fields{}, fmt.Errorf("%w: constructor 0x%02x where a list should be", ErrSyntax, c)
}

// Err returns what was wrong with a field read so far, or nil.
func (f *Fields) Err() error { return f.err }

// next takes the next field's payload; false if it is absent or null.
func (f *Fields) next() (c byte, p []byte, ok bool) {
	if f.n == 0 || f.err != nil {
		return 0, nil, false
	}
	f.n--
	if c, f.err = f.r.byte(); f.err != nil || c == codeNull {
		return c, nil, false
	}
	if p, f.err = f.r.payload(c); f.err != nil {
		return c, nil, false
	}
	return c, p, true
}

func (f *Fields) wrong(c byte, want string) {
	f.err = fmt.Errorf("%w: constructor 0x%02x where a %s should be", ErrSyntax, c, want)
}

// Uint reads an unsigned integer of any width, and whether it was there.
func (f *Fields) Uint() (uint64, bool) {
	c, p, ok := f.next()
	if !ok {
		return 0, false
	}
	switch c {
	case codeUint0, codeUlong0:
		return 0, true
	case codeUbyte, codeSmallUint, codeSmallUlong:
		return uint64(p[0]), true
	case codeUshort:
		return uint64(binary.BigEndian.Uint16(p)), true
	case codeUint:
		return uint64(binary.BigEndian.Uint32(p)), true
	case codeUlong:
		return binary.BigEndian.Uint64(p), true
	}
	f.wrong(c, "unsigned integer")
	return 0, false
}

// Uint32 reads an unsigned integer of at most 32 bits, 0 if it is absent.
func (f *Fields) Uint32() uint32 {
	v, _ := f.Uint()
	if v > 1<<32-1 && f.err == nil {
		f.err = fmt.Errorf("%w: %d in a field of 32 bits", ErrSyntax, v)
		return 0
	}
	return uint32(v)
}

// Bool reads a boolean.
func (f *Fields) Bool() bool {
	c, p, ok := f.next()
	switch {
	case !ok:
		return false
	case c == codeTrue:
		return true
	case c == codeFalse:
		return false
	case c == codeBoolean:
		return p[0] == 1
	}
	f.wrong(c, "boolean")
	return false
}

// Bytes reads a string, symbol or binary, which aliases the buffer, and whether it
// was there.
func (f *Fields) Bytes() ([]byte, bool) {
	c, p, ok := f.next()
	if !ok {
		return nil, false
	}
	switch c {
	case codeStr8, codeStr32, codeSym8, codeSym32, codeBin8, codeBin32:
		return p, true
	}
	f.wrong(c, "string")
	return nil, false
}

// Text reads a string, symbol or binary as a string.
func (f *Fields) Text() string {
	p, _ := f.Bytes()
	return string(p)
}

// Raw reads a field's encoding, which aliases the buffer; nil if it is absent or
// null.
func (f *Fields) Raw() Raw {
	if f.n == 0 || f.err != nil {
		return nil
	}
	f.n--
	var v Raw
	if v, f.err = f.r.Raw(); f.err != nil || len(v) == 1 && v[0] == codeNull {
		return nil
	}
	return v
}

// Any reads a field of any type.
func (f *Fields) Any() any {
	raw := f.Raw()
	if raw == nil {
		return nil
	}
	r := NewReader(raw)
	v, err := r.Value()
	if err != nil {
		f.err = err
	}
	return v
}

// Skip passes over n fields.
func (f *Fields) Skip(n int) {
	for range n {
		if f.n == 0 || f.err != nil {
			return
		}
		f.n--
		c, err := f.r.byte()
		if err == nil && c == codeDescribed {
			f.r.b = f.r.b[:len(f.r.b):len(f.r.b)]
			if err = f.r.check(0); err == nil {
				err = f.r.check(0)
			}
		} else if err == nil {
			_, err = f.r.payload(c)
		}
		f.err = err
	}
}
