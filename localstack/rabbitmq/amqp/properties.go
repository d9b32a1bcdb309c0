package amqp

import "encoding/binary"

// Properties are the properties of a message. A field that Flags doesn't name is
// absent, which is not the same as empty. The byte slices of what
// [ParseProperties] returns point into its argument.
type Properties struct {
	Flags           uint16
	ContentType     []byte
	ContentEncoding []byte
	Headers         []byte // the fields of the table, without its length
	DeliveryMode    uint8
	Priority        uint8
	CorrelationID   []byte
	ReplyTo         []byte
	Expiration      []byte
	MessageID       []byte
	Timestamp       uint64
	Type            []byte
	UserID          []byte
	AppID           []byte
	ClusterID       []byte
}

// Flags that say which properties a message has, in the order of the wire.
const (
	HasContentType = 1 << (15 - iota)
	HasContentEncoding
	HasHeaders
	HasDeliveryMode
	HasPriority
	HasCorrelationID
	HasReplyTo
	HasExpiration
	HasMessageID
	HasTimestamp
	HasType
	HasUserID
	HasAppID
	HasClusterID
)

// ParseProperties reads the properties of a content header: what follows the
// body's size. The headers' fields are not looked into.
func ParseProperties(b []byte) (Properties, error) {
	d := NewDecoder(b)
	p := Properties{Flags: d.Uint16()}
	if p.Flags&3 != 0 { // a continuation, or a property that no one has defined
		return Properties{}, ErrShort
	}
	short := func(flag uint16, to *[]byte) {
		if p.Flags&flag != 0 {
			*to = d.Short()
		}
	}
	short(HasContentType, &p.ContentType)
	short(HasContentEncoding, &p.ContentEncoding)
	if p.Flags&HasHeaders != 0 {
		p.Headers = d.Long()
	}
	if p.Flags&HasDeliveryMode != 0 {
		p.DeliveryMode = d.Uint8()
	}
	if p.Flags&HasPriority != 0 {
		p.Priority = d.Uint8()
	}
	short(HasCorrelationID, &p.CorrelationID)
	short(HasReplyTo, &p.ReplyTo)
	short(HasExpiration, &p.Expiration)
	short(HasMessageID, &p.MessageID)
	if p.Flags&HasTimestamp != 0 {
		p.Timestamp = d.Uint64()
	}
	short(HasType, &p.Type)
	short(HasUserID, &p.UserID)
	short(HasAppID, &p.AppID)
	short(HasClusterID, &p.ClusterID)
	if d.err == nil && len(d.b) > 0 {
		d.fail(ErrShort)
	}
	return p, d.err
}

// Append appends the properties as [ParseProperties] reads them.
func (p *Properties) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, p.Flags)
	short := func(flag uint16, s []byte) {
		if p.Flags&flag != 0 {
			b = append(b, byte(len(s)))
			b = append(b, s...)
		}
	}
	short(HasContentType, p.ContentType)
	short(HasContentEncoding, p.ContentEncoding)
	if p.Flags&HasHeaders != 0 {
		b = binary.BigEndian.AppendUint32(b, uint32(len(p.Headers)))
		b = append(b, p.Headers...)
	}
	if p.Flags&HasDeliveryMode != 0 {
		b = append(b, p.DeliveryMode)
	}
	if p.Flags&HasPriority != 0 {
		b = append(b, p.Priority)
	}
	short(HasCorrelationID, p.CorrelationID)
	short(HasReplyTo, p.ReplyTo)
	short(HasExpiration, p.Expiration)
	short(HasMessageID, p.MessageID)
	if p.Flags&HasTimestamp != 0 {
		b = binary.BigEndian.AppendUint64(b, p.Timestamp)
	}
	short(HasType, p.Type)
	short(HasUserID, p.UserID)
	short(HasAppID, p.AppID)
	short(HasClusterID, p.ClusterID)
	return b
}
