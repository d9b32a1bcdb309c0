package servicebus

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

func init() { broker.Register("servicebus", open) }

func open(ctx context.Context, u *url.URL) (broker.Conn, error) { return dial(ctx, u, nil) }

// target is what a URL or connection string says.
type target struct {
	host             string // of the namespace, with the port if one is given
	keyName, key     string
	connectionString string // instead of the three
	plain            bool   // no TLS: a loopback
	options          []Option
}

// parseTarget reads a URL. No error of it shows a value that may be secret.
func parseTarget(u *url.URL) (*target, error) {
	t := &target{host: u.Host}
	bad := func(format string, args ...any) error {
		return broker.Errorf(broker.ErrInvalid, nil, "servicebus://%s: "+format, append([]any{u.Host}, args...)...)
	}
	if u.Scheme != "servicebus" {
		return nil, bad("scheme %q, want servicebus", u.Scheme)
	}
	if u.Opaque != "" || (u.Path != "" && u.Path != "/") || u.Fragment != "" {
		return nil, bad("a path or fragment, which means nothing here")
	}
	if u.Host == "" || u.Hostname() == "" || strings.ContainsAny(u.Host, ",; ") {
		return nil, bad("want the host of one namespace")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return nil, bad("port %q", p)
		}
	}
	if u.User != nil {
		t.keyName = u.User.Username()
		t.key, _ = u.User.Password()
		if t.keyName == "" || t.key == "" || strings.Contains(t.keyName+t.key, ";") {
			return nil, bad("credentials that aren't KEYNAME:KEY")
		}
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad("parameters that can't be read") // the cause would show them
	}
	t.plain = loopback(u.Hostname())
	names := make([]string, 0, len(values))
	for name, vs := range values {
		if len(vs) != 1 {
			return nil, bad("parameter %q is given %d times", name, len(vs))
		}
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch err := t.parameter(name, values.Get(name)); {
		case errors.Is(err, errUnknownParameter):
			return nil, bad("unknown parameter %q", name)
		case err != nil:
			return nil, bad("parameter %q has a value that can't be used", name)
		}
	}
	if t.plain && !loopback(u.Hostname()) {
		return nil, bad("plaintext beyond the loopback")
	}
	if t.plain && values.Has("ca") {
		return nil, bad("parameter ca means nothing without TLS; give tls=true")
	}
	if admin := values.Get("admin"); t.plain && admin != "" {
		if host, _, _ := net.SplitHostPort(admin); !loopback(host) {
			return nil, bad("parameter admin is plaintext beyond the loopback")
		}
	}
	return t, nil
}

var (
	errUnknownParameter = errors.New("unknown parameter")
	errBadParameter     = errors.New("bad parameter")
)

func (t *target) parameter(name, value string) error {
	on, notBool := strconv.ParseBool(value)
	d, notDuration := time.ParseDuration(value)
	var o Option
	switch name {
	case "tls":
		if notBool != nil {
			return errBadParameter
		}
		t.plain = !on
		return nil
	case "sessions", "duplicate-detection":
		if notBool != nil {
			return errBadParameter
		}
		if name == "sessions" && on {
			o = RequireSessions()
		} else if name == "duplicate-detection" && !on {
			o = WithoutDuplicateDetection()
		} else {
			return nil
		}
	case "settle-timeout", "session-idle":
		if notDuration != nil {
			return errBadParameter
		}
		if o = SettleTimeout(d); name == "session-idle" {
			o = SessionIdle(d)
		}
	case "ca":
		config, err := roots(value)
		if err != nil {
			return err
		}
		o = TLS(config)
	case "admin":
		o = AdminEndpoint(value)
	case "application-id":
		o = ApplicationID(value)
	default:
		return errUnknownParameter
	}
	if o(&options{}) != nil {
		return errBadParameter
	}
	t.options = append(t.options, o)
	return nil
}

func roots(file string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errBadParameter
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
