package conformance

import (
	"context"
	"strings"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// swallowPublishErrors says Stored of a publish that it heard nothing of.
func swallowPublishErrors(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	next.Publish(ctx, ms, rs)
	for i := range rs {
		if rs[i].Verdict == broker.Unknown {
			rs[i] = broker.Receipt{Verdict: broker.Stored}
		}
	}
}

// changing publishes changed messages.
func changing(change func(m *broker.Message)) func(context.Context, driver.Publisher, []broker.Message, []broker.Receipt) {
	return func(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
		own := make([]broker.Message, len(ms))
		copy(own, ms)
		for i := range own {
			change(&own[i])
		}
		next.Publish(ctx, own, rs)
	}
}

// cutID fits the ID to a field of 128 bytes.
func cutID(m *broker.Message) { m.ID = m.ID[:min(len(m.ID), 128)] }

// foldID makes the ID plain: without spaces around it, in lower case and valid.
func foldID(m *broker.Message) {
	m.ID = strings.ToValidUTF8(strings.ToLower(strings.TrimSpace(m.ID)), "\ufffd")
}

// headerAsID takes a header of the user's for the dedup field.
func headerAsID(m *broker.Message) {
	if id := m.Headers.Get("Nats-Msg-Id"); id != "" {
		m.ID = id
	}
}

// loseHeaders forgets the headers.
func loseHeaders(m *broker.Message) { m.Headers = nil }
