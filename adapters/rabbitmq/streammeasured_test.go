package rabbitmq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/localstack"
)

// TestStreamMeasured answers what was known of streams by runs without a test.
func TestStreamMeasured(t *testing.T) {
	m := sharedMeasured(t)
	for _, f := range []struct {
		fact string
		ask  func(*testing.T, measured)
	}{
		{"RMS-F-02", lowerIsDropped}, {"RMS-F-03", duplicateLooksStored}, {"RMS-F-06", oldNamesAreForgotten},
		{"RMS-F-05", namesOutliveRestart},
	} {
		t.Run(f.fact, func(t *testing.T) { f.ask(t, m) })
	}
}

// rawStream is a link without the adapter's publishers and receivers.
type rawStream struct {
	*testing.T
	*streamLink
	name     string
	ids      chan uint64 // confirmed
	refused  chan streamCode
	messages chan streamAt
}

type streamAt struct {
	offset uint64
	id     string
}

// openStream makes a stream and a link to it.
func (m measured) openStream(t *testing.T, args ...string) *rawStream {
	t.Helper()
	name := fmt.Sprintf("measured-%d", streamNames.Add(1))
	s := m.linkTo(t, name)
	if _, err := s.call(t.Context(), scCreate, nil, func(b []byte) []byte { return putProps(putStr(b, name), args...) }); err != nil {
		t.Fatal(err)
	}
	return s
}

// linkTo opens a link for a stream.
func (m measured) linkTo(t *testing.T, name string) *rawStream {
	t.Helper()
	set := defaults()
	set.vhost, set.user, set.password = "/", "guest", "guest"
	host, port, err := net.SplitHostPort(m.node(0))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	s := &rawStream{T: t, name: name, ids: make(chan uint64, 1000), refused: make(chan streamCode, 1000), messages: make(chan streamAt, 1000)}
	if s.streamLink, err = linkTo(t.Context(), &set, address{host, n}, s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.streamLink.close(context.Background()) })
	return s
}

func (s *rawStream) frame(_ *streamLink, key uint16, body []byte) error {
	c := streamCursor{b: body}
	switch key {
	case scPublishConfirm:
		c.u8()
		for n := c.u32(); n > 0; n-- {
			s.ids <- c.u64()
		}
	case scPublishError:
		c.u8()
		for n := c.u32(); n > 0; n-- {
			c.u64()
			s.refused <- streamCode(c.u16())
		}
	case scDeliver:
		// Subscription, and a chunk of osiris: magic and version, type, entries,
		// records, timestamp, epoch, first offset, CRC, length, trailer, reserved.
		c.take(1)
		h := c.take(48)
		if c.bad || h[1] != 0 {
			return nil // no chunk of messages
		}
		first := binary.BigEndian.Uint64(h[24:])
		for i := range binary.BigEndian.Uint32(h[4:]) {
			var m broker.Message
			readMessage(&m, c.take(int(c.u32())))
			s.messages <- streamAt{first + uint64(i), m.ID}
		}
	}
	return nil
}

// as declares the link's publisher anew, under a name. A stream is not available
// for a moment after its node's start.
func (s *rawStream) as(ref string) {
	s.Helper()
	const deletePublisher = 6
	_, _ = s.call(s.Context(), deletePublisher, nil, func(b []byte) []byte { return append(b, 0) }) // there may be none
	eventually(s, "a publisher", func() bool {
		_, err := s.call(s.Context(), scDeclarePublisher, nil, func(b []byte) []byte {
			return putStr(putStr(append(b, 0), ref), s.name)
		})
		if err != nil && !errors.Is(err, codeUnavailable) {
			s.Fatal(err)
		}
		return err == nil
	})
}

// publish sends messages that are named by their publishing IDs, and returns what
// is confirmed.
func (s *rawStream) publish(body []byte, ids ...uint64) (confirmed []uint64) {
	s.Helper()
	for _, id := range ids {
		s.offer(body, id)
		confirmed = append(confirmed, next(s.T, s.ids))
	}
	return confirmed
}

// offer sends a message and doesn't wait for its confirm.
func (s *rawStream) offer(body []byte, id uint64) {
	s.Helper()
	m := putMessage(nil, &broker.Message{ID: strconv.FormatUint(id, 10), Body: body})
	if err := s.send(s.Context(), putFrame(nil, scPublish, func(b []byte) []byte {
		b = put64(put32(append(b, 0), 1), id)
		return append(put32(b, uint32(len(m))), m...)
	})); err != nil {
		s.Fatal(err)
	}
}

// next is what comes next on a channel.
func next[V any](t *testing.T, c <-chan V) (v V) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came in 10 s")
	}
	return v
}

// sequence is the last publishing ID of a name.
func (s *rawStream) sequence(ref string) uint64 {
	s.Helper()
	c, err := s.call(s.Context(), scQuerySequence, nil, func(b []byte) []byte { return putStr(putStr(b, ref), s.name) })
	if err != nil {
		s.Fatal(err)
	}
	return c.u64()
}

// read reads so many messages from the stream's beginning.
func (s *rawStream) read(n int) (all []streamAt) {
	s.Helper()
	if _, err := s.call(s.Context(), scSubscribe, nil, func(b []byte) []byte {
		return put16(putSpec(putStr(append(b, subscriptionID), s.name), 0), 1000)
	}); err != nil {
		s.Fatal(err)
	}
	for range n {
		all = append(all, next(s.T, s.messages))
	}
	return all
}

func idsAt(all []streamAt) (ids []string) {
	for _, m := range all {
		ids = append(ids, m.id)
	}
	return ids
}

