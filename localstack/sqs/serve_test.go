package sqs_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/onceline/onceline/internal/bubbletest"
	"github.com/onceline/onceline/localstack/fault"
	"github.com/onceline/onceline/localstack/sqs"
)

// pipes is a listener without a network.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c, s := net.Pipe()
	select {
	case p.conns <- s:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Two listeners, connections in memory, virtual time: polls, held requests and
// restarts as over a network.
func TestServeInMemory(t *testing.T) {
	bubbletest.Run(t, func(t *testing.T) {
		s := sqs.New()
		var worlds []world
		var served []chan error
		for range 2 {
			l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
			done := make(chan error, 1)
			go func() { done <- s.Serve(l) }()
			transport := &http.Transport{DialContext: l.dial}
			defer transport.CloseIdleConnections()
			worlds = append(worlds, world{t, s, client(transport, "http://sqs.local")})
			served = append(served, done)
		}
		a, b := worlds[0], worlds[1]
		url := a.queue("q")
		go func() {
			time.Sleep(5 * time.Second)
			b.send(url, "1")
		}()
		start := time.Now()
		a.want("polled", bodies(a.receive(url, 1, wait(20*time.Second))), []string{"1"})
		a.want("time", time.Since(start), 5*time.Second)

		i := s.Faults().Inject(fault.Fault{Op: fault.Publish, Kind: fault.LoseResponse}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := a.sendIn(ctx, url, "2"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("held: %v", err)
		}
		go func() {
			time.Sleep(time.Second)
			s.Restart(true)
		}()
		start = time.Now()
		if err := a.sendIn(t.Context(), url, "3"); err == nil || time.Since(start) != time.Second {
			t.Errorf("ended after %v: %v", time.Since(start), err)
		}
		i.Remove()
		a.want("applied", i.Applied(), 2)
		a.want("and served again", bodies(a.receive(url, 10)), []string{"2", "3"})

		a.must(s.Close(t.Context()))
		for _, d := range served {
			a.must(<-d)
		}
		l := &pipes{done: make(chan struct{})}
		a.must(s.Serve(l))
		<-l.done // a closed server closes what it doesn't serve
	})
}
