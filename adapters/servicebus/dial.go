package servicebus

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	dialTimeout = 10 * time.Second
	portTLS     = "5671"
	portPlain   = "5672"
	portAdmin   = "5300" // of the vendor's emulator
)

// Dial returns a connection to the namespace of a URL, which the package comment
// describes. It connects when something is opened, not before. Errors:
// broker.ErrInvalid for the URL or an option, broker.ErrUnauthorized where no
// credential can be found. None shows a secret.
func Dial(ctx context.Context, rawURL string, opts ...Option) (broker.Conn, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "servicebus: not a URL") // the cause would show all of it
	}
	return dial(ctx, u, opts)
}

func dial(_ context.Context, u *url.URL, opts []Option) (broker.Conn, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	o, err := collect(append(t.options, opts...))
	if err != nil {
		return nil, err
	}
	if t.key == "" && !t.plain && o.credential == nil {
		if o.credential, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
			return nil, broker.Errorf(broker.ErrUnauthorized, err, "servicebus://%s: default credential", t.host)
		}
	}
	return t.connect(o)
}

// FromConnectionString is Dial for a connection string as the portal shows it,
// with a key or a shared access signature. UseDevelopmentEmulator=true means
// plaintext, and is taken for a loopback alone. An EntityPath is ignored: names
// are given when opening.
func FromConnectionString(connectionString string, opts ...Option) (broker.Conn, error) {
	t := target{connectionString: connectionString}
	for part := range strings.SplitSeq(connectionString, ";") {
		name, value, _ := strings.Cut(part, "=")
		switch {
		case strings.EqualFold(name, "Endpoint"):
			u, err := url.Parse(value)
			if err != nil || u.Host == "" || u.User != nil {
				return nil, broker.Errorf(broker.ErrInvalid, nil, "servicebus: the connection string's endpoint isn't sb://HOST")
			}
			t.host = u.Host
		case strings.EqualFold(name, "UseDevelopmentEmulator"):
			t.plain = strings.EqualFold(value, "true")
		}
	}
	if t.host == "" {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "servicebus: a connection string without an endpoint")
	}
	if t.plain && !loopback(t.hostname()) {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "servicebus: %s: UseDevelopmentEmulator sends the key in plaintext beyond the loopback", t.host)
	}
	o, err := collect(opts)
	if err != nil {
		return nil, err
	}
	return t.connect(o)
}

// FromCredential is Dial for a token credential, such as azidentity makes.
// namespace is its host: NAME.servicebus.windows.net.
func FromCredential(namespace string, credential azcore.TokenCredential, opts ...Option) (broker.Conn, error) {
	if namespace == "" || credential == nil || strings.ContainsAny(namespace, "/@?# ") {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "servicebus: want the host of a namespace and a credential")
	}
	o, err := collect(opts)
	if err != nil {
		return nil, err
	}
	o.credential = credential
	t := target{host: namespace}
	return t.connect(o)
}

// connect makes the clients.
func (t *target) connect(o options) (broker.Conn, error) {
	w := &wires{dial: o.dial, open: map[*wire]struct{}{}}
	if w.dial == nil {
		w.dial = t.dialer(o.tls)
	}
	co := &azservicebus.ClientOptions{
		ApplicationID: o.applicationID,
		// One try each: what may be repeated, and when, is decided here.
		RetryOptions: azservicebus.RetryOptions{MaxRetries: -1, RetryDelay: -1},
		// The only hook by which the SDK takes a connection that it didn't make. It
		// is told no WebSocket from a plain connection.
		NewWebSocketConn: func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			return w.connect(ctx)
		},
	}
	ao := &admin.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport: t.transport(o),
		Retry:     policy.RetryOptions{MaxRetries: -1},
	}}
	var (
		client *azservicebus.Client
		adm    = o.admin
		err    error
	)
	if o.credential != nil && t.connectionString == "" {
		if client, err = azservicebus.NewClient(t.host, o.credential, co); err == nil && adm == nil {
			adm, err = admin.NewClient(t.host, o.credential, ao)
		}
	} else {
		s := t.connectionString
		if s == "" {
			s = t.assemble()
		}
		if client, err = azservicebus.NewClientFromConnectionString(s, co); err == nil && adm == nil {
			adm, err = admin.NewClientFromConnectionString(s, ao)
		}
	}
	if err != nil {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "servicebus://%s: the key or connection string can't be used", t.host) // the cause might show it
	}
	return driver.New(&conn{client: client, admin: adm, opts: o, wires: w}), nil
}

