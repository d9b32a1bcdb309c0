package amqp

import (
	"encoding/binary"
	"fmt"
)

// Decoder reads the fields of a payload one after the other. After the first
// field that isn't whole, Err is not nil and all that follows is zero.
type Decoder struct {
	b    []byte
	bits byte // the octet that holds bits, while bits are read
	used int  // how many of them have been
	err  error
}

// NewDecoder returns a decoder of b, which it doesn't copy.
func NewDecoder(b []byte) Decoder { return Decoder{b: b} }

// Err returns why a field could not be read, or nil.
func (d *Decoder) Err() error { return d.err }

// Rest returns the bytes that haven't been read.
func (d *Decoder) Rest() []byte { return d.b }

func (d *Decoder) take(n int) []byte {
	d.used = 0
	if d.err != nil || n > len(d.b) {
		d.fail(ErrShort)
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

func (d *Decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

// Uint8 reads an octet.
func (d *Decoder) Uint8() byte {
	if p := d.take(1); p != nil {
		return p[0]
	}
	return 0
}

// Uint16 reads a short.
func (d *Decoder) Uint16() uint16 {
	if p := d.take(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

// Uint32 reads a long.
func (d *Decoder) Uint32() uint32 {
	if p := d.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

// Uint64 reads a long-long.
func (d *Decoder) Uint64() uint64 {
	if p := d.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

// Bit reads a bit; bits that follow each other share octets, lowest first.
func (d *Decoder) Bit() bool {
	if d.used == 0 || d.used == 8 {
		d.bits = d.Uint8()
		d.used = 0
	}
	set := d.bits&(1<<d.used) != 0
	d.used++
	return set
}

// Short reads a short string, without a copy.
func (d *Decoder) Short() []byte { return d.take(int(d.Uint8())) }

// Long reads a long string, without a copy.
func (d *Decoder) Long() []byte {
	n := d.Uint32()
	if uint64(n) > uint64(len(d.b)) {
		d.fail(ErrShort)
		return nil
	}
	return d.take(int(n))
}

// Table reads a field table.
func (d *Decoder) Table() Table {
	raw := d.Long()
	if d.err != nil {
		return nil
	}
	t, err := ParseTable(raw)
	if err != nil {
		d.fail(err)
	}
	return t
}

// AppendShort appends a short string. What is over 255 bytes is left out, as
// the format can't say it.
func AppendShort(b []byte, s string) []byte {
	if len(s) > 255 {
		s = s[:255]
	}
	b = append(b, byte(len(s)))
	return append(b, s...)
}

// AppendLong appends a long string.
func AppendLong(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// TypeError says that a field value has a type letter that RabbitMQ doesn't know.
type TypeError byte

// Error names the letter.
func (e TypeError) Error() string { return fmt.Sprintf("amqp: unknown field type %q", rune(e)) }
