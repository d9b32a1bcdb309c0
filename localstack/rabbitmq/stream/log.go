package stream

import (
	"cmp"
	"hash/crc32"
	"maps"
	"slices"
	"sort"
	"time"
)

const (
	// maxEntries is how many entries a chunk holds.
	maxEntries = 65535
	// maxSequences is how many names of publishers outlive the roll of a segment
	// (RMS-F-06).
	maxSequences = 255
	// defaultSegment is the broker's stream-max-segment-size-bytes.
	defaultSegment = 500_000_000
	// chunkHead is the size of a chunk's head.
	chunkHead = 48
)

// chunk is what one write made of messages, or of tracking data alone. It is
// never changed once it is in the log.
type chunk struct {
	first   uint64
	records uint32
	entries uint16
	time    int64 // milliseconds
	crc     uint32
	data    []byte // entries as they are delivered; nil: tracking, which is not
	segment int
}

func (c *chunk) size() int64 { return chunkHead + int64(len(c.data)) }

// sequence is the highest publishing ID of a name and the chunk that brought it.
type sequence struct{ id, chunk uint64 }

// stream is one stream's log. The server's lock guards it.
type stream struct {
	key       key
	args      map[string]string
	maxAge    time.Duration
	maxBytes  int64
	segBytes  int64
	chunks    []*chunk
	next      uint64 // offset
	bytes     int64
	segment   int
	segSize   int64
	sequences map[string]sequence
	offsets   map[string]uint64
	subs      map[*subscription]struct{}
}

// last is the offset of the last chunk of messages.
func (s *stream) last() (uint64, bool) {
	for _, c := range slices.Backward(s.chunks) {
		if c.data != nil {
			return c.first, true
		}
	}
	return 0, false
}

// append adds a chunk and wakes who waits for it.
func (s *stream) append(now time.Time, entries int, records uint32, data []byte) *chunk {
	if s.segSize >= s.segBytes {
		s.roll(now)
	}
	c := &chunk{first: s.next, records: records, entries: uint16(entries), time: now.UnixMilli(), data: data, segment: s.segment}
	if data != nil {
		c.crc = crc32.ChecksumIEEE(data)
	}
	s.chunks = append(s.chunks, c)
	s.next += uint64(records)
	s.bytes += c.size()
	s.segSize += c.size()
	if data != nil {
		for sub := range s.subs {
			sub.conn.wake()
		}
	}
	return c
}

// roll begins a new segment: with a snapshot of what is tracked, which takes an
// offset (RMS-F-08) and keeps the newest names only, and with old segments let
// go.
func (s *stream) roll(now time.Time) {
	s.segment++
	s.segSize = 0
	if over := len(s.sequences) - maxSequences; over > 0 {
		names := slices.SortedFunc(maps.Keys(s.sequences), func(a, b string) int {
			return cmp.Compare(s.sequences[a].chunk, s.sequences[b].chunk)
		})
		for _, name := range names[:over] {
			delete(s.sequences, name)
		}
	}
	s.retain(now)
	if len(s.sequences)+len(s.offsets) > 0 {
		s.append(now, 1, 1, nil)
	}
}

// retain lets segments go that are too old or too many bytes, and the offsets
// stored in them.
func (s *stream) retain(now time.Time) {
	for len(s.chunks) > 0 && s.chunks[0].segment != s.segment {
		oldest := s.chunks[0].segment
		n, size, newest := 0, int64(0), int64(0)
		for n < len(s.chunks) && s.chunks[n].segment == oldest {
			size += s.chunks[n].size()
			newest = s.chunks[n].time
			n++
		}
		tooOld := s.maxAge > 0 && now.UnixMilli()-newest > s.maxAge.Milliseconds()
		tooMany := s.maxBytes > 0 && s.bytes > s.maxBytes
		if !tooOld && !tooMany {
			break
		}
		s.chunks = slices.Clone(s.chunks[n:])
		s.bytes -= size
	}
	first := s.firstOffset()
	for name, offset := range s.offsets {
		if offset < first {
			delete(s.offsets, name)
		}
	}
}

func (s *stream) firstOffset() uint64 {
	if len(s.chunks) == 0 {
		return s.next
	}
	return s.chunks[0].first
}

// track takes an offset of a consumer, higher or lower than the one before
// (RMS-F-14). It is a write of its own and takes an offset (RMS-F-13).
func (s *stream) track(now time.Time, name string, offset uint64) {
	s.offsets[name] = offset
	s.append(now, 1, 1, nil)
}

// duplicate reports whether the name has had this publishing ID or a higher one
// (RMS-F-02).
func (s *stream) duplicate(name string, id uint64) bool {
	if name == "" {
		return false
	}
	q, known := s.sequences[name]
	return known && id <= q.id
}

// find returns the offset of the first chunk that a subscription gets.
func (s *stream) find(p spec) uint64 {
	switch p.kind {
	case specFirst:
		return 0
	case specLast:
		if at, ok := s.last(); ok {
			return at
		}
		return s.next
	case specOffset:
		return s.chunkOf(p.value)
	case specTimestamp:
		i := sort.Search(len(s.chunks), func(i int) bool { return s.chunks[i].time >= int64(p.value) })
		if i < len(s.chunks) {
			return s.chunks[i].first
		}
		return s.next
	}
	return s.next
}

// chunkOf is the first offset of the chunk that holds offset; of the first one
// where it is lower than all, of the next one where it is higher (RMS-F-15).
func (s *stream) chunkOf(offset uint64) uint64 {
	if offset >= s.next {
		return s.next
	}
	i := sort.Search(len(s.chunks), func(i int) bool { return s.chunks[i].first > offset })
	if i == 0 {
		return s.firstOffset()
	}
	return s.chunks[i-1].first
}

// from returns the first chunk of messages at or after the offset.
func (s *stream) from(offset uint64) *chunk {
	i := sort.Search(len(s.chunks), func(i int) bool { return s.chunks[i].first >= offset })
	for ; i < len(s.chunks); i++ {
		if s.chunks[i].data != nil {
			return s.chunks[i]
		}
	}
	return nil
}
