package ownadapter

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

func init() {
	broker.Register("spool", func(_ context.Context, u *url.URL) (broker.Conn, error) {
		if u.Host != "" || u.Path == "" || u.RawQuery != "" {
			return nil, broker.Errorf(broker.ErrInvalid, nil, "spool: want spool:///FOLDER")
		}
		return Open(u.Path)
	})
}

// Open returns a connection to the broker that a folder is, which is made if it isn't
// there. By URL it is spool:///FOLDER.
func Open(dir string) (broker.Conn, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, broker.Errorf(broker.ErrUnavailable, err, "spool")
	}
	return driver.New(&conn{dir: dir}), nil
}

// conn is the driver.Conn. There is nothing to connect to.
type conn struct{ dir string }

// topic returns a topic's folder and settings. It isn't made by opening it.
func (c *conn) topic(name string) (spool, settings, error) {
	set := settings{Lease: defaultLease}
	if !validName(name) {
		return spool{}, set, broker.Errorf(broker.ErrInvalid, nil, "topic %q", name)
	}
	s := spool{filepath.Join(c.dir, name)}
	b, err := os.ReadFile(filepath.Join(s.dir, settingsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, set, broker.Errorf(broker.ErrNotFound, nil, "topic %s", name)
	}
	if err == nil {
		err = json.Unmarshal(b, &set)
	}
	if err != nil {
		return s, set, broker.Errorf(broker.ErrUnavailable, err, "topic %s", name)
	}
	return s, set, nil
}

func (c *conn) OpenPublisher(_ context.Context, topic string, _ broker.PublisherOptions) (driver.Publisher, error) {
	s, _, err := c.topic(topic)
	return &publisher{s}, err
}

func (c *conn) OpenReceiver(_ context.Context, subscription string, o broker.ReceiverOptions) (driver.Receiver, error) {
	if o.StartFrom != nil {
		return nil, broker.Errorf(broker.ErrUnsupported, nil, "open receiver %s: StartFrom: what is settled is gone", subscription)
	}
	s, set, err := c.topic(subscription)
	return &receiver{spool: s, lease: set.Lease, epoch: new(driver.Epoch), done: make(chan struct{}), open: map[*held]struct{}{}}, err
}

// Ensure makes a topic, which is its own subscription. A wish that can't be met is
// refused, never passed over.
func (c *conn) Ensure(_ context.Context, e broker.Entity) error {
	for wish, made := range map[string]bool{"Window": e.Window > 0, "MaxDeliveries": e.MaxDeliveries > 0, "DeadLetter": e.DeadLetter != "",
		"Ordered": e.Ordered, "Partitions": e.Partitions > 1, "MaxBody": e.MaxBody > 0} {
		if made {
			return broker.Errorf(broker.ErrUnsupported, nil, "ensure %s: %s", e.Topic, wish)
		}
	}
	if e.Topic == "" {
		e.Topic = e.Subscription
	}
	if e.Subscription != "" && e.Subscription != e.Topic {
		return broker.Errorf(broker.ErrUnsupported, nil, "ensure %s: a subscription of another name, %s", e.Topic, e.Subscription)
	}
	s, has, err := c.topic(e.Topic)
	switch {
	case err == nil && e.Lease > 0 && has.Lease != e.Lease:
		return broker.Errorf(broker.ErrConflict, nil, "ensure %s: its lease is %s, not %s", e.Topic, has.Lease, e.Lease)
	case err == nil:
		return nil
	case !errors.Is(err, broker.ErrNotFound):
		return err
	}
	set := settings{Lease: defaultLease}
	if e.Lease > 0 {
		set.Lease = e.Lease
	}
	b, err := json.Marshal(set)
	if err == nil {
		if err = os.MkdirAll(filepath.Join(s.dir, dead), 0o700); err == nil {
			err = writeSynced(filepath.Join(s.dir, settingsFile), b)
		}
	}
	if err != nil {
		return broker.Errorf(broker.ErrUnavailable, err, "ensure %s", e.Topic)
	}
	return nil
}

func (c *conn) Delete(_ context.Context, e broker.Entity) error {
	for _, name := range []string{e.Topic, e.Subscription} {
		if s, _, err := c.topic(name); err == nil {
			if err := os.RemoveAll(s.dir); err != nil {
				return broker.Errorf(broker.ErrUnavailable, err, "delete %s", name)
			}
		}
	}
	return nil
}

func (c *conn) As(any) bool                 { return false }
func (c *conn) Close(context.Context) error { return nil }

// maxBody is the limit of a message's body in bytes.
const maxBody = 1 << 20

type publisher struct{ spool spool }

func (p *publisher) Publish(ctx context.Context, ms []broker.Message, rs []broker.Receipt) {
	for i := range ms {
		if err := context.Cause(ctx); err != nil {
			rs[i] = broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(broker.ErrUnavailable, err, "publish")}
			continue
		}
		if len(ms[i].Body) > maxBody { // of what comes through the contract this is checked before
			rs[i] = broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(broker.ErrTooLarge, nil, "publish: a body of %d bytes", len(ms[i].Body))}
			continue
		}
		seq, err := p.spool.add(&ms[i])
		switch {
		case err == nil:
			rs[i] = broker.Receipt{Verdict: broker.Stored, Position: broker.Position{Offset: seq}}
		case errors.Is(err, fs.ErrNotExist): // the topic was deleted
			rs[i] = broker.Receipt{Verdict: broker.Refused, Err: broker.Errorf(broker.ErrUnroutable, err, "publish")}
		default:
			// The rename may have taken place.
			rs[i].Err = broker.Errorf(broker.ErrUnknownOutcome, err, "publish")
		}
	}
}

