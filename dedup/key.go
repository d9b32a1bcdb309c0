package dedup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/onceline/onceline/broker"
)

// Key says which message an effect belongs to, the same for every copy of it.
type Key struct {
	// Consumer is who applies the effect: two consumers of one message have an
	// effect each. Empty takes the inbox's name.
	Consumer string
	// ID is the message's dedup ID, as its producer assigned it.
	ID string
	// At is the time of the business event, where the message carries it. It puts
	// the marker into a bucket of its time, which makes old markers cheap to drop
	// and new ones cheap to write, and becomes part of the message's identity: it
	// must be the same on every copy, also after the producer's restart. The time
	// of a publish is not. Zero keeps the marker in one table under ID alone.
	At time.Time
}

// Marker is a Key as stores keep it: sixteen bytes that compare as they are written.
// Without a time they are a truncated SHA-256 of consumer and ID; with one, four
// bytes of minutes since 1970, then twelve of the hash, so that markers of one time
// lie together. A hash, because an ID may be longer than an index takes (PG-F-13); a
// cryptographic one, because who can make two IDs collide can make a message
// disappear.
type Marker struct {
	Bytes [16]byte
	Timed bool // whether it begins with a time
}

// Minute returns the time of a timed marker, to the minute.
func (m Marker) Minute() time.Time {
	return time.Unix(int64(binary.BigEndian.Uint32(m.Bytes[:4]))*60, 0).UTC()
}

// Lock returns a number for locks that stand for the marker: its last eight bytes,
// which are hash. Two markers may have the same one.
func (m Marker) Lock() int64 { return int64(binary.BigEndian.Uint64(m.Bytes[8:])) }

// Compare orders markers: those without a time first, then by their bytes. Stores
// write them in this order, so that transactions don't wait for each other in a
// circle.
func (m Marker) Compare(n Marker) int {
	if m.Timed != n.Timed {
		if n.Timed {
			return -1
		}
		return 1
	}
	return bytes.Compare(m.Bytes[:], n.Bytes[:])
}

// MinuteMarker returns the lowest timed marker of at's minute, the border between
// what is older and what isn't. Times outside of 1970 to 10135 are taken to the
// nearest border.
func MinuteMarker(at time.Time) Marker {
	m := Marker{Timed: true}
	binary.BigEndian.PutUint32(m.Bytes[:4], uint32(min(max(floorMinute(at), 0), 1<<32-1)))
	return m
}

func floorMinute(at time.Time) int64 {
	s := at.Unix()
	if s < 0 {
		return -1
	}
	return s / 60
}

// Marker returns the key as stores keep it, or an error that is
// [broker.ErrInvalid]: for an empty ID or consumer, and for a time before 1970 or
// after 10135.
func (k Key) Marker() (Marker, error) {
	switch {
	case k.ID == "":
		return Marker{}, keyErrorf("dedup: key without an ID")
	case k.Consumer == "":
		return Marker{}, keyErrorf("dedup: key %q without a consumer", k.ID)
	}
	var m Marker
	var space [256]byte // most keys fit, and cost no allocation
	b := binary.AppendUvarint(space[:0], uint64(len(k.Consumer)))
	b = append(append(b, k.Consumer...), k.ID...)
	sum := sha256.Sum256(b)
	if k.At.IsZero() {
		copy(m.Bytes[:], sum[:])
		return m, nil
	}
	minute := floorMinute(k.At)
	if minute < 0 || minute >= 1<<32 {
		return Marker{}, keyErrorf("dedup: key %q with the time %v", k.ID, k.At)
	}
	m.Timed = true
	binary.BigEndian.PutUint32(m.Bytes[:4], uint32(minute))
	copy(m.Bytes[4:], sum[:])
	return m, nil
}

// keyError marks the errors of keys, so that an effect's own ErrInvalid isn't taken
// for one.
type keyError struct{ error }

func (e *keyError) Unwrap() error { return e.error }

func keyErrorf(format string, a ...any) error {
	return &keyError{broker.Errorf(broker.ErrInvalid, nil, format, a...)}
}

func isKeyError(err error) bool {
	var e *keyError
	return errors.As(err, &e)
}

// sortMarkers sorts and removes repeats.
func sortMarkers(ms []Marker) []Marker {
	slices.SortFunc(ms, Marker.Compare)
	return slices.Compact(ms)
}
