package nats

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	natsgo "github.com/nats-io/nats.go"

	"github.com/onceline/onceline/broker"
)

func init() {
	broker.Register("nats", open)
	broker.Register("nats+tls", open)
}

func open(ctx context.Context, u *url.URL) (broker.Conn, error) { return dial(ctx, u, nil) }

// target is what a URL says.
type target struct {
	servers     []string // nats://host:port, without credentials
	hosts       string   // for errors
	client      []natsgo.Option
	options     []Option
	tls         bool
	credentials bool
	insecure    bool // credentials in plaintext are accepted
	loopback    bool // all hosts are
}

// parseTarget reads a URL. No error of it shows a value that may be secret.
func parseTarget(u *url.URL) (*target, error) {
	t := &target{hosts: u.Host, loopback: true}
	bad := func(format string, args ...any) error {
		return broker.Errorf(broker.ErrInvalid, nil, "nats://%s: "+format, append([]any{u.Host}, args...)...)
	}
	switch u.Scheme {
	case "nats":
	case "nats+tls", "tls":
		t.tls = true
	default:
		return nil, bad("scheme %q, want nats or nats+tls", u.Scheme)
	}
	if u.Opaque != "" || (u.Path != "" && u.Path != "/") || u.Fragment != "" {
		return nil, bad("a path or fragment, which means nothing here")
	}
	for _, host := range strings.Split(u.Host, ",") {
		name, port, err := net.SplitHostPort(host)
		if err != nil { // no port
			name, port = strings.Trim(host, "[]"), strconv.Itoa(natsgo.DefaultPort)
		}
		if name == "" || port == "" {
			return nil, bad("a server without a host or port")
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, bad("port %q", port)
		}
		t.loopback = t.loopback && loopback(name)
		t.servers = append(t.servers, "nats://"+net.JoinHostPort(name, port))
	}
	if u.User != nil {
		t.credentials = true
		user := u.User.Username()
		if password, has := u.User.Password(); has {
			t.client = append(t.client, natsgo.UserInfo(user, password))
		} else {
			t.client = append(t.client, natsgo.Token(user))
		}
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad("parameters that can't be read") // the cause would show them
	}
	if err := t.parameters(values, bad); err != nil {
		return nil, err
	}
	if t.credentials && !t.tls && !t.loopback && !t.insecure {
		return nil, bad("credentials would travel in plaintext; use tls=true, or insecure-credentials=true if the network is trusted")
	}
	if t.tls {
		t.client = append(t.client, natsgo.Secure())
	}
	if t.credentials && !t.tls && !t.insecure {
		// The cluster could name servers beyond the loopback, and a reconnect
		// would tell them the credentials.
		t.client = append(t.client, natsgo.IgnoreDiscoveredServers())
	}
	return t, nil
}

// parameters reads the URL's query. bad makes its errors.
func (t *target) parameters(values url.Values, bad func(string, ...any) error) error {
	names := make([]string, 0, len(values))
	for name, vs := range values {
		if len(vs) != 1 {
			return bad("parameter %q is given %d times", name, len(vs))
		}
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := t.parameter(name, values.Get(name)); err != nil {
			switch {
			case errors.Is(err, errUnknownParameter):
				return bad("unknown parameter %q", name)
			case errors.Is(err, errBadParameter):
				return bad("parameter %q has a value that can't be used", name)
			}
			return bad("parameter %q: %w", name, err)
		}
	}
	if (values.Get("cert") == "") != (values.Get("key") == "") {
		return bad("parameters cert and key need each other")
	}
	if values.Get("creds") != "" && values.Get("nkey") != "" {
		return bad("parameters creds and nkey exclude each other")
	}
	if values.Get("cert") != "" {
		t.client = append(t.client, natsgo.ClientCert(values.Get("cert"), values.Get("key")))
	}
	return nil
}

var (
	errUnknownParameter = errors.New("unknown parameter")
	errBadParameter     = errors.New("bad parameter")
)

func (t *target) parameter(name, value string) error {
	switch name {
	case "creds":
		if err := readable(value); err != nil {
			return err
		}
		t.credentials = true
		t.client = append(t.client, natsgo.UserCredentials(value))
	case "nkey":
		if err := readable(value); err != nil {
			return err
		}
		seed, err := natsgo.NkeyOptionFromSeed(value)
		if err != nil {
			return errBadParameter // the cause may quote the seed
		}
		t.credentials = true
		t.client = append(t.client, seed)
	case "tls", "insecure-credentials":
		on, err := strconv.ParseBool(value)
		if err != nil {
			return errBadParameter
		}
		if name == "insecure-credentials" {
			t.insecure = on
		} else if !on && t.tls {
			return errBadParameter // nats+tls:// with tls=false, or a ca
		} else {
			t.tls = on
		}
	case "ca":
		if err := readable(value); err != nil {
			return err
		}
		t.tls = true
		t.client = append(t.client, natsgo.RootCAs(value))
	case "cert", "key":
		if err := readable(value); err != nil {
			return err
		}
		t.tls = true
	case "name":
		if value == "" {
			return errBadParameter
		}
		t.client = append(t.client, natsgo.Name(value))
	default:
		return t.option(name, value)
	}
	return nil
}

// option reads the parameters that are options of the package too.
func (t *target) option(name, value string) error {
	number, notANumber := strconv.Atoi(value)
	var o Option
	switch name {
	case "domain":
		o = Domain(value)
	case "replicas":
		o = Replicas(number)
	case "atomic-batches":
		on, err := strconv.ParseBool(value)
		if err != nil {
			return errBadParameter
		}
		if !on {
			return nil
		}
		o = AtomicBatches()
	case "max-ack-pending":
		o = MaxAckPending(number)
	case "max-in-flight":
		o = MaxInFlight(number)
	case "storage":
		switch value {
		case "file":
			o = FileStorage()
		case "memory":
			o = MemoryStorage()
		}
	case "retention":
		switch value {
		case "limits":
			o = LimitsRetention()
		case "workqueue":
			o = WorkQueue()
		case "interest":
			o = Interest()
		}
	default:
		return errUnknownParameter
	}
	switch name {
	case "replicas", "max-ack-pending", "max-in-flight":
		if notANumber != nil {
			return errBadParameter
		}
	}
	if o == nil || o(&options{}) != nil {
		return errBadParameter
	}
	t.options = append(t.options, o)
	return nil
}

// readable reports why a file that a parameter names can't be read.
func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
