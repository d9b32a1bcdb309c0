package rabbitmq

import (
	"net"
	"sync"
	"time"
)

const (
	// writeTimeout bounds a write that gets no further: a socket that takes no
	// byte for so long is dead, or its node has stopped reading without a word.
	writeTimeout = 5 * time.Second
	// wireBuffer is from how many bytes on a corked wire is flushed anyway.
	wireBuffer = 64 << 10
)

// wire is the socket under the SDK. The SDK flushes after each message and each
// ack, which is a system call for each; corked, a batch leaves in few.
//
// While it is corked nobody may wait for the broker: what a call of the SDK has
// written may still lie here.
type wire struct {
	net.Conn

	mu       sync.Mutex
	corks    int
	buf      []byte
	deadline time.Time // of writes, as set on the socket
	err      error     // of a write; the socket is closed
}

// Write implements net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	if w.corks > 0 || len(w.buf) > 0 {
		w.buf = append(w.buf, p...)
		if w.corks > 0 && len(w.buf) < wireBuffer {
			return len(p), nil
		}
		if err := w.flush(); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	if err := w.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// cork makes writes wait for the uncork. Corks nest.
func (w *wire) cork() {
	if w == nil {
		return // a client of the caller's own, whose socket isn't ours
	}
	w.mu.Lock()
	w.corks++
	w.mu.Unlock()
}

// uncork writes what has gathered. An error means that some of it may not have
// left; the socket is closed then, so that the SDK finds out by itself.
func (w *wire) uncork() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.corks--
	if w.err != nil || w.corks > 0 {
		return w.err
	}
	return w.flush()
}

func (w *wire) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.write(w.buf)
	if cap(w.buf) > 4*wireBuffer {
		w.buf = nil
	}
	w.buf = w.buf[:0]
	return err
}

func (w *wire) write(p []byte) error {
	// The deadline is moved now and then, not for each write: it costs as much
	// as a small one.
	if now := time.Now(); w.deadline.Sub(now) < writeTimeout/2 {
		w.deadline = now.Add(writeTimeout)
		if err := w.SetWriteDeadline(w.deadline); err != nil {
			return w.fail(err)
		}
	}
	if _, err := w.Conn.Write(p); err != nil {
		return w.fail(err)
	}
	return nil
}

func (w *wire) fail(err error) error {
	w.err = err
	w.buf = nil
	_ = w.Conn.Close() // whose reader sees the error
	return err
}
