package rabbitmq

import (
	"context"
	"net/url"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Dial connects to the nodes of a URL, which the package comment describes, and
// returns a connection that owns its clients. It blocks until a node has taken
// the credentials or ctx ends. Errors: broker.ErrInvalid for the URL or an
// option, broker.ErrUnauthorized for the credentials or the virtual host, also
// where that doesn't exist, broker.ErrUnavailable. None shows a secret.
//
// A lost connection is made again, with back-off and full jitter, for as long as
// the connection isn't closed.
func Dial(ctx context.Context, rawURL string, opts ...Option) (broker.Conn, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	return dial(ctx, u, opts)
}

func dial(ctx context.Context, u *url.URL, opts []Option) (broker.Conn, error) {
	s, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	if err := s.apply(opts); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, broker.Errorf(broker.ErrUnavailable, context.Cause(ctx), "rabbitmq://%s: connect", u.Host)
	}
	c, err := newConn(ctx, s)
	if err != nil {
		return nil, err
	}
	return driver.New(c), nil
}

// newConn chooses the protocol.
func newConn(ctx context.Context, s settings) (driver.Conn, error) {
	if s.kind == Stream {
		return newStreamConn(ctx, s)
	}
	return newQueueConn(ctx, s)
}
