package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onceline/onceline/internal/bubbletest"
	"github.com/onceline/onceline/localstack/fault"
)

// raw is a client that writes frames by hand, in memory.
type raw struct {
	t  *testing.T
	nc net.Conn
	id uint32
}

// dialRaw opens a connection in memory, up to Open.
func dialRaw(t *testing.T, s *Server) *raw {
	t.Helper()
	here, there := net.Pipe()
	go s.ServeConn(there)
	t.Cleanup(func() { here.Close() })
	r := &raw{t: t, nc: here}
	r.ask(cmdPeerProperties, func(b []byte) []byte { return put32(b, 0) })
	r.ask(cmdSaslHandshake, nil)
	r.ask(cmdSaslAuthenticate, func(b []byte) []byte {
		return append(put32(putStr(b, "PLAIN"), 4), "\x00a\x00b"...)
	})
	if k, body := r.next(); k != cmdTune {
		t.Fatalf("command %d %x in place of Tune", k, body)
	} else {
		r.write(cmdTune|responseBit, func(b []byte) []byte { return append(b, body...) })
	}
	r.ask(cmdOpen, func(b []byte) []byte { return putStr(b, "/") })
	return r
}

func (r *raw) write(key uint16, build func(b []byte) []byte) {
	r.t.Helper()
	b := begin(nil, key)
	if build != nil {
		b = build(b)
	}
	if _, err := r.nc.Write(end(b, 0)); err != nil {
		r.t.Fatal(err)
	}
}

// next reads a frame that isn't a heartbeat.
func (r *raw) next() (uint16, []byte) {
	r.t.Helper()
	for {
		var head [8]byte
		if _, err := io.ReadFull(r.nc, head[:]); err != nil {
			r.t.Fatal(err)
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
		if _, err := io.ReadFull(r.nc, body); err != nil {
			r.t.Fatal(err)
		}
		if k := binary.BigEndian.Uint16(head[4:]); k != cmdHeartbeat {
			return k, body
		}
	}
}

// ask sends a request and returns the code and the rest of its answer.
func (r *raw) ask(key uint16, build func(b []byte) []byte) (code uint16, c cursor) {
	r.t.Helper()
	r.send(key, build)
	k, body := r.next()
	if k != key|responseBit {
		r.t.Fatalf("command %d %x in place of the answer to %d", k, body, key)
	}
	c = cursor{b: body}
	if id := c.u32(); id != r.id {
		r.t.Fatalf("answer to %d, want %d", id, r.id)
	}
	return c.u16(), c
}

func (r *raw) send(key uint16, build func(b []byte) []byte) {
	r.t.Helper()
	r.id++
	r.write(key, func(b []byte) []byte {
		b = put32(b, r.id)
		if build != nil {
			b = build(b)
		}
		return b
	})
}

func (r *raw) create(name string, args ...string) uint16 {
	r.t.Helper()
	code, _ := r.ask(cmdCreate, func(b []byte) []byte {
		b = put32(putStr(b, name), uint32(len(args)/2))
		for _, a := range args {
			b = putStr(b, a)
		}
		return b
	})
	return code
}

func (r *raw) declare(id uint8, ref, stream string) uint16 {
	r.t.Helper()
	code, _ := r.ask(cmdDeclarePublisher, func(b []byte) []byte { return putStr(putStr(append(b, id), ref), stream) })
	return code
}

// publish sends messages that are their IDs.
func (r *raw) publish(id uint8, ids ...uint64) {
	r.t.Helper()
	r.write(cmdPublish, func(b []byte) []byte {
		b = put32(append(b, id), uint32(len(ids)))
		for _, id := range ids {
			b = put64(put32(put64(b, id), 8), id)
		}
		return b
	})
}

// confirms reads one PublishConfirm.
func (r *raw) confirms() []uint64 {
	r.t.Helper()
	k, body := r.next()
	if k != cmdPublishConfirm {
		r.t.Fatalf("command %d %x in place of PublishConfirm", k, body)
	}
	c := cursor{b: body}
	c.u8()
	var ids []uint64
	for n := c.u32(); n > 0; n-- {
		ids = append(ids, c.u64())
	}
	return ids
}

func (r *raw) subscribe(id uint8, stream string, at spec, credit uint16, props ...string) uint16 {
	r.t.Helper()
	code, _ := r.ask(cmdSubscribe, func(b []byte) []byte {
		b = put16(putStr(append(b, id), stream), at.kind)
		if at.kind >= specOffset {
			b = put64(b, at.value)
		}
		b = put32(put16(b, credit), uint32(len(props)/2))
		for _, p := range props {
			b = putStr(b, p)
		}
		return b
	})
	return code
}

// chunk reads one Deliver: its first offset and the numbers that are its
// messages.
func (r *raw) chunk() (first uint64, ids []uint64) {
	r.t.Helper()
	k, body := r.next()
	if k != cmdDeliver {
		r.t.Fatalf("command %d %x in place of Deliver", k, body)
	}
	c := cursor{b: body}
	c.take(1 + 2 + 2)
	n := c.u32()
	c.take(8 + 8)
	first = c.u64()
	c.take(4 * 4)
	for ; n > 0; n-- {
		m := cursor{b: c.bytes()}
		ids = append(ids, m.u64())
	}
	if c.bad || len(c.b) > 0 {
		r.t.Fatalf("a chunk that can't be read: %x", body)
	}
	return first, ids
}

func (r *raw) store(name, stream string, offset uint64) {
	r.t.Helper()
	r.write(cmdStoreOffset, func(b []byte) []byte { return put64(putStr(putStr(b, name), stream), offset) })
}

func (r *raw) query(name, stream string) (code uint16, offset uint64) {
	r.t.Helper()
	code, c := r.ask(cmdQueryOffset, func(b []byte) []byte { return putStr(putStr(b, name), stream) })
	return code, c.u64()
}

func (r *raw) sequence(name, stream string) uint64 {
	r.t.Helper()
	_, c := r.ask(cmdQueryPublisherSeq, func(b []byte) []byte { return putStr(putStr(b, name), stream) })
	return c.u64()
}

// gone checks that the connection ends.
func (r *raw) gone() {
	r.t.Helper()
	r.nc.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.Copy(io.Discard, r.nc); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		r.t.Errorf("the connection is there: %v", err)
	}
}

