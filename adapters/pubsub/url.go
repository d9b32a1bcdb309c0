package pubsub

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/onceline/onceline/broker"
)

func init() { broker.Register("pubsub", open) }

func open(ctx context.Context, u *url.URL) (broker.Conn, error) {
	project, opts, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	return Dial(ctx, project, opts...)
}

// parseURL reads pubsub://[host:port]/PROJECT?parameter=value. No error of it
// shows a value that may be secret.
func parseURL(u *url.URL) (project string, opts []Option, err error) {
	bad := func(format string, args ...any) error {
		return broker.Errorf(broker.ErrInvalid, nil, "pubsub://%s: "+format, append([]any{u.Host}, args...)...)
	}
	if u.Scheme != "pubsub" {
		return "", nil, bad("scheme %q, want pubsub", u.Scheme)
	}
	if u.User != nil {
		return "", nil, bad("a user in the URL: credentials come from the environment (application default credentials)")
	}
	project = strings.Trim(u.Path, "/")
	if u.Opaque != "" || u.Fragment != "" || project == "" || strings.Contains(project, "/") {
		return "", nil, bad("want pubsub://[host:port]/PROJECT")
	}
	if u.Host != "" {
		host, port, err := net.SplitHostPort(u.Host)
		if err != nil {
			host, port = strings.Trim(u.Host, "[]"), "443"
			if loopback(host) {
				port = "8085" // where the vendor's emulator listens
			}
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || host == "" || strings.Contains(host, ",") {
			return "", nil, bad("want one host, with a port or none")
		}
		opts = append(opts, Endpoint(net.JoinHostPort(host, port)))
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", nil, bad("parameters that can't be read") // the cause would show them
	}
	for name, vs := range values {
		if len(vs) != 1 {
			return "", nil, bad("parameter %q is given %d times", name, len(vs))
		}
		opt, known := parameter(name, vs[0])
		switch {
		case !known:
			return "", nil, bad("unknown parameter %q", name)
		case opt == nil || opt(&options{}) != nil:
			return "", nil, bad("parameter %q has a value that can't be used", name)
		}
		opts = append(opts, opt)
	}
	return project, opts, nil
}

// parameter is the option of a URL parameter, nil for a value that it can't have.
func parameter(name, value string) (opt Option, known bool) {
	switch name {
	case "exactly-once":
		if on, err := strconv.ParseBool(value); err == nil {
			return ExactlyOnce(on), true
		}
	case "plaintext":
		if on, err := strconv.ParseBool(value); err == nil && on {
			return Plaintext(), true
		} else if err == nil {
			return func(*options) error { return nil }, true
		}
	case "pull-wait":
		if d, err := time.ParseDuration(value); err == nil {
			return PullWait(d), true
		}
	default:
		return nil, false
	}
	return nil, true
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
