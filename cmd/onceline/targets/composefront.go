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

// startElsewhere connects to a broker that runs already. Where it is on this machine,
// speaks without TLS, and there are fault proxies for its protocol, the suite's
// connections go through them.
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
	if !frontable(raw) {
		return i, nil
	}
	i.Purge = purger(product, i) // not of a cloud, where it takes a minute and a right of its own
	var options []localstack.FrontOption
	streamPort := parameter(raw, "stream-port")
	if n, err := strconv.Atoi(streamPort); err == nil {
		options = append(options, localstack.FrontStreamPort(n))
	}
	address := hostsOf(raw)
	f, err := localstack.Front(ctx, product, address, options...)
	if errors.Is(err, localstack.ErrNoFront) {
		return i, nil // claims that need faults are not verifiable then
	}
	if err != nil {
		return nil, err
	}
	behind := strings.Replace(raw, address, f.Address(), 1)
	if streamPort != "" { // both protocols come in by one port
		_, port, _ := net.SplitHostPort(strings.Split(f.Address(), ",")[0]) // it is one of ours
		behind = strings.Replace(behind, "stream-port="+streamPort, "stream-port="+port, 1)
	}
	i.URL = behind
	i.Open = func(ctx context.Context) (broker.Conn, error) { return broker.Open(ctx, behind) }
	i.Inject = func(what conformance.Fault) (conformance.Injection, error) { return inject(f, what) }
	i.Close = f.Close
	return i, nil
}

// frontable reports whether proxies can stand in front of a broker by its URL: all
// hosts are this machine's loopback, with their ports, and nothing says TLS. A proxy
// elsewhere would carry in plaintext what an adapter refuses to.
func frontable(raw string) bool {
	scheme, _, _ := strings.Cut(raw, "://")
	_, query, _ := strings.Cut(raw, "?")
	values, err := url.ParseQuery(query)
	if err != nil || strings.HasSuffix(scheme, "+tls") || strings.Count(raw, hostsOf(raw)) != 1 {
		return false
	}
	for _, name := range []string{"ca", "cert", "key", "server-name"} {
		if values.Has(name) {
			return false
		}
	}
	if tls, err := strconv.ParseBool(values.Get("tls")); values.Has("tls") && (err != nil || tls) {
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
