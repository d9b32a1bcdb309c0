package dedup

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"

	"github.com/onceline/onceline/broker"
)

// IDCheck looks for dedup IDs that aren't any: those that a producer makes anew for
// each attempt, which find no duplicate, and those that are a hash of the body, under
// which two messages that say the same are one and the second is lost. It remembers
// the last few messages, and only suspects: what it says is a warning for people. It
// is safe for concurrent use. [Handler] and its likes have one.
type IDCheck struct {
	mu   sync.Mutex
	seed maphash.Seed
	ring []bodyID
	at   map[uint64]int // from the hash of key and body to where it is in the ring
	next int
}

// bodyID is a message that was looked at.
type bodyID struct {
	body uint64
	id   string
}

// NewIDCheck returns a check that compares each message with the last n; zero or
// less means 1000.
func NewIDCheck(n int) *IDCheck {
	if n <= 0 {
		n = 1000
	}
	return &IDCheck{seed: maphash.MakeSeed(), ring: make([]bodyID, 0, n), at: make(map[uint64]int, n)}
}

// Look returns what is suspicious about m's ID, "" if nothing is:
//
//   - it is the MD5, SHA-1, SHA-256 or SHA-512 of the body;
//   - it looks random, and a message seen before with the same ordering key and body,
//     and the same time if the producer set one, has another ID that looks random.
//
// An empty body is never suspicious.
func (c *IDCheck) Look(m *broker.Message) string { return c.look(m, true) }

// look looks for a hash only if it is told to, for that takes the body's length.
func (c *IDCheck) look(m *broker.Message, hashes bool) string {
	if len(m.Body) == 0 {
		return ""
	}
	if hashes {
		if name := hashOf(m.ID, m.Body); name != "" {
			return fmt.Sprintf("dedup: the ID %q is the %s of the body: two messages with the same body are taken for one", m.ID, name)
		}
	}
	if !looksRandom(m.ID) {
		return ""
	}
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = h.WriteString(m.Key)
	_ = h.WriteByte(0)
	_, _ = h.Write(m.Body)
	if !m.Time.IsZero() {
		var at [8]byte
		binary.BigEndian.PutUint64(at[:], uint64(m.Time.UnixMilli()))
		_, _ = h.Write(at[:])
	}
	sum := h.Sum64()
	c.mu.Lock()
	defer c.mu.Unlock()
	if i, ok := c.at[sum]; ok {
		if was := c.ring[i].id; was != m.ID {
			return fmt.Sprintf("dedup: the same message came with the IDs %q and %q, which look random: an ID that is made for each attempt finds no duplicate", was, m.ID)
		}
		return ""
	}
	if len(c.ring) < cap(c.ring) {
		c.ring = append(c.ring, bodyID{sum, m.ID})
		c.at[sum] = len(c.ring) - 1
		return ""
	}
	delete(c.at, c.ring[c.next].body)
	c.ring[c.next] = bodyID{sum, m.ID}
	c.at[sum] = c.next
	c.next = (c.next + 1) % len(c.ring)
	return ""
}

// hashOf names the hash of body that id is, in hexadecimal or base64.
func hashOf(id string, body []byte) string {
	if len(id) < 22 || len(id) > 128 {
		return ""
	}
	for i := range hashes {
		// Only a hash whose length fits is computed.
		h := &hashes[i]
		if len(id) != 2*h.size && len(id) != base64.StdEncoding.EncodedLen(h.size) && len(id) != base64.RawStdEncoding.EncodedLen(h.size) {
			continue
		}
		if isSum(id, h.sum(body)) {
			return h.name
		}
	}
	return ""
}

var hashes = [...]struct {
	name string
	size int
	sum  func(body []byte) []byte
}{
	{"MD5", md5.Size, func(b []byte) []byte { s := md5.Sum(b); return s[:] }},
	{"SHA-1", sha1.Size, func(b []byte) []byte { s := sha1.Sum(b); return s[:] }},
	{"SHA-256", sha256.Size, func(b []byte) []byte { s := sha256.Sum256(b); return s[:] }},
	{"SHA-512", sha512.Size, func(b []byte) []byte { s := sha512.Sum512(b); return s[:] }},
}

// isSum reports whether id is sum in hexadecimal or base64.
func isSum(id string, sum []byte) bool {
	if len(id) == hex.EncodedLen(len(sum)) && strings.EqualFold(id, hex.EncodeToString(sum)) {
		return true
	}
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if len(id) == e.EncodedLen(len(sum)) && id == e.EncodeToString(sum) {
			return true
		}
	}
	return false
}

// looksRandom reports whether id is a UUID of version 4 or 7, or at least 16
// characters of hexadecimal, Crockford or URL alphabet without a word in them.
func looksRandom(id string) bool {
	if len(id) == 36 && id[8] == '-' && id[13] == '-' && id[18] == '-' && id[23] == '-' {
		return id[14] == '4' || id[14] == '7'
	}
	if len(id) < 16 || len(id) > 64 {
		return false
	}
	digits, letters, changes := 0, 0, 0
	last := 0
	for i := range len(id) {
		kind := 0
		switch c := id[i]; {
		case c >= '0' && c <= '9':
			kind = 1
			digits++
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			kind = 2
			letters++
		default:
			return false
		}
		if i > 0 && kind != last {
			changes++
		}
		last = kind
	}
	// Words and numbers come in runs; what is random changes between them all the time.
	return digits > 0 && letters > 0 && changes*4 >= len(id)
}
