package conformance

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/boundary"
)

// probeBody. Anomaly: a body that isn't text, or is empty, comes out as another one; a
// header that repeats comes once; the key is gone where nobody asked for order.
// Experiment: publish what a broker's own fields find hard to hold, on a subscription
// without wishes, and hold each delivery against what went in.
func probeBody(ctx context.Context, b *Bench) error {
	e, err := b.ends(ctx, nil)
	if err != nil {
		return err
	}
	all := make([]byte, 0, 512)
	for i := range 512 {
		all = append(all, byte(i))
	}
	random := make([]byte, 64<<10)
	for i := range random {
		random[i] = byte(b.Rand.Uint32())
	}
	ms := b.Messages(5)
	ms[0].Body = nil
	ms[1].Body, ms[1].Key = all, "a key, not ASCII: é"
	ms[1].Headers = broker.Headers{{Key: "name", Value: "first"}, {Key: "other", Value: "between"}, {Key: "name", Value: "second"}, {Key: "name", Value: "first"},
		{Key: "Name", Value: "in another case"}, {Key: "empty"}, {Key: "binary", Value: "\x00\xff\r\n=&%"}, {Key: "text", Value: " é  "}}
	ms[2].Body, ms[2].Copy = []byte("\xff\xfe \r\n\t "), "copy"
	ms[3].Body = random
	ms[4].Body, ms[4].Headers = []byte{}, broker.Headers{{Key: "empty"}}
	now := time.Now().Truncate(time.Millisecond)
	sent := map[string]*broker.Message{}
	for i := range ms {
		ms[i].Time = now
		sent[ms[i].ID] = &ms[i]
	}
	if _, err := b.MustPublish(ctx, e.pub, ms...); err != nil {
		return err
	}
	for len(sent) > 0 {
		d, err := b.MustReceive(ctx, e.rcv)
		if err != nil {
			return err
		}
		m := sent[d.ID]
		if m == nil {
			b.Answer(boundary.DeliverBody, boundary.Changed, "a message came with the ID %q, which was never published", d.ID)
			return nil
		}
		if why := difference(m, &d.Message); why != "" {
			answer := boundary.Changed
			if d.Key == "" && m.Key != "" || len(d.Body) == 0 && len(m.Body) > 0 || len(d.Headers) < len(m.Headers) {
				answer = boundary.Lost
			}
			b.Answer(boundary.DeliverBody, answer, "%q came out otherwise: %s", d.ID, why)
			return nil
		}
		if !d.Time.Equal(now) {
			b.Answer(boundary.DeliverBody, boundary.Changed, "%q came with the time %s instead of %s", d.ID, d.Time, now)
			return nil
		}
		if err := b.MustAck(ctx, e.rcv, &d); err != nil {
			return err
		}
		delete(sent, d.ID)
	}
	b.Answer(boundary.DeliverBody, boundary.Exact, "%s came out as they went in: ID, copy, key, time, body and headers", amount(len(ms), "message", "messages"))
	return nil
}

// difference says in what a message came out otherwise, its time aside; "" in nothing.
func difference(in, out *broker.Message) string {
	switch {
	case in.ID != out.ID:
		return fmt.Sprintf("ID %q instead of %q", out.ID, in.ID)
	case in.Copy != out.Copy:
		return fmt.Sprintf("copy %q instead of %q", out.Copy, in.Copy)
	case in.Key != out.Key:
		return fmt.Sprintf("key %q instead of %q", out.Key, in.Key)
	case !bytes.Equal(in.Body, out.Body):
		return fmt.Sprintf("a body of %d bytes instead of %d, or with others", len(out.Body), len(in.Body))
	case !slices.Equal(in.Headers, out.Headers):
		return fmt.Sprintf("headers %q instead of %q", out.Headers, in.Headers)
	}
	return ""
}
