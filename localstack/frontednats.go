package localstack

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"time"
)

// natsInfo begins the line by which a server says what it is.
var natsInfo = []byte("INFO ")

// natsPlain reads what a server says of itself, and refuses one that wants TLS.
func natsPlain(c net.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(frontDial)); err != nil {
		return fmt.Errorf("localstack: nats: %w", err)
	}
	line, err := bufio.NewReaderSize(c, 64<<10).ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("localstack: nats: %s says nothing of itself: %w", c.RemoteAddr(), err)
	}
	var info struct {
		TLS bool `json:"tls_required"`
	}
	body, ok := bytes.CutPrefix(line, natsInfo)
	if !ok || json.Unmarshal(body, &info) != nil {
		return fmt.Errorf("localstack: nats: %s doesn't speak its protocol", c.RemoteAddr())
	}
	if info.TLS {
		return fmt.Errorf("%w: the NATS at %s wants TLS", ErrNoFront, c.RemoteAddr())
	}
	return nil
}

// serveNATSFront is serveNATS for a server that may tell of others.
func serveNATSFront(l *link, e *emulator) {
	n := &natsLink{
		link: l, faults: &e.faults, trace: &e.trace, subs: map[string]string{}, lost: map[string]*Injection{},
		toServer: door{link: l, conn: l.server},
		toClient: door{link: l, conn: l.client},
	}
	again := false // an INFO is looked at for the second time
	response := func(f *natsFrame, raw []byte) fate {
		if f.verb != natsOther || !bytes.HasPrefix(raw, natsInfo) {
			return n.response(f, raw)
		}
		alone, ok := withoutOthers(raw)
		if !ok {
			return forward
		}
		if !again { // what came before it goes first
			again = true
			return flushFirst
		}
		again = false
		n.toClient.write(alone)
		return drop
	}
	l.both(
		func() { pump(l.client, &n.toServer, natsStep(n.request)) },
		func() { pump(l.server, &n.toClient, natsStep(response)) },
	)
}

// withoutOthers takes the other servers' addresses out of an INFO; ok is false if
// there are none.
func withoutOthers(raw []byte) (alone []byte, ok bool) {
	var info map[string]json.RawMessage
	if json.Unmarshal(bytes.TrimPrefix(raw, natsInfo), &info) != nil {
		return nil, false
	}
	for _, name := range []string{"connect_urls", "ws_connect_urls"} {
		if _, has := info[name]; has {
			delete(info, name)
			ok = true
		}
	}
	if !ok {
		return nil, false
	}
	body, err := json.Marshal(info)
	if err != nil {
		return nil, false
	}
	return append(append(bytes.Clone(natsInfo), body...), "\r\n"...), true
}
