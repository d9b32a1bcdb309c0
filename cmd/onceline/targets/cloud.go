package targets

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/conformance"
	"github.com/onceline/onceline/conformance/report"
)

// cloudFamily is how the names of all entities begin that runs against a cloud make;
// docs/cloud.md limits the rights to it.
const cloudFamily = "onceline-"

// The times of a run against a cloud, where an answer takes tens of milliseconds
// and is not always the newest.
const (
	cloudLease    = 10 * time.Second
	cloudPatience = 5 * time.Second
	cloudStart    = time.Minute
	cloudEnd      = 3 * time.Minute // of the cleanup

	// sqsWindow is SQS's, which can't be changed (SQS-F-02). The probe waits for
	// twice its length, beside the others.
	sqsWindow       = 5 * time.Minute
	serviceBusShort = 20 * time.Second // the shortest of Service Bus (SB-F-03)
)

// Public reports whether a URL leads beyond this machine and its private networks,
// to where a run may cost money or disturb others. A URL without a host is the
// vendor's service itself, unless the environment names an endpoint as the vendors'
// SDKs take it. Names that aren't plainly local count as public: what they resolve
// to is not asked, for a cloud's name may lead to a private address.
func Public(raw string) bool {
	for _, host := range strings.Split(hostsOf(raw), ",") {
		if !private(host) {
			return true
		}
	}
	return false
}

// hostsOf returns the hosts of a URL, with their ports; of one without, those of
// the environment.
func hostsOf(raw string) string {
	scheme, rest, _ := strings.Cut(raw, "://")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	hosts := rest[strings.LastIndexByte(rest, '@')+1:]
	if hosts != "" {
		return hosts
	}
	var variables []string
	switch scheme {
	case "sqs":
		variables = []string{"AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL"}
	case "pubsub":
		variables = []string{"PUBSUB_EMULATOR_HOST"}
	}
	for _, name := range variables {
		value := os.Getenv(name)
		if value == "" {
			continue
		}
		if _, rest, ok := strings.Cut(value, "://"); ok {
			value, _, _ = strings.Cut(rest, "/")
		}
		return value
	}
	return ""
}

// private reports whether a host, with a port or without, is on this machine or in a
// network that the internet doesn't reach.
func private(host string) bool {
	if at, err := netip.ParseAddrPort(host); err == nil {
		return privateAddress(at.Addr())
	}
	if at, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return privateAddress(at)
	}
	if name, port, ok := strings.Cut(host, ":"); ok && !strings.Contains(port, ":") {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	switch {
	case host == "":
		return false
	case !strings.Contains(host, "."): // localhost, or a name of the local network
		return true
	}
	for _, suffix := range []string{".localhost", ".local", ".home.arpa"} { // reserved for it
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}

func privateAddress(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast()
}

// Cloud returns a target for a broker that runs where others do too: real AWS,
// Google Cloud and Azure, or anything that [Public] says so of. The credentials are
// those of the URL or of the vendor's own chain.
//
// All entities have names that begin with one prefix, which no other run has. The
// target's Close deletes what the probes haven't, by the names that they were given
// and by what the service lists under the prefix, and returns an error that names
// what is left. The suite calls it after an interrupted run too. Start fails where
// the service can't be listed, for then nothing could be promised of the cleanup.
//
// say is told, in a line each, the prefix and what the cleanup has found. It must
// not block.
func Cloud(raw string, say func(line string)) (conformance.Target, error) {
	scheme, _, ok := strings.Cut(raw, "://")
	if !ok {
		return conformance.Target{}, fmt.Errorf("target: %w: not a URL", broker.ErrInvalid)
	}
	base, err := ByURL(raw) // it knows which schemes there are
	if err != nil {
		return conformance.Target{}, err
	}
	r, err := targetOf(scheme, raw)
	if err != nil {
		return conformance.Target{}, err
	}
	t := r.Target
	t.Like = strings.TrimSuffix(base.Name, "-url")
	t.Name = t.Like + "-cloud"
	t.Kind, t.Real = report.KindCloud, true
	t.StartWithin, t.EndWithin = cloudStart, cloudEnd
	if say == nil {
		say = func(string) {}
	}
	switch t.Broker {
	case "sqs", "pubsub", "servicebus":
		t.Lease, t.Patience = cloudLease, cloudPatience
	}
	switch {
	case t.Name == "sqs-fifo-cloud":
		t.Window = sqsWindow
	case t.Broker == "servicebus":
		t.Window = serviceBusShort
	}
	// A probe of the window asks for IDs up to twice its age.
	t.ProbeWithin = max(3*time.Minute, 2*t.Window+2*time.Minute)
	t.Start = func(ctx context.Context) (*conformance.Instance, error) {
		run := &cloudRun{raw: raw, prefix: cloudFamily + newRun() + "-", entity: r.entity, say: say}
		return run.start(ctx, t.Broker)
	}
	return t, nil
}

// newRun is what tells runs apart.
func newRun() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// cloudRun is one run against a cloud.
type cloudRun struct {
	raw, prefix string
	entity      func(name string) broker.Entity // nil for the suite's default
	say         func(string)

	mu    sync.Mutex
	names []broker.Entity // given to probes
}

// start checks that the service is reached, that the credentials are good and that
// what the run makes can be found again.
func (r *cloudRun) start(ctx context.Context, product string) (*conformance.Instance, error) {
	c, err := broker.Open(ctx, r.raw)
	if err != nil {
		return nil, err
	}
	if s := sweeperOf(c); s != nil {
		if _, err := s.list(ctx, r.prefix); err != nil {
			return nil, errors.Join(fmt.Errorf("list what is called %s…, which the cleanup needs: %w", r.prefix, err), c.Close(ctx))
		}
	}
	versions := foundVersions(ctx, product, r.raw, c)
	if err := c.Close(ctx); err != nil {
		return nil, err
	}
	r.say("all that is made is called " + r.prefix + "…; if this program is killed, that is what it leaves behind")
	i := &conformance.Instance{
		Open: func(ctx context.Context) (broker.Conn, error) { return broker.Open(ctx, r.raw) },
		URL:  r.raw, Versions: versions, Entity: r.name, Close: r.sweep,
	}
	i.FullSubscription = subscriberWithoutRoom(product, i)
	if product == "nats" {
		i = natsInstance(i)
	}
	return i, nil
}

// name gives a probe its entity, and remembers it.
func (r *cloudRun) name(name string) broker.Entity {
	name = r.prefix + name
	e := broker.Entity{Topic: name, Subscription: name + "/" + name}
	if r.entity != nil {
		e = r.entity(name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, e)
	return e
}