// inBubble runs a test in virtual time with a server that is closed at its end.
func inBubble(t *testing.T, f func(t *testing.T, s *Server), opts ...Option) {
	bubbletest.Run(t, func(t *testing.T) {
		s := New(opts...)
		defer func() {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		f(t, s)
	})
}

// RMS-F-08, RMS-F-13 to RMS-F-15: what was recorded from RabbitMQ 3.10.8.
func TestOffsetsAsRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Server) {
		r := dialRaw(t, s)
		r.create("s")
		r.declare(0, "ref", "s")
		for n := range uint64(20) {
			r.publish(0, 2*n+1, 2*n+2)
			r.confirms()
		}
		if q := r.sequence("ref", "s"); q != 40 {
			t.Errorf("sequence %d", q)
		}
		r.publish(0, 100, 101, 50)
		if got := r.confirms(); !slices.Contains(got, 50) {
			t.Errorf("confirmed %v", got)
		}
		if code, _ := r.query("c", "s"); code != codeNoOffset {
			t.Errorf("an offset that wasn't stored: code %d", code)
		}
		for _, offset := range []uint64{3, 4, 5, 6, 7, 2} {
			r.store("c", "s", offset)
			if code, got := r.query("c", "s"); code != codeOK || got != offset {
				t.Errorf("stored %d, got %d with code %d", offset, got, code)
			}
		}
		r.publish(0, 200)
		r.confirms()
		r.subscribe(1, "s", spec{specOffset, 1}, 100)
		for n := range uint64(20) {
			if first, ids := r.chunk(); first != 2*n || !slices.Equal(ids, []uint64{2*n + 1, 2*n + 2}) {
				t.Errorf("chunk %d at %d: %v", n, first, ids)
			}
		}
		if first, ids := r.chunk(); first != 40 || !slices.Equal(ids, []uint64{100, 101}) {
			t.Errorf("chunk at %d: %v", first, ids)
		}
		// Six offsets were stored in between.
		if first, ids := r.chunk(); first != 48 || !slices.Equal(ids, []uint64{200}) {
			t.Errorf("chunk at %d: %v", first, ids)
		}
		r.subscribe(2, "s", spec{specOffset, 1000}, 1)
		r.subscribe(3, "s", spec{specNext, 0}, 1)
		r.publish(0, 300)
		got := []uint16{}
		for range 4 {
			k, _ := r.next()
			got = append(got, k)
		}
		slices.Sort(got)
		if !slices.Equal(got, []uint16{cmdPublishConfirm, cmdDeliver, cmdDeliver, cmdDeliver}) {
			t.Errorf("after the end came %v", got)
		}
	})
}

