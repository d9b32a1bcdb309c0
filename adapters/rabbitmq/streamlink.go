package rabbitmq

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceline/onceline/broker"
)

const (
	streamPort  = 5552
	streamsPort = 5551 // over TLS
	// maxControl bounds the frames that are neither messages nor answers to
	// questions that we asked.
	maxControl = 16 << 20
	// readStep is how much is allocated at once for a frame, whatever size it
	// claims.
	readStep = 4 << 20
)

// streamHandler takes the frames that nobody asked for, in the link's reading
// goroutine. body is its own for scDeliver, and reused otherwise.
type streamHandler interface {
	frame(l *streamLink, key uint16, body []byte) error
}

// streamLink is one connection of the stream protocol. Safe for concurrent use.
type streamLink struct {
	nc       net.Conn
	in       *bufio.Reader
	handler  streamHandler
	props    map[string]string // of the server
	host     string            // advertised
	port     int
	frameMax int
	beat     time.Duration

	dead  chan struct{} // closed when the link has ended; err says why
	done  chan struct{} // closed when its goroutine has returned
	heard atomic.Int64

	write sync.Mutex // of frames
	said  atomic.Int64

	mu    sync.Mutex
	err   error
	id    uint32
	waits map[uint32]chan streamAnswer
	timer *time.Timer
}

// streamAnswer is a response without its correlation ID.
type streamAnswer struct {
	key  uint16
	body []byte
}

// linkTo dials one node and opens the virtual host. The handler is told of what
// comes from the moment that it returned, and not before.
func linkTo(ctx context.Context, s *settings, at address, h streamHandler) (*streamLink, error) {
	nc, err := dialStream(ctx, s, at)
	if err != nil {
		return nil, err
	}
	l := &streamLink{
		nc: nc, in: bufio.NewReaderSize(nc, 64<<10), handler: h, frameMax: 1 << 20,
		dead: make(chan struct{}), done: make(chan struct{}), waits: map[uint32]chan streamAnswer{},
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	err = l.open(s)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = nc.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	l.heard.Store(time.Now().UnixNano())
	l.said.Store(time.Now().UnixNano())
	go l.read()
	if l.beat > 0 {
		l.mu.Lock()
		l.timer = time.AfterFunc(l.beat/2, l.pulse)
		l.mu.Unlock()
	}
	return l, nil
}

func dialStream(ctx context.Context, s *settings, at address) (net.Conn, error) {
	dial := s.dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	nc, err := dial(ctx, "tcp", net.JoinHostPort(at.host, strconv.Itoa(at.port)))
	if err != nil || s.tls == nil {
		return nc, err
	}
	config := s.tls
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName = at.host
	}
	tc := tls.Client(nc, config)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return tc, nil
}

// next reads one frame, into scratch if it fits there.
func (l *streamLink) next(scratch []byte) (key uint16, body []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(l.in, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	key = binary.BigEndian.Uint16(head[4:])
	switch {
	case size < 4 || size > 1<<31-1:
		return 0, nil, errFrame
	case key == scDeliver:
		scratch = nil // deliveries keep it
	case size > maxControl:
		return 0, nil, errFrame
	}
	n := int(size - 4)
	if n <= cap(scratch) {
		body = scratch[:n]
		_, err = io.ReadFull(l.in, body)
		return key, body, err
	}
	body = make([]byte, min(n, readStep))
	for at := 0; ; {
		if _, err := io.ReadFull(l.in, body[at:]); err != nil {
			return 0, nil, err
		}
		l.heard.Store(time.Now().UnixNano())
		if at = len(body); at == n {
			return key, body, nil
		}
		grown := make([]byte, min(n, 2*at))
		copy(grown, body)
		body = grown
	}
}

// read hands frames out until the link ends.
func (l *streamLink) read() {
	defer close(l.done)
	scratch := make([]byte, 16<<10)
	for {
		key, body, err := l.next(scratch)
		if err != nil {
			l.end(err)
			return
		}
		l.heard.Store(time.Now().UnixNano())
		switch {
		case key == scHeartbeat:
		case key == scClose:
			c := streamCursor{b: body}
			id, code := c.u32(), streamCode(c.u16())
			bound, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = l.send(bound, putFrame(nil, scClose|scResponse, func(b []byte) []byte { return put16(put32(b, id), uint16(codeOK)) }))
			cancel()
			l.end(fmt.Errorf("the broker closes the connection: %w: %s", code, c.str()))
			return
		case key&scResponse != 0 && key != scCredit|scResponse:
			l.answered(key, body)
		default:
			if err := l.handler.frame(l, key, body); err != nil {
				l.end(err)
				return
			}
		}
	}
}

func (l *streamLink) answered(key uint16, body []byte) {
	if len(body) < 4 {
		return
	}
	id := binary.BigEndian.Uint32(body)
	l.mu.Lock()
	w := l.waits[id]
	delete(l.waits, id)
	l.mu.Unlock()
	if w != nil {
		w <- streamAnswer{key, append([]byte(nil), body[4:]...)} // has room
	}
}

// end closes the connection and says why, once.
func (l *streamLink) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = err
	if l.timer != nil {
		l.timer.Stop()
	}
	close(l.dead)
	_ = l.nc.Close()
}

