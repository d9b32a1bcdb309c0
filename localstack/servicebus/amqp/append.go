package amqp

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// AppendValue appends the encoding of v: any of the types that [Reader.Value]
// returns, [Raw], and the slices []UUID, []int64, []time.Time, []string and
// []Symbol, which become arrays. Another type is a mistake of the program and
// panics.
func AppendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, codeNull)
	case Raw:
		return append(b, v...)
	case bool:
		return AppendBool(b, v)
	case uint8:
		return append(b, codeUbyte, v)
	case int8:
		return append(b, codeByte, byte(v))
	case uint16:
		return binary.BigEndian.AppendUint16(append(b, codeUshort), v)
	case int16:
		return binary.BigEndian.AppendUint16(append(b, codeShort), uint16(v))
	case uint32:
		return AppendUint(b, v)
	case int32:
		return binary.BigEndian.AppendUint32(append(b, codeInt), uint32(v))
	case uint64:
		return AppendUlong(b, v)
	case int64:
		return AppendLong(b, v)
	case float32:
		return binary.BigEndian.AppendUint32(append(b, codeFloat), math.Float32bits(v))
	case float64:
		return binary.BigEndian.AppendUint64(append(b, codeDouble), math.Float64bits(v))
	case Char:
		return binary.BigEndian.AppendUint32(append(b, codeChar), uint32(v))
	case Decimal:
		return append(append(b, v.Code), v.Bits...)
	case time.Time:
		return AppendTimestamp(b, v)
	case UUID:
		return append(append(b, codeUUID), v[:]...)
	case []byte:
		return AppendBinary(b, v)
	case string:
		return AppendString(b, v)
	case Symbol:
		return AppendSymbol(b, v)
	case Described:
		return AppendValue(AppendValue(append(b, codeDescribed), v.Descriptor), v.Value)
	case List:
		b, at := beginCompound(b, codeList32)
		for _, e := range v {
			b = AppendValue(b, e)
		}
		return endCompound(b, at, len(v))
	case Map:
		b, at := beginCompound(b, codeMap32)
		for _, e := range v {
			b = AppendValue(AppendValue(b, e.Key), e.Value)
		}
		return endCompound(b, at, 2*len(v))
	case Array:
		return appendArray(b, wide(v.Code), v.Items)
	}
	return appendSlice(b, v)
}

func appendSlice(b []byte, v any) []byte {
	switch v := v.(type) {
	case []UUID:
		return appendArray(b, codeUUID, v)
	case []int64:
		return appendArray(b, codeLong, v)
	case []time.Time:
		return appendArray(b, codeTimestamp, v)
	case []string:
		return appendArray(b, codeStr32, v)
	case []Symbol:
		return appendArray(b, codeSym32, v)
	}
	panic(fmt.Sprintf("amqp: no encoding for %T", v))
}

// wide returns the constructor that can hold every value of the type of code.
func wide(code byte) byte {
	switch code {
	case codeTrue, codeFalse:
		return codeBoolean
	case codeUint0, codeSmallUint:
		return codeUint
	case codeUlong0, codeSmallUlong:
		return codeUlong
	case codeSmallInt:
		return codeInt
	case codeSmallLong:
		return codeLong
	case codeBin8, codeStr8, codeSym8:
		return code + 0x10
	case codeList0, codeList8:
		return codeList32
	case codeMap8:
		return codeMap32
	case codeArray8:
		return codeArray32
	}
	return code
}

// appendArray appends items, each of which encodes with the constructor code when
// written at full width.
func appendArray[T any](b []byte, code byte, items []T) []byte {
	b, at := beginCompound(b, codeArray32)
	b = append(b, code)
	for _, e := range items {
		b = appendBody(b, code, e)
	}
	return endCompound(b, at, len(items))
}

// appendBody appends v without its constructor, at the full width of code.
func appendBody(b []byte, code byte, v any) []byte {
	switch v := v.(type) {
	case bool:
		if v {
			return append(b, 1)
		}
		return append(b, 0)
	case uint32:
		return binary.BigEndian.AppendUint32(b, v)
	case uint64:
		return binary.BigEndian.AppendUint64(b, v)
	case string:
		return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	case Symbol:
		return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	case []byte:
		return append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	// All others have but one encoding of full width, whose constructor goes.
	at := len(b)
	b = AppendValue(b, v)
	return append(b[:at], b[at+1:]...)
}

// AppendBool appends a boolean.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, codeTrue)
	}
	return append(b, codeFalse)
}

// AppendUint appends a uint.
func AppendUint(b []byte, v uint32) []byte {
	if v < 256 {
		return append(b, codeSmallUint, byte(v))
	}
	return binary.BigEndian.AppendUint32(append(b, codeUint), v)
}

// AppendUlong appends a ulong; small ones in two bytes, which peers demand of the
// descriptors of performatives.
func AppendUlong(b []byte, v uint64) []byte {
	if v < 256 {
		return append(b, codeSmallUlong, byte(v))
	}
	return binary.BigEndian.AppendUint64(append(b, codeUlong), v)
}

// AppendLong appends a long.
func AppendLong(b []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(append(b, codeLong), uint64(v))
}

// AppendTimestamp appends a time to the millisecond.
func AppendTimestamp(b []byte, t time.Time) []byte {
	return binary.BigEndian.AppendUint64(append(b, codeTimestamp), uint64(t.UnixMilli()))
}

// AppendBinary appends a binary.
func AppendBinary(b, v []byte) []byte {
	return append(variable(b, codeBin8, len(v)), v...)
}

// AppendString appends a string.
func AppendString(b []byte, v string) []byte {
	return append(variable(b, codeStr8, len(v)), v...)
}

// AppendSymbol appends a symbol.
func AppendSymbol(b []byte, v Symbol) []byte {
	return append(variable(b, codeSym8, len(v)), v...)
}

func variable(b []byte, code byte, n int) []byte {
	if n < 256 {
		return append(b, code, byte(n))
	}
	return binary.BigEndian.AppendUint32(append(b, code+0x10), uint32(n))
}

// beginCompound opens a list, map or array of four-byte sizes and returns where
// its size stands.
func beginCompound(b []byte, code byte) ([]byte, int) {
	b = append(b, code, 0, 0, 0, 0, 0, 0, 0, 0)
	return b, len(b) - 8
}

// endCompound closes what began at at and holds n elements.
func endCompound(b []byte, at, n int) []byte {
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	binary.BigEndian.PutUint32(b[at+4:], uint32(n))
	return b
}
