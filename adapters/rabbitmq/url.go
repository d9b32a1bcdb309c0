package rabbitmq

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
)

func init() {
	broker.Register("rabbitmq", open)
	broker.Register("rabbitmq+tls", open)
}

func open(ctx context.Context, u *url.URL) (broker.Conn, error) { return dial(ctx, u, nil) }

const (
	amqpPort  = 5672
	amqpsPort = 5671
)

// parse is url.Parse for URLs that may list several hosts.
func parse(raw string) (*url.URL, error) {
	bad := broker.Errorf(broker.ErrInvalid, nil, "rabbitmq: not a URL") // the cause would show all of it
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

// parsing is a URL on its way to settings.
type parsing struct {
	settings
	insecure         bool // credentials in plaintext are accepted
	ca, cert, key    string
	serverName, auth string
}

// parseTarget reads a URL. No error of it shows a value that may be secret.
func parseTarget(u *url.URL) (settings, error) {
	bad := func(format string, args ...any) error {
		return broker.Errorf(broker.ErrInvalid, nil, "rabbitmq://%s: "+format, append([]any{u.Host}, args...)...)
	}
	p := parsing{settings: defaults()}
	secure := false
	switch u.Scheme {
	case "rabbitmq":
	case "rabbitmq+tls":
		secure = true
	default:
		return settings{}, bad("scheme %q, want rabbitmq or rabbitmq+tls", u.Scheme)
	}
	if u.Opaque != "" || u.Fragment != "" {
		return settings{}, bad("a fragment, which means nothing here")
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return settings{}, bad("parameters that can't be read") // the cause would show them
	}
	if err := p.parameters(values, bad); err != nil {
		return settings{}, err
	}
	secure = secure || p.ca != "" || p.cert != "" || p.serverName != ""
	loopback, err := p.addresses(u.Host, secure)
	if err != nil {
		return settings{}, bad("%w", err)
	}
	if p.vhost, err = vhostOf(u); err != nil {
		return settings{}, bad("%w", err)
	}
	if secure {
		if p.tls, err = p.tlsConfig(); err != nil {
			return settings{}, bad("%w", err)
		}
	}
	return p.settings, p.credentials(u, secure, loopback, bad)
}

// addresses reads the list of hosts.
func (p *parsing) addresses(list string, secure bool) (loopback bool, err error) {
	loopback = true
	for _, one := range strings.Split(list, ",") {
		name, port, err := net.SplitHostPort(one)
		if err != nil { // no port
			name, port = strings.Trim(one, "[]"), strconv.Itoa(amqpPort)
			if secure {
				port = strconv.Itoa(amqpsPort)
			}
		}
		n, err := strconv.Atoi(port)
		if name == "" || err != nil || n < 1 || n > 65535 {
			return false, errors.New("a host without a name, or with a bad port")
		}
		loopback = loopback && isLoopback(name)
		p.hosts = append(p.hosts, address{name, n})
	}
	return loopback, nil
}

// vhostOf is the URL's path: none or "/" is the default virtual host, whose name
// is "/"; a slash in a name is written %2F.
func vhostOf(u *url.URL) (string, error) {
	path := strings.TrimPrefix(u.EscapedPath(), "/")
	if path == "" {
		return "/", nil
	}
	if strings.Contains(path, "/") {
		return "", errors.New("a path of several parts: a slash in the virtual host is written %2F")
	}
	return url.PathUnescape(path)
}

// credentials reads the userinfo. Without it and without EXTERNAL the broker's
// own default account guest is used, which it admits from the loopback only.
func (p *parsing) credentials(u *url.URL, secure, loopback bool, bad func(string, ...any) error) error {
	switch p.auth {
	case "", "plain":
	case "external":
		if p.cert == "" {
			return bad("auth=external needs the parameters cert and key")
		}
		if u.User != nil {
			return bad("auth=external takes no user")
		}
		p.external = true
		return nil
	default:
		return bad("parameter %q has a value that can't be used", "auth")
	}
	if u.User == nil {
		p.user, p.password = "guest", "guest"
		return nil
	}
	p.user = u.User.Username()
	p.password, _ = u.User.Password()
	if p.user == "" {
		return bad("a password without a user")
	}
	if !secure && !loopback && !p.insecure {
		return bad("credentials would travel in plaintext; use rabbitmq+tls, or insecure-credentials=true if the network is trusted")
	}
	return nil
}

// parameters reads the URL's query. bad makes its errors.
func (p *parsing) parameters(values url.Values, bad func(string, ...any) error) error {
	names := make([]string, 0, len(values))
	for name, vs := range values {
		if len(vs) != 1 {
			return bad("parameter %q is given %d times", name, len(vs))
		}
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch err := p.parameter(name, values.Get(name)); {
		case errors.Is(err, errUnknownParameter):
			return bad("unknown parameter %q", name)
		case errors.Is(err, errBadParameter):
			return bad("parameter %q has a value that can't be used", name)
		case err != nil:
			return bad("parameter %q: %w", name, err)
		}
	}
	if (p.cert == "") != (p.key == "") {
		return bad("parameters cert and key need each other")
	}
	if p.kind != Stream && p.streamPort != 0 {
		return bad("parameter %q belongs to queue=stream", "stream-port")
	}
	return nil
}

var (
	errUnknownParameter = errors.New("unknown parameter")
	errBadParameter     = errors.New("bad parameter")
)

func (p *parsing) parameter(name, value string) error {
	switch name {
	case "ca", "cert", "key":
		f, err := os.Open(value)
		if err != nil {
			return err
		}
		_ = f.Close() // it was only looked at
		*map[string]*string{"ca": &p.ca, "cert": &p.cert, "key": &p.key}[name] = value
	case "server-name":
		if value == "" {
			return errBadParameter
		}
		p.serverName = value
	case "auth":
		p.auth = value
	case "insecure-credentials":
		on, err := strconv.ParseBool(value)
		if err != nil {
			return errBadParameter
		}
		p.insecure = on
	default:
		return p.option(name, value)
	}
	return nil
}

// option reads the parameters that are options of the package too.
func (p *parsing) option(name, value string) error {
	number, numberErr := strconv.Atoi(value)
	duration, durationErr := time.ParseDuration(value)
	var o Option
	var err error
	switch name {
	case "queue":
		switch value {
		case "quorum":
			o = Queues(Quorum)
		case "classic":
			o = Queues(Classic)
		case "stream":
			o = Queues(Stream)
		}
	case "stream-port":
		o, err = StreamPort(number), numberErr
	case "window":
		o, err = Window(number), numberErr
	case "max-in-flight":
		o, err = MaxInFlight(number), numberErr
	case "max-body":
		o, err = MaxBody(number), numberErr
	case "consumer-timeout":
		o, err = ConsumerTimeout(duration), durationErr
	case "heartbeat":
		o, err = Heartbeat(duration), durationErr
	case "name":
		if value != "" {
			o = Name(value)
		}
	default:
		return errUnknownParameter
	}
	if err != nil || o == nil || o(&p.settings) != nil {
		return errBadParameter
	}
	return nil
}

// tlsConfig is what the parameters say. The server's name is that of the host,
// unless one is given.
func (p *parsing) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: p.serverName}
	if p.ca != "" {
		pem, err := os.ReadFile(p.ca)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("parameter ca: no certificate in the file")
		}
	}
	if p.cert != "" {
		pair, err := tls.LoadX509KeyPair(p.cert, p.key)
		if err != nil {
			return nil, errors.New("parameters cert and key: not a pair") // the cause may quote the key
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