func TestCreditIsOneChunkEach(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Server) {
		r := dialRaw(t, s)
		r.create("s")
		r.declare(0, "", "s")
		for n := range uint64(3) {
			r.publish(0, n)
			r.confirms()
		}
		r.subscribe(7, "s", spec{specFirst, 0}, 0)
		r.write(cmdCredit, func(b []byte) []byte { return put16(append(b, 7), 2) })
		r.chunk()
		r.chunk()
		synctest.Wait()
		r.nc.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := r.nc.Read(make([]byte, 1)); err == nil {
			t.Fatalf("%d bytes came without credit", n)
		}
		r.nc.SetReadDeadline(time.Time{})
		r.write(cmdCredit, func(b []byte) []byte { return put16(append(b, 7), 1) })
		if first, _ := r.chunk(); first != 2 {
			t.Errorf("chunk at %d", first)
		}
		r.write(cmdCredit, func(b []byte) []byte { return put16(append(b, 9), 1) })
		if k, body := r.next(); k != cmdCredit|responseBit || body[1] != codeNoSubscription {
			t.Errorf("credit for nobody: %d %x", k, body)
		}
	}, Heartbeat(0))
}

// RMS-F-06: at the roll of a segment the newest 255 names are kept.
func TestTheRollOfASegmentForgetsNames(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Server) {
		r := dialRaw(t, s)
		r.create("s", "stream-max-segment-size-bytes", "16000")
		name := func(i int) string { return "n" + string(rune('a'+i/26)) + string(rune('a'+i%26)) }
		for i := range 301 {
			r.declare(0, name(i), "s")
			r.publish(0, 9)
			r.confirms()
			r.ask(cmdDeletePublisher, func(b []byte) []byte { return append(b, 0) })
		}
		known := 0
		for i := range 301 {
			if r.sequence(name(i), "s") == 9 {
				known++
			} else if i > 46 {
				t.Errorf("name %d is forgotten", i)
			}
		}
		if known == 301 || known < 255 {
			t.Errorf("%d names are known", known)
		}
	})
}

func TestRetentionByAgeAndSize(t *testing.T) {
	for _, c := range []struct{ name, value string }{{"max-age", "1h"}, {"max-length-bytes", "3000"}} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *Server) {
				r := dialRaw(t, s)
				if code := r.create("s", c.name, c.value, "stream-max-segment-size-bytes", "1000"); code != codeOK {
					t.Fatalf("code %d", code)
				}
				r.declare(0, "", "s")
				for n := range uint64(200) {
					r.publish(0, n)
					r.confirms()
					if c.name == "max-age" {
						s.Clock().Advance(time.Minute)
					}
				}
				r.subscribe(1, "s", spec{specFirst, 0}, 1)
				first, _ := r.chunk()
				if first == 0 || first > 160 {
					t.Errorf("the first message that is there: %d", first)
				}
			}, Heartbeat(0))
		})
	}
	inBubble(t, func(t *testing.T, s *Server) {
		r := dialRaw(t, s)
		for _, bad := range [][2]string{{"max-age", "1"}, {"max-age", "xh"}, {"max-length-bytes", "-1"}, {"x-unknown", "1"}} {
			if code := r.create("bad", bad[0], bad[1]); code != codePrecondition {
				t.Errorf("%v: code %d", bad, code)
			}
		}
	})
}

