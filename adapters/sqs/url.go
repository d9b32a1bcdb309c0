package sqs

import (
	"context"
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

func init() { broker.Register("sqs", open) }

func open(ctx context.Context, u *url.URL) (broker.Conn, error) { return dial(ctx, u, nil) }

// target is what a URL says.
type target struct {
	host      string // "" is AWS itself
	loopback  bool
	plain     bool // HTTP without TLS
	region    string
	profile   string
	key       string
	secret    string
	anonymous bool
	roots     []byte // PEM
	options   []Option
}

// parseTarget reads a URL. No error of it shows a value that may be secret.
func parseTarget(u *url.URL) (*target, error) {
	t := &target{host: u.Host}
	bad := func(format string, args ...any) error {
		return broker.Errorf(broker.ErrInvalid, nil, "sqs://%s: "+format, append([]any{u.Host}, args...)...)
	}
	if u.Scheme != "sqs" {
		return nil, bad("scheme %q, want sqs", u.Scheme)
	}
	if u.Opaque != "" || (u.Path != "" && u.Path != "/") || u.Fragment != "" {
		return nil, bad("a path or fragment, which means nothing here")
	}
	if t.host != "" {
		name, port := t.host, ""
		if host, p, err := net.SplitHostPort(t.host); err == nil {
			name, port = host, p
			if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
				return nil, bad("port %q", port)
			}
		}
		name = strings.Trim(name, "[]")
		if name == "" || strings.Contains(name, ",") {
			return nil, bad("want one host, or none for AWS itself")
		}
		t.loopback = loopback(name)
		t.plain = t.loopback
	}
	if u.User != nil {
		secret, has := u.User.Password()
		if !has || u.User.Username() == "" || secret == "" {
			return nil, bad("credentials: want access key, a colon and the secret key")
		}
		t.key, t.secret = u.User.Username(), secret
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, bad("parameters that can't be read") // the cause would show them
	}
	if err := t.parameters(values, bad); err != nil {
		return nil, err
	}
	ways := 0
	for _, given := range []bool{t.key != "", t.profile != "", t.anonymous} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return nil, bad("credentials, profile and anonymous exclude each other")
	case t.anonymous && t.host == "":
		return nil, bad("anonymous=true is for an endpoint, and none is given")
	case t.plain && t.host == "":
		return nil, bad("tls=false is for an endpoint, and none is given")
	case t.plain && t.roots != nil:
		return nil, bad("parameter ca needs tls=true")
	case t.plain && !t.loopback && t.key != "":
		return nil, bad("credentials in the URL need TLS beyond the loopback")
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
		switch err := t.parameter(name, values.Get(name)); {
		case err == nil:
		case errors.Is(err, errUnknownParameter):
			return bad("unknown parameter %q", name)
		case errors.Is(err, errBadParameter):
			return bad("parameter %q has a value that can't be used", name)
		default:
			return bad("parameter %q: %w", name, err)
		}
	}
	return nil
}

var (
	errUnknownParameter = errors.New("unknown parameter")
	errBadParameter     = errors.New("bad parameter")
)

func (t *target) parameter(name, value string) error {
	switch name {
	case "region":
		if value == "" || strings.ContainsFunc(value, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }) {
			return errBadParameter
		}
		t.region = value
	case "profile":
		if value == "" {
			return errBadParameter
		}
		t.profile = value
	case "ca":
		pem, err := os.ReadFile(value)
		if err != nil {
			return err
		}
		t.roots = pem
	case "anonymous", "tls", "fifo", "high-throughput", "pack-keys":
		on, err := strconv.ParseBool(value)
		if err != nil {
			return errBadParameter
		}
		t.flag(name, on)
	case "wait":
		d, err := time.ParseDuration(value)
		if err != nil {
			return errBadParameter
		}
		return t.option(PollWait(d))
	case "max-requests":
		n, err := strconv.Atoi(value)
		if err != nil {
			return errBadParameter
		}
		return t.option(MaxRequests(n))
	default:
		return errUnknownParameter
	}
	return nil
}

func (t *target) flag(name string, on bool) {
	switch name {
	case "anonymous":
		t.anonymous = on
	case "tls":
		t.plain = !on
	case "fifo":
		t.options = append(t.options, FIFO(on))
	case "high-throughput":
		if on {
			t.options = append(t.options, HighThroughput())
		}
	case "pack-keys":
		if on {
			t.options = append(t.options, PackKeys())
		}
	}
}

func (t *target) option(o Option) error {
	if o(&options{}) != nil {
		return errBadParameter
	}
	t.options = append(t.options, o)
	return nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
