package stream

import (
	"fmt"
	"time"

	"github.com/onceline/onceline/localstack/fault"
)

// frame is one request of a client.
type frame struct {
	key, version uint16
	id           uint32 // correlation
	c            cursor
	stream       string   // that it concerns
	what         string   // for the trace
	asked        []string // by Metadata
}

func (f *frame) name() string {
	if k := int(f.key &^ responseBit); k < len(names) && names[k] != "" {
		return names[k]
	}
	return fmt.Sprintf("command %d", f.key)
}

// correlated reports whether the request has an answer.
func (f *frame) correlated() bool {
	switch f.key {
	case cmdPublish, cmdCredit, cmdStoreOffset, cmdHeartbeat, cmdTune, cmdTune | responseBit:
		return false
	}
	return true
}

// ops is the request's classes of faults.
func (f *frame) ops() fault.Ops {
	switch f.key {
	case cmdPublish:
		return fault.Publish.Ops()
	case cmdCredit:
		return fault.Receive.Ops()
	case cmdSubscribe:
		return fault.Receive.Ops() | fault.Admin.Ops()
	case cmdStoreOffset, cmdQueryOffset:
		return fault.Settle.Ops()
	case cmdDeclarePublisher, cmdQueryPublisherSeq, cmdDeletePublisher, cmdUnsubscribe, cmdCreate, cmdDelete,
		cmdMetadata, cmdRoute, cmdPartitions, cmdStreamStats, cmdCreateSuper, cmdDeleteSuper:
		return fault.Admin.Ops()
	}
	return 0
}

// act is what a decoded request does, with the server's lock held. It reports
// whether the broker has taken it.
type act func() (ok bool)

// handle decodes a request, lets faults strike it, and carries it out; false ends
// the connection.
func (c *conn) handle(f *frame) bool {
	if !c.await() {
		return false
	}
	if f.correlated() {
		f.id = f.c.u32()
	}
	do := c.decode(f)
	if do == nil || f.c.bad {
		c.note(f, "refused")
		c.refuse(codeUnknownFrame, "unknown frame")
		return false
	}
	s := c.server
	i := c.strike(f)
	if i == nil {
		c.note(f, "")
		s.mu.Lock()
		do()
		closing := c.closing
		s.mu.Unlock()
		return !closing
	}
	return c.struck(f, do, i)
}

// strike claims a fault for the request. Publish and Credit name their stream by
// a number, which decode has looked up. StoreOffset has no answer that could be
// lost.
func (c *conn) strike(f *frame) *fault.Injection {
	faults := &c.server.faults
	concerns := func(match string) bool { return f.stream == match }
	if f.key != cmdStoreOffset {
		return faults.Strike(f.ops(), f.name(), concerns)
	}
	for _, i := range faults.Armed() {
		what := i.Fault()
		switch {
		case what.Kind == fault.LoseResponse, what.API != "" && what.API != f.name(),
			!what.Op.Covers(f.ops()), what.Match != "" && !concerns(what.Match):
		case i.Take():
			return i
		}
	}
	return nil
}

// struck carries out a fault.
func (c *conn) struck(f *frame, do act, i *fault.Injection) bool {
	s := c.server
	what := i.Fault()
	c.note(f, what.Kind.String())
	open := true
	switch what.Kind {
	case fault.Cut:
		c.cut()
		return false
	case fault.LoseRequest:
	case fault.LoseResponse:
		s.mu.Lock()
		before := len(c.pending)
		ok := do()
		c.pending = c.pending[:before]
		open = !c.closing
		if what.Cut {
			c.closing = true // chunks must not follow
		}
		s.mu.Unlock()
		i.Answered(ok)
	case fault.Delay:
		ring := make(chan struct{})
		t := s.clock.AfterFunc(what.Delay, func() { close(ring) })
		c.wake()
		select {
		case <-ring:
		case <-c.ended:
			t.Stop()
			return false
		}
		s.mu.Lock()
		do()
		open = !c.closing
		s.mu.Unlock()
		i.Answered(true)
	case fault.Error:
		code := uint16(what.Code)
		if code == 0 {
			code = codeInternal
		}
		s.mu.Lock()
		c.fail(f, code)
		s.mu.Unlock()
	}
	if what.Cut {
		c.flush()
		c.cut()
		return false
	}
	return open
}

// flush waits until what is pending has been written.
func (c *conn) flush() {
	deadline := time.NewTimer(time.Second)
	defer deadline.Stop()
	for {
		c.server.mu.Lock()
		empty := len(c.pending) == 0
		c.server.mu.Unlock()
		if empty {
			return
		}
		c.wake()
		select {
		case <-c.room:
		case <-c.ended:
			return
		case <-deadline.C:
			return
		}
	}
}

// fail answers a request with an error as its kind has it; the lock is held.
func (c *conn) fail(f *frame, code uint16) {
	zero := func(b []byte) []byte { return put64(b, 0) }
	none := func(b []byte) []byte { return put32(b, 0) }
	switch f.key {
	case cmdPublish:
		id, ms := publishFrame(f)
		c.publishError(id, code, ms)
	case cmdCredit:
		sub := f.c.u8()
		c.send(cmdCredit|responseBit, func(b []byte) []byte { return append(put16(b, code), sub) })
	case cmdStoreOffset, cmdHeartbeat, cmdTune, cmdTune | responseBit, cmdConsumerUpdate | responseBit:
	case cmdMetadata:
		c.metadata(f, func(key) uint16 { return code })
	case cmdQueryPublisherSeq, cmdQueryOffset:
		c.answer(f, code, zero)
	case cmdPeerProperties, cmdSaslHandshake, cmdOpen, cmdExchangeVersions, cmdStreamStats, cmdRoute, cmdPartitions:
		c.answer(f, code, none)
	default:
		c.answer(f, code, nil)
	}
}

// decode reads a request's fields and returns what it does; nil for one that
// can't come at this step or isn't known.
func (c *conn) decode(f *frame) act {
	if c.step < stepOpen {
		return c.decodeEarly(f)
	}
	switch f.key {
	case cmdPublish:
		return c.decodePublish(f)
	case cmdDeclarePublisher:
		return c.decodeDeclare(f)
	case cmdDeletePublisher:
		return c.decodeDeletePublisher(f)
	case cmdQueryPublisherSeq:
		return c.decodeSequence(f)
	case cmdSubscribe:
		return c.decodeSubscribe(f)
	case cmdUnsubscribe:
		return c.decodeUnsubscribe(f)
	case cmdCredit:
		return c.decodeCredit(f)
	case cmdConsumerUpdate, cmdConsumerUpdate | responseBit:
		return c.decodeUpdate(f)
	case cmdStoreOffset:
		return c.decodeStoreOffset(f)
	case cmdQueryOffset:
		return c.decodeQueryOffset(f)
	case cmdCreate:
		return c.decodeCreate(f)
	case cmdDelete:
		return c.decodeDelete(f)
	case cmdMetadata:
		return c.decodeMetadata(f)
	case cmdStreamStats:
		return c.decodeStats(f)
	case cmdRoute, cmdPartitions:
		return func() bool { c.fail(f, codeNoStream); return false }
	case cmdCreateSuper:
		return func() bool { c.fail(f, codePrecondition); return false }
	case cmdDeleteSuper:
		return func() bool { c.fail(f, codeNoStream); return false }
	}
	return c.decodeUpkeep(f)
}
