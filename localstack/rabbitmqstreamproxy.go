package localstack

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"
)

// rabbitStream is a link in the protocol of streams. Faults strike as they do on
// the model, see package localstack/rabbitmq/stream.
type rabbitStream struct {
	*rabbitLink
	spoken bool       // by the client; requests only
	held   *Injection // by the fault that strikes the next request; requests only
	again  bool       // a response is looked at for the second time; responses only

	mu         sync.Mutex
	publishers map[uint8]string          // their streams
	subs       map[uint8]string          // subscriptions' streams
	lost       map[uint32]*Injection     // by the correlation ID of the request
	unsaid     map[rabbitSent]*Injection // messages whose confirm is to be dropped
}

// rabbitSent is a message of a publisher, by the number that its client gave it.
type rabbitSent struct {
	publisher uint8
	id        uint64
}

func newRabbitStream(r *rabbitLink) *rabbitStream {
	return &rabbitStream{
		rabbitLink: r, publishers: map[uint8]string{}, subs: map[uint8]string{},
		lost: map[uint32]*Injection{}, unsaid: map[rabbitSent]*Injection{},
	}
}

// request decides on the next frame of the client.
func (s *rabbitStream) request(b []byte) (int, fate) {
	size := streamFrameSize(b)
	if size <= 0 {
		return size, forward
	}
	f := parseStreamFrame(b[:size])
	stream := s.note(&f)
	if s.held == nil && s.trace.on() {
		s.trace.line(fmt.Sprintf("%s %q, %d bytes", f.name(), stream, size))
	}
	inj := s.held
	if inj == nil {
		if s.faults.Armed() == nil {
			return size, forward
		}
		if inj = s.claim(&f, stream); inj == nil {
			return size, forward
		}
		if kind := inj.Fault().Kind; kind == Delay || kind == Error {
			s.held = inj // first what was sent before this request
			return size, flushFirst
		}
	}
	s.held = nil
	switch inj.Fault().Kind {
	case LoseResponse:
		s.lose(&f, inj)
		return size, forward
	case Delay:
		t := time.NewTimer(inj.Fault().Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.done:
			return size, dropAndCut
		}
		inj.Answered(true) // before the response can arrive
		s.toServer.write(b[:size])
	case Error:
		code := uint16(inj.Fault().Code)
		if code == 0 {
			code = streamInternalError
		}
		s.toClient.write(f.refusal(code))
	case Cut:
		return size, dropAndCut
	}
	return size, afterDrop(inj)
}

func (s *rabbitStream) claim(f *streamFrame, stream string) *Injection {
	concerns := func(name string) bool { return name == stream }
	if f.answered() || f.key == streamPublish {
		return s.faults.Strike(f.ops(), f.name(), concerns)
	}
	for _, i := range s.faults.Armed() {
		what := i.Fault()
		if what.Kind == LoseResponse || what.API != "" && what.API != f.name() || what.Match != "" && !concerns(what.Match) {
			continue
		}
		if (what.Op.Covers(f.ops()) || what.API != "" && what.Op == Any) && i.Take() {
			return i
		}
	}
	return nil
}

// note keeps which streams the numbers of publishers and subscriptions mean, and
// returns the stream that a request concerns.
func (s *rabbitStream) note(f *streamFrame) string {
	c := streamCursor{b: f.body}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f.key {
	case streamPublish:
		return s.publishers[c.u8()]
	case streamCredit:
		return s.subs[c.u8()]
	case streamDeclarePublisher:
		id := c.u8()
		c.str() // the publisher's name
		s.publishers[id] = c.str()
		return s.publishers[id]
	case streamDeletePublisher:
		return s.publishers[c.u8()]
	case streamSubscribe:
		id := c.u8()
		s.subs[id] = c.str()
		return s.subs[id]
	case streamUnsubscribe:
		return s.subs[c.u8()]
	case streamQuerySequence, streamStoreOffset, streamQueryOffset:
		c.str() // the publisher's or consumer's name
		return c.str()
	case streamMetadata:
		c.u32()
		return c.str()
	case streamCreate, streamDelete, streamStats, streamRoute, streamPartitions:
		return c.str()
	}
	return ""
}

// lose remembers whose response is to be dropped.
func (s *rabbitStream) lose(f *streamFrame, inj *Injection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.key != streamPublish {
		s.lost[f.correlation] = inj
		return
	}
	publisher, ids := f.published()
	for _, id := range ids {
		s.unsaid[rabbitSent{publisher, id}] = inj
	}
}

// response passes the next frame of the broker on, drops it, or puts another in
// its place.
func (s *rabbitStream) response(b []byte) (int, fate) {
	size := streamFrameSize(b)
	if size <= 0 {
		return size, forward
	}
	f := parseStreamFrame(b[:size])
	switch {
	case f.key == streamDeliver:
		return size, s.handout(&f)
	case f.key == streamPublishConfirm || f.key == streamPublishError:
		return size, s.confirm(&f)
	case f.key&streamResponse != 0:
		s.mu.Lock()
		inj := s.lost[f.correlation]
		delete(s.lost, f.correlation)
		s.mu.Unlock()
		if inj != nil {
			c := streamCursor{b: f.body}
			code := c.u16()
			// That nothing has been stored is an answer, too.
			inj.Answered(f.key == streamMetadata|streamResponse || code == 1 || code == streamNoOffset)
			return size, afterDrop(inj)
		}
	}
	return size, forward
}

// handout decides on messages for the client. A stream of bytes can't lose a chunk
// out of its midst, so the connection goes with it.
func (s *rabbitStream) handout(f *streamFrame) fate {
	if s.faults.Armed() == nil {
		return forward
	}
	c := streamCursor{b: f.body}
	s.mu.Lock()
	stream := s.subs[c.u8()]
	s.mu.Unlock()
	inj := s.faults.StrikeHandout("Deliver", func(name string) bool { return name == stream })
	if inj == nil {
		return forward
	}
	inj.Answered(true)
	return dropAndCut
}

// confirm takes the messages out of a confirm whose confirms are to be dropped.
func (s *rabbitStream) confirm(f *streamFrame) fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unsaid) == 0 {
		return forward
	}
	if !s.again { // our own frame must come behind what the broker said before
		s.again = true
		return flushFirst
	}
	s.again = false
	width := 8
	if f.key == streamPublishError {
		width += 2 // the code
	}
	c := streamCursor{b: f.body}
	publisher, n := c.u8(), c.u32()
	rest := []byte{}
	var told []*Injection
	for ; n > 0; n-- {
		entry := c.take(width)
		if entry == nil {
			return forward // not for us to judge
		}
		sent := rabbitSent{publisher, binary.BigEndian.Uint64(entry)}
		inj := s.unsaid[sent]
		if inj == nil {
			rest = append(rest, entry...)
			continue
		}
		delete(s.unsaid, sent)
		if !slices.Contains(told, inj) {
			told = append(told, inj)
		}
	}
	if told == nil {
		return forward
	}
	if len(rest) > 0 {
		out := append(f.head(nil), publisher)
		out = binary.BigEndian.AppendUint32(out, uint32(len(rest)/width))
		s.toClient.write(endStreamFrame(append(out, rest...)))
	}
	what := drop
	for _, inj := range told {
		if !s.waits(inj) {
			inj.Answered(f.key == streamPublishConfirm)
		}
		if inj.Fault().Cut {
			what = dropAndCut
		}
	}
	return what
}

// waits says whether more confirms of the request that a fault struck are to come.
func (s *rabbitStream) waits(inj *Injection) bool {
	for _, other := range s.unsaid {
		if other == inj {
			return true
		}
	}
	return false
}