func TestHeartbeats(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Server) {
		r := dialRaw(t, s)
		begun := time.Now()
		io.Copy(io.Discard, r.nc) // it reads heartbeats and says nothing
		if took := time.Since(begun); took < 8*time.Second || took > 5*time.Minute {
			t.Errorf("a silent client is gone after %s", took)
		}
	}, Heartbeat(4*time.Second))
}

// The first of a name is active, the others wait for it to go (RMS-F-16).
func TestSingleActiveConsumer(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Server) {
		a, b := dialRaw(t, s), dialRaw(t, s)
		a.create("s")
		a.declare(0, "", "s")
		a.publish(0, 1)
		a.confirms()
		update := func(r *raw, at spec) {
			t.Helper()
			k, body := r.next()
			if k != cmdConsumerUpdate || body[5] != 1 {
				t.Fatalf("command %d %x in place of ConsumerUpdate", k, body)
			}
			r.write(cmdConsumerUpdate|responseBit, func(b []byte) []byte {
				b = put16(put16(append(b, body[:4]...), codeOK), at.kind)
				if at.kind == specOffset {
					b = put64(b, at.value)
				}
				return b
			})
		}
		if code := a.subscribe(1, "s", spec{specFirst, 0}, 1, "single-active-consumer", "true"); code != codePrecondition {
			t.Errorf("without a name: code %d", code)
		}
		a.subscribe(1, "s", spec{specFirst, 0}, 1, "single-active-consumer", "true", "name", "n")
		update(a, spec{})
		if first, _ := a.chunk(); first != 0 {
			t.Errorf("chunk at %d", first)
		}
		b.subscribe(1, "s", spec{specNext, 0}, 1, "single-active-consumer", "true", "name", "n")
		b.write(cmdCredit, func(b []byte) []byte { return put16(append(b, 1), 1) })
		if k, body := b.next(); k != cmdCredit|responseBit || body[1] != codePrecondition {
			t.Errorf("credit of one that waits: %d %x", k, body)
		}
		a.nc.Close()
		update(b, spec{specOffset, 0})
		if first, ids := b.chunk(); first != 0 || ids[0] != 1 {
			t.Errorf("the next one got %v at %d", ids, first)
		}
	})
}

