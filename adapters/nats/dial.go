package nats

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// What Dial sets where ClientOptions don't.
const (
	dialTimeout   = 2 * time.Second        // of one server's TCP and NATS handshake
	writeTimeout  = 5 * time.Second        // a write that gets no further means a dead connection
	pingEvery     = 20 * time.Second       // two pings without an answer mean the same
	reconnectWait = 250 * time.Millisecond // between two tries of all servers, with as much jitter
)

// Dial connects to the servers of a URL, which the package comment describes,
// and returns a connection that owns its client. It blocks until a server has
// taken the credentials or ctx ends. Errors: broker.ErrInvalid for the URL or an
// option, broker.ErrUnauthorized, broker.ErrUnavailable. None shows a secret.
//
// The client reconnects for ever and buffers nothing meanwhile. A call to a
// server that takes no bytes may outlast its context by up to five seconds, the
// client's write timeout.
func Dial(ctx context.Context, rawURL string, opts ...Option) (broker.Conn, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	return dial(ctx, u, opts)
}

// parse is url.Parse for URLs that may list several hosts.
func parse(raw string) (*url.URL, error) {
	bad := broker.Errorf(broker.ErrInvalid, nil, "nats: not a URL") // the cause would show all of it
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return nil, bad
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndexByte(rest[:end], '@') + 1
	hosts := rest[at:end]
	u, err := url.Parse(scheme + "://" + rest[:at] + "host" + rest[end:])
	if err != nil {
		return nil, bad
	}
	u.Host = hosts
	return u, nil
}

func dial(ctx context.Context, u *url.URL, opts []Option) (broker.Conn, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	o, err := collect(append(t.options, opts...))
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "nats://%s: connect", t.hosts)
	}
	d := &dialer{timeout: dialTimeout}
	client := []natsgo.Option{
		natsgo.Timeout(dialTimeout), natsgo.FlusherTimeout(writeTimeout), natsgo.PingInterval(pingEvery),
		natsgo.MaxReconnects(-1), natsgo.ReconnectWait(reconnectWait), natsgo.ReconnectJitter(reconnectWait, reconnectWait),
	}
	client = append(client, reports(o.logger, t.hosts)...)
	client = append(client, t.client...)
	client = append(client, o.client...)
	client = append(client, natsgo.ReconnectBufSize(-1), natsgo.SetCustomDialer(d))
	// The SDK's Connect knows no context: its end takes the sockets away.
	d.ctx.Store(&ctx)
	stop := context.AfterFunc(ctx, d.cut)
	nc, err := natsgo.Connect(strings.Join(t.servers, ","), client...)
	stop()
	background := context.Background()
	d.ctx.Store(&background)
	if err == nil && ctx.Err() != nil {
		nc.Close()
		err = natsgo.ErrNoServers
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, broker.Errorf(kindOfConnect(err), err, "nats://%s: connect", t.hosts)
	}
	c, err := newConn(nc, o)
	if err != nil {
		nc.Close()
		return nil, err
	}
	c.owned = d
	return driver.New(c), nil
}

func kindOfConnect(err error) error {
	switch {
	case errors.Is(err, natsgo.ErrAuthorization), errors.Is(err, natsgo.ErrAuthExpired), errors.Is(err, natsgo.ErrAuthRevoked),
		strings.Contains(strings.ToLower(err.Error()), "authorization violation"): // as the server words it at a first connect
		return broker.ErrUnauthorized
	case errors.Is(err, natsgo.ErrSecureConnWanted), errors.Is(err, natsgo.ErrNoUserCB), errors.Is(err, natsgo.ErrNkeyButNoSigCB):
		return broker.ErrInvalid
	}
	return broker.ErrUnavailable
}

// reports are the hooks for what no call returns.
func reports(log *slog.Logger, hosts string) []natsgo.Option {
	if log == nil {
		log = slog.Default()
	}
	log = log.With("broker", "nats", "servers", hosts)
	return []natsgo.Option{
		natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
			log.Warn("the server or client reports an error", "error", err)
		}),
		natsgo.DisconnectErrHandler(func(_ *natsgo.Conn, err error) {
			if err != nil {
				log.Warn("disconnected", "error", err)
			}
		}),
		natsgo.ReconnectHandler(func(*natsgo.Conn) { log.Info("reconnected") }),
	}
}

// dialer dials for the SDK within a context, and can take its socket away: the
// only way to end a call of the SDK that is stuck in a read or a write.
type dialer struct {
	timeout time.Duration
	ctx     atomic.Pointer[context.Context]

	mu   sync.Mutex
	last net.Conn // the SDK has one at a time
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	n := net.Dialer{Timeout: d.timeout}
	ctx := *d.ctx.Load()
	c, err := n.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.last = c
	d.mu.Unlock()
	if ctx.Err() != nil {
		d.cut() // its end may have come before there was a socket to take away
	}
	return c, nil
}

func (d *dialer) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil {
		_ = d.last.Close() // whose user sees the error
	}
}
