package rabbitmq

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"sync/atomic"
)

// announcer adds one capability to those that the SDK announces in its login, for
// the SDK has no way to be told: authentication_failure_close. Without it a node that
// refuses the credentials says nothing, and hangs up after three seconds (RMQ-F-120).
// With it, the node answers 403 at once, and a node that hangs up without a word is
// one that went away.
type announcer struct {
	net.Conn
	over atomic.Bool // the login has been written
}

// Write implements net.Conn. The SDK writes its protocol header, and then the frame
// with start-ok, each at once. What doesn't look like that passes as it is.
func (a *announcer) Write(p []byte) (int, error) {
	if a.over.Load() || len(p) == 0 || p[0] != frameMethod {
		return a.Conn.Write(p)
	}
	a.over.Store(true)
	longer := announce(p)
	if longer == nil {
		return a.Conn.Write(p)
	}
	if _, err := a.Conn.Write(longer); err != nil {
		return 0, err
	}
	return len(p), nil
}

const (
	frameMethod = 1
	frameHead   = 7            // type, channel, length
	methodHead  = 4            // class, method
	startOK     = 10<<16 | 11  // class 10, method 11
	frameEnd    = byte('\xce') // after the payload
)

// announce is a frame with start-ok and the capability, or nil if p is no such frame
// or isn't the whole of one.
func announce(p []byte) []byte {
	const tableAt = frameHead + methodHead
	if len(p) < tableAt+4+1 || p[len(p)-1] != frameEnd ||
		int(binary.BigEndian.Uint32(p[3:])) != len(p)-frameHead-1 || binary.BigEndian.Uint32(p[frameHead:]) != startOK {
		return nil
	}
	end := tableAt + 4 + int(binary.BigEndian.Uint32(p[tableAt:]))
	at := capabilities(p, tableAt+4, end)
	if at < 0 {
		return nil
	}
	field := append([]byte{28}, "authentication_failure_closet\x01"...) // name, 't' for bool, true
	if bytes.Contains(p[at:end], field[:29]) {
		return nil // an SDK that announces it by itself
	}
	longer := slices.Insert(slices.Clone(p), at+4, field...)
	for _, length := range []int{3, tableAt, at} {
		binary.BigEndian.PutUint32(longer[length:], binary.BigEndian.Uint32(longer[length:])+uint32(len(field)))
	}
	return longer
}

// capabilities is where the table of that name begins, with its length, among the
// fields of p from at to end; -1 if there is none, or before it a field that is
// neither a string nor a table.
func capabilities(p []byte, at, end int) int {
	for end <= len(p) && at < end {
		name := at + 1 + int(p[at])
		if name+5 > end {
			return -1
		}
		value := name + 5 + int(binary.BigEndian.Uint32(p[name+1:]))
		kind := p[name]
		if value > end || kind != 'S' && kind != 'F' {
			return -1
		}
		if kind == 'F' && string(p[at+1:name]) == "capabilities" {
			return name + 1
		}
		at = value
	}
	return -1
}
