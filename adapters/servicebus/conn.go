package servicebus

import (
	"context"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// closeGrace bounds what a Close waits for where its context doesn't.
const closeGrace = 5 * time.Second

// New returns a connection that uses a client which the caller holds and goes on
// owning: Close leaves it open. New doesn't touch the network. Without
// [AdminClient], Ensure and Delete are broker.ErrUnsupported. Options that belong
// to the making of a client are broker.ErrInvalid.
//
// The client's RetryOptions don't repeat a publish or a settle here. They do
// repeat attaching a link: with the SDK's default of four seconds and more
// between tries, opening something on a broker that is down takes as long as its
// context.
func New(client *azservicebus.Client, opts ...Option) (broker.Conn, error) {
	o, err := collect(opts)
	if err != nil {
		return nil, err
	}
	if client == nil {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "servicebus: no client")
	}
	if o.makes {
		return nil, broker.Errorf(broker.ErrInvalid, nil, "servicebus: an option for the making of a client, and the client exists already")
	}
	return driver.New(&conn{client: client, admin: o.admin, opts: o}), nil
}

// conn is the driver.Conn.
type conn struct {
	client *azservicebus.Client
	admin  *admin.Client // may be nil
	opts   options
	wires  *wires // not nil: the client is ours to close

	closed sync.Once
}

// Now implements driver.Clock.
func (c *conn) Now() time.Time { return c.opts.now() }

func (c *conn) As(target any) bool {
	switch t := target.(type) {
	case **azservicebus.Client:
		*t = c.client
	case **admin.Client:
		*t = c.admin
		return c.admin != nil
	default:
		return false
	}
	return true
}

func (c *conn) Close(ctx context.Context) error {
	if c.wires == nil {
		return nil
	}
	var err error
	c.closed.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, closeGrace)
		defer cancel()
		// The SDK's last frames may go into a black hole: then the sockets are taken
		// away from it.
		stop := context.AfterFunc(ctx, c.wires.cut)
		err = c.client.Close(ctx)
		stop()
		c.wires.cut()
	})
	if err != nil {
		return broker.Errorf(broker.ErrUnavailable, err, "servicebus: close")
	}
	return nil
}
