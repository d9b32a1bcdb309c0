package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// ends is the usual set-up of a probe on hop 1: a publisher, and a receiver
// that sees all that is stored from now on.
type ends struct {
	conn broker.Conn
	pub  broker.Publisher
	rcv  broker.Receiver
}

func (b *Bench) ends(ctx context.Context, change func(*broker.Entity)) (ends, error) {
	c, err := b.Ensure(ctx, change)
	if err != nil {
		return ends{}, err
	}
	p, err := b.Publisher(ctx, c)
	if err != nil {
		return ends{}, err
	}
	r, err := b.Receiver(ctx, c)
	return ends{c, p, r}, err
}

// handOver publishes a new message and receives it.
func (b *Bench) handOver(ctx context.Context, e ends) (broker.Delivery, error) {
	if _, err := b.MustPublish(ctx, e.pub, b.Message()); err != nil {
		return broker.Delivery{}, err
	}
	return b.MustReceive(ctx, e.rcv)
}

// stored is how often m is there.
func (b *Bench) stored(ctx context.Context, e ends, m broker.Message) (int, error) {
	copies, err := b.Copies(ctx, e.pub, e.rcv, m)
	return copies[m.ID], err
}

// times turns how often a message was stored into an answer.
func times(n int) boundary.Answer {
	switch n {
	case 0:
		return boundary.Lost
	case 1:
		return boundary.Once
	}
	return boundary.Twice
}

// often is a number of times in words.
func often(n int) string {
	switch n {
	case 0:
		return "not at all"
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// amount is a number of things.
func amount(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// lostFor is how long a broker that came back has to say that it has no such topic
// or subscription until it is believed: it may be reading them from its disk.
const lostFor = 5 * time.Second

// reopen closes old, whose receiver may still have messages assigned to it, and
// opens publisher and receiver on a new connection, within the time that a
// broker needs to come back.
func (b *Bench) reopen(ctx context.Context, old ends) (ends, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	end, done := context.WithTimeout(ctx, 5*time.Second)
	defer done()
	if err := old.conn.Close(end); err != nil {
		b.Note("closing the old connection: %v", err)
	}
	var gone time.Time // since when the broker says so
	for {
		e, err := b.tryReopen(ctx)
		switch {
		case err == nil:
			return e, nil
		case !errors.Is(err, broker.ErrNotFound):
			gone = time.Time{}
		case gone.IsZero():
			gone = time.Now()
		case time.Since(gone) > lostFor:
			return ends{}, fmt.Errorf("reopen: for %s: %w", lostFor, err)
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return ends{}, fmt.Errorf("reopen: %w", err)
		}
	}
}

func (b *Bench) tryReopen(ctx context.Context) (ends, error) {
	c, err := b.Conn(ctx)
	if err != nil {
		return ends{}, err
	}
	p, err := b.Publisher(ctx, c)
	if err != nil {
		return ends{}, err
	}
	r, err := b.Receiver(ctx, c)
	return ends{c, p, r}, err
}

// sender is a publisher alone, for probes whose consumers open connections of
// their own. change, if not nil, adds wishes.
func (b *Bench) sender(ctx context.Context, change func(*broker.Entity)) (broker.Publisher, error) {
	c, err := b.Ensure(ctx, change)
	if err != nil {
		return nil, err
	}
	return b.Publisher(ctx, c)
}

// witness shows that r is at work, by a message that it gets: without it, that
// another message never came may be the silence of a broker that is gone.
func (b *Bench) witness(ctx context.Context, p broker.Publisher, r broker.Receiver) error {
	m := b.Message()
	if _, err := b.MustPublish(ctx, p, m); err != nil {
		return fmt.Errorf("nothing came, and the witness can't be sent: %w", err)
	}
	for {
		d, err := b.MustReceive(ctx, r)
		if err != nil {
			return fmt.Errorf("nothing came, nor does the witness: %w", err)
		}
		if err := b.MustAck(ctx, r, &d); err != nil || d.ID == m.ID {
			return err
		}
	}
}

// comesBack reports whether r gets the message that was given back, and acks all
// that it gets. A message published after it shows how long the broker takes: that
// nothing came before it may be the slowness of a busy machine.
func (b *Bench) comesBack(ctx context.Context, p broker.Publisher, r broker.Receiver, id string) (bool, error) {
	look := func(within time.Duration) (got string, err error) {
		ds, err := b.Receive(ctx, r, 1, within)
		if err != nil || len(ds) == 0 {
			return "", err
		}
		return ds[0].ID, b.MustAck(ctx, r, &ds[0])
	}
	got, err := look(b.Target.patience())
	if err != nil || got == id {
		return got == id, err
	}
	last := b.Message()
	if _, err := b.MustPublish(ctx, p, last); err != nil {
		return false, fmt.Errorf("nothing came, and the witness can't be sent: %w", err)
	}
	for got != last.ID {
		d, err := b.MustReceive(ctx, r)
		if err != nil {
			return false, fmt.Errorf("nothing came, nor does the witness: %w", err)
		}
		if err := b.MustAck(ctx, r, &d); err != nil {
			return false, err
		}
		if got = d.ID; got == id {
			return true, nil // the witness is left to the clean-up
		}
	}
	got, err = look(b.Target.patience())
	return got == id, err
}