func TestFaultsStrike(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Server) {
		r := dialRaw(t, s)
		r.create("s")
		r.declare(0, "ref", "s")
		inject := func(f fault.Fault) *fault.Injection {
			t.Helper()
			f.Times = 1
			i := s.Faults().Inject(f, nil)
			if i.Err() != nil {
				t.Fatal(i.Err())
			}
			return i
		}
		i := inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse, Match: "s"})
		r.publish(0, 1)
		if q := r.sequence("ref", "s"); q != 1 || i.Applied() != 1 {
			t.Errorf("lost confirm: sequence %d, applied %d", q, i.Applied())
		}
		i = inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseRequest})
		r.publish(0, 2)
		if q := r.sequence("ref", "s"); q != 1 || i.Hits() != 1 {
			t.Errorf("lost publish: sequence %d, hits %d", q, i.Hits())
		}
		inject(fault.Fault{Op: fault.Publish, Kind: fault.Error, Code: codeStreamUnavailable})
		r.publish(0, 3)
		if k, body := r.next(); k != cmdPublishError || body[14] != codeStreamUnavailable {
			t.Errorf("refused publish: %d %x", k, body)
		}
		// Another stream, another command: neither is struck.
		i = inject(fault.Fault{Op: fault.Any, Kind: fault.Error, API: "QueryOffset", Match: "other"})
		r.query("c", "s")
		r.create("other")
		r.sequence("c", "other")
		if i.Hits() != 0 {
			t.Errorf("%d hits", i.Hits())
		}
		if code, _ := r.query("c", "other"); code != codeInternal {
			t.Errorf("code %d", code)
		}
		// StoreOffset has no answer to lose: the query behind it has.
		i = inject(fault.Fault{Op: fault.Settle, Kind: fault.LoseResponse})
		r.store("c", "s", 1)
		r.send(cmdQueryOffset, func(b []byte) []byte { return putStr(putStr(b, "c"), "s") })
		if _, got := r.query("c", "s"); got != 1 || i.Applied() != 1 {
			t.Errorf("stored %d, applied %d", got, i.Applied())
		}
		begun := time.Now()
		i = inject(fault.Fault{Op: fault.Publish, Kind: fault.Delay, Delay: time.Minute})
		r.publish(0, 4)
		r.confirms()
		if took := time.Since(begun); took < time.Minute || i.Applied() != 1 {
			t.Errorf("delayed by %s, applied %d", took, i.Applied())
		}
		i = inject(fault.Fault{Op: fault.Receive, Kind: fault.LoseResponse})
		r.subscribe(1, "s", spec{specFirst, 0}, 5)
		r.gone()
		if i.Applied() != 1 {
			t.Errorf("a lost Deliver: applied %d", i.Applied())
		}
		r = dialRaw(t, s)
		i = inject(fault.Fault{Op: fault.Admin, Kind: fault.LoseResponse, API: "Create", Cut: true})
		r.send(cmdCreate, func(b []byte) []byte { return put32(putStr(b, "third"), 0) })
		r.gone()
		if i.Applied() != 1 || dialRaw(t, s).create("third") != codeStreamExists {
			t.Error("what was applied before the cut is gone")
		}
		r = dialRaw(t, s)
		inject(fault.Fault{Op: fault.Publish, Kind: fault.Cut})
		r.declare(0, "ref", "s")
		r.publish(0, 77)
		r.gone()
		if q := dialRaw(t, s).sequence("ref", "s"); q == 77 {
			t.Error("the publish that was cut is stored")
		}
	}, Heartbeat(0))
}

// A restart ends connections, and what is in the log is there.
func TestRestartKeepsTheLog(t *testing.T) {
	for _, kill := range []bool{false, true} {
		inBubble(t, func(t *testing.T, s *Server) {
			r := dialRaw(t, s)
			r.create("s")
			r.declare(0, "ref", "s")
			r.publish(0, 5)
			r.confirms()
			r.store("c", "s", 3)
			r.query("c", "s")
			s.Restart(kill)
			r.gone()
			r = dialRaw(t, s)
			if code, at := r.query("c", "s"); code != codeOK || at != 3 || r.sequence("ref", "s") != 5 {
				t.Errorf("offset %d with code %d, sequence %d", at, code, r.sequence("ref", "s"))
			}
			r.subscribe(1, "s", spec{specFirst, 0}, 1)
			if _, ids := r.chunk(); !slices.Equal(ids, []uint64{5}) {
				t.Errorf("stored %v", ids)
			}
		})
	}
}

// Whoever publishes to a stream or reads it is told when it is deleted.
func TestADeletedStreamIsAnnounced(t *testing.T) {
	inBubble(t, func(t *testing.T, s *Server) {
		r := dialRaw(t, s)
		r.create("s")
		r.declare(0, "", "s")
		r.subscribe(1, "s", spec{specNext, 0}, 1)
		dialRaw(t, s).ask(cmdDelete, func(b []byte) []byte { return putStr(b, "s") })
		if k, body := r.next(); k != cmdMetadataUpdate || body[1] != codeStreamUnavailable {
			t.Errorf("command %d %x", k, body)
		}
		r.publish(0, 1)
		if k, body := r.next(); k != cmdPublishError || body[14] != codeNoPublisher {
			t.Errorf("command %d %x", k, body)
		}
		if code := r.declare(0, "", "s"); code != codeNoStream {
			t.Errorf("declared with code %d", code)
		}
	})
}