func (p *publisher) Limits() broker.Limits       { return broker.Limits{Body: maxBody, Headers: 1 << 16} }
func (p *publisher) As(any) bool                 { return false }
func (p *publisher) Close(context.Context) error { return nil }

type receiver struct {
	spool spool
	lease time.Duration
	epoch *driver.Epoch // ends with Close
	done  chan struct{}

	mu   sync.Mutex
	open map[*held]struct{} // handed out and not settled, for Close to give back
}

func (r *receiver) Receive(ctx context.Context, max int, out *driver.Batch) error {
	for {
		asked := time.Now()
		hs, err := r.spool.take(max, r.lease)
		for _, h := range hs {
			d, t := out.Add()
			d.Message = h.record.Message
			d.Attempt = broker.Attempt{Number: h.attempt, Trust: broker.Exact}
			d.Lease = asked.Add(r.lease)
			d.Position.Offset = h.seq
			t.Epoch, t.Ref = r.epoch, h
			r.mu.Lock()
			r.open[h] = struct{}{}
			r.mu.Unlock()
		}
		switch {
		case len(hs) > 0:
			return nil
		case err != nil:
			return broker.Errorf(broker.ErrUnavailable, err, "receive")
		}
		select {
		case <-r.done:
			return broker.Errorf(broker.ErrClosed, nil, "receive")
		default:
		}
		if !poll(ctx) {
			return context.Cause(ctx)
		}
	}
}

func (r *receiver) Settle(_ context.Context, ops []driver.Op) {
	for i := range ops {
		r.settle(&ops[i])
	}
}

func (r *receiver) settle(op *driver.Op) {
	h, s := op.Token.Ref.(*held), op.Settlement
	r.mu.Lock() // one settle at a time: Close and an Extend could meet
	defer r.mu.Unlock()
	if s.Action != broker.Extend {
		delete(r.open, h)
	}
	var took bool
	var err error
	switch s.Action {
	case broker.Ack:
		took, err = h.remove()
	case broker.Nack:
		took, err = h.move(h.name(), time.Now().Add(s.Delay))
	case broker.DeadLetter:
		took, err = h.bury(s.Reason)
	case broker.Extend:
		lease := s.Delay
		if lease <= 0 {
			lease = r.lease
		}
		took, err = h.move(h.name(), time.Now().Add(lease))
		s.Outcome.Lease = h.until
	}
	switch {
	case err != nil:
		s.Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, err, "%s %q", s.Action, s.Delivery.ID)}
	case took:
		s.Outcome.State = broker.Confirmed
	case op.Again: // the first time may have been what took it away
		s.Outcome = broker.Outcome{Err: broker.Errorf(broker.ErrUnknownOutcome, nil, "%s %q", s.Action, s.Delivery.ID)}
	default:
		s.Outcome = broker.Outcome{State: broker.LeaseLost, Err: broker.Errorf(broker.ErrLeaseLost, nil, "%s %q", s.Action, s.Delivery.ID)}
	}
}

func (r *receiver) As(any) bool { return false }

func (r *receiver) AsDelivery(*driver.Token, any) bool { return false }

// Close gives back what isn't settled.
func (r *receiver) Close(context.Context) error {
	r.epoch.End()
	close(r.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for h := range r.open {
		if h.until.After(time.Now()) {
			_, err := h.move(h.name(), time.Now())
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
