package localstack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/onceline/onceline/localstack/fault"
)

// natsLink is a joined pair of connections that speak the NATS client protocol.
// It reads large chunks, looks at each frame in place, and writes the chunk on as
// it is; only where a fault strikes is the chunk divided.
type natsLink struct {
	*link
	faults             *fault.Set
	trace              *tracer
	toServer, toClient door

	subs map[string]string // sid → pattern; owned by the direction of the requests

	waiting atomic.Int32 // entries in lost, so that one load tells there are none
	mu      sync.Mutex
	lost    map[string]*Injection // reply subject → whose response is to be dropped
}

func serveNATS(l *link, f *fault.Set, t *tracer) {
	n := &natsLink{
		link: l, faults: f, trace: t, subs: map[string]string{}, lost: map[string]*Injection{},
		toServer: door{link: l, conn: l.server},
		toClient: door{link: l, conn: l.client},
	}
	l.both(
		func() { pump(l.client, &n.toServer, natsStep(n.request)) },
		func() { pump(l.server, &n.toClient, natsStep(n.response)) },
	)
}

// natsStep makes the function that reads frames for pump.
func natsStep(decide func(*natsFrame, []byte) fate) func([]byte) (int, fate) {
	var f natsFrame
	return func(b []byte) (int, fate) {
		size := parseNATS(b, &f)
		if size <= 0 {
			return size, forward
		}
		return size, decide(&f, b[:size])
	}
}

var (
	jsPrefix    = []byte("$JS.")
	ackPrefix   = []byte("$JS.ACK.")
	apiPrefix   = []byte("$JS.API.")
	pullPrefix  = []byte("$JS.API.CONSUMER.MSG.NEXT.")
	sysPrefix   = []byte("$SYS.")
	inboxPrefix = []byte("_INBOX.")
)

// natsOp returns the class of a PUB or HPUB, 0 if it is none of JetStream's.
func natsOp(f *natsFrame) fault.Ops {
	switch {
	case bytes.HasPrefix(f.subject, ackPrefix):
		return Settle.Ops()
	case bytes.HasPrefix(f.subject, pullPrefix):
		return Receive.Ops()
	case bytes.HasPrefix(f.subject, apiPrefix):
		return Admin.Ops()
	case len(f.reply) == 0, bytes.HasPrefix(f.subject, jsPrefix),
		bytes.HasPrefix(f.subject, sysPrefix), bytes.HasPrefix(f.subject, inboxPrefix):
		return 0
	}
	return Publish.Ops()
}

// request decides on a frame of the client. raw is the whole frame.
func (n *natsLink) request(f *natsFrame, raw []byte) fate {
	switch f.verb {
	case natsSub:
		n.subs[string(f.sid)] = string(f.subject)
		return forward
	case natsUnsub:
		if len(bytes.Fields(raw)) == 2 { // with a maximum it still gets some
			delete(n.subs, string(f.sid))
		}
		return forward
	case natsPub, natsHPub:
	default:
		return forward
	}
	if n.trace.on() {
		n.trace.line(fmt.Sprintf("PUB %s, %d bytes", f.subject, len(f.payload)))
	}
	armed := n.faults.Armed()
	if armed == nil {
		return forward
	}
	op := natsOp(f)
	for _, i := range armed {
		if !i.Fault().Op.Covers(op) || !matchNATS(i, f.subject) {
			continue
		}
		if i.Fault().Kind == LoseResponse {
			// A lost delivery is struck when the server sends it.
			if op == Receive.Ops() || len(f.reply) == 0 {
				continue
			}
		}
		if i.Take() {
			return n.strike(i, op, f, raw)
		}
	}
	return forward
}

func matchNATS(i *Injection, subject []byte) bool {
	return i.Fault().Match == "" || bytes.Contains(subject, []byte(i.Fault().Match))
}

