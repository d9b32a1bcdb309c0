package conformance

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/onceline/onceline/broker"
	"github.com/onceline/onceline/broker/driver"
)

// The mutants that publish wrongly, or say wrongly what became of a publish.

// newIDs gives each attempt an ID of its own.
func newIDs() func(context.Context, driver.Publisher, []broker.Message, []broker.Receipt) {
	var mu sync.Mutex
	n := 0
	return func(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
		mu.Lock()
		own := make([]broker.Message, len(ms))
		copy(own, ms)
		for i := range own {
			n++
			own[i].Copy = fmt.Sprintf("%s attempt %d", own[i].Copy, n)
		}
		mu.Unlock()
		next.Publish(ctx, own, rs)
	}
}

// hideDuplicates says Stored where the broker had the ID.
func hideDuplicates(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	next.Publish(ctx, ms, rs)
	for i := range rs {
		if rs[i].Verdict == broker.Duplicate {
			rs[i].Verdict = broker.Stored
		}
	}
}

// loseCopies takes what is published again on purpose for a retry.
func loseCopies(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	own := slices.Clone(ms)
	for i := range own {
		own[i].Copy = ""
	}
	next.Publish(ctx, own, rs)
}

// calledInstead takes one verdict for another.
func calledInstead(is, said broker.Verdict) func(context.Context, driver.Publisher, []broker.Message, []broker.Receipt) {
	return func(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
		next.Publish(ctx, ms, rs)
		for i := range rs {
			if rs[i].Verdict == is {
				rs[i].Verdict = said
				if said.OK() {
					rs[i].Err = nil
				}
			}
		}
	}
}

// backwards sends the last message of a batch first.
func backwards(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	own, answers := slices.Clone(ms), make([]broker.Receipt, len(ms))
	slices.Reverse(own)
	next.Publish(ctx, own, answers)
	slices.Reverse(answers)
	copy(rs, answers)
}

// longerWindow promises that IDs are remembered for three times as long.
func longerWindow(l broker.Limits) broker.Limits {
	l.Window *= 3
	return l
}

// smearRefusal refuses all of a batch of which one is refused.
func smearRefusal(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	next.Publish(ctx, ms, rs)
	for i := range rs {
		if rs[i].Verdict == broker.Refused {
			for j := range rs {
				rs[j] = broker.Receipt{Verdict: broker.Refused, Err: rs[i].Err}
			}
			return
		}
	}
}

// believeStatus takes a batch whose request was answered for stored, and doesn't look
// into the answer's list of what failed.
func believeStatus(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	next.Publish(ctx, ms, rs)
	if !slices.ContainsFunc(rs, func(r broker.Receipt) bool { return r.Verdict.OK() }) {
		return
	}
	for i := range rs {
		if rs[i].Verdict == broker.Refused {
			rs[i] = broker.Receipt{Verdict: broker.Stored}
		}
	}
}

// publishUnseen says Stored as soon as it has sent.
func publishUnseen(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	own := slices.Clone(ms)
	for i := range own {
		own[i].Body = slices.Clone(own[i].Body)
		rs[i].Verdict = broker.Stored
	}
	go next.Publish(context.WithoutCancel(ctx), own, make([]broker.Receipt, len(own)))
}

// sameErrors calls every refusal by one name.
func sameErrors(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
	next.Publish(ctx, ms, rs)
	for i := range rs {
		if rs[i].Verdict == broker.Refused {
			rs[i].Err = broker.Errorf(broker.ErrRefused, nil, "publish %q failed", ms[i].ID)
		}
	}
}

// emptyAsNull sends what a JSON encoder makes of no body.
func emptyAsNull(m *broker.Message) {
	if len(m.Body) == 0 {
		m.Body = []byte("null")
	}
}

// keyInID makes another ID of the same one with another key.
func keyInID(m *broker.Message) { m.Copy += m.Key }

// idsOfSession makes IDs that hold for one publisher alone, as sequence numbers do.
func idsOfSession() func(context.Context, driver.Publisher, []broker.Message, []broker.Receipt) {
	var mu sync.Mutex
	sessions := map[driver.Publisher]int{}
	return func(ctx context.Context, next driver.Publisher, ms []broker.Message, rs []broker.Receipt) {
		mu.Lock()
		session, known := sessions[next]
		if !known {
			session = len(sessions)
			sessions[next] = session
		}
		mu.Unlock()
		changing(func(m *broker.Message) { m.Copy += fmt.Sprintf(" session %d", session) })(ctx, next, ms, rs)
	}
}

// idFromBody dedups by the body's hash, and carries the ID in a header.
func idFromBody() mutation {
	const carrier = "message-id"
	return mutation{
		publish: changing(func(m *broker.Message) {
			m.Headers = append(slices.Clone(m.Headers), broker.Header{Key: carrier, Value: m.ID})
			m.ID = fmt.Sprintf("%x", sha256.Sum256(m.Body))
		}),
		receive: func(ctx context.Context, next driver.Receiver, max int, out *driver.Batch) error {
			err := next.Receive(ctx, max, out)
			for i := range out.Len() {
				d := out.At(i)
				if last := len(d.Headers) - 1; last >= 0 && d.Headers[last].Key == carrier {
					d.ID, d.Headers = d.Headers[last].Value, d.Headers[:last]
				}
			}
			return err
		},
	}
}

// makeTopics makes a topic for whoever publishes to one that isn't there.
func makeTopics(ctx context.Context, next driver.Conn, topic string, o broker.PublisherOptions) (driver.Publisher, error) {
	if err := next.Ensure(ctx, broker.Entity{Topic: topic}); err != nil {
		return nil, err
	}
	return next.OpenPublisher(ctx, topic, o)
}

// hideErrors takes whatever keeps a publisher from opening for a broker that is down.
func hideErrors(ctx context.Context, next driver.Conn, topic string, o broker.PublisherOptions) (driver.Publisher, error) {
	p, err := next.OpenPublisher(ctx, topic, o)
	if err != nil {
		return nil, broker.Errorf(broker.ErrUnavailable, nil, "open a publisher for %s: %v", topic, err)
	}
	return p, nil
}

// noLimits tells no limit of the body's size.
func noLimits(l broker.Limits) broker.Limits {
	l.Body = 0
	return l
}
