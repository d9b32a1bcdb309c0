package targets

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/localstack"
)

// startElsewhere connects to a broker that runs already. Where it is on this machine
// and there are fault proxies for its protocol, the suite's connections go through
// them. Where it wants TLS, or its protocol is none that they know, they carry bytes:
// the network can be silenced, connections can be cut, and no operation be struck.
func startElsewhere(ctx context.Context, product, raw string) (*conformance.Instance, error) {
	c, err := broker.Open(ctx, raw)
	if err != nil {
		return nil, err
	}
	versions := foundVersions(ctx, product, raw, c)
	if err := c.Close(ctx); err != nil {
		return nil, err
	}
	i := &conformance.Instance{URL: raw, Versions: versions,
		Open: func(ctx context.Context) (broker.Conn, error) { return broker.Open(ctx, raw) }}
	i.FullSubscription = subscriberWithoutRoom(product, i)
	if !frontable(raw) {
		return i, nil
	}
	i.Purge = purger(product, i) // not of a cloud, where it takes a minute and a right of its own
	f, knows, err := frontOf(ctx, product, raw)
	if errors.Is(err, localstack.ErrNoFront) {
		return i, nil // claims that need faults are not verifiable then
	}
	if err != nil {
		return nil, err
	}
	behind := behindFront(raw, f.Address())
	i.URL = behind
	i.Open = func(ctx context.Context) (broker.Conn, error) { return broker.Open(ctx, behind) }
	i.Network = func(n conformance.Network) error { carry(f, n); return nil }
	if knows {
		i.Inject = func(what conformance.Fault) (conformance.Injection, error) { return inject(f, what) }
	} else {
		i.Cut = func() (int, error) { return f.Disconnect(), nil }
	}
	i.Close = f.Close
	return i, nil
}

// frontOf puts proxies in front of a broker that run as they may: such that know its
// protocol, or else such that carry bytes.
func frontOf(ctx context.Context, product, raw string) (f *localstack.Fronted, knows bool, err error) {
	address := hostsOf(raw)
	if plaintext(raw) {
		var options []localstack.FrontOption
		if n, err := strconv.Atoi(parameter(raw, "stream-port")); err == nil {
			options = append(options, localstack.FrontStreamPort(n))
		}
		if f, err = localstack.Front(ctx, product, address, options...); !errors.Is(err, localstack.ErrNoFront) {
			return f, true, err
		}
	}
	if parameter(raw, "queue") == "stream" || strings.Contains(address, "[") {
		// The other port of streams would be reached past the proxies, and these
		// listen at no address of IPv6 that a certificate may be made out for.
		return nil, false, localstack.ErrNoFront
	}
	f, err = localstack.Front(ctx, product, address, localstack.FrontBytes())
	return f, false, err
}

// behindFront is the URL with the proxies' ports. The hosts stay, as certificates are
// made out for them.
func behindFront(raw, proxies string) string {
	var hosts []string
	port := ""
	fronts := strings.Split(proxies, ",")
	for i, at := range strings.Split(hostsOf(raw), ",") {
		host, _, _ := net.SplitHostPort(at) // frontable has looked at both
		_, port, _ = net.SplitHostPort(fronts[i])
		if host != "localhost" {
			host = "127.0.0.1" // where the proxies listen
		}
		hosts = append(hosts, net.JoinHostPort(host, port))
	}
	behind := strings.Replace(raw, hostsOf(raw), strings.Join(hosts, ","), 1)
	if p := parameter(raw, "stream-port"); p != "" { // both protocols come in by one port
		behind = strings.Replace(behind, "stream-port="+p, "stream-port="+port, 1)
	}
	return behind
}

// frontable reports whether proxies can stand in front of a broker by its URL: all
// hosts are this machine's loopback, with their ports. A proxy elsewhere would carry in
// plaintext what an adapter refuses to.
func frontable(raw string) bool {
	scheme, _, _ := strings.Cut(raw, "://")
	_, query, _ := strings.Cut(raw, "?")
	values, err := url.ParseQuery(query)
	if err != nil || strings.Count(raw, hostsOf(raw)) != 1 {
		return false
	}
	for _, at := range strings.Split(hostsOf(raw), ",") {
		host, port, err := net.SplitHostPort(at)
		if err != nil || port == "" {
			return false
		}
		if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
			return false
		}
	}
	// Streams of a cluster lead their clients from node to node.
	return scheme != "rabbitmq" || values.Get("queue") != "stream" || !strings.Contains(hostsOf(raw), ",")
}

// plaintext reports whether nothing in a URL says TLS.
func plaintext(raw string) bool {
	scheme, _, _ := strings.Cut(raw, "://")
	_, query, _ := strings.Cut(raw, "?")
	values, err := url.ParseQuery(query)
	if err != nil || strings.HasSuffix(scheme, "+tls") {
		return false
	}
	for _, name := range []string{"ca", "cert", "key", "server-name"} {
		if values.Has(name) {
			return false
		}
	}
	tls, err := strconv.ParseBool(values.Get("tls"))
	return !values.Has("tls") || err == nil && !tls
}