// strike carries out a fault on a request.
func (n *natsLink) strike(i *Injection, op fault.Ops, f *natsFrame, raw []byte) fate {
	after := drop
	if i.Fault().Cut {
		after = dropAndCut
	}
	switch i.Fault().Kind {
	case LoseResponse:
		n.mu.Lock()
		n.lost[string(f.reply)] = i
		n.waiting.Store(int32(len(n.lost)))
		n.mu.Unlock()
		return forward
	case Delay:
		n.later(i, bytes.Clone(raw))
		return drop
	case Cut:
		return dropAndCut
	case Error:
		if sid, ok := n.sidOf(f.reply); ok {
			n.toClient.write(natsError(sid, op, f, i.Fault().Code))
		}
	}
	return after
}

// later sends a frame on after the fault's delay, unless the link ends before.
func (n *natsLink) later(i *Injection, raw []byte) {
	n.wg.Go(func() {
		t := time.NewTimer(i.Fault().Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-n.done:
			return
		}
		i.Answered(true) // before the response can arrive
		n.toServer.write(raw)
		if i.Fault().Cut {
			n.cut()
			n.end()
		}
	})
}

// response decides on a frame of the server.
func (n *natsLink) response(f *natsFrame, _ []byte) fate {
	if f.verb != natsMsg && f.verb != natsHMsg {
		return forward
	}
	if n.waiting.Load() > 0 {
		n.mu.Lock()
		i := n.lost[string(f.subject)]
		if i != nil {
			delete(n.lost, string(f.subject))
			n.waiting.Store(int32(len(n.lost)))
		}
		n.mu.Unlock()
		if i != nil {
			i.Answered(!natsRefused(f))
			return afterDrop(i)
		}
	}
	armed := n.faults.Armed()
	if armed == nil || !bytes.HasPrefix(f.reply, ackPrefix) {
		return forward
	}
	for _, i := range armed {
		if i.Fault().Kind != LoseResponse || !i.Fault().Op.Covers(Receive.Ops()) {
			continue
		}
		if (matchNATS(i, f.reply) || matchNATS(i, f.subject)) && i.Take() {
			i.Answered(true)
			return afterDrop(i)
		}
	}
	return forward
}

// afterDrop says whether a fault that dropped a frame cuts the connection as well.
func afterDrop(i *Injection) fate {
	if i.Fault().Cut {
		return dropAndCut
	}
	return drop
}

// natsRefused says whether a response is an error: of the JetStream API, or a
// status such as 503, no responders.
func natsRefused(f *natsFrame) bool {
	if rest, ok := bytes.CutPrefix(f.header, []byte("NATS/1.0 ")); ok && len(rest) > 0 && rest[0] >= '4' {
		return true
	}
	if !bytes.Contains(f.payload, []byte(`"error"`)) {
		return false
	}
	var answer struct {
		Error *struct{} `json:"error"`
	}
	return json.Unmarshal(f.payload, &answer) == nil && answer.Error != nil
}

// sidOf finds the subscription that would get a response.
func (n *natsLink) sidOf(reply []byte) (string, bool) {
	if len(reply) == 0 {
		return "", false
	}
	for sid, pattern := range n.subs {
		if subjectMatches(pattern, reply) {
			return sid, true
		}
	}
	return "", false
}

// natsError makes the frame that answers a request with an error.
func natsError(sid string, op fault.Ops, f *natsFrame, code int) []byte {
	b := new(bytes.Buffer)
	if op == Receive.Ops() || op == Settle.Ops() {
		if code == 0 {
			code = 503
		}
		status := "NATS/1.0 " + strconv.Itoa(code)
		if code != 503 { // clients take a 503 without words for no responders
			status += " Injected Fault"
		}
		status += "\r\n\r\n"
		fmt.Fprintf(b, "HMSG %s %s %d %d\r\n%s\r\n", f.reply, sid, len(status), len(status), status)
		return b.Bytes()
	}
	if code == 0 {
		code = 10008
	}
	body, err := json.Marshal(map[string]any{"error": natsAPIError(code), "stream": "", "seq": 0})
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	fmt.Fprintf(b, "MSG %s %s %d\r\n%s\r\n", f.reply, sid, len(body), body)
	return b.Bytes()
}

// natsAPIError returns the server's own wording of an error code.
func natsAPIError(code int) server.ApiError {
	for _, e := range server.ApiErrors {
		if int(e.ErrCode) == code {
			return *e
		}
	}
	return server.ApiError{Code: 500, ErrCode: uint16(code), Description: "injected fault"}
}
