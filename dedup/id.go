package dedup

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/onceline/onceline/broker"
)

// JoinID makes a dedup ID from the parts that name a business event and the version
// of that naming:
//
//	JoinID(1, "order-8812", "paid") // "order-8812:paid:v1"
//
// A producer that crashed and starts again finds the same ID, which no ID made at
// random is. Raise the version when the parts get another meaning, or when an event
// is deliberately to have its effect again.
//
// In the parts, ':' and '%' and all that isn't printable ASCII is escaped as in a
// URL, so that different parts never make the same ID. An empty part is an error,
// for it is most often a field that somebody forgot to fill; so is a version under
// 1, and an ID over [broker.MaxID] bytes. The errors are [broker.ErrInvalid].
func JoinID(version int, parts ...string) (string, error) {
	if version < 1 || len(parts) == 0 {
		return "", broker.Errorf(broker.ErrInvalid, nil, "dedup: ID of %d parts in version %d", len(parts), version)
	}
	var b strings.Builder
	for i, part := range parts {
		if part == "" {
			return "", broker.Errorf(broker.ErrInvalid, nil, "dedup: part %d of %d of an ID is empty", i+1, len(parts))
		}
		for j := range len(part) {
			if c := part[j]; c <= ' ' || c >= 0x7f || c == ':' || c == '%' {
				fmt.Fprintf(&b, "%%%02X", c)
			} else {
				b.WriteByte(c)
			}
		}
		b.WriteByte(':')
	}
	b.WriteByte('v')
	b.WriteString(strconv.Itoa(version))
	if b.Len() > broker.MaxID {
		return "", broker.Errorf(broker.ErrInvalid, nil, "dedup: an ID of %d bytes, over %d", b.Len(), broker.MaxID)
	}
	return b.String(), nil
}

// SplitID is the reverse of [JoinID]. For an ID that JoinID didn't make it returns
// an error that is [broker.ErrInvalid].
func SplitID(id string) (version int, parts []string, err error) {
	fail := func() (int, []string, error) {
		return 0, nil, broker.Errorf(broker.ErrInvalid, nil, "dedup: %q is not made of parts", id)
	}
	parts = strings.Split(id, ":")
	last := parts[len(parts)-1]
	version, err = strconv.Atoi(strings.TrimPrefix(last, "v"))
	if err != nil || len(parts) < 2 {
		return fail()
	}
	parts = parts[:len(parts)-1]
	for i, part := range parts {
		if parts[i], err = unescape(part); err != nil {
			return fail()
		}
	}
	if again, err := JoinID(version, parts...); err != nil || again != id {
		return fail()
	}
	return version, parts, nil
}

func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", strconv.ErrSyntax
		}
		n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", err
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return b.String(), nil
}
