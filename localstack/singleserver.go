package localstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Server is a server of somebody else's that runs as one process. It implements
// [Emulator]. Where its documentation says that there are no faults, Inject
// returns an injection with an error; Freeze, Disconnect, Restart and Kill, which
// is a SIGKILL, do what they do everywhere.
type Server struct {
	*emulator
	process *singleServer
}

// Pid returns the process ID of the server, 0 when it does not run.
func (s *Server) Pid() int { return pids([]*serverProcess{s.process.now()})[0] }

// singleServer is the backend of a server that is one process.
type singleServer struct {
	name   string
	config serverConfig

	// command says what to run on the data in dir, to listen on a port.
	command func(dir string, port int) (serverCommand, error)
	// classes are those of a Java server, whose command's arguments begin with the JVM's;
	// nil for none.
	classes *classArchive
	// ready asks the server whether it takes clients.
	ready func(ctx context.Context, port int) bool
	// halt asks for a clean stop; nil for SIGTERM.
	halt func(*serverProcess)
	// again says of the last words of a server that has ended while it started whether
	// another start will do; nil if none will.
	again func(said string) bool
	// front is what stands between the proxy and the server while that runs; nil
	// for nothing.
	front func(address string) (serverFront, error)
	// entry is the port that clients connect to, from before the first start.
	entry int

	mu      sync.Mutex
	process *serverProcess
	port    int
	fronted serverFront
}

// serverFront understands a server's protocol, and so can carry out faults.
type serverFront interface {
	// dial returns the client's end of a connection.
	dial(client net.Addr) (net.Conn, error)
	// close ends all connections and waits for what serves them.
	close(ctx context.Context) error
}

func (b *singleServer) now() *serverProcess {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.process
}

func (b *singleServer) start(ctx context.Context, dir string) error {
	ports := []int{b.port}
	if b.port == 0 {
		ports = nil
	}
	ports, err := keepPorts(ports, 1)
	if err != nil {
		return err
	}
	command, err := b.command(dir, ports[0])
	if err != nil {
		return err
	}
	command.args = append(b.config.sharing(ctx, b.classes), command.args...)
	b.config.progress("%s: starting", b.name)
	var p *serverProcess
	for deadline := time.Now().Add(serverStop); ; {
		if p, err = command.run(); err != nil {
			return err
		}
		b.mu.Lock()
		b.process, b.port = p, ports[0]
		b.mu.Unlock()
		err = p.await(ctx, func(ctx context.Context) bool { return b.ready(ctx, ports[0]) })
		if err == nil || b.again == nil || p.alive() || !b.again(p.said()) || time.Now().After(deadline) || !pauseFor(ctx, serverPoll) {
			break
		}
	}
	if err == nil && b.front != nil {
		var front serverFront
		front, err = b.front(loopback(ports[0]))
		b.mu.Lock()
		b.fronted = front
		b.mu.Unlock()
	}
	if err != nil {
		if p.alive() {
			err = errors.Join(err, p.kill())
		}
		return err
	}
	b.config.progress("%s: ready", b.name)
	return nil
}

// train runs a Java server for its classes.
func (b *singleServer) train(ctx context.Context, dir string, jvm []string) error {
	ports, err := freePorts(1)
	if err != nil {
		return err
	}
	command, err := b.command(dir, ports[0])
	if err != nil {
		return err
	}
	command.args = append(jvm, command.args...)
	p, err := command.run()
	if err != nil {
		return err
	}
	if err := p.await(ctx, func(ctx context.Context) bool { return b.ready(ctx, ports[0]) }); err != nil {
		if p.alive() {
			err = errors.Join(err, p.kill())
		}
		return err
	}
	return p.finish(ctx)
}

// pauseFor waits and reports whether ctx lasted so long.
func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (b *singleServer) dial(client net.Addr) (net.Conn, error) {
	b.mu.Lock()
	front, port := b.fronted, b.port
	b.mu.Unlock()
	if front != nil {
		return front.dial(client)
	}
	return net.Dial("tcp", loopback(port))
}

func (b *singleServer) direct() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.port == 0 {
		return ""
	}
	return loopback(b.port)
}

// leave closes the front.
func (b *singleServer) leave(ctx context.Context) error {
	b.mu.Lock()
	front := b.fronted
	b.fronted = nil
	b.mu.Unlock()
	if front == nil {
		return nil
	}
	return front.close(ctx)
}

func (b *singleServer) stop(ctx context.Context) error {
	return errors.Join(b.leave(ctx), b.now().stopBy(ctx, b.halt))
}

func (b *singleServer) kill(ctx context.Context) error {
	return errors.Join(killAll(b.name, []*serverProcess{b.now()}), b.leave(ctx))
}

var _ killer = (*singleServer)(nil)

// openSingle makes the emulator of a server and opens it.
func openSingle(ctx context.Context, e *emulator, b *singleServer) (*Server, error) {
	e.backend = b
	if e.checkAPI == nil {
		e.checkAPI = func(string) error { return nil }
	}
	p, err := listen(b.config.port, b.dial, servePlain)
	if err != nil {
		return nil, err
	}
	e.proxies = []*proxy{p}
	b.entry = p.ln.Addr().(*net.TCPAddr).Port
	if err := e.open(ctx, b.config.dataDir); err != nil {
		return nil, err
	}
	return &Server{e, b}, nil
}

// servePlain passes bytes on as they come.
func servePlain(l *link) {
	all := func(b []byte) (int, fate) { return len(b), forward }
	l.both(
		func() { pump(l.client, &door{link: l, conn: l.server}, all) },
		func() { pump(l.server, &door{link: l, conn: l.client}, all) },
	)
}

// disconnectClient closes the connection of a client by its address, for a front
// that has to cut it.
func (e *emulator) disconnectClient(addr net.Addr) {
	for _, p := range e.proxies {
		p.mu.Lock()
		for l := range p.links {
			if l.client.RemoteAddr().String() == addr.String() {
				l.close()
			}
		}
		p.mu.Unlock()
	}
}

// Inject arms a fault, where the server stands behind a proxy that can carry it
// out.
func (s *Server) Inject(f Fault) *Injection {
	if s.process.front == nil {
		return s.faults.Inject(f, fmt.Errorf("localstack: fault: %s is not looked into, there are no faults by operation", s.process.name))
	}
	return s.emulator.Inject(f)
}
