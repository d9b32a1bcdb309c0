package amqp

import (
	"fmt"
	"strconv"
	"time"
)

// FormatBatch is the message format of a transfer whose data sections are messages
// of their own, as Service Bus clients send batches.
const FormatBatch = 0x80013700

// The descriptors of a message's sections.
const (
	sectionHeader              = 0x70
	sectionDeliveryAnnotations = 0x71
	sectionAnnotations         = 0x72
	sectionProperties          = 0x73
	sectionApplication         = 0x74
	sectionData                = 0x75
	sectionSequence            = 0x76
	sectionValue               = 0x77
	sectionFooter              = 0x78
)

// Header is the header section.
type Header struct {
	Durable       bool
	Priority      byte
	HasTTL        bool
	TTL           uint32 // ms
	FirstAcquirer bool
	DeliveryCount uint32
}

// Message is a message split in its sections, each checked to its last part. They
// alias the buffer; nil where there is none.
type Message struct {
	Header              Header
	DeliveryAnnotations Raw // a map
	Annotations         Raw // a map
	Properties          Raw // a list
	Application         Raw // a map
	Body                []byte
	// Body holds the body's sections and the footer, with their descriptors.
}

// ReadMessage splits a message.
func ReadMessage(b []byte) (Message, error) {
	m := Message{Header: Header{Priority: 4}}
	last := uint64(0)
	for r := NewReader(b); len(r.b) > 0; {
		at := len(b) - len(r.b)
		if c, err := r.byte(); err != nil || c != codeDescribed {
			return m, fmt.Errorf("%w: no section at byte %d", ErrSyntax, at)
		}
		code, err := r.descriptor()
		if err != nil {
			return m, err
		}
		if code < sectionHeader || code > sectionFooter || code < last || code == last && code != sectionData && code != sectionSequence {
			return m, fmt.Errorf("%w: section 0x%x behind 0x%x", ErrSyntax, code, last)
		}
		last = code
		if code >= sectionData && m.Body == nil {
			m.Body = b[at:]
		}
		v, err := r.Raw()
		if err != nil {
			return m, err
		}
		if err := m.section(code, v); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (m *Message) section(code uint64, v Raw) error {
	switch code {
	case sectionHeader:
		r := NewReader(v)
		f, err := r.fields()
		if err != nil {
			return err
		}
		m.Header.Durable = f.Bool()
		if p, ok := f.Uint(); ok {
			m.Header.Priority = byte(p)
		}
		ttl, ok := f.Uint()
		m.Header.TTL, m.Header.HasTTL = uint32(min(ttl, 1<<32-1)), ok
		m.Header.FirstAcquirer, m.Header.DeliveryCount = f.Bool(), f.Uint32()
		return f.Err()
	case sectionAnnotations:
		m.Annotations = v
		return isMap(v)
	case sectionProperties:
		m.Properties = v
		r := NewReader(v)
		_, err := r.fields()
		return err
	case sectionApplication:
		m.Application = v
		return isMap(v)
	case sectionDeliveryAnnotations:
		m.DeliveryAnnotations = v
		return isMap(v)
	case sectionFooter:
		return isMap(v)
	case sectionData:
		if v[0] != codeBin8 && v[0] != codeBin32 {
			return fmt.Errorf("%w: a data section that is no binary", ErrSyntax)
		}
	}
	return nil
}

func isMap(v Raw) error {
	if v[0] != codeMap8 && v[0] != codeMap32 {
		return fmt.Errorf("%w: constructor 0x%02x where a map should be", ErrSyntax, v[0])
	}
	return nil
}

// Data calls each with the binary of every data section, which aliases the buffer,
// until it returns an error.
func (m *Message) Data(each func([]byte) error) error {
	for r := NewReader(m.Body); len(r.b) > 0; {
		r.b = r.b[1:]
		code, err := r.descriptor()
		if err != nil {
			return err
		}
		c, err := r.byte()
		if err != nil {
			return err
		}
		p, err := r.payload(c)
		if err != nil {
			return err
		}
		if code != sectionData {
			continue
		}
		if err := each(p); err != nil {
			return err
		}
	}
	return nil
}

// Value returns the value of an amqp-value body; nil if the body is another.
func (m *Message) Value() (any, error) {
	r := NewReader(m.Body)
	if len(r.b) == 0 {
		return nil, nil
	}
	r.b = r.b[1:]
	if code, err := r.descriptor(); err != nil || code != sectionValue {
		return nil, err
	}
	return r.Value()
}

// Properties is the properties section. Text fields are nil where they are absent.
type Properties struct {
	MessageID, CorrelationID                      any
	To, Subject, ReplyTo, GroupID, ReplyToGroupID *string
	ContentType, ContentEncoding                  *string
	UserID                                        []byte
	AbsoluteExpiry, Creation                      time.Time
}

// ReadProperties reads the list of a properties section.
func ReadProperties(raw Raw) (Properties, error) {
	var p Properties
	if raw == nil {
		return p, nil
	}
	r := NewReader(raw)
	f, err := r.fields()
	if err != nil {
		return p, err
	}
	text := func() *string {
		b, ok := f.Bytes()
		if !ok {
			return nil
		}
		s := string(b)
		return &s
	}
	p.MessageID = f.Any()
	p.UserID, _ = f.Bytes()
	p.To, p.Subject, p.ReplyTo = text(), text(), text()
	p.CorrelationID = f.Any()
	p.ContentType, p.ContentEncoding = text(), text()
	p.AbsoluteExpiry, _ = f.Any().(time.Time)
	p.Creation, _ = f.Any().(time.Time)
	p.GroupID = text()
	f.Skip(1)
	p.ReplyToGroupID = text()
	return p, f.Err()
}

// Append appends the list of a properties section. The group's sequence number is
// not kept.
func (p Properties) Append(b []byte) Raw {
	b, at := beginCompound(b, codeList32)
	text := func(s *string) {
		if s == nil {
			b = append(b, codeNull)
			return
		}
		b = AppendString(b, *s)
	}
	symbol := func(s *string) {
		if s == nil {
			b = append(b, codeNull)
			return
		}
		b = AppendSymbol(b, Symbol(*s))
	}
	when := func(t time.Time) {
		if t.IsZero() {
			b = append(b, codeNull)
			return
		}
		b = AppendTimestamp(b, t)
	}
	b = AppendValue(b, p.MessageID)
	if p.UserID == nil {
		b = append(b, codeNull)
	} else {
		b = AppendBinary(b, p.UserID)
	}
	text(p.To)
	text(p.Subject)
	text(p.ReplyTo)
	b = AppendValue(b, p.CorrelationID)
	symbol(p.ContentType)
	symbol(p.ContentEncoding)
	when(p.AbsoluteExpiry)
	when(p.Creation)
	text(p.GroupID)
	b = append(b, codeNull)
	text(p.ReplyToGroupID)
	return endCompound(b, at, 13)
}

// ReadIDs reads message ID and group ID off a properties section, and checks the
// types of the others, so that no receiver is handed what it can't read. An ID that
// is no string is told as text.
func ReadIDs(raw Raw) (id, group string, hasGroup bool, err error) {
	if raw == nil {
		return "", "", false, nil
	}
	r := NewReader(raw)
	f, err := r.fields()
	if err != nil {
		return "", "", false, err
	}
	if v := f.Raw(); v != nil {
		id, err = idText(v)
		if err != nil {
			return "", "", false, err
		}
	}
	f.Bytes() // user ID
	f.Bytes() // to
	f.Bytes() // subject
	f.Bytes() // reply to
	if v := f.Raw(); v != nil && f.err == nil {
		if _, err := idText(v); err != nil {
			return "", "", false, err
		}
	}
	f.Bytes() // content type
	f.Bytes() // content encoding
	f.timestamp()
	f.timestamp()
	g, ok := f.Bytes()
	f.Uint()
	f.Bytes() // group to reply to
	if f.err == nil && f.n > 0 {
		f.err = fmt.Errorf("%w: %d fields too many", ErrSyntax, f.n)
	}
	return id, string(g), ok, f.Err()
}

// timestamp passes over a field that must be a timestamp.
func (f *Fields) timestamp() {
	if c, _, ok := f.next(); ok && c != codeTimestamp {
		f.wrong(c, "timestamp")
	}
}

func idText(v Raw) (string, error) {
	r := NewReader(v)
	if c := v[0]; c == codeStr8 || c == codeStr32 {
		r.b = r.b[1:]
		p, err := r.payload(c)
		return string(p), err
	}
	x, err := r.Value()
	if err != nil {
		return "", err
	}
	switch x := x.(type) {
	case uint64:
		return strconv.FormatUint(x, 10), nil
	case UUID:
		return x.String(), nil
	case []byte:
		return string(x), nil
	}
	return "", fmt.Errorf("%w: a message ID that is a %T", ErrSyntax, x)
}

// String returns the usual notation of a UUID.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
