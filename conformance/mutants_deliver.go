package conformance

import (
	"context"
	"strings"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// bodyAsText takes a body for UTF-8, as an adapter does that sends JSON.
func bodyAsText(m *broker.Message) { m.Body = []byte(strings.ToValidUTF8(string(m.Body), "\uFFFD")) }

// dropRepeats keeps one header of a name, as an adapter does that has a map.
func dropRepeats(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
	err := next.Receive(ctx, max, out)
	for i := range out.Len() {
		d := out.At(i)
		seen := map[string]bool{}
		var kept broker.Headers
		for _, h := range d.Headers {
			if !seen[h.Key] {
				kept = append(kept, h)
			}
			seen[h.Key] = true
		}
		d.Headers = kept
	}
	return err
}

// fetchAhead asks for more than is wanted and lets the rest age.
func fetchAhead(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
	err := next.Receive(ctx, max+4, out)
	out.Keep(max)
	return err
}

// dropReasons dead-letters without saying why.
func dropReasons(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		ops[i].Settlement.Reason = ""
	}
	next.Settle(ctx, ops)
}

// ackDeadLetters takes a message that is to be dead-lettered for done.
func ackDeadLetters(ctx context.Context, next driver.Receiver, ops []driver.Op) {
	for i := range ops {
		if ops[i].Settlement.Action == broker.DeadLetter {
			ops[i].Settlement.Action = broker.Ack
		}
	}
	next.Settle(ctx, ops)
}

// leak closes nothing, and gives nothing back.
func leak(context.Context, driver.Receiver) error { return nil }
