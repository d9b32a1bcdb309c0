package sqs

import (
	"net/http"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// Option is an option of Dial and New.
type Option func(*options) error

type options struct {
	mode           mode
	highThroughput bool
	packKeys       bool
	wait           time.Duration // most that one poll waits
	requests       int           // of one call at a time
	now            func() time.Time
	transport      func(http.RoundTripper) http.RoundTripper
}

const (
	defaultWait     = 5 * time.Second
	maxWait         = 20 * time.Second // SQS-F-42
	defaultRequests = 8
)

func collect(opts []Option) (options, error) {
	o := options{wait: defaultWait, requests: defaultRequests, now: time.Now}
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return options{}, err
		}
	}
	if o.highThroughput && o.mode == standard {
		return options{}, broker.Errorf(broker.ErrInvalid, nil, "sqs: high throughput is a setting of FIFO queues, and fifo=false excludes them")
	}
	return o, nil
}

// FIFO says what the names on this connection mean. With true each is that of a
// FIFO queue, and .fifo is added to a name that lacks it. With false none is,
// and Ensure refuses wishes that only a FIFO queue can meet. Default: a queue is
// FIFO if its name ends in .fifo.
func FIFO(on bool) Option {
	return func(o *options) error {
		o.mode = standard
		if on {
			o.mode = allFIFO
		}
		return nil
	}
}

// HighThroughput makes the FIFO queues that Ensure creates compare IDs within a
// key instead of the whole queue, which lifts their limit of requests
// (SQS-F-06).
func HighThroughput() Option {
	return func(o *options) error { o.highThroughput = true; return nil }
}

// PackKeys lets one request to a FIFO queue carry several messages of a key. If
// the service then fails one of them and takes a later one, the later one has
// overtaken it for good. Default: a request carries at most one message of a
// key, and the next of the key is sent when that one is known to be stored.
func PackKeys() Option {
	return func(o *options) error { o.packKeys = true; return nil }
}

// PollWait is how long one poll waits for a message at most: 0 to 20 seconds, in
// whole seconds. It is also how long Close may have to wait for the answer to a
// poll that is out, and never more than a quarter of the lease. Default: 5 s.
func PollWait(d time.Duration) Option {
	return func(o *options) error {
		if d < 0 || d > maxWait || d%time.Second != 0 {
			return broker.Errorf(broker.ErrInvalid, nil, "sqs: wait %s, want whole seconds up to %s", d, maxWait)
		}
		o.wait = d
		return nil
	}
}

// MaxRequests is how many requests one Publish, Receive or Settle may have under
// way at a time, 10 messages each. Default: 8.
func MaxRequests(n int) Option {
	return func(o *options) error {
		if n < 1 {
			return broker.Errorf(broker.ErrInvalid, nil, "sqs: max-requests %d, want at least 1", n)
		}
		o.requests = n
		return nil
	}
}

// Clock is the time by which leases are counted, for an emulator whose time is
// moved. Default: the real time.
func Clock(c driver.Clock) Option {
	return func(o *options) error {
		if c == nil {
			return broker.Errorf(broker.ErrInvalid, nil, "sqs: no clock")
		}
		o.now = c.Now
		return nil
	}
}

// WithTransport wraps the HTTP transport of the client that Dial makes, for
// metrics or for in-memory servers. New refuses it: its client is there already.
func WithTransport(wrap func(http.RoundTripper) http.RoundTripper) Option {
	return func(o *options) error {
		if wrap == nil {
			return broker.Errorf(broker.ErrInvalid, nil, "sqs: no transport")
		}
		o.transport = wrap
		return nil
	}
}
