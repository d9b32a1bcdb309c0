package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// sendLetters publishes the dead-letter copies of recs, whose ops say why, and
// returns an error for each that surely or possibly didn't get there. A copy
// whose answer is lost is joined when the caller tries again, so that one
// receiver adds one copy; after a crash a second one can come, with the same
// ID (case dapr/components-contrib 4362).
func (c *conn) sendLetters(ctx context.Context, w wishes, subscription string, ops []*driver.Op, recs []*kgo.Record, attempts []int) []error {
	errs := make([]error, len(recs))
	fail := func(err error) []error {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	if w.deadLetter == "" {
		return fail(broker.Errorf(broker.ErrUnsupported, nil, "dead-letter from %s: it has no dead-letter topic", subscription))
	}
	p, err := c.letterBox(ctx, w.deadLetter)
	if err != nil {
		return fail(err)
	}
	msgs := make([]broker.Message, len(recs))
	for i, rec := range recs {
		reason := "delivered too often"
		if ops[i] != nil && ops[i].Settlement.Action == broker.DeadLetter {
			reason = ops[i].Settlement.Reason
		}
		msgs[i] = letter(rec, reason, subscription, attempts[i])
	}
	receipts := make([]broker.Receipt, len(msgs))
	p.Publish(ctx, msgs, receipts)
	for i := range receipts {
		errs[i] = receipts[i].Err
	}
	return errs
}

// letterBox is the connection's publisher to a dead-letter topic.
func (c *conn) letterBox(ctx context.Context, topic string) (*publisher, error) {
	c.mu.Lock()
	p := c.letters[topic]
	c.mu.Unlock()
	if p != nil {
		return p, nil
	}
	body, err := c.lookUp(ctx, topic)
	if err != nil {
		return nil, err
	}
	p, err = c.newPublisher(topic, body, false)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.letters[topic]; other != nil {
		return other, nil
	}
	c.letters[topic] = p
	return p, nil
}

// recordsOf returns the records of acquired deliveries and their counts.
func recordsOf(ops []*driver.Op) ([]*kgo.Record, []int) {
	recs, counts := make([]*kgo.Record, len(ops)), make([]int, len(ops))
	for i, op := range ops {
		a := op.Token.Ref.(*acquired)
		recs[i], counts[i] = a.rec, a.count
	}
	return recs, counts
}
