package memory

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/onceline/onceline/broker"
)

// Option is an option of New and Named.
type Option func(*Broker)

// defaults are what an entity gets where Ensure has no wish.
type defaults struct {
	window, lease          time.Duration
	maxDeliveries, maxBody int
}

// WithClock puts the broker on a clock that the test moves. The default is real
// time.
func WithClock(c *Clock) Option { return func(b *Broker) { b.clock = c } }

// WithWindow is the dedup window of topics that Ensure has no wish for. The
// default is two minutes; it panics unless d is positive.
func WithWindow(d time.Duration) Option {
	positive("window", d)
	return func(b *Broker) { b.defaults.window = d }
}

// WithLease is the lease of subscriptions that Ensure has no wish for. The
// default is 30 seconds; it panics unless d is positive.
func WithLease(d time.Duration) Option {
	positive("lease", d)
	return func(b *Broker) { b.defaults.lease = d }
}

// WithMaxDeliveries is the MaxDeliveries of subscriptions that Ensure has no
// wish for. The default is no limit; it panics unless n is positive.
func WithMaxDeliveries(n int) Option {
	positive("max deliveries", n)
	return func(b *Broker) { b.defaults.maxDeliveries = n }
}

// WithMaxBody is the largest body, in bytes, of topics that Ensure has no wish
// for. The default is 1 MiB; it panics unless n is positive.
func WithMaxBody(n int) Option {
	positive("max body", n)
	return func(b *Broker) { b.defaults.maxBody = n }
}

func positive[T int | time.Duration](what string, v T) {
	if v <= 0 {
		panic(fmt.Sprintf("memory: %s %v is not positive", what, v))
	}
}

// parseParameters reads the parameters of a URL; what isn't there is zero. Its
// errors name a parameter and show no value.
func parseParameters(u *url.URL) (defaults, error) {
	var d defaults
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return d, broker.Errorf(broker.ErrInvalid, nil, "open mem://%s: parameters that can't be read", u.Host)
	}
	for name, values := range query {
		ok := len(values) == 1
		switch name {
		case "window":
			ok = ok && parseDuration(values[0], &d.window)
		case "lease":
			ok = ok && parseDuration(values[0], &d.lease)
		case "max-deliveries":
			ok = ok && parseCount(values[0], &d.maxDeliveries)
		case "max-body":
			ok = ok && parseCount(values[0], &d.maxBody)
		default:
			return d, broker.Errorf(broker.ErrInvalid, nil, "open mem://%s: unknown parameter %q", u.Host, name)
		}
		if !ok {
			return d, broker.Errorf(broker.ErrInvalid, nil, "open mem://%s: parameter %s is not one positive value", u.Host, name)
		}
	}
	return d, nil
}

func parseDuration(s string, to *time.Duration) bool {
	d, err := time.ParseDuration(s)
	*to = d
	return err == nil && d > 0
}

func parseCount(s string, to *int) bool {
	n, err := strconv.Atoi(s)
	*to = n
	return err == nil && n > 0
}

// apply sets in to what d has a wish for.
func (d defaults) apply(to *defaults) {
	wish(&to.window, d.window)
	wish(&to.lease, d.lease)
	wish(&to.maxDeliveries, d.maxDeliveries)
	wish(&to.maxBody, d.maxBody)
}

func wish[T comparable](to *T, v T) {
	var zero T
	if v != zero {
		*to = v
	}
}

// check compares the wishes d with what the broker has.
func (d defaults) check(have defaults, name string) error {
	what := "open mem://" + name
	for _, err := range []error{
		clash(what, "window", have.window, d.window),
		clash(what, "lease", have.lease, d.lease),
		clash(what, "max-deliveries", have.maxDeliveries, d.maxDeliveries),
		clash(what, "max-body", have.maxBody, d.maxBody),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// clash is the ErrConflict of a wish that isn't zero with what exists.
func clash[T comparable](what, property string, have, wished T) error {
	var zero T
	if wished == zero || wished == have {
		return nil
	}
	return broker.Errorf(broker.ErrConflict, nil, "%s: %s is %v, wished %v", what, property, have, wished)
}
