package amqp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Table is a field table in the order of the wire. A value is one of nil, bool,
// int8, uint8, int16, uint16, int32, uint32, int64, float32, float64, [Decimal],
// string, []byte, [Timestamp], []any and Table, so that what was read is written
// again with the same types. The letters l and L both mean an int64, as they do
// for RabbitMQ, and are written as l.
type Table []Field

// Field is one entry of a table.
type Field struct {
	Name  string
	Value any
}

// Decimal is a number with Scale digits behind the point.
type Decimal struct {
	Scale uint8
	Value uint32
}

// Timestamp is a time in seconds since 1970.
type Timestamp uint64

// maxDepth bounds how deep tables and arrays may be nested, so that a payload of
// nothing but opening ones can't exhaust the stack.
const maxDepth = 64

var errDepth = errors.New("amqp: table nested too deep")

// Get returns the value of the first field named name.
func (t Table) Get(name string) (any, bool) {
	for i := range t {
		if t[i].Name == name {
			return t[i].Value, true
		}
	}
	return nil, false
}

// With returns a table in which name has the value v, in its old place or at the
// end. It may share t's memory.
func (t Table) With(name string, v any) Table {
	for i := range t {
		if t[i].Name == name {
			t = slices.Clone(t)
			t[i].Value = v
			return t
		}
	}
	return append(t[:len(t):len(t)], Field{name, v})
}

// Without returns a table that has no field named name.
func (t Table) Without(name string) Table {
	if _, ok := t.Get(name); !ok {
		return t
	}
	return slices.DeleteFunc(slices.Clone(t), func(f Field) bool { return f.Name == name })
}

// Int returns v as an int64, if it has one of the integer types.
func Int(v any) (int64, bool) {
	switch n := v.(type) {
	case int8:
		return int64(n), true
	case uint8:
		return int64(n), true
	case int16:
		return int64(n), true
	case uint16:
		return int64(n), true
	case int32:
		return int64(n), true
	case uint32:
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
}

// ParseTable decodes the fields of a table, without the length before it. What
// it returns holds no reference to b.
func ParseTable(b []byte) (Table, error) { return parseTable(b, 0) }

func parseTable(b []byte, depth int) (Table, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	d := NewDecoder(b)
	var t Table
	for len(d.b) > 0 {
		name := string(d.Short())
		v := d.value(depth)
		if d.err != nil {
			return nil, d.err
		}
		t = append(t, Field{name, v})
	}
	return t, d.err
}

// value reads a type letter and the value of that type.
func (d *Decoder) value(depth int) any {
	switch kind := d.Uint8(); kind {
	case 't':
		return d.Uint8() != 0
	case 'b':
		return int8(d.Uint8())
	case 'B':
		return d.Uint8()
	case 's':
		return int16(d.Uint16())
	case 'u':
		return d.Uint16()
	case 'I':
		return int32(d.Uint32())
	case 'i':
		return d.Uint32()
	case 'l', 'L':
		return int64(d.Uint64())
	case 'f':
		return math.Float32frombits(d.Uint32())
	case 'd':
		return math.Float64frombits(d.Uint64())
	case 'D':
		return Decimal{d.Uint8(), d.Uint32()}
	case 'S':
		return string(d.Long())
	case 'x':
		return append([]byte{}, d.Long()...)
	case 'T':
		return Timestamp(d.Uint64())
	case 'V':
		return nil
	case 'A':
		return d.array(depth + 1)
	case 'F':
		t, err := parseTable(d.Long(), depth+1)
		if err != nil {
			d.fail(err)
		}
		return t
	default:
		d.fail(TypeError(kind))
		return nil
	}
}

func (d *Decoder) array(depth int) any {
	if depth > maxDepth {
		d.fail(errDepth)
		return nil
	}
	in := NewDecoder(d.Long())
	list := []any{}
	for len(in.b) > 0 {
		list = append(list, in.value(depth))
	}
	if in.err != nil {
		d.fail(in.err)
	}
	return list
}

// Append appends the table with its length before it.
func (t Table) Append(b []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	for i := range t {
		b = AppendShort(b, t[i].Name)
		b = appendValue(b, t[i].Value)
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

func appendValue(b []byte, v any) []byte {
	be := binary.BigEndian
	switch v := v.(type) {
	case nil:
		return append(b, 'V')
	case bool:
		if v {
			return append(b, 't', 1)
		}
		return append(b, 't', 0)
	case int8:
		return append(b, 'b', byte(v))
	case uint8:
		return append(b, 'B', v)
	case int16:
		return be.AppendUint16(append(b, 's'), uint16(v))
	case uint16:
		return be.AppendUint16(append(b, 'u'), v)
	case int32:
		return be.AppendUint32(append(b, 'I'), uint32(v))
	case uint32:
		return be.AppendUint32(append(b, 'i'), v)
	case int64:
		return be.AppendUint64(append(b, 'l'), uint64(v))
	case float32:
		return be.AppendUint32(append(b, 'f'), math.Float32bits(v))
	case float64:
		return be.AppendUint64(append(b, 'd'), math.Float64bits(v))
	case Decimal:
		return be.AppendUint32(append(b, 'D', v.Scale), v.Value)
	case string:
		return AppendLong(append(b, 'S'), v)
	case []byte:
		b = be.AppendUint32(append(b, 'x'), uint32(len(v)))
		return append(b, v...)
	case Timestamp:
		return be.AppendUint64(append(b, 'T'), uint64(v))
	case []any:
		b = append(b, 'A')
		start := len(b)
		b = append(b, 0, 0, 0, 0)
		for _, e := range v {
			b = appendValue(b, e)
		}
		be.PutUint32(b[start:], uint32(len(b)-start-4))
		return b
	case Table:
		return v.Append(append(b, 'F'))
	}
	panic(fmt.Sprintf("amqp: a table can't hold a %T", v))
}
