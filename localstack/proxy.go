package localstack

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// proxy is the front door of an emulator: it keeps one address for the life of
// the emulator, and joins each client with a connection of its own to the broker.
// What happens on a joined pair is up to serve, which knows the protocol.
type proxy struct {
	ln    net.Listener
	dial  func(client net.Addr) (net.Conn, error)
	serve func(*link) // runs until the link is closed, and closes it

	gate gate
	wg   sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]struct{}
	up     chan struct{} // closed while the broker takes connections
	isUp   bool
	closed chan struct{}
}

// link is a client's connection and the broker's, joined.
type link struct {
	client, server net.Conn
	gate           *gate
	done           chan struct{} // closed when the link ends
	once           sync.Once
	cutting        atomic.Bool
	wg             sync.WaitGroup // of what serve starts
}

// close ends the link at once.
func (l *link) close() {
	l.once.Do(func() { close(l.done) })
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// cutGrace is how long a client may take to notice that a fault has cut it off.
const cutGrace = time.Second

// end ends the link after one direction has ended. When a fault cuts it, the
// client first gets all that was passed on before: closing a connection at once
// would reset it if the client is just sending, and a reset overtakes data.
func (l *link) end() {
	if tcp, ok := l.client.(*net.TCPConn); ok && l.cutting.Load() {
		l.once.Do(func() { close(l.done) })
		_ = l.server.Close()
		_ = tcp.SetReadDeadline(time.Now().Add(cutGrace))
		_ = tcp.CloseWrite()
		return
	}
	l.close()
}

// cut marks the link as being cut by a fault, for end.
func (l *link) cut() { l.cutting.Store(true) }

// both runs the two directions of a link until both have ended; the first to end
// ends the other.
func (l *link) both(requests, responses func()) {
	l.wg.Go(func() { responses(); l.end() })
	requests()
	l.end()
	l.wg.Wait()
	if l.cutting.Load() {
		_, _ = io.Copy(io.Discard, l.client)
	}
	l.close()
}

// listen opens a proxy on a port of 127.0.0.1, a free one if it is 0. It is down
// until resume.
func listen(port int, dial func(net.Addr) (net.Conn, error), serve func(*link)) (*proxy, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("localstack: %w", err)
	}
	p := &proxy{
		ln: ln, dial: dial, serve: serve,
		links: map[*link]struct{}{}, up: make(chan struct{}), closed: make(chan struct{}),
	}
	p.wg.Go(p.accept)
	return p, nil
}

// acceptPause keeps a failing accept from spinning.
const acceptPause = 5 * time.Millisecond

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			select {
			case <-p.closed:
				return
			case <-time.After(acceptPause):
				continue // out of descriptors, or the client was gone already
			}
		}
		l := &link{client: c, gate: &p.gate, done: make(chan struct{})}
		p.mu.Lock()
		select {
		case <-p.closed:
			p.mu.Unlock()
			l.close()
			return
		default:
		}
		p.links[l] = struct{}{}
		p.wg.Go(func() { p.join(l) })
		p.mu.Unlock()
	}
}

// join waits for the broker, connects the link to it, and serves it.
func (p *proxy) join(l *link) {
	defer func() {
		l.close()
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	for {
		p.mu.Lock()
		up := p.up
		p.mu.Unlock()
		select {
		case <-up:
		case <-l.done:
			return
		}
		server, err := p.dial(l.client.RemoteAddr())
		p.mu.Lock()
		moved := up != p.up // the broker went down meanwhile: wait for the next
		if err == nil && !moved {
			select {
			case <-l.done: // closed before it had a server to close
				moved = true
			default:
				l.server = server
			}
		}
		p.mu.Unlock()
		switch {
		case err == nil && !moved:
			p.serve(l)
			return
		case err == nil:
			_ = server.Close()
		case !moved:
			return
		}
	}
}

// pause makes new connections wait, and leaves the present ones alone.
func (p *proxy) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isUp {
		p.up, p.isUp = make(chan struct{}), false
	}
}

// resume lets waiting and new connections through to the broker.
func (p *proxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isUp {
		close(p.up)
		p.isUp = true
	}
}

// disconnect closes the connections that have reached the broker and haven't ended.
func (p *proxy) disconnect() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for l := range p.links {
		select {
		case <-l.done: // its goroutines are about to take it out
			continue
		default:
		}
		if l.server != nil {
			l.close()
			n++
		}
	}
	return n
}

// close stops the proxy and waits for its goroutines until the context ends.
func (p *proxy) close(ctx context.Context) error {
	p.mu.Lock()
	select {
	case <-p.closed:
	default:
		close(p.closed)
		_ = p.ln.Close()
	}
	for l := range p.links {
		l.close()
	}
	p.mu.Unlock()
	return waitFor(ctx, "the proxy's connections", p.wg.Wait)
}

// waitFor runs a wait that knows no context, and stops waiting when one ends.
// What it waits for then goes on in its goroutine.
func waitFor(ctx context.Context, what string, wait func()) error {
	done := make(chan struct{})
	go func() { defer close(done); wait() }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("localstack: waiting for %s: %w", what, context.Cause(ctx))
	}
}

// door is one direction's writer on a link. Each write ends at the end of a
// frame, so what a fault adds always stands between frames.
type door struct {
	link *link
	conn net.Conn
	mu   sync.Mutex
}

// write passes whole frames on, and is false when the link has ended.
func (d *door) write(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if !d.link.gate.carry(len(b), d.link.done) {
		return false
	}
	d.mu.Lock()
	_, err := d.conn.Write(b)
	d.mu.Unlock()
	return err == nil
}