// assemble writes the target as a connection string. Without TLS and a key, any
// key will do.
func (t *target) assemble() string {
	name, key := t.keyName, t.key
	if key == "" {
		name, key = "RootManageSharedAccessKey", "none"
	}
	s := "Endpoint=sb://" + t.host + ";SharedAccessKeyName=" + name + ";SharedAccessKey=" + key
	if t.plain {
		s += ";UseDevelopmentEmulator=true"
	}
	return s
}

func (t *target) hostname() string {
	if name, _, err := net.SplitHostPort(t.host); err == nil {
		return name
	}
	return strings.Trim(t.host, "[]")
}

func (t *target) dialer(config *tls.Config) func(context.Context) (net.Conn, error) {
	address, port := t.host, portTLS
	if t.plain {
		port = portPlain
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(t.hostname(), port)
	}
	n := &net.Dialer{Timeout: dialTimeout}
	if t.plain {
		return func(ctx context.Context) (net.Conn, error) { return n.DialContext(ctx, "tcp", address) }
	}
	secure := &tls.Dialer{NetDialer: n, Config: config}
	return func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return secure.DialContext(ctx, "tcp", address)
	}
}

// transport is the HTTP client for the admin interface: the SDK always asks for
// https at the namespace.
func (t *target) transport(o options) policy.Transporter {
	address := o.adminEndpoint
	if address == "" && t.plain {
		address = t.host
		if _, port, err := net.SplitHostPort(t.host); err != nil || port == portPlain {
			address = net.JoinHostPort(t.hostname(), portAdmin)
		}
	}
	tr := http.DefaultTransport.(*http.Transport).Clone()
	tr.TLSClientConfig = o.tls
	tr.DisableKeepAlives = true // admin calls are rare, and idle connections outlive Close
	return &endpoint{client: &http.Client{Transport: tr}, address: address, plain: t.plain}
}

// endpoint sends requests to another address than the SDK thinks.
type endpoint struct {
	client  *http.Client
	address string // "": as it is
	plain   bool
}

// Do implements policy.Transporter.
func (e *endpoint) Do(r *http.Request) (*http.Response, error) {
	if e.address != "" {
		r = r.Clone(r.Context())
		r.URL.Host = e.address
		if e.plain {
			r.URL.Scheme = "http"
		}
	}
	return e.client.Do(r)
}

// wires are the network connections of a client, one at a time as a rule. They
// can be taken away: the only way to end a call of the SDK that is stuck in a
// write.
type wires struct {
	dial func(context.Context) (net.Conn, error)

	mu   sync.Mutex
	open map[*wire]struct{} // nil once cut
}

type wire struct {
	net.Conn
	of *wires
}

func (w *wires) connect(ctx context.Context) (net.Conn, error) {
	c, err := w.dial(ctx)
	if err != nil {
		return nil, err
	}
	one := &wire{c, w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	w.open[one] = struct{}{}
	return one, nil
}

func (w *wire) Close() error {
	w.of.mu.Lock()
	delete(w.of.open, w)
	w.of.mu.Unlock()
	return w.Conn.Close()
}

// cut closes all connections; none can be made afterwards.
func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		_ = c.Conn.Close() // whose user sees the error
	}
	w.open = nil
}
