package rabbitmq

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// amqpReader reads AMQP 1.0. s is the text of b's first bytes, as far as it goes.
type amqpReader struct {
	b   []byte
	s   string
	bad bool
}

func (r *amqpReader) take(n int) ([]byte, string) {
	if n < 0 || n > len(r.b) {
		r.bad, r.b, r.s = true, nil, ""
		return nil, ""
	}
	b := r.b[:n:n]
	r.b = r.b[n:]
	if n > len(r.s) {
		r.s = ""
		return b, ""
	}
	s := r.s[:n]
	r.s = r.s[n:]
	return b, s
}

func (r *amqpReader) byte() byte {
	if b, _ := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *amqpReader) u32() int {
	if b, _ := r.take(4); b != nil {
		return int(min(binary.BigEndian.Uint32(b), math.MaxInt32))
	}
	return 0
}

// section reads a section's descriptor; 0 for one that has another form.
func (r *amqpReader) section() byte {
	if r.byte() != amqpDescribed {
		r.bad = true
		return 0
	}
	code, data, _ := r.value()
	switch {
	case code == amqpSmallUlong && len(data) == 1:
		return data[0]
	case code == 0x80 && len(data) == 8 && binary.BigEndian.Uint64(data) < 256:
		return data[7]
	}
	return 0
}

// value reads any value: its code, and its bytes without size and count of
// elements. Described values are their inner one.
func (r *amqpReader) value() (code byte, data []byte, text string) {
	for depth := 0; ; depth++ {
		code = r.byte()
		if code != amqpDescribed || r.bad {
			break
		}
		if depth > 8 {
			r.bad = true
			return 0, nil, ""
		}
		r.value() // the descriptor
	}
	n := 0
	switch code >> 4 {
	case 0x4:
	case 0x5:
		n = 1
	case 0x6:
		n = 2
	case 0x7:
		n = 4
	case 0x8:
		n = 8
	case 0x9:
		n = 16
	case 0xa, 0xc, 0xe:
		n = int(r.byte())
	case 0xb, 0xd, 0xf:
		n = r.u32()
	default:
		r.bad = true
	}
	data, text = r.take(n)
	return code, data, text
}

// valueWithText is value for a section whose strings are wanted, wherever it is.
func (r *amqpReader) valueWithText() (code byte, data []byte, text string) {
	code, data, text = r.value()
	if len(text) != len(data) {
		text = string(data)
	}
	return code, data, text
}

// properties reads message-id alone.
func (r *amqpReader) properties(m *broker.Message) {
	code, data, text := r.valueWithText()
	list := amqpReader{b: data, s: text}
	switch code {
	case amqpList8:
		list.byte()
	case amqpList32:
		list.u32()
	default:
		return
	}
	if len(list.b) == 0 {
		return
	}
	code, data, text = list.value()
	if list.bad || m.ID != "" {
		return
	}
	m.ID = literal(code, data, text)
}

// appProperties reads our headers and the user's.
func (r *amqpReader) appProperties(m *broker.Message) {
	code, data, text := r.valueWithText()
	all := amqpReader{b: data, s: text}
	n := 0
	switch code {
	case 0xc1:
		n = int(all.byte())
	case amqpMap32:
		n = all.u32()
	default:
		return
	}
	n = min(n/2, len(all.b)/2)
	for i := range n {
		_, _, name := all.value()
		code, data, text := all.value()
		if all.bad {
			r.bad = true
			return
		}
		switch name {
		case driver.HeaderID:
			m.ID = literal(code, data, text)
		case driver.HeaderCopy:
			m.Copy = literal(code, data, text)
		case driver.HeaderKey:
			m.Key = literal(code, data, text)
		case driver.HeaderTime:
			if m.Time.IsZero() {
				m.Time = driver.ParseTime(literal(code, data, text))
			}
		default:
			if m.Headers == nil {
				m.Headers = make(broker.Headers, 0, min(n-i, 64))
			}
			m.Headers = append(m.Headers, broker.Header{Key: name, Value: literal(code, data, text)})
		}
	}
}

func textual(code byte) bool {
	switch code {
	case amqpStr8, amqpStr32, amqpBin8, amqpBin32, 0xa3, 0xb3:
		return true
	}
	return false
}

// literal is a simple value as text; of what isn't simple its bytes.
func literal(code byte, data []byte, text string) string {
	switch code {
	case 0x40:
		return ""
	case 0x41:
		return "true"
	case 0x42:
		return "false"
	case 0x43, 0x44:
		return "0"
	case 0x56:
		return strconv.FormatBool(data[0] != 0)
	case 0x50, 0x52, 0x53:
		return strconv.Itoa(int(data[0]))
	case 0x51, 0x54, 0x55:
		return strconv.Itoa(int(int8(data[0])))
	case 0x60:
		return strconv.Itoa(int(binary.BigEndian.Uint16(data)))
	case 0x61:
		return strconv.Itoa(int(int16(binary.BigEndian.Uint16(data))))
	case 0x70:
		return strconv.FormatUint(uint64(binary.BigEndian.Uint32(data)), 10)
	case 0x71:
		return strconv.Itoa(int(int32(binary.BigEndian.Uint32(data))))
	case 0x72:
		return strconv.FormatFloat(float64(math.Float32frombits(binary.BigEndian.Uint32(data))), 'g', -1, 32)
	case 0x80:
		return strconv.FormatUint(binary.BigEndian.Uint64(data), 10)
	case 0x81:
		return strconv.FormatInt(int64(binary.BigEndian.Uint64(data)), 10)
	case 0x82:
		return strconv.FormatFloat(math.Float64frombits(binary.BigEndian.Uint64(data)), 'g', -1, 64)
	case 0x83:
		return time.UnixMilli(int64(binary.BigEndian.Uint64(data))).UTC().Format(time.RFC3339Nano)
	case 0x98:
		h := hex.EncodeToString(data)
		return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	}
	return text
}
