package driver

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
)

// The headers that carry what a broker's own fields can't hold. Their spelling
// is the same on every broker and never changes.
const (
	HeaderID       = "onceline-id"      // Message.ID, where the dedup field holds something else
	HeaderCopy     = "onceline-copy"    // Message.Copy
	HeaderKey      = "onceline-key"     // Message.Key, where the key field holds something else
	HeaderTime     = "onceline-time"    // Message.Time, Unix milliseconds, decimal
	HeaderEnvelope = "onceline-headers" // all user headers, by EncodeHeaders
)

// The headers of a dead-lettered message, beside all of its own.
const (
	HeaderReason   = "onceline-dead-letter-reason"
	HeaderSource   = "onceline-dead-letter-source"   // the subscription it comes from
	HeaderAttempts = "onceline-dead-letter-attempts" // how often it was delivered
)

// hashPrefix marks a hashed ID. An ID that begins with it is always hashed, so
// that no ID can pass for the hash of another.
const hashPrefix = "onceline-sha256-"

// HashedSize is the length of a hashed ID: what a broker's field must hold.
const HashedSize = len(hashPrefix) + 2*sha256.Size

// DedupID is what goes into the broker's dedup field: the ID as it is, or a
// hash of ID and Copy where the message is a deliberate copy, the ID has over
// max bytes, or fits returns false (a charset). Different pairs give different
// results; natural reports that the field holds the ID itself.
func DedupID(m *broker.Message, max int, fits func(string) bool) (field string, natural bool) {
	if m.Copy == "" && len(m.ID) <= max && !strings.HasPrefix(m.ID, hashPrefix) && fits(m.ID) {
		return m.ID, true
	}
	h := sha256.New()
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(m.ID)))
	h.Write(n[:])
	h.Write([]byte(m.ID))
	h.Write([]byte(m.Copy))
	return hashPrefix + hex.EncodeToString(h.Sum(nil)), false
}

// FieldKey is what goes into the broker's ordering field: the key as it is, or
// its hash where it has over max bytes or fits returns false.
func FieldKey(key string, max int, fits func(string) bool) (field string, natural bool) {
	if len(key) <= max && !strings.HasPrefix(key, hashPrefix) && fits(key) {
		return key, true
	}
	sum := sha256.Sum256([]byte(key))
	return hashPrefix + hex.EncodeToString(sum[:]), false
}

// Printable reports whether s is ASCII without control characters, spaces
// around it or nothing at all: what text headers carry unchanged.
func Printable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s == "" || (s[0] != ' ' && s[len(s)-1] != ' ')
}

// Ours reports whether name is one of the headers that carry our fields or mark
// a dead letter.
func Ours(name string) bool {
	switch name {
	case HeaderID, HeaderCopy, HeaderKey, HeaderTime, HeaderEnvelope, HeaderReason, HeaderSource, HeaderAttempts:
		return true
	}
	return false
}

// Escape makes any string fit a text header: what is not printable ASCII is
// percent-encoded, and the percent sign with it.
func Escape(s string) string {
	if Printable(s) && strings.IndexByte(s, '%') < 0 {
		return s
	}
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+16)
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c > '~' || c == '%' {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// Unescape reads what Escape wrote, and returns what it can't read as it is:
// somebody else's header is no reason to lose a message.
func Unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}

// EncodeHeaders writes headers as one printable value: name=value pairs joined
// by &, both percent-encoded as in a URL's query, so that order, repeats and
// any byte survive and any language can read it.
func EncodeHeaders(hs broker.Headers) string {
	var b strings.Builder
	for i := range hs {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(url.QueryEscape(hs[i].Key))
		b.WriteByte('=')
		b.WriteString(url.QueryEscape(hs[i].Value))
	}
	return b.String()
}

// DecodeHeaders reads what EncodeHeaders wrote, and what others wrote by the
// same rules with more or less escaping. It returns broker.ErrInvalid for a part
// without "=" and for a bad escape.
func DecodeHeaders(s string) (broker.Headers, error) {
	if s == "" {
		return nil, nil
	}
	// Bounded, for a value that is nothing but separators must not cost a
	// multiple of its size.
	hs := make(broker.Headers, 0, min(strings.Count(s, "&")+1, 64))
	for part := range strings.SplitSeq(s, "&") {
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, broker.Errorf(broker.ErrInvalid, nil, "header %s: a part without a value", HeaderEnvelope)
		}
		k, err := url.QueryUnescape(key)
		if err != nil {
			return nil, broker.Errorf(broker.ErrInvalid, err, "header %s", HeaderEnvelope)
		}
		v, err := url.QueryUnescape(value)
		if err != nil {
			return nil, broker.Errorf(broker.ErrInvalid, err, "header %s", HeaderEnvelope)
		}
		hs = append(hs, broker.Header{Key: k, Value: v})
	}
	return hs, nil
}

// FormatTime and ParseTime are the value of HeaderTime. ParseTime returns the
// zero time for what it can't read: the field is a hint, never a reason to lose
// a message.
func FormatTime(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// ParseTime reads what FormatTime wrote.
func ParseTime(s string) time.Time {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
