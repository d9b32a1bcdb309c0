package localstack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsConfig is what a NATS server is started with. It travels to child
// processes as JSON.
type natsConfig struct {
	MaxPayload int32
	User       string
	Password   string
	Token      string
	SyncAlways bool
	Advertise  string // the proxy's host:port
	Port       int    // 0 until the first start has chosen one

	dataDir string
	front   int // the proxy's port; 0 for a free one

	partitionable bool
}

// NATSOption changes how [StartNATS] and [StartChild] run NATS.
type NATSOption func(*natsConfig)

// NATSMaxPayload sets the largest message the server takes, in bytes. The
// default is the server's own, 1 MiB; it refuses more than 64 MiB.
func NATSMaxPayload(bytes int32) NATSOption {
	return func(c *natsConfig) { c.MaxPayload = bytes }
}

// NATSUser makes the server ask for this user and password. By default it asks
// for nothing.
func NATSUser(user, password string) NATSOption {
	return func(c *natsConfig) { c.User, c.Password = user, password }
}

// NATSToken makes the server ask for this token. By default it asks for nothing.
func NATSToken(token string) NATSOption {
	return func(c *natsConfig) { c.Token = token }
}

// NATSSyncAlways makes JetStream sync each write to the disk before it answers.
// By default it syncs every two minutes.
func NATSSyncAlways() NATSOption {
	return func(c *natsConfig) { c.SyncAlways = true }
}

// NATSPort makes clients connect to this port of 127.0.0.1. By default it is a
// free one.
func NATSPort(port int) NATSOption {
	return func(c *natsConfig) { c.front = port }
}

// NATSDataDir keeps the data in dir, and leaves it there at Close. By default
// they are in a temporary directory that Close removes.
func NATSDataDir(dir string) NATSOption {
	return func(c *natsConfig) { c.dataDir = dir }
}

// NATS is the embedded NATS server with JetStream. It implements [Emulator].
type NATS struct{ *emulator }

// StartNATS runs the NATS server in this process, with JetStream on, and returns
// when it is ready for clients. Client connections are plain TCP.
//
// A restart keeps streams, messages, consumers, acks, and of the deduplication
// window what the stream still holds: the server rebuilds it from the messages,
// so the ID of a message that was acked away from a work queue is forgotten.
// [Emulator.Kill] keeps streams and messages too, but the server writes the state
// of a consumer with a delay, so even confirmed acks on a stream with limits
// retention can be gone, NATSSyncAlways or not.
func StartNATS(ctx context.Context, options ...NATSOption) (*NATS, error) {
	b := new(natsBackend)
	for _, o := range options {
		o(&b.config)
	}
	e, err := newNATS(b, b.config.front, func(net.Addr) (net.Conn, error) { return net.Dial("tcp", b.direct()) })
	if err != nil {
		return nil, err
	}
	b.config.Advertise = e.proxies[0].addr()
	if err := e.open(ctx, b.config.dataDir); err != nil {
		return nil, err
	}
	return &NATS{e}, nil
}

// newNATS makes an emulator with a proxy for NATS in front of any backend.
func newNATS(b backend, port int, dial func(net.Addr) (net.Conn, error)) (*emulator, error) {
	e := &emulator{
		name: NATSName, real: true, backend: b,
		versions: map[string]string{"nats-server": server.VERSION},
		checkAPI: func(string) error { return errNoAPI },
	}
	p, err := listen(port, dial, func(l *link) { serveNATS(l, &e.faults, &e.trace) })
	if err != nil {
		return nil, err
	}
	e.proxies = []*proxy{p}
	return e, nil
}

// natsBackend runs the server in this process. Its port stays the same from the
// first start on, unless something else took it while the server was down.
type natsBackend struct {
	config natsConfig
	server *server.Server
	port   atomic.Int32 // of the last start; read by the proxy at any time
}

// natsReady bounds the start of a server when the context does not.
const natsReady = 10 * time.Second

func (b *natsBackend) start(ctx context.Context, dir string) error {
	c := b.config
	port := int(b.port.Load())
	if port == 0 {
		port = c.Port
	}
	if port == 0 || !free(port) {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: port, ClientAdvertise: c.Advertise,
		JetStream: true, StoreDir: dir, SyncAlways: c.SyncAlways,
		MaxPayload: c.MaxPayload, Username: c.User, Password: c.Password, Authorization: c.Token,
		NoLog: true, NoSigs: true, DisableShortFirstPing: true,
	})
	if err != nil {
		return fmt.Errorf("localstack: nats: %w", err)
	}
	var log natsLog
	s.SetLogger(&log, false, false)
	s.Start()
	if err := log.failure(); err != nil {
		s.Shutdown()
		return fmt.Errorf("localstack: nats: %w", err)
	}
	wait := natsReady
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	if !s.ReadyForConnections(wait) {
		s.Shutdown()
		return errors.Join(fmt.Errorf("localstack: nats: server not ready for connections within %v", wait), context.Cause(ctx))
	}
	if !s.JetStreamEnabled() {
		s.Shutdown()
		return errors.New("localstack: nats: JetStream did not start")
	}
	addr, ok := s.Addr().(*net.TCPAddr)
	if !ok {
		s.Shutdown()
		return errors.New("localstack: nats: server does not listen")
	}
	b.port.Store(int32(addr.Port))
	b.server = s
	return nil
}

func (b *natsBackend) stop(ctx context.Context) error {
	s := b.server
	if s == nil {
		return nil
	}
	b.server = nil
	return waitFor(ctx, "nats to stop", func() { s.Shutdown(); s.WaitForShutdown() })
}

func (b *natsBackend) direct() string {
	if port := b.port.Load(); port != 0 {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
	}
	return ""
}

// free reports whether a port can be listened on.
func free(port int) bool {
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && ln.Close() == nil
}

// natsLog keeps the first error that the server cannot go on with, which it tells
// to nobody but its log.
type natsLog struct {
	mu    sync.Mutex
	fatal error
}

func (l *natsLog) failure() error { l.mu.Lock(); defer l.mu.Unlock(); return l.fatal }

// Fatalf is part of the server's logger.
func (l *natsLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == nil {
		l.fatal = fmt.Errorf(format, v...)
	}
}

// Noticef is part of the server's logger; like the rest it drops the line.
func (l *natsLog) Noticef(string, ...any) {}

// Warnf drops the line.
func (l *natsLog) Warnf(string, ...any) {}

// Errorf drops the line.
func (l *natsLog) Errorf(string, ...any) {}

// Debugf drops the line.
func (l *natsLog) Debugf(string, ...any) {}

// Tracef drops the line.
func (l *natsLog) Tracef(string, ...any) {}