// lowerIsDropped: an ID below the highest is confirmed, and not stored.
func lowerIsDropped(t *testing.T, m measured) {
	s := m.openStream(t)
	s.as("p")
	if got := s.publish(nil, 10, 5, 11); !slices.Equal(got, []uint64{10, 5, 11}) {
		t.Errorf("confirmed %v", got)
	}
	if got := idsAt(s.read(2)); !slices.Equal(got, []string{"10", "11"}) {
		t.Errorf("stored %v", got)
	}
}

// duplicateLooksStored: a duplicate is confirmed as a new message is, and a name
// that the stream doesn't know has the sequence 0 (RMS-F-07).
func duplicateLooksStored(t *testing.T, m measured) {
	s := m.openStream(t)
	s.as("p")
	if got := s.publish(nil, 1, 2, 2, 3); !slices.Equal(got, []uint64{1, 2, 2, 3}) || len(s.refused) > 0 {
		t.Errorf("confirmed %v, %d errors", got, len(s.refused))
	}
	if got := idsAt(s.read(3)); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("stored %v", got)
	}
	if known, unknown := s.sequence("p"), s.sequence("nobody"); known != 3 || unknown != 0 {
		t.Errorf("the sequences are %d and, of an unknown name, %d", known, unknown)
	}
}

// oldNamesAreForgotten: when a segment is full the newest 255 names are kept; the
// sequence of the others is 0 again (RMS-F-07), and an ID of theirs is stored a
// second time. What is kept takes an offset of its own (RMS-F-08).
func oldNamesAreForgotten(t *testing.T, m measured) {
	const names, kept = 300, 255
	s := m.openStream(t, "stream-max-segment-size-bytes", "100000")
	ref := func(i int) string { return fmt.Sprintf("p%03d", i) }
	for i := range names {
		s.as(ref(i))
		s.publish(nil, 7)
	}
	for i := range names {
		if got := s.sequence(ref(i)); got != 7 {
			t.Fatalf("before the roll %s is at %d", ref(i), got)
		}
	}
	s.as("filler")
	const fillers = 4
	s.publish(make([]byte, 60_000), 1, 2, 3, fillers)
	var lost []int
	for i := range names {
		if s.sequence(ref(i)) == 0 {
			lost = append(lost, i)
		}
	}
	// The filler has a place too.
	if want := names + 1 - kept; len(lost) != want || lost[0] != 0 || lost[want-1] != want-1 {
		t.Errorf("%d names are forgotten, want the %d oldest: %v", len(lost), want, lost)
	}
	s.as(ref(0))
	s.publish(nil, 7)
	all := s.read(names + fillers + 1)
	if last := all[len(all)-1]; last.id != "7" {
		t.Errorf("the last message is %q", last.id)
	}
	gaps := all[len(all)-1].offset - uint64(len(all)-1)
	if gaps == 0 {
		t.Error("the offsets have no gap")
	}
	t.Logf("%d of %d names forgotten; %d offsets are no messages", len(lost), names+1, gaps)
}

// namesOutliveRestart: publishing IDs and stored offsets are there after a restart.
func namesOutliveRestart(t *testing.T, m measured) {
	s := m.openStream(t)
	for i := range 30 {
		s.as(fmt.Sprintf("p%d", i))
		s.publish(nil, 7)
	}
	if err := s.send(t.Context(), putFrame(nil, scStoreOffset, func(b []byte) []byte {
		return put64(putStr(putStr(b, "reader"), s.name), 5)
	})); err != nil {
		t.Fatal(err)
	}
	offset := func(s *rawStream) uint64 {
		c, err := s.call(t.Context(), scQueryOffset, nil, func(b []byte) []byte { return putStr(putStr(b, "reader"), s.name) })
		if err != nil {
			return 0 // none yet
		}
		return c.u64()
	}
	eventually(t, "the stored offset", func() bool { return offset(s) == 5 })
	if err := m.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := m.linkTo(t, s.name)
	again.as("p0")
	for i := range 30 {
		if got := again.sequence(fmt.Sprintf("p%d", i)); got != 7 {
			t.Errorf("p%d is at %d", i, got)
		}
	}
	if got := offset(again); got != 5 {
		t.Errorf("the offset is %d", got)
	}
}

// duplicateWaits: as long as the replicas don't have a message, neither it nor its
// duplicate is confirmed; then both are, and it is stored once.
func duplicateWaits(t *testing.T, m measured) {
	s := m.openStream(t)
	s.as("p")
	s.publish(nil, 1)
	replicas := m.Pids()[1:]
	signal := func(sig syscall.Signal) {
		for _, pid := range replicas {
			if err := syscall.Kill(pid, sig); err != nil {
				t.Error(err)
			}
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	eventually(t, "the replicas to stand still", func() bool { return !slices.ContainsFunc(replicas, runs) })
	for range 2 {
		s.offer(nil, 2)
	}
	select {
	case id := <-s.ids:
		t.Errorf("%d is confirmed by one node of three", id)
	case <-time.After(time.Second):
	}
	signal(syscall.SIGCONT)
	for range 2 {
		if id := next(t, s.ids); id != 2 {
			t.Errorf("confirmed %d", id)
		}
	}
	s.publish(nil, 3)
	if got := idsAt(s.read(3)); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("stored %v", got)
	}
}

// runs reports whether a thread of a process that got SIGSTOP still runs; false where
// the system doesn't tell.
func runs(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // the pattern is well-formed
	return slices.ContainsFunc(threads, func(file string) bool {
		text, err := os.ReadFile(file)
		_, fields, ok := strings.Cut(string(text), ") ") // behind the name
		return err == nil && ok && !strings.HasPrefix(fields, "T")
	})
}

var _ localstack.Emulator = measured{}
