package rabbitmq

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
)

// recorder is a socket that notes each write.
type recorder struct {
	net.Conn
	writes [][]byte
	err    error
	closed bool
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	r.writes = append(r.writes, bytes.Clone(p))
	return len(p), nil
}

func (r *recorder) SetWriteDeadline(time.Time) error { return nil }
func (r *recorder) Close() error                     { r.closed = true; return nil }

func TestWire(t *testing.T) {
	t.Parallel()
	r := new(recorder)
	w := &wire{Conn: r}
	write := func(s string) {
		t.Helper()
		if n, err := w.Write([]byte(s)); err != nil || n != len(s) {
			t.Fatal(n, err)
		}
	}
	write("a")
	w.cork()
	write("b")
	w.cork()
	write("c")
	if err := w.uncork(); err != nil || len(r.writes) != 1 {
		t.Fatal("it isn't corked twice", err)
	}
	write("d")
	if err := w.uncork(); err != nil {
		t.Fatal(err)
	}
	write("e")
	if got := string(bytes.Join(r.writes, []byte("|"))); got != "a|bcd|e" {
		t.Fatal(got)
	}
	w.cork()
	big := make([]byte, wireBuffer)
	write(string(big))
	if len(r.writes) != 4 {
		t.Fatal("a full buffer waits")
	}
	write("f")
	r.err = os.ErrDeadlineExceeded
	if err := w.uncork(); !errors.Is(err, os.ErrDeadlineExceeded) || !r.closed {
		t.Fatal(err, r.closed)
	}
	if _, err := w.Write([]byte("g")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("a write after a torn one:", err)
	}
	var none *wire
	none.cork()
	if none.uncork() != nil {
		t.Fatal("a client of the caller's own has no wire")
	}
}

// TestTags holds the bit set against a map.
func TestTags(t *testing.T) {
	t.Parallel()
	var tags tags
	settled := map[uint64]bool{}
	low := uint64(0)
	order := rand.Perm(5000)
	// In chunks, so that the lowest tags are settled now and then.
	for from := 0; from < len(order); from += 500 {
		chunk := rand.Perm(500)
		for _, n := range chunk {
			tag := uint64(from+n) + 1
			if tags.settled(tag) || !tags.mark(tag) || tags.mark(tag) || !tags.settled(tag) {
				t.Fatalf("tag %d", tag)
			}
			settled[tag] = true
			for settled[low+1] {
				low++
			}
			if tags.low != low {
				t.Fatalf("lowest %d, want %d", tags.low, low)
			}
		}
		for tag := uint64(1); tag < 6000; tag += 7 {
			if tags.settled(tag) != settled[tag] {
				t.Fatalf("tag %d: %t", tag, tags.settled(tag))
			}
		}
	}
	if len(tags.words) > 32 {
		t.Errorf("%d words for nothing", len(tags.words))
	}
}
