package sqs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/logging"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

const (
	dialTimeout = 5 * time.Second

	// idleConns is how many connections wait for the next request.
	idleConns = 64

	// endpointRegion is the region of an endpoint where nothing names one: it is
	// part of the signature and no more.
	endpointRegion = "us-east-1"

	// anonymousKey and its secret are what emulators see: they check neither.
	anonymousKey = "onceline"
)

// Dial makes a client for the URL, which the package comment describes, and
// returns a connection that owns it. It reads the credential chain's files and
// environment, and may ask a metadata service, within ctx; no request goes to
// the service itself. Errors: broker.ErrInvalid for the URL, an option or a
// missing region, broker.ErrUnauthorized where a profile can't be used. None
// shows a secret.
func Dial(ctx context.Context, rawURL string, opts ...Option) (broker.Conn, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "sqs: not a URL") // the cause would show all of it
	}
	return dial(ctx, u, opts)
}

func dial(ctx context.Context, u *url.URL, opts []Option) (broker.Conn, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	o, err := collect(append(t.options, opts...))
	if err != nil {
		return nil, err
	}
	cfg, err := t.config(ctx)
	if err != nil {
		return nil, err
	}
	transport, err := t.transport(cfg.HTTPClient)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if o.transport != nil {
		client.Transport = o.transport(transport)
	}
	c := &conn{opts: o, idle: transport.CloseIdleConnections}
	c.client = awssqs.NewFromConfig(cfg, func(o *awssqs.Options) {
		o.HTTPClient = client
		o.Logger = logging.LoggerFunc(report)
		if t.host != "" {
			o.BaseEndpoint = aws.String(t.endpoint())
		}
	})
	c.single = single(c.client)
	return driver.New(c), nil
}

// report is where the SDK's own log goes; it would write to standard error.
func report(level logging.Classification, format string, args ...any) {
	at := slog.LevelDebug
	if level == logging.Warn {
		at = slog.LevelWarn
	}
	slog.Log(context.Background(), at, fmt.Sprintf(format, args...), "broker", "sqs")
}

func (t *target) endpoint() string {
	if t.plain {
		return "http://" + t.host
	}
	return "https://" + t.host
}

// config is the SDK's configuration: the default chain, as far as the URL says
// nothing else.
func (t *target) config(ctx context.Context) (aws.Config, error) {
	var load []func(*config.LoadOptions) error
	if t.region != "" {
		load = append(load, config.WithRegion(t.region))
	}
	if t.profile != "" {
		load = append(load, config.WithSharedConfigProfile(t.profile))
	}
	switch {
	case t.key != "":
		load = append(load, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(t.key, t.secret, "")))
	case t.anonymous:
		load = append(load, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(anonymousKey, anonymousKey, "")))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		kind := broker.ErrInvalid
		if t.profile != "" {
			kind = broker.ErrUnauthorized
		}
		return aws.Config{}, broker.Errorf(kind, err, "sqs://%s: configuration", t.host)
	}
	if cfg.Region == "" {
		if t.host == "" {
			return aws.Config{}, broker.Errorf(broker.ErrInvalid, nil, "sqs://: no region: give region=, AWS_REGION or a profile that has one")
		}
		cfg.Region = endpointRegion
	}
	return cfg, nil
}

// transport is the client's own, so that Close can close its idle connections.
// What the configuration asks of TLS (AWS_CA_BUNDLE) is kept.
func (t *target) transport(configured aws.HTTPClient) (*http.Transport, error) {
	base := awshttp.NewBuildableClient()
	if b, ok := configured.(*awshttp.BuildableClient); ok {
		base = b
	}
	tr := base.GetTransport()
	tr.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	tr.MaxIdleConnsPerHost, tr.MaxIdleConns = idleConns, idleConns
	if t.roots != nil {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(t.roots) {
			return nil, broker.Errorf(broker.ErrInvalid, nil, "sqs://%s: parameter %q names a file without a certificate", t.host, "ca")
		}
		if tr.TLSClientConfig == nil {
			tr.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		tr.TLSClientConfig.RootCAs = pool
	}
	return tr, nil
}
