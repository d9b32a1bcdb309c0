package pubsub

import (
	"context"
	"net"
	"os"
	"strings"
	"time"

	sdk "cloud.google.com/go/pubsub/v2"
	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// New returns a connection that uses a client which the caller holds and goes on
// owning: Close leaves it open. The client's retry settings have no part in what
// is published and settled here. New doesn't block on the network. It returns
// broker.ErrInvalid for a bad option; Endpoint, Plaintext and ClientOptions
// concern Dial alone and are refused.
func New(client *sdk.Client, opts ...Option) (broker.Conn, error) {
	o, err := collect(opts)
	if err != nil {
		return nil, err
	}
	switch {
	case client == nil || client.TopicAdminClient == nil || client.SubscriptionAdminClient == nil:
		return nil, broker.Errorf(broker.ErrInvalid, nil, "pubsub: no client")
	case o.endpoint != "" || o.plaintext || len(o.client) > 0:
		return nil, broker.Errorf(broker.ErrInvalid, nil, "pubsub: Endpoint, Plaintext and ClientOptions belong to Dial: the client exists already")
	}
	return driver.New(newConn(client, o, false)), nil
}

// Dial makes a client for a project and a connection that owns it. Without
// Endpoint it is the service itself, with the application default credentials,
// unless the environment's PUBSUB_EMULATOR_HOST names an emulator. An endpoint
// on the loopback is an emulator: no TLS, no credentials. Dial doesn't wait for
// the network; the first call does. It returns broker.ErrUnauthorized where there
// are no credentials to be found.
func Dial(ctx context.Context, project string, opts ...Option) (broker.Conn, error) {
	o, err := collect(opts)
	if err != nil {
		return nil, err
	}
	if project == "" {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "pubsub: no project")
	}
	if o.endpoint != "" && !o.bare() && os.Getenv(emulatorVariable) != "" {
		// The SDK would take TLS and credentials away from the endpoint too.
		return nil, broker.Errorf(broker.ErrInvalid, nil, "pubsub: dial %s: the environment's %s names an emulator, and the endpoint is none", o.endpoint, emulatorVariable)
	}
	client, err := sdk.NewClient(ctx, project, o.clientOptions()...)
	if err != nil {
		kind := error(broker.ErrUnavailable)
		if strings.Contains(err.Error(), "credentials") { // the SDK has no error of its own for it
			kind = broker.ErrUnauthorized
		}
		return nil, broker.Errorf(kind, err, "pubsub: dial project %s", project)
	}
	return driver.New(newConn(client, o, true)), nil
}

// clientOptions are the SDK's options for what o says.
func (o *options) clientOptions() []option.ClientOption {
	var opts []option.ClientOption
	if o.endpoint != "" {
		opts = append(opts, option.WithEndpoint(o.endpoint))
	}
	if o.bare() {
		opts = append(opts, option.WithoutAuthentication(), option.WithTelemetryDisabled(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
	return append(opts, o.client...)
}

// bare reports whether the endpoint gets neither TLS nor credentials.
func (o *options) bare() bool {
	host, _, err := net.SplitHostPort(o.endpoint)
	return o.plaintext || err == nil && loopback(host)
}

const emulatorVariable = "PUBSUB_EMULATOR_HOST"

// conn is the driver.Conn.
type conn struct {
	client  *sdk.Client
	topics  *vkit.TopicAdminClient
	subs    *vkit.SubscriptionAdminClient
	project string
	opts    options
	owned   bool
}

func newConn(client *sdk.Client, o options, owned bool) *conn {
	return &conn{client: client, topics: client.TopicAdminClient, subs: client.SubscriptionAdminClient,
		project: client.Project(), opts: o, owned: owned}
}

// Now implements driver.Clock.
func (c *conn) Now() time.Time {
	if c.opts.clock != nil {
		return c.opts.clock.Now()
	}
	return time.Now()
}

// As sets target to the SDK's client or one of its generated ones.
func (c *conn) As(target any) bool {
	switch t := target.(type) {
	case **sdk.Client:
		*t = c.client
	case **vkit.TopicAdminClient:
		*t = c.topics
	case **vkit.SubscriptionAdminClient:
		*t = c.subs
	default:
		return false
	}
	return true
}

// Close closes the client if Dial made it.
func (c *conn) Close(context.Context) error {
	if !c.owned {
		return nil
	}
	if err := c.client.Close(); err != nil {
		return broker.Errorf(broker.ErrUnavailable, err, "pubsub: close")
	}
	return nil
}

// topicName and subscriptionName are the full name of what the user calls by its
// ID or its full name.
func (c *conn) topicName(name string) (string, error) { return c.fullName("topics", name) }

func (c *conn) subscriptionName(name string) (string, error) {
	return c.fullName("subscriptions", name)
}

func (c *conn) fullName(kind, name string) (string, error) {
	bad := func() error {
		return broker.Errorf(broker.ErrInvalid, nil, "%s %q: want an ID of 3 to 255 letters, digits and -_.~+%%, beginning with a letter and not with goog, or projects/PROJECT/%s/ID",
			kind[:len(kind)-1], name, kind)
	}
	project, id := c.project, name
	if rest, full := strings.CutPrefix(name, "projects/"); full {
		var ok bool
		if project, id, ok = strings.Cut(rest, "/"+kind+"/"); !ok || project == "" || strings.Contains(project, "/") {
			return "", bad()
		}
	}
	if len(id) < 3 || len(id) > 255 || strings.HasPrefix(id, "goog") || !letter(id[0]) { // PS-F-39
		return "", bad()
	}
	for i := 0; i < len(id); i++ {
		if b := id[i]; !letter(b) && (b < '0' || b > '9') && strings.IndexByte("-_.~+%", b) < 0 {
			return "", bad()
		}
	}
	return "projects/" + project + "/" + kind + "/" + id, nil
}

func letter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }
