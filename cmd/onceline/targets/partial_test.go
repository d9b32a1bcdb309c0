package targets_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
	"github.com/onceline/onceline/conformance"
)

// TestPartialRouteIsTold: what becomes of a message that one of two subscriptions
// doesn't get is told apart, and one that is full by name alone shows nothing.
func TestPartialRouteIsTold(t *testing.T) {
	t.Parallel()
	// other subscribes elsewhere, so that nothing of the topic comes.
	other := func(ctx context.Context, c broker.Conn, e broker.Entity) (string, error) {
		o := broker.Entity{Topic: e.Topic + "-other", Subscription: e.Topic + "-other/more"}
		return o.Subscription, c.Ensure(ctx, o)
	}
	for _, c := range []struct {
		name string
		full func(context.Context, broker.Conn, broker.Entity) (string, error)
		said func([]broker.Receipt) // what the receipts are turned into
		take bool                   // whether the broker takes it
		want boundary.Answer
		why  string
	}{
		{"left out in silence", other, nil, true, boundary.LeftOut, "Stored"},
		{"stored nowhere in silence", other, says(broker.Stored), false, boundary.Lost, "Stored"},
		{"refused and yet there", other, says(broker.Refused), true, boundary.ClaimedRefused, "other has it once"},
		{"refused for all", other, says(broker.Refused), false, boundary.AllOrNone, "not at all"},
		{"unknown and there", other, says(broker.Unknown), true, boundary.UnknownStored, "other has it once"},
		{"unknown and nowhere", other, says(broker.Unknown), false, boundary.UnknownNowhere, "not at all"},
		{"it has room", func(ctx context.Context, c broker.Conn, e broker.Entity) (string, error) {
			e.Subscription += "-more"
			return e.Subscription, c.Ensure(ctx, e)
		}, nil, true, "", "was to be full took"},
		{"it can't be made", func(context.Context, broker.Conn, broker.Entity) (string, error) {
			return "", errors.New("no rights")
		}, nil, true, "", "no rights"},
		{"none can refuse", func(context.Context, broker.Conn, broker.Entity) (string, error) {
			return "", broker.Errorf(broker.ErrUnsupported, nil, "one log")
		}, nil, true, "", "one log"},
		{"nobody can make one", nil, nil, true, "", "no way to make"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			target := hooked(func(i *conformance.Instance) {
				i.FullSubscription = c.full
				if c.said != nil {
					open := i.Open
					i.Open = func(ctx context.Context) (broker.Conn, error) {
						conn, err := open(ctx)
						return saying{conn, c.said, c.take}, err
					}
				}
			})
			got, why := observed(t, target, boundary.PublishPartialRoute)
			if got != string(c.want) || !strings.Contains(why, c.why) {
				t.Errorf("%q: %s; want %q with %q", got, why, c.want, c.why)
			}
		})
	}
}

// says turns receipts into one verdict.
func says(v broker.Verdict) func([]broker.Receipt) {
	return func(rs []broker.Receipt) {
		for i := range rs {
			rs[i] = broker.Receipt{Verdict: v}
			if !v.OK() {
				rs[i].Err = broker.Errorf(broker.ErrBusy, nil, "one is full")
			}
		}
	}
}

// saying is a connection whose publishers say what they are told to.
type saying struct {
	broker.Conn
	said func([]broker.Receipt)
	take bool
}

func (s saying) OpenPublisher(ctx context.Context, topic string, o ...broker.PublisherOption) (broker.Publisher, error) {
	p, err := s.Conn.OpenPublisher(ctx, topic, o...)
	return &sayingPublisher{p, s.said, s.take}, err
}

type sayingPublisher struct {
	broker.Publisher
	said func([]broker.Receipt)
	take bool
}

func (p *sayingPublisher) Publish(ctx context.Context, ms ...broker.Message) ([]broker.Receipt, error) {
	rs := make([]broker.Receipt, len(ms))
	if p.take {
		var err error
		if rs, err = p.Publisher.Publish(ctx, ms...); err != nil {
			return rs, err
		}
	}
	p.said(rs)
	return rs, rs[0].Err
}