// lost reports whether the link has ended.
func (l *streamLink) lost() bool {
	select {
	case <-l.dead:
		return true
	default:
	}
	return l.mute()
}

// mute reports whether this side has said nothing for two heartbeats, as a process
// that stood still, and ends the link then: the broker has ended it, and what tells
// us may not be read yet.
func (l *streamLink) mute() bool {
	if !l.silent() || !l.write.TryLock() { // who is in the midst of a write isn't silent
		return false
	}
	defer l.write.Unlock()
	return l.endMute()
}

// silent is how it looks without the lock of the writers, endMute how it is with it.
func (l *streamLink) silent() bool {
	return l.beat > 0 && time.Since(time.Unix(0, l.said.Load())) > 2*l.beat
}

func (l *streamLink) endMute() bool {
	if !l.silent() {
		return false
	}
	l.end(errMute)
	return true
}

var errMute = errors.New("this process has been silent for two heartbeats")

// why is what ended the link.
func (l *streamLink) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// send writes frames. When ctx ends in the midst of it the link is lost, for half
// a frame may be out.
func (l *streamLink) send(ctx context.Context, frames []byte) error {
	l.write.Lock()
	defer l.write.Unlock()
	if l.endMute() {
		return errMute
	}
	if ctx.Done() != nil {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		stop := context.AfterFunc(ctx, func() { _ = l.nc.SetWriteDeadline(time.Unix(1, 0)) })
		defer func() {
			if !stop() {
				_ = l.nc.SetWriteDeadline(time.Time{})
			}
		}()
	}
	_, err := l.nc.Write(frames)
	if err != nil {
		l.end(err)
		return err
	}
	l.said.Store(time.Now().UnixNano())
	return nil
}

// errLink marks an error by which the question may or may not have been heard.
var errLink = errors.New("connection lost")

// call asks a question and waits for its answer. before are frames that go ahead
// of it in the same write. The answer's code is read: another one than OK is the
// error, a streamCode, and the cursor is behind it all the same.
func (l *streamLink) call(ctx context.Context, key uint16, before []byte, build func(b []byte) []byte) (streamCursor, error) {
	w := make(chan streamAnswer, 1)
	l.mu.Lock()
	l.id++
	id := l.id
	l.waits[id] = w
	l.mu.Unlock()
	forget := func() {
		l.mu.Lock()
		delete(l.waits, id)
		l.mu.Unlock()
	}
	if err := l.send(ctx, putRequest(before, key, id, build)); err != nil {
		forget()
		return streamCursor{}, fmt.Errorf("%w: %w", errLink, err)
	}
	var a streamAnswer
	select {
	case a = <-w:
	case <-l.dead:
		select {
		case a = <-w: // it came first
		default:
			forget()
			return streamCursor{}, fmt.Errorf("%w: %w", errLink, l.why())
		}
	case <-ctx.Done():
		select {
		case a = <-w:
		default:
			forget()
			return streamCursor{}, context.Cause(ctx)
		}
	}
	c := streamCursor{b: a.body}
	if key == scMetadata {
		return c, nil // has no code
	}
	if code := streamCode(c.u16()); code != codeOK {
		return c, code
	}
	if c.bad || a.key != key|scResponse {
		return c, errFrame
	}
	return c, nil
}

// pulse says that we live, and finds out whether the other side does.
func (l *streamLink) pulse() {
	select {
	case <-l.dead:
		return
	default:
	}
	if time.Since(time.Unix(0, l.heard.Load())) > 2*l.beat {
		l.end(errors.New("the broker has been silent for two heartbeats"))
		return
	}
	if l.mute() {
		return
	}
	// Whoever writes now says it for us; and if it is stuck, so would this be.
	if time.Since(time.Unix(0, l.said.Load())) >= l.beat/2 && l.write.TryLock() {
		_ = l.nc.SetWriteDeadline(time.Now().Add(l.beat))
		_, err := l.nc.Write(putFrame(nil, scHeartbeat, nil))
		_ = l.nc.SetWriteDeadline(time.Time{})
		l.write.Unlock()
		if err != nil {
			l.end(err)
			return
		}
		l.said.Store(time.Now().UnixNano())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.timer.Reset(l.beat / 2)
	}
}

// close says good-bye, for as long as ctx lets it, and waits for the link's
// goroutine.
func (l *streamLink) close(ctx context.Context) {
	select {
	case <-l.dead:
	default:
		bound, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, _ = l.call(bound, scClose, nil, func(b []byte) []byte { return putStr(put16(b, uint16(codeOK)), "OK") })
		cancel()
	}
	l.end(broker.ErrClosed)
	<-l.done
}

// since reports whether the server is of that version or a later one.
func (l *streamLink) since(major, minor int) bool {
	parts := strings.SplitN(l.props["version"], ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err1 := strconv.Atoi(parts[0])
	b, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (a > major || a == major && b >= minor)
}
